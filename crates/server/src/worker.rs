//! An event loop: one thread with its own poll, connections and mailbox.
//!
//! A turn: wait for sockets, read each that has something, run what has arrived, send the replies;
//! then the mailbox, due keys and timeouts. A command runs here, on its connection's thread.
//!
//! **Invariant:** one connection takes at most `ROUNDS` reads of a turn, so that none starves.
//! **Invariant:** replies leave in the order of their commands, and pushed messages whole between
//! them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use commands::context::{Host, Session};
use commands::engine::Turn;
use commands::error::Error;
use keyspace::keyspace::{DueSeen, add};
use keyspace::random::Random;
use mio::{Events, Interest, Poll, Token};
use resp::{Parser, Requests, Writer};

use crate::client::Client;
use crate::connection::{Connection, Peer, Socket, Stream, Unsent};
use crate::hub::Hub;
use crate::listener::Listeners;
use crate::message::{Arrived, Message, Pushed};
use crate::options::index_of;
use crate::pubsub::{Channel, Subscriber};
use crate::shared::Shared;

/// The waker's token.
pub const WAKER: Token = Token(usize::MAX);
/// Tokens from here on are listeners.
pub const LISTENERS: usize = usize::MAX - 1024;
/// The read buffer of a thread.
pub const READ_BYTES: usize = 64 * 1024;
/// Replies are sent when they have grown to this.
pub(crate) const FLUSH_BYTES: usize = 128 * 1024;
/// Keys that expire in one shard in one turn, at most.
const EXPIRE_MAX: usize = 200;
/// The longest sleep: timeouts of clients are looked at so often at least.
const SLEEP_MAX_MS: i64 = 100;

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis() as i64
}

/// Microseconds since 1970.
pub fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as i64
}

/// See the module.
pub struct Worker {
    pub(crate) hub: Hub,
    pub(crate) poll: Poll,
    pub(crate) listeners: Option<Listeners>,
    pub(crate) connections: Vec<Option<Box<Connection>>>,
    pub(crate) free: Vec<usize>,
    pub(crate) by_id: HashMap<u64, usize>,
    pub(crate) buffer: Vec<u8>,
    pub(crate) requests: Requests,
    pub(crate) out: Writer,
    pub(crate) random: Random,
    /// Deadlines of blocked clients.
    pub(crate) deadlines: BinaryHeap<Reverse<(i64, u64)>>,
    /// Connections with more to read or run than one turn allows.
    pub(crate) unfinished: Vec<usize>,
    /// Stands in for the part of a connection that is lent to the hub.
    pub(crate) spare: Option<Box<Peer>>,
    /// Connections of this turn that have something to read.
    pub(crate) ready: Vec<usize>,
    /// Clients held back by CLIENT PAUSE.
    pub(crate) paused: Vec<u64>,
    /// Connections that have been pushed messages, to be sent when the mail has been read.
    pub(crate) to_flush: Vec<usize>,
    /// Replies that wait for the log.
    pub(crate) held: crate::held::Held,
    /// Other clients are being answered in the middle of a script.
    pub(crate) is_nested: bool,
    /// When the first key of all expires, as this thread knows it.
    pub(crate) due: DueSeen,
    pub(crate) ticked_ms: i64,
    pub(crate) cron_ms: i64,
}

impl Worker {
    /// The loop of one thread; thread 0 has the listeners.
    pub fn new(
        shared: Arc<Shared>,
        thread: usize,
        poll: Poll,
        listeners: Option<Listeners>,
        seed: u64,
    ) -> Worker {
        Worker {
            hub: Hub::new(shared, thread, seed),
            poll,
            listeners,
            connections: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::new(),
            buffer: vec![0; READ_BYTES],
            requests: Requests::default(),
            out: Writer::new(false),
            random: Random::new(seed ^ 0x5555),
            deadlines: BinaryHeap::new(),
            unfinished: Vec::new(),
            spare: None,
            ready: Vec::new(),
            paused: Vec::new(),
            to_flush: Vec::new(),
            held: Default::default(),
            is_nested: false,
            due: DueSeen::default(),
            ticked_ms: 0,
            cron_ms: 0,
        }
    }

    /// Runs until the server stops.
    pub fn run(mut self) {
        let _registered = crate::sys::register_thread();
        crate::sys::shorten_slice();
        let mut events = Events::with_capacity(1024);
        while !self.hub.shared.is_stopping.load(Ordering::Acquire) {
            let can_release = self.before_sleep();
            let timeout = if can_release { Some(Duration::ZERO) } else { self.timeout() };
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "poll failed");
                return;
            }
            self.hub.now_ms = now_ms();
            self.begin_turn();
            self.take_events(&events);
            self.evict_clients();
            for index in std::mem::take(&mut self.unfinished) {
                self.readable(index);
            }
            self.read_mail();
            self.tick();
        }
    }

    /// Before commands are taken: what the log needs.
    fn begin_turn(&mut self) {
        self.release();
        let log = &self.hub.shared.aof.log;
        log.wait_for_room();
        if log.notes_time.load(Ordering::Relaxed) {
            log.now_s.store(self.hub.now_ms / 1000, Ordering::Relaxed);
        }
    }

    fn take_events(&mut self, events: &Events) {
        for event in events {
            match event.token() {
                WAKER => {}
                Token(token) if token >= LISTENERS => self.accept(token - LISTENERS),
                Token(index) => {
                    if event.is_writable() {
                        self.writable(index);
                    }
                    if event.is_read_closed() || event.is_error() {
                        self.read_closed(index);
                        self.readable(index);
                    } else if event.is_readable() {
                        self.ready.push(index);
                    }
                }
            }
        }
        self.read_ready();
    }

    fn timeout(&mut self) -> Option<Duration> {
        if !self.unfinished.is_empty() || !self.hub.mail.is_empty() {
            return Some(Duration::ZERO);
        }
        let now = self.hub.now_ms;
        let mut until = now + SLEEP_MAX_MS;
        if self.hub.shared.core.space.settings.active_expire.load(Ordering::Relaxed) {
            until = until.min(self.hub.shared.core.space.next_due_ms_since(&mut self.due));
        }
        if let Some(Reverse((deadline, _))) = self.deadlines.peek() {
            until = until.min(*deadline);
        }
        let pause = self.hub.shared.pause.until_ms.load(Ordering::Relaxed);
        if pause != 0 && !self.paused.is_empty() {
            until = until.min(pause);
        }
        Some(Duration::from_millis((until - now).clamp(0, SLEEP_MAX_MS) as u64))
    }

    // Connections come and go.

    pub(crate) fn accept(&mut self, listener: usize) {
        let Some(listeners) = &mut self.listeners else { return };
        let shared = Arc::clone(&self.hub.shared);
        let mut arrivals = Vec::new();
        listeners.accept(listener, &shared, |stream, arrived| arrivals.push((stream, arrived)));
        for (stream, arrived) in arrivals {
            let loads = shared.counts.iter().map(|counts| counts.clients.load(Ordering::Relaxed));
            let (thread, _) =
                loads.enumerate().min_by_key(|(_, load)| *load).expect("at least one thread");
            shared.counts[thread].clients.fetch_add(1, Ordering::Relaxed);
            if thread == self.hub.thread {
                self.adopt(stream, arrived);
            } else {
                shared.send(thread, Message::Adopt(Box::new(stream), arrived));
            }
        }
    }

    fn adopt(&mut self, mut stream: Stream, arrived: Arrived) {
        let shared = Arc::clone(&self.hub.shared);
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        let registered = match &mut stream.socket {
            Socket::Tcp(socket) => registry.register(socket, Token(index), interest),
            Socket::Unix(socket) => registry.register(socket, Token(index), interest),
        };
        if let Err(error) = registered {
            tracing::warn!(%error, "cannot watch a connection");
            shared.counts[self.hub.thread].clients.fetch_sub(1, Ordering::Relaxed);
            return self.free.push(index);
        }
        let now = self.hub.now_ms.max(now_ms());
        let client = Arc::new(Client {
            id: shared.next_client_id(),
            thread: self.hub.thread,
            fd: stream.socket.number().into(),
            addr: arrived.addr,
            laddr: arrived.laddr,
            is_unix: arrived.is_unix,
            is_tls: arrived.is_tls,
            created_ms: now,
            last_ms: now.into(),
            last_command: u32::MAX.into(),
            multi: (-1).into(),
            ..Client::default()
        });
        client.rename(|names| names.user = "default".into());
        add(&self.hub.counts().connections, 1);
        let needs_password = crate::access::needs_password(&shared);
        let connection = Connection {
            stream,
            peer: Box::new(Peer::new(Arc::clone(&client), !needs_password)),
            session: Session::new(client.id),
            parser: Parser::default(),
            input: Vec::new(),
            queue: Default::default(),
            unsent: Unsent::default(),
            soft_limit_since_ms: 0,
            may_read: true,
            last_read_bytes: 0,
            ahead: None,
            read_closed: false,
            is_broken: false,
            is_held: false,
            skips_wait: false,
            error: None,
            is_to_flush: false,
            held: Default::default(),
        };
        self.by_id.insert(client.id, index);
        self.connections[index] = Some(Box::new(connection));
        let mut clients = shared.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        clients.insert(client.id, client);
    }

    pub(crate) fn close(&mut self, index: usize, mut connection: Box<Connection>) {
        let shared = Arc::clone(&self.hub.shared);
        let id = connection.session.id;
        connection.stream.say_goodbye();
        let registry = self.poll.registry();
        let _ = match &mut connection.stream.socket {
            Socket::Tcp(socket) => registry.deregister(socket),
            Socket::Unix(socket) => registry.deregister(socket),
        };
        let me: Subscriber = (self.hub.thread, id);
        let peer = &connection.peer;
        for (kind, names) in [
            (Channel::Exact, &peer.channels),
            (Channel::Pattern, &peer.patterns),
            (Channel::Shard, &peer.shard_channels),
        ] {
            names.iter().for_each(|name| shared.subscriptions.remove(kind, name, me));
        }
        if peer.client.monitor.load(Ordering::Relaxed) {
            crate::monitor::leave(&shared, me);
        }
        connection.session.forget_watches();
        let mut turn = turn(&shared.core, &mut self.hub, &mut self.random);
        turn.tidy_watches(&mut connection.session);
        if let Some(blocked) = connection.session.blocked.take() {
            turn.abandon(&blocked);
            self.end_block(&connection);
        }
        self.end_hold(&mut connection);
        shared.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&id);
        shared.counts[self.hub.thread].clients.fetch_sub(1, Ordering::Relaxed);
        self.count_memory(&connection.peer.client, 0);
        self.by_id.remove(&id);
        self.free.push(index);
    }

    // Writing.

    /// Sends the replies that have been written, and minds the limits of what may wait.
    pub(crate) fn finish_output(&mut self, connection: &mut Connection) -> io::Result<()> {
        if self.out.is_empty() {
            return if connection.stream.tls.is_some() {
                connection.send_rest().map(|_| ())
            } else {
                Ok(())
            };
        }
        let len = self.out.len() as u64;
        let counts = self.hub.counts();
        add(&counts.output_bytes, len);
        add(&counts.writes, 1);
        let client = &connection.peer.client;
        add(&client.total_out, len);
        client.last_ms.store(self.hub.now_ms, Ordering::Relaxed);
        if let Some(position) = self.hold_position(connection) {
            self.hold_reply(connection, position);
            return self.check_output_limits(connection);
        }
        let sent = connection.send(&self.out);
        self.out.clear();
        sent?;
        self.check_output_limits(connection)
    }

    pub(crate) fn check_output_limits(&self, connection: &mut Connection) -> io::Result<()> {
        let bytes = connection.unsent_bytes() as u64;
        connection.peer.client.output_bytes.store(bytes, Ordering::Relaxed);
        if bytes == 0 {
            connection.soft_limit_since_ms = 0;
            return Ok(());
        }
        let class = usize::from(connection.peer.subscriptions() > 0);
        let limits = self.hub.shared.output_limits(class);
        let too_much =
            || io::Error::other("the client reads too slowly: client-output-buffer-limit");
        if limits.hard_bytes > 0 && bytes > limits.hard_bytes {
            return Err(too_much());
        }
        if limits.soft_bytes > 0 && bytes > limits.soft_bytes {
            let since = connection.soft_limit_since_ms;
            if since == 0 {
                connection.soft_limit_since_ms = self.hub.now_ms;
            } else if self.hub.now_ms - since > limits.soft_seconds as i64 * 1000 {
                return Err(too_much());
            }
        } else {
            connection.soft_limit_since_ms = 0;
        }
        Ok(())
    }

    pub(crate) fn writable(&mut self, index: usize) {
        let slot = self.connections.get_mut(index);
        let Some(mut connection) = slot.and_then(|slot| slot.take_if(|c| !c.is_flushed())) else {
            return;
        };
        let open =
            connection.send_rest().is_ok() && self.check_output_limits(&mut connection).is_ok();
        self.put_back(index, connection, open);
    }

    /// Puts a message behind what a client is to be sent.
    fn push(&mut self, id: u64, pushed: &Pushed) {
        let Some(index) = self.by_id.get(&id).copied() else { return };
        let Some(connection) = &mut self.connections[index] else { return };
        let bytes = pushed.bytes(connection.session.resp3);
        connection.push(bytes);
        add(&connection.peer.client.total_out, bytes.len() as u64);
        add(&self.hub.shared.counts[self.hub.thread].output_bytes, bytes.len() as u64);
        if !std::mem::replace(&mut connection.is_to_flush, true) {
            self.to_flush.push(index);
        }
        if connection.unsent_bytes() >= FLUSH_BYTES {
            self.flush(index);
        }
    }

    /// Sends a connection's pushed messages.
    fn flush(&mut self, index: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(index) {
            connection.is_to_flush = false;
            connection.peer.client.last_ms.store(self.hub.now_ms, Ordering::Relaxed);
            self.writable(index);
        }
    }

    /// Does something with a client of this thread and sends what that wrote.
    pub(crate) fn with_client(&mut self, id: u64, act: impl FnOnce(&mut Worker, &mut Connection)) {
        let Some(index) = self.by_id.get(&id).copied() else { return };
        let Some(mut connection) = self.connections[index].take() else { return };
        act(self, &mut connection);
        let open = self.finish_output(&mut connection).is_ok();
        self.put_back(index, connection, open);
    }

    // Mail.

    pub(crate) fn read_mail(&mut self) {
        self.hub.fetch_mail();
        // What is sent here while this mail is read waits for the next turn.
        for _ in 0..self.hub.mail.len() {
            let Some(message) = self.hub.mail.pop_front() else { break };
            match message {
                Message::Adopt(stream, arrived) => self.adopt(*stream, arrived),
                Message::Served(id, out) => self.served(id, &out),
                Message::Push(ids, pushed) => ids.iter().for_each(|id| self.push(*id, &pushed)),
                Message::Kill(id) => self.with_client(id, |_, connection| {
                    connection.peer.client.killed.store(true, Ordering::Relaxed);
                }),
                Message::Unblock(id, with_error) => self.unblock(id, Some(with_error)),
                Message::Unpause => self.unpause(),
                Message::Stop => {}
            }
        }
        for index in std::mem::take(&mut self.to_flush) {
            self.flush(index);
        }
    }

    /// A blocked client's reply has come: it may go on.
    fn served(&mut self, id: u64, reply: &Writer) {
        self.with_client(id, |worker, connection| {
            let Some(blocked) = connection.session.blocked.take() else { return };
            let shared = Arc::clone(&worker.hub.shared);
            turn(&shared.core, &mut worker.hub, &mut worker.random).leave_lines(&blocked);
            worker.end_block(connection);
            worker.hub.touched = true;
            if let Some(report) = &blocked.report {
                worker.hub.ran_elsewhere(Some(&connection.peer.client), report);
            }
            if !connection.is_mute() {
                worker.out.append(reply);
            }
            worker.resume(connection);
        });
    }

    pub(crate) fn end_block(&mut self, connection: &Connection) {
        connection.peer.client.wait(None);
        self.hub.counts().blocked.fetch_sub(1, Ordering::Relaxed);
    }

    /// Ends a wait at its timeout, or answers one that CLIENT UNBLOCK has ended (`Some`: whether
    /// with an error).
    fn unblock(&mut self, id: u64, forced: Option<bool>) {
        self.with_client(id, |worker, connection| {
            let deadline =
                connection.session.blocked.as_ref().and_then(|blocked| blocked.block.deadline_ms);
            if forced.is_none() && deadline.is_none_or(|at| at > worker.hub.now_ms) {
                return;
            }
            let shared = Arc::clone(&worker.hub.shared);
            let mut turn = turn(&shared.core, &mut worker.hub, &mut worker.random);
            let ended = match forced {
                None => turn.end_wait(&mut connection.session),
                Some(_) => connection.session.blocked.take().inspect(|it| turn.leave_lines(it)),
            };
            let Some(blocked) = ended else { return };
            worker.end_block(connection);
            worker.out.set_resp3(connection.session.resp3);
            let mark = worker.out.bytes().len();
            if forced == Some(true) {
                let text = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
                worker.hub.error(&Error::text(text));
                worker.hub.count_failure(&connection.peer.client);
                worker.out.error(text);
                connection.peer.wish = None;
            } else if !worker.answer_wish(connection) {
                (blocked.block.on_timeout)(&mut worker.out);
            }
            if connection.is_mute() {
                worker.out.truncate(mark);
            }
            worker.resume(connection);
        });
    }

    fn unpause(&mut self) {
        for id in std::mem::take(&mut self.paused) {
            self.with_client(id, |worker, connection| {
                worker.end_hold(connection);
                worker.resume(connection);
            });
        }
    }

    // Time.

    /// Once a millisecond: due keys and timeouts. Ten times a second: idle clients and the like.
    fn tick(&mut self) {
        let now = self.hub.now_ms;
        if now == self.ticked_ms {
            return;
        }
        self.ticked_ms = now;
        let shared = Arc::clone(&self.hub.shared);
        let is_paused = shared.pause.until_ms.load(Ordering::Relaxed) > now;
        let is_still = is_paused
            || shared.persistence.is_loading()
            || shared.aof.log.is_failing() && shared.aof.log.is_over_limit();
        let expires = shared.core.space.settings.active_expire.load(Ordering::Relaxed) && !is_still;
        if expires && shared.core.space.next_due_ms_since(&mut self.due) <= now {
            let mut session = Session::new(0);
            let mut out = Writer::new(false);
            let started = Instant::now();
            let mut turn = turn(&shared.core, &mut self.hub, &mut self.random);
            turn.expire_due(&mut session, &mut out, EXPIRE_MAX);
            self.hub.note_event("expire-cycle", started.elapsed().as_nanos() as u64);
        }
        while let Some(Reverse((deadline, id))) = self.deadlines.peek().copied() {
            if deadline > now {
                break;
            }
            self.deadlines.pop();
            self.unblock(id, None);
        }
        let until = shared.pause.until_ms.load(Ordering::Relaxed);
        if until != 0 && until <= now {
            // Unless another thread has just begun a new pause.
            let (ordering, failed) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = shared.pause.until_ms.compare_exchange(until, 0, ordering, failed);
        }
        if !self.paused.is_empty() && shared.pause.until_ms.load(Ordering::Relaxed) == 0 {
            self.unpause();
        }
        if now - self.cron_ms >= 100 {
            self.cron_ms = now;
            self.cron();
        }
    }

    fn cron(&mut self) {
        let shared = Arc::clone(&self.hub.shared);
        if self.hub.thread == 0 {
            crate::sys::calibrate();
            shared.sample(self.hub.now_ms);
            shared.migrate_targets.tidy(self.hub.now_ms);
            crate::persistence::save::cron(&shared, self.hub.now_ms);
            // Commands make room for themselves; this is for a limit that was lowered in between.
            if !shared.persistence.is_loading() {
                self.hub.make_room(&mut Session::new(0), &mut Writer::new(false));
            }
        }
        let timeout_ms = shared.options.number(const { index_of("timeout") }) * 1000;
        for index in 0..self.connections.len() {
            let Some(mut connection) = self.connections[index].take() else { continue };
            self.measure_memory(&connection);
            let client = &connection.peer.client;
            client.input_bytes.store(connection.input_bytes() as u64, Ordering::Relaxed);
            let idle_ms = self.hub.now_ms - client.last_ms.load(Ordering::Relaxed);
            let exempt = client.blocked.load(Ordering::Relaxed)
                || client.monitor.load(Ordering::Relaxed)
                || connection.peer.subscriptions() > 0;
            let is_idle = timeout_ms > 0 && idle_ms > timeout_ms && !exempt;
            let is_slow = connection.soft_limit_since_ms != 0
                && self.check_output_limits(&mut connection).is_err();
            self.put_back(index, connection, !is_idle && !is_slow);
        }
    }
}

pub(crate) fn turn<'a>(
    core: &'a commands::engine::Core,
    hub: &'a mut Hub,
    random: &'a mut Random,
) -> Turn<'a> {
    Turn { core, thread: hub.thread, now_ms: hub.now_ms, random, host: hub }
}
