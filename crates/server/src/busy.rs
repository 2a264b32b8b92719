//! Scripts that run for long: who is answered meanwhile, and how.
//!
//! ```text
//!   script ... tick ... tick (busy-reply-threshold is over) ... tick ...
//!                              |  this thread: accepts, reads, answers -BUSY, runs SCRIPT KILL
//!                              |  others: answer -BUSY, stop waiting for the script's locks
//! ```
//!
//! **Invariant:** what runs in the middle of a script takes no locks of shards: this thread may
//! hold them already. So it is commands with ALLOW_BUSY only, of clients that watch nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use commands::context::{Background, Deliver, Host, Script, Session, Tick, WriteRefusal};
use commands::engine::Turn;
use commands::error::Error;
use commands::registry::Entry;
use keyspace::effects::{Effects, Event};
use keyspace::keyspace::Keyspace;
use keyspace::random::Random;
use mio::{Events, Token};
use resp::{Args, Writer};

use crate::hub::Hub;
use crate::options::index_of;
use crate::worker::{LISTENERS, READ_BYTES, WAKER, Worker, now_ms};

/// Sockets that are looked at in one tick, at most.
const EVENTS_MAX: usize = 128;

/// How many scripts and functions run for long.
#[derive(Debug, Default)]
pub struct Busy {
    scripts: AtomicUsize,
    functions: AtomicUsize,
}

impl Busy {
    fn of(&self, is_eval: bool) -> &AtomicUsize {
        if is_eval { &self.scripts } else { &self.functions }
    }

    /// Whether any does.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.scripts.load(Ordering::Relaxed) + self.functions.load(Ordering::Relaxed) > 0
    }

    /// One more.
    pub fn begin(&self, space: &Keyspace, is_eval: bool) {
        self.of(is_eval).fetch_add(1, Ordering::Relaxed);
        space.begin_long_hold();
    }

    /// One less.
    pub fn end(&self, space: &Keyspace, is_eval: bool) {
        self.of(is_eval).fetch_sub(1, Ordering::Relaxed);
        space.end_long_hold();
    }

    /// What clients are told meanwhile.
    pub fn error(&self) -> Error {
        if self.functions.load(Ordering::Relaxed) > 0 {
            return Error::text(
                "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN \
                 NOSAVE.",
            );
        }
        const TEXT: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or \
                            SHUTDOWN NOSAVE.";
        Error::text(TEXT)
    }
}

impl Worker {
    /// Runs commands of a connection, with this worker as their host: what takes long among them
    /// can have others answered.
    pub(crate) fn take_turn<T>(&mut self, run: impl FnOnce(&mut Turn<'_>, &mut Writer) -> T) -> T {
        let shared = Arc::clone(&self.hub.shared);
        // Lent to the commands; answers in the middle of them are written elsewhere.
        let mut out = std::mem::take(&mut self.out);
        let mut random = Random::new(self.random.bits());
        let (thread, now_ms) = (self.hub.thread, self.hub.now_ms);
        let mut turn = Turn { core: &shared.core, thread, now_ms, random: &mut random, host: self };
        let result = run(&mut turn, &mut out);
        self.out = out;
        result
    }

    /// Answers others in the middle of a script; when that begins, also those whose turn it was to
    /// be after the script's client, of whom no event will tell any more.
    fn answer_others(&mut self, begins: bool) {
        let peer = self.hub.peer.take();
        let spare = self.spare.take();
        let was_nested = std::mem::replace(&mut self.is_nested, true);
        let out = std::mem::take(&mut self.out);
        let own = self.hub.take_own();
        let started = self.hub.started();
        if self.buffer.is_empty() {
            self.buffer = vec![0; READ_BYTES];
        }
        if begins {
            (0..self.connections.len()).for_each(|index| self.readable(index));
        }
        let mut events = Events::with_capacity(EVENTS_MAX);
        if self.poll.poll(&mut events, Some(Duration::ZERO)).is_ok() {
            for event in &events {
                match event.token() {
                    WAKER => {}
                    Token(token) if token >= LISTENERS => self.accept(token - LISTENERS),
                    Token(index) => self.answer(index, event.is_writable()),
                }
            }
        }
        self.read_mail();
        self.hub.peer = peer;
        self.spare = spare;
        self.is_nested = was_nested;
        self.out = out;
        self.hub.put_own(own, started);
    }

    fn answer(&mut self, index: usize, is_writable: bool) {
        if !matches!(self.connections.get(index), Some(Some(_))) {
            // The script's own client, or one that has gone: its event is not told again.
            return self.unfinished.push(index);
        }
        if is_writable {
            self.writable(index);
        }
        self.readable(index);
    }
}

impl Host for Worker {
    fn script_tick(&mut self, script: &Script) -> Tick {
        let now = now_ms();
        let ran_ms = now - script.started_ms;
        script.ran_ms.store(ran_ms, Ordering::Relaxed);
        let shared = Arc::clone(&self.hub.shared);
        let threshold = shared.options.number(const { index_of("busy-reply-threshold") });
        if threshold > 0 && ran_ms >= threshold {
            let begins = !script.is_busy.swap(true, Ordering::Relaxed);
            if begins {
                let kill = if script.is_eval { "SCRIPT KILL" } else { "FUNCTION KILL" };
                tracing::warn!(
                    "Slow script detected: still in execution after {ran_ms} milliseconds. You can \
                     try killing the script using the {kill} command. Script name is: {}.",
                    script.name
                );
                shared.busy.begin(&shared.core.space, script.is_eval);
            }
            let then = std::mem::replace(&mut self.hub.now_ms, now);
            self.answer_others(begins);
            self.hub.now_ms = then;
        }
        if shared.is_stopping.load(Ordering::Acquire) {
            return Tick::EndNow;
        }
        if script.must_end.load(Ordering::Relaxed) { Tick::End } else { Tick::GoOn }
    }

    fn admit(&mut self, session: &mut Session, entry: &Entry, args: Args<'_>) -> Result<(), Error> {
        self.hub.admit(session, entry, args)
    }

    fn admit_inside(
        &mut self,
        session: &mut Session,
        entry: &Entry,
        args: Args<'_>,
    ) -> Result<(), Error> {
        self.hub.admit_inside(session, entry, args)
    }

    fn reject(&mut self, entry: &Entry) {
        self.hub.reject(entry);
    }

    fn allows_batch(&mut self, session: &Session) -> bool {
        self.hub.allows_batch(session)
    }

    fn batch_ran(&mut self, session: &Session, entries: &[&Entry], failed: u64) {
        self.hub.batch_ran(session, entries, failed);
    }

    fn begin(&mut self, session: &Session, entry: &Entry, args: Args<'_>) {
        self.hub.begin(session, entry, args);
    }

    fn failed_waiting(&mut self, entry: &Entry) {
        self.hub.failed_waiting(entry);
    }

    fn begin_inside(&mut self, session: &Session, entry: &Entry, args: Args<'_>) {
        self.hub.begin_inside(session, entry, args);
    }

    fn end_inside(&mut self, session: &Session, entry: &Entry, args: Args<'_>, failed: bool) {
        self.hub.end_inside(session, entry, args, failed);
    }

    fn end(&mut self, session: &Session, entry: &Entry, args: Args<'_>, failed: bool) {
        self.hub.end(session, entry, args, failed);
    }

    fn error(&mut self, error: &Error) {
        self.hub.error(error);
    }

    fn announce(&mut self, events: Vec<Event>) {
        self.hub.announce(events);
    }

    fn settle(&mut self, session: &mut Session, out: &mut Writer, effects: Effects) {
        self.hub.settle(session, out, effects);
    }

    fn deliverer(&self, session: &Session) -> Deliver {
        self.hub.deliverer(session)
    }

    fn background(&self) -> Option<Arc<dyn Background>> {
        self.hub.background()
    }

    fn is_memory_short(&mut self) -> bool {
        Host::is_memory_short(&mut self.hub)
    }

    fn write_refusal(&mut self) -> Option<WriteRefusal> {
        self.hub.write_refusal()
    }

    fn script_ended(&mut self, script: &Script) {
        self.hub.script_ended(script);
    }

    fn busy_error(&self) -> Error {
        self.hub.busy_error()
    }

    fn script_log(&mut self, level: usize, line: &[u8]) {
        self.hub.script_log(level, line);
    }

    fn script_memory_max(&self) -> usize {
        self.hub.script_memory_max()
    }
}

impl Hub {
    /// The messages that wait for the end of the running command's reply.
    fn take_own(&mut self) -> Vec<Arc<crate::message::Pushed>> {
        std::mem::take(&mut self.own)
    }

    fn started(&self) -> Instant {
        self.started
    }

    fn put_own(&mut self, own: Vec<Arc<crate::message::Pushed>>, started: Instant) {
        self.own = own;
        self.started = started;
    }
}
