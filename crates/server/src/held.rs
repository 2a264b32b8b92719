//! Replies that wait until what they tell of is safe (`appendfsync always`), and clients that wait
//! for the same in WAITAOF.
//!
//! A reply is held with the log's position at the time it was written: everything that its command
//! can have seen lies before that. Other connections are served meanwhile, and what they write goes
//! into the next sync.
//!
//! **Invariant:** a connection's replies leave in order; once one is held, those behind it are.

use std::collections::VecDeque;

use crate::connection::Connection;
use crate::worker::{Worker, turn};

/// Connections held since the log was last told to go to work.
const KICK: usize = 16;

/// Connections of one event loop with held replies, and clients in WAITAOF.
#[derive(Default)]
pub struct Held {
    /// The log's position with the client's id, growing.
    replies: VecDeque<(u64, u64)>,
    /// Held since the log was last told.
    fresh: usize,
    /// Clients that wait in WAITAOF.
    wishes: Vec<u64>,
}

impl Worker {
    /// Keeps what has been written for a connection until the log is safe up to `position`.
    pub(crate) fn hold_reply(&mut self, connection: &mut Connection, position: u64) {
        connection.hold(position, &self.out);
        self.out.clear();
        self.held.replies.push_back((position, connection.session.id));
        self.held.fresh += 1;
        if self.held.fresh >= KICK {
            self.held.fresh = 0;
            self.hub.shared.aof.log.wake();
        }
    }

    /// Up to where the reply just written must be held.
    pub(crate) fn hold_position(&mut self, connection: &Connection) -> Option<u64> {
        let touched = std::mem::take(&mut self.hub.touched);
        let is_behind = connection.is_holding();
        if !touched && !is_behind {
            return None;
        }
        let aof = &self.hub.shared.aof;
        let position = aof.hold_position();
        if is_behind { Some(position.unwrap_or_else(|| aof.log.durable())) } else { position }
    }

    /// Sends the held replies that may go.
    pub(crate) fn release(&mut self) {
        if self.held.replies.is_empty() && self.held.wishes.is_empty() {
            return;
        }
        let durable = self.hub.shared.aof.log.durable();
        while let Some((position, id)) = self.held.replies.front().copied() {
            if position > durable {
                break;
            }
            self.held.replies.pop_front();
            let Some(index) = self.by_id.get(&id).copied() else { continue };
            let Some(mut connection) = self.connections[index].take() else { continue };
            connection.release(durable);
            let open =
                connection.send_rest().is_ok() && self.check_output_limits(&mut connection).is_ok();
            self.put_back(index, connection, open);
        }
        if !self.held.wishes.is_empty() {
            self.grant_wishes(durable);
        }
    }

    /// Before the event loop sleeps: tells the log to go on, and asks to be woken. Whether
    /// something can be released already.
    pub(crate) fn before_sleep(&mut self) -> bool {
        let aof = &self.hub.shared.aof;
        aof.log.end_turn();
        self.held.fresh = 0;
        let first = self.held.replies.front().map(|(position, _)| *position);
        if first.is_none() && self.held.wishes.is_empty() {
            return false;
        }
        aof.wait_for_durable(self.hub.thread);
        first.is_some_and(|position| position <= aof.log.durable())
    }

    /// Notes that a client waits in WAITAOF.
    pub(crate) fn note_wish(&mut self, connection: &Connection) {
        if connection.peer.wish.is_some() {
            self.held.wishes.push(connection.session.id);
        }
    }

    fn grant_wishes(&mut self, durable: u64) {
        for id in std::mem::take(&mut self.held.wishes) {
            let wish = self.by_id.get(&id).and_then(|index| {
                self.connections[*index].as_ref().and_then(|connection| connection.peer.wish)
            });
            let Some(wish) = wish else { continue };
            if !wish.is_reached(durable) {
                self.held.wishes.push(id);
                continue;
            }
            self.with_client(id, |worker, connection| {
                let shared = std::sync::Arc::clone(&worker.hub.shared);
                let mut turn = turn(&shared.core, &mut worker.hub, &mut worker.random);
                if turn.end_wait(&mut connection.session).is_none() {
                    return;
                }
                worker.end_block(connection);
                worker.answer_wish(connection);
                worker.resume(connection);
            });
        }
    }

    /// Answers WAITAOF, at its end or at its timeout; false if the client waits for something else.
    pub(crate) fn answer_wish(&mut self, connection: &mut Connection) -> bool {
        let Some(wish) = connection.peer.wish.take() else { return false };
        let aof = &self.hub.shared.aof;
        self.out.set_resp3(connection.session.resp3);
        if !connection.is_mute() {
            wish.write(&mut self.out, aof.log.durable(), aof.is_on());
        }
        true
    }
}
