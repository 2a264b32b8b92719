//! A client as CLIENT LIST and CLIENT INFO show it: one line of `field=value`.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use commands::registry::Registry;

use crate::client::Client;
use crate::client_memory::BASE_BYTES;
use crate::hub::Hub;

/// What only the client's own thread knows, while its command runs.
pub struct Running {
    /// The client.
    pub id: u64,
    /// The running command's full name.
    pub command: String,
    /// Bytes of its words.
    pub words_bytes: usize,
    /// Bytes of the command as it came in.
    pub input_bytes: usize,
}

/// The letters of `flags=`.
fn flags(client: &Client) -> String {
    let kind = client.kind();
    let all = [
        ('O', client.monitor.load(Relaxed)),
        ('P', kind == "pubsub"),
        ('x', client.multi.load(Relaxed) >= 0),
        ('b', client.blocked.load(Relaxed)),
        ('d', client.is_dirty()),
        ('c', client.closes.load(Relaxed)),
        ('U', client.is_unix),
        ('e', client.no_evict.load(Relaxed)),
        ('T', client.no_touch.load(Relaxed)),
    ];
    let letters: String = all.iter().filter(|(_, is)| *is).map(|(letter, _)| letter).collect();
    if letters.is_empty() { "N".into() } else { letters }
}

fn last_command(client: &Client, registry: &Registry) -> String {
    let index = client.last_command.load(Relaxed) as usize;
    let entry = registry.entries().get(index);
    entry.map_or_else(|| "NULL".into(), |entry| entry.full_name.clone())
}

/// A client's line, without its end.
pub fn line(hub: &Hub, client: &Client, running: &Running) -> String {
    let own = client.id == running.id;
    let names = client.names();
    let seconds = |since_ms: i64| (hub.now_ms - since_ms).max(0) / 1000;
    let output = client.output_bytes.load(Relaxed);
    let multi_bytes = client.multi_bytes.load(Relaxed);
    // Kept up to date ten times a second, with the queue of MULTI in it.
    let kept = client.input_bytes.load(Relaxed).saturating_sub(multi_bytes);
    let input = if own { running.input_bytes as u64 } else { kept };
    let free = if own { crate::worker::READ_BYTES as u64 - input.min(65536) } else { 0 };
    let words = if own { running.words_bytes as u64 } else { 0 };
    let total = BASE_BYTES + input + free + words + multi_bytes + output;
    let command =
        if own { running.command.clone() } else { last_command(client, &hub.shared.core.registry) };
    let mut line = String::with_capacity(400);
    let mut add = |name: &str, value: &dyn std::fmt::Display| {
        let space = if line.is_empty() { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = write!(line, "{space}{name}={value}");
    };
    add("id", &client.id);
    add("addr", &client.addr);
    add("laddr", &client.laddr);
    add("fd", &client.fd);
    add("name", &names.name);
    add("age", &seconds(client.created_ms));
    add("idle", &seconds(client.last_ms.load(Relaxed)));
    add("flags", &flags(client));
    add("db", &client.db.load(Relaxed));
    add("sub", &client.channels.load(Relaxed));
    add("psub", &client.patterns.load(Relaxed));
    add("ssub", &client.shard_channels.load(Relaxed));
    add("multi", &client.multi.load(Relaxed));
    add("watch", &client.watched.load(Relaxed));
    add("qbuf", &input);
    add("qbuf-free", &free);
    add("argv-mem", &words);
    add("multi-mem", &multi_bytes);
    // Replies are written into a buffer of the thread; what could not be sent is a list.
    add("rbs", &0);
    add("rbp", &0);
    add("obl", &0);
    add("oll", &output.div_ceil(64 * 1024));
    add("omem", &output);
    add("tot-mem", &total);
    add("events", if output > 0 { &"rw" } else { &"r" });
    add("cmd", &command);
    add("user", &names.user);
    add("redir", &-1);
    add("resp", if client.resp3.load(Relaxed) { &3 } else { &2 });
    add("lib-name", &names.lib_name);
    add("lib-ver", &names.lib_ver);
    line
}
