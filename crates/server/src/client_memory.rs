//! What clients' buffers take in memory, and `maxmemory-clients`: when it is too much in all, the
//! clients with the most are closed, those of CLIENT NO-EVICT left out.
//!
//! **Invariant:** a thread's sum is that of its clients' own numbers. Those are taken ten times a
//! second, and, where the option is set, each time that a connection was served.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use keyspace::keyspace::add;

use crate::client::Client;
use crate::connection::{Connection, Peer};
use crate::message::Message;
use crate::options::index_of;
use crate::shared::Shared;
use crate::worker::Worker;

/// Bytes that a connection takes without any buffers.
pub const BASE_BYTES: u64 =
    (size_of::<Connection>() + size_of::<Peer>() + size_of::<Client>()) as u64;
/// Bytes of a watched key or a channel beside its name: the entry in a table, and in the server's.
const NAME_BYTES: usize = 64;

/// What a connection takes, in bytes.
fn bytes_of(connection: &Connection) -> u64 {
    let named = |bytes: usize| bytes + NAME_BYTES;
    let watched = connection.session.watched.iter().map(|(_, key)| named(key.len()));
    let Peer { channels, patterns, shard_channels, .. } = &*connection.peer;
    let heard = [channels, patterns, shard_channels].into_iter().flatten();
    let names: usize = watched.chain(heard.map(|name| named(name.len()))).sum();
    BASE_BYTES + (connection.input_bytes() + connection.unsent_bytes() + names) as u64
}

/// What all clients may take, in bytes; none if there is no limit.
fn limit(shared: &Shared) -> Option<u64> {
    match shared.options.number(const { index_of("maxmemory-clients") }) {
        0 => None,
        bytes @ 1.. => Some(bytes as u64),
        percent => {
            let max = shared.core.space.settings.maxmemory.load(Relaxed);
            (max > 0).then(|| max / 100 * percent.unsigned_abs())
        }
    }
}

impl Worker {
    /// Takes a connection's number anew, if a limit asks for it after each turn.
    #[inline]
    pub(crate) fn watch_memory(&self, connection: &Connection) {
        if self.hub.shared.options.number(const { index_of("maxmemory-clients") }) != 0 {
            self.count_memory(&connection.peer.client, bytes_of(connection));
        }
    }

    /// Takes a connection's number anew.
    pub(crate) fn measure_memory(&self, connection: &Connection) {
        self.count_memory(&connection.peer.client, bytes_of(connection));
    }

    /// Sets a client's number; 0 when it goes.
    pub(crate) fn count_memory(&self, client: &Client, bytes: u64) {
        let before = client.memory.swap(bytes, Relaxed);
        add(&self.hub.counts().clients_memory, bytes.wrapping_sub(before));
    }

    /// Closes the clients with the most if all take too much.
    pub(crate) fn evict_clients(&mut self) {
        let shared = Arc::clone(&self.hub.shared);
        let Some(limit) = limit(&shared) else { return };
        if shared.total(|counts| counts.clients_memory.load(Relaxed)) <= limit {
            return;
        }
        let mut all = shared.all_clients();
        all.retain(|client| !client.killed.load(Relaxed));
        let mut total: u64 = all.iter().map(|client| client.memory.load(Relaxed)).sum();
        all.retain(|client| !client.no_evict.load(Relaxed) && !client.monitor.load(Relaxed));
        all.sort_by_key(|client| std::cmp::Reverse(client.memory.load(Relaxed)));
        for client in all {
            if total <= limit {
                return;
            }
            let bytes = client.memory.load(Relaxed);
            total = total.saturating_sub(bytes);
            if !client.killed.swap(true, Relaxed) {
                add(&self.hub.counts().evicted_clients, 1);
                let (id, addr) = (client.id, &client.addr);
                tracing::info!("Evicting client: id={id} addr={addr} tot-mem={bytes}");
                shared.send(client.thread, Message::Kill(id));
            }
        }
    }
}
