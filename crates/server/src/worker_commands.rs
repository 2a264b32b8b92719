//! Running the commands of a worker's connections: many at once where nothing forbids it, else one
//! by one; holding them back, and waiting.
//!
//! **Invariant:** a connection's commands run in the order they came, and none while an earlier one
//! waits: those behind it are in the connection's `queue`.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use commands::command::{MAY_REPLICATE, NO_AUTH, WRITE};
use resp::{Args, Requests};

use crate::connection::{Connection, Peer, Replies};
use crate::worker::{FLUSH_BYTES, Worker};

/// Why a connection's commands stop being run.
#[derive(PartialEq, Eq)]
pub(crate) enum Ran {
    /// All that arrived has been run.
    All,
    /// The client is blocked or held back: the rest waits.
    Waits,
}

impl Worker {
    /// Runs parsed commands in order; those behind one that blocks are queued.
    pub(crate) fn run_requests(
        &mut self,
        connection: &mut Connection,
        requests: &Requests,
        input: &[u8],
    ) -> Ran {
        self.hub.set_in_pipeline(requests.len() > 1);
        let ran = self.run_in_order(connection, requests, input);
        self.hub.set_in_pipeline(false);
        ran
    }

    fn run_in_order(
        &mut self,
        connection: &mut Connection,
        requests: &Requests,
        input: &[u8],
    ) -> Ran {
        let mut index = 0;
        while index < requests.len() {
            if connection.peer.closes {
                return Ran::All;
            }
            if self.takes_one(connection) {
                if !self.run_one(connection, requests.command(index, input)) {
                    self.queue_rest(connection, requests, input, index);
                    return Ran::Waits;
                }
                index += 1;
            } else {
                self.lend(connection);
                let session = &mut connection.session;
                index +=
                    self.take_turn(|turn, out| turn.run_some(session, out, requests, input, index));
                self.take_back(connection);
            }
            if connection.session.blocked.is_some() {
                self.note_blocked(connection);
                self.queue_rest(connection, requests, input, index);
                return Ran::Waits;
            }
            self.flush_much(connection);
        }
        Ran::All
    }

    /// Sends what has been written if it is much.
    fn flush_much(&mut self, connection: &mut Connection) {
        if self.out.len() >= FLUSH_BYTES && self.finish_output(connection).is_err() {
            connection.is_broken = true;
            connection.peer.closes = true;
        }
    }

    fn queue_rest(
        &mut self,
        connection: &mut Connection,
        requests: &Requests,
        input: &[u8],
        from: usize,
    ) {
        let rest = (from..requests.len()).map(|index| requests.command(index, input).to_owned());
        connection.queue.extend(rest);
    }

    /// Whether this connection's commands must be run one by one, with a look after each.
    fn takes_one(&self, connection: &Connection) -> bool {
        connection.peer.replies != Replies::On
            || self.hub.shared.pause.until_ms.load(Ordering::Relaxed) != 0
    }

    /// Whether CLIENT PAUSE holds this command back.
    fn is_held_back(&self, connection: &Connection, args: Args<'_>) -> bool {
        let pause = &self.hub.shared.pause;
        if pause.until_ms.load(Ordering::Relaxed) <= self.hub.now_ms {
            return false;
        }
        let Ok(entry) = self.hub.shared.core.registry.find(args) else { return false };
        // Redis holds this one back as well, and nobody can end the pause then.
        let ends_it = entry.full_name == "client|unpause";
        if ends_it || !(connection.peer.is_authenticated || entry.command.flags.has(NO_AUTH)) {
            return false;
        }
        if pause.all.load(Ordering::Relaxed) {
            return true;
        }
        let registry = &self.hub.shared.core.registry;
        let writes = |index: usize| {
            let flags = registry.entries()[index].command.flags;
            flags.has(WRITE) || flags.has(MAY_REPLICATE)
        };
        let multi = connection.session.multi.as_ref();
        match entry.command.name {
            "EXEC" => {
                multi.is_some_and(|multi| multi.queue.iter().any(|(index, _)| writes(*index)))
            }
            _ => writes(entry.index),
        }
    }

    /// Runs one command, with the rules of CLIENT REPLY and CLIENT PAUSE; false if it is held back.
    fn run_one(&mut self, connection: &mut Connection, args: Args<'_>) -> bool {
        if self.is_held_back(connection, args) {
            self.hold(connection);
            return false;
        }
        let mark = self.out.bytes().len();
        let before = connection.peer.replies;
        connection.peer.mutes = before != Replies::On;
        if before == Replies::Skip {
            connection.peer.replies = Replies::On;
        }
        self.lend(connection);
        self.take_turn(|turn, out| turn.run(&mut connection.session, out, args));
        let mutes = std::mem::take(&mut self.hub.peer().mutes);
        if mutes {
            self.out.truncate(mark);
        }
        connection.skips_wait = mutes && connection.session.blocked.is_some();
        self.take_back(connection);
        true
    }

    /// Makes a client wait for the end of CLIENT PAUSE.
    fn hold(&mut self, connection: &mut Connection) {
        self.paused.push(connection.session.id);
        if !std::mem::replace(&mut connection.is_held, true) {
            connection.peer.client.blocked.store(true, Ordering::Relaxed);
            self.hub.counts().blocked.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn end_hold(&mut self, connection: &mut Connection) {
        if std::mem::replace(&mut connection.is_held, false) {
            connection.peer.client.blocked.store(false, Ordering::Relaxed);
            self.hub.counts().blocked.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Gives the connection's part to the hub while its commands run.
    fn lend(&mut self, connection: &mut Connection) {
        let spare = self.spare.take().unwrap_or_else(|| Box::new(Peer::new(Arc::default(), false)));
        self.hub.peer = Some(std::mem::replace(&mut connection.peer, spare));
        self.out.set_resp3(connection.session.resp3);
    }

    fn take_back(&mut self, connection: &mut Connection) {
        self.hub.write_own(&connection.session, &mut self.out);
        let peer = self.hub.peer.take().expect("lent before");
        self.spare = Some(std::mem::replace(&mut connection.peer, peer));
        connection.peer.client.note(&connection.session);
    }

    fn note_blocked(&mut self, connection: &Connection) {
        let Some(blocked) = &connection.session.blocked else { return };
        connection.peer.client.wait(Some(Arc::clone(&blocked.waiter)));
        self.note_wish(connection);
        self.hub.counts().blocked.fetch_add(1, Ordering::Relaxed);
        if let Some(deadline) = blocked.block.deadline_ms {
            self.tidy_deadlines();
            self.deadlines.push(Reverse((deadline, connection.session.id)));
        }
    }

    /// Forgets the deadlines of waits that have ended, when there are many: a wait that is served
    /// leaves its deadline behind, which may be far away.
    fn tidy_deadlines(&mut self) {
        if self.deadlines.len() < 1024.max(4 * self.by_id.len()) {
            return;
        }
        let open = self.connections.iter().flatten().filter_map(|connection| {
            let deadline = connection.session.blocked.as_ref()?.block.deadline_ms?;
            Some(Reverse((deadline, connection.session.id)))
        });
        self.deadlines = open.collect();
    }

    /// Goes on with a connection whose wait is over: first what is queued, then what is kept.
    pub(crate) fn resume(&mut self, connection: &mut Connection) {
        if connection.session.blocked.is_some() {
            return;
        }
        while let Some(args) = connection.queue.pop_front() {
            if connection.peer.closes {
                return;
            }
            if !self.run_one(connection, args.args()) {
                return connection.queue.push_front(args);
            }
            if connection.session.blocked.is_some() {
                return self.note_blocked(connection);
            }
            self.flush_much(connection);
        }
        match connection.error.take() {
            Some(error) => self.refuse_input(connection, error),
            None => self.run_kept(connection),
        }
    }
}
