//! An event loop: one thread with its own poll, connections and mailbox.
//!
//! A turn: wait for sockets, read each that has something, run what has arrived, send the replies;
//! then the mailbox, due keys and timeouts. A command runs here, on its connection's thread.
//!
//! **Invariant:** one connection takes at most [`ROUNDS`] reads of a turn, so that none starves.
//! **Invariant:** replies leave in the order of their commands, and pushed messages whole between
//! them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use commands::command::{MAY_REPLICATE, NO_AUTH, WRITE};
use commands::context::{Host, Session};
use commands::engine::Turn;
use commands::error::Error;
use keyspace::keyspace::add;
use keyspace::random::Random;
use mio::{Events, Interest, Poll, Token};
use resp::request::{Limits, ProtocolError, Stop};
use resp::{Args, Parser, Requests, Writer};

use crate::client::Client;
use crate::connection::{Connection, Peer, Replies, Socket, Stream, Unsent};
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
/// Reads of one connection in one turn, at most.
const ROUNDS: usize = 16;
/// The read buffer of a thread.
pub const READ_BYTES: usize = 64 * 1024;
/// What a client may have sent unanswered before it has authenticated.
const UNAUTHENTICATED_BYTES: i64 = 1 << 20;
/// Commands parsed at a time.
const COMMANDS: usize = 512;
/// Replies are sent when they have grown to this.
const FLUSH_BYTES: usize = 128 * 1024;
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
    poll: Poll,
    listeners: Option<Listeners>,
    pub(crate) connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    by_id: HashMap<u64, usize>,
    buffer: Vec<u8>,
    requests: Requests,
    out: Writer,
    random: Random,
    /// Deadlines of blocked clients.
    deadlines: BinaryHeap<Reverse<(i64, u64)>>,
    /// Connections with more to read or run than one turn allows.
    unfinished: Vec<usize>,
    /// Stands in for the part of a connection that is lent to the hub.
    spare: Option<Box<Peer>>,
    /// Connections of this turn that have something to read.
    pub(crate) ready: Vec<usize>,
    /// Clients held back by CLIENT PAUSE.
    paused: Vec<u64>,
    /// Connections that have been pushed messages, to be sent when the mail has been read.
    to_flush: Vec<usize>,
    ticked_ms: i64,
    cron_ms: i64,
}

/// Why a connection's commands stop being run.
#[derive(PartialEq, Eq)]
enum Ran {
    /// All that arrived has been run.
    All,
    /// The client is blocked or held back: the rest waits.
    Waits,
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
            ticked_ms: 0,
            cron_ms: 0,
        }
    }

    /// Runs until the server stops.
    pub fn run(mut self) {
        let _registered = crate::sys::register_thread();
        let mut events = Events::with_capacity(1024);
        while !self.hub.shared.is_stopping.load(Ordering::Acquire) {
            let timeout = self.timeout();
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "poll failed");
                return;
            }
            self.hub.now_ms = now_ms();
            self.take_events(&events);
            for index in std::mem::take(&mut self.unfinished) {
                self.readable(index);
            }
            self.read_mail();
            self.tick();
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

    fn timeout(&self) -> Option<Duration> {
        if !self.unfinished.is_empty() || !self.hub.mail.is_empty() {
            return Some(Duration::ZERO);
        }
        let now = self.hub.now_ms;
        let mut until = now + SLEEP_MAX_MS;
        if self.hub.shared.core.space.settings.active_expire.load(Ordering::Relaxed) {
            until = until.min(self.hub.shared.core.space.next_due_ms());
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

    fn accept(&mut self, listener: usize) {
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
        };
        self.by_id.insert(client.id, index);
        self.connections[index] = Some(Box::new(connection));
        let mut clients = shared.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        clients.insert(client.id, client);
    }

    fn close(&mut self, index: usize, mut connection: Box<Connection>) {
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
        self.by_id.remove(&id);
        self.free.push(index);
    }

    // Reading and running.

    pub(crate) fn readable(&mut self, index: usize) {
        let Some(mut connection) = self.connections.get_mut(index).and_then(Option::take) else {
            return;
        };
        // What was read ahead has told already whether there is more.
        connection.may_read |= connection.ahead.is_none();
        let killed = connection.peer.client.killed.load(Ordering::Relaxed);
        let open = !killed && self.serve(index, &mut connection);
        self.put_back(index, connection, open);
    }

    /// The client has shut down its side, maybe together with its last commands: a short read does
    /// not mean then that an event will tell of more.
    fn read_closed(&mut self, index: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(index) {
            connection.read_closed = true;
        }
    }

    fn put_back(&mut self, index: usize, connection: Box<Connection>, open: bool) {
        let client = &connection.peer.client;
        client.closes.store(connection.peer.closes, Ordering::Relaxed);
        let done = connection.peer.closes && connection.is_flushed();
        if !open || done || connection.is_broken || client.killed.load(Ordering::Relaxed) {
            return self.close(index, connection);
        }
        self.connections[index] = Some(connection);
    }

    /// Reads what has arrived and runs it; false when the connection has ended.
    fn serve(&mut self, index: usize, connection: &mut Connection) -> bool {
        for round in 0.. {
            if round == ROUNDS {
                self.unfinished.push(index);
                break;
            }
            match self.read(connection) {
                Ok(0) => return ended(connection),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    connection.may_read = false;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if self.finish_output(connection).is_err() {
                return false;
            }
            if !connection.may_read {
                break;
            }
        }
        true
    }

    /// Reads once and runs what is complete. The number of bytes read.
    fn read(&mut self, connection: &mut Connection) -> io::Result<usize> {
        if connection.peer.closes {
            // What comes behind QUIT is read, so that closing does not reset the connection under
            // the replies, and thrown away.
            return connection.stream.read(&mut self.buffer);
        }
        let waits = connection.session.blocked.is_some() || !connection.queue.is_empty();
        if let Some((block, missing)) = connection.parser.block_to_fill() {
            let before = block.len();
            let result = (&mut connection.stream).take(missing as u64).read_to_end(block);
            let count = block.len() - before;
            self.count_input(connection, count);
            self.check_input_limit(connection)?;
            if count == missing && !waits {
                self.run_input(connection, 0);
            } else if count == 0 || result.is_err() {
                return result;
            }
            return Ok(count);
        }
        if let Some(count) = connection.ahead.take() {
            self.count_input(connection, count);
            if count > 0 && !waits {
                self.run_kept(connection);
            }
            return Ok(count);
        }
        let kept = connection.input.len();
        if waits || kept > READ_BYTES / 2 {
            return self.read_behind(connection, waits);
        }
        self.buffer[..kept].copy_from_slice(&connection.input);
        let count = connection.stream.read(&mut self.buffer[kept..])?;
        note_drained(connection, count < READ_BYTES - kept);
        self.count_input(connection, count);
        if count > 0 {
            connection.input.clear();
            self.run_input(connection, kept + count);
            self.check_input_limit(connection)?;
        }
        Ok(count)
    }

    /// Reads to the end of what is kept already: a long command, or input behind one that waits.
    fn read_behind(&mut self, connection: &mut Connection, waits: bool) -> io::Result<usize> {
        let count = connection.stream.read(&mut self.buffer)?;
        note_drained(connection, count < READ_BYTES);
        self.count_input(connection, count);
        connection.input.extend_from_slice(&self.buffer[..count]);
        self.check_input_limit(connection)?;
        if count > 0 && !waits {
            self.run_kept(connection);
        }
        Ok(count)
    }

    /// Ends a client that has more unanswered input than the options allow, or much of it before
    /// it has shown who it is.
    fn check_input_limit(&self, connection: &Connection) -> io::Result<()> {
        let options = &self.hub.shared.options;
        let max = options.number(const { index_of("client-query-buffer-limit") });
        let bytes = connection.input_bytes() as i64;
        // Offsets in what has arrived of a command have 32 bits: see `resp::request`.
        let too_much = bytes > max.min(i64::from(u32::MAX / 2))
            || bytes > UNAUTHENTICATED_BYTES && !connection.peer.is_authenticated;
        if too_much {
            return Err(io::Error::other("the client sent more than client-query-buffer-limit"));
        }
        Ok(())
    }

    fn count_input(&self, connection: &mut Connection, count: usize) {
        connection.last_read_bytes = count;
        let counts = self.hub.counts();
        add(&counts.input_bytes, count as u64);
        add(&counts.reads, 1);
        let client = &connection.peer.client;
        add(&client.total_in, count as u64);
        client.last_ms.store(self.hub.now_ms, Ordering::Relaxed);
    }

    /// Runs the commands in the first `len` bytes of the buffer; keeps the rest.
    fn run_input(&mut self, connection: &mut Connection, len: usize) {
        let buffer = std::mem::take(&mut self.buffer);
        if len == 0 {
            // A block has been filled: the command goes on with what is kept.
            self.buffer = buffer;
            return self.run_kept(connection);
        }
        let used = self.run_bytes(connection, &buffer[..len]);
        let moved = connection.parser.moved();
        connection.input.extend_from_slice(&buffer[used..len - moved]);
        self.buffer = buffer;
    }

    /// Runs the commands in what is kept.
    fn run_kept(&mut self, connection: &mut Connection) {
        let mut input = std::mem::take(&mut connection.input);
        let used = self.run_bytes(connection, &input);
        input.truncate(input.len() - connection.parser.moved());
        input.drain(..used);
        if input.capacity() > READ_BYTES && input.len() < READ_BYTES / 4 {
            input.shrink_to_fit();
        }
        connection.input = input;
    }

    /// Runs the commands in `input`; how many of its bytes are done with.
    fn run_bytes(&mut self, connection: &mut Connection, input: &[u8]) -> usize {
        let mut requests = std::mem::take(&mut self.requests);
        let mut used = 0;
        loop {
            let limits = self.limits(connection);
            requests.clear();
            // One by one until AUTH has run: what follows it has other limits.
            let count = if limits.unauthenticated { 1 } else { COMMANDS };
            let input = &input[used..];
            let (taken, stop) = connection.parser.parse(input, limits, count, &mut requests);
            let ran = self.run_requests(connection, &requests, input);
            used += taken;
            if connection.peer.closes {
                break;
            }
            if ran == Ran::Waits {
                if let Stop::Error(error) = stop {
                    connection.error = Some(error);
                }
                break;
            }
            match stop {
                Stop::Commands => {}
                Stop::Input => break,
                Stop::Error(error) => {
                    self.refuse_input(connection, error);
                    break;
                }
            }
        }
        requests.clear();
        self.requests = requests;
        used
    }

    /// Answers input that makes no sense; the connection is closed.
    fn refuse_input(&mut self, connection: &mut Connection, error: ProtocolError) {
        let text = format!("ERR {}", error.text());
        self.hub.shared.records.add_error(&text);
        self.out.error(&text);
        connection.peer.closes = true;
    }

    fn limits(&self, connection: &Connection) -> Limits {
        let max = &self.hub.shared.core.space.settings.proto_max_bulk_len;
        Limits {
            bulk_bytes_max: max.load(Ordering::Relaxed),
            unauthenticated: !connection.peer.is_authenticated,
        }
    }

    /// Runs parsed commands in order; those behind one that blocks are queued.
    fn run_requests(
        &mut self,
        connection: &mut Connection,
        requests: &Requests,
        input: &[u8],
    ) -> Ran {
        let shared = Arc::clone(&self.hub.shared);
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
                let mut turn = turn(&shared.core, &mut self.hub, &mut self.random);
                let (session, out) = (&mut connection.session, &mut self.out);
                index += turn.run_some(session, out, requests, input, index);
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
        let shared = Arc::clone(&self.hub.shared);
        let mark = self.out.bytes().len();
        let before = connection.peer.replies;
        connection.peer.mutes = before != Replies::On;
        if before == Replies::Skip {
            connection.peer.replies = Replies::On;
        }
        self.lend(connection);
        let mut turn = turn(&shared.core, &mut self.hub, &mut self.random);
        turn.run(&mut connection.session, &mut self.out, args);
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

    fn end_hold(&mut self, connection: &mut Connection) {
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
    fn resume(&mut self, connection: &mut Connection) {
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

    // Writing.

    /// Sends the replies that have been written, and minds the limits of what may wait.
    fn finish_output(&mut self, connection: &mut Connection) -> io::Result<()> {
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
        let sent = connection.send(&self.out);
        self.out.clear();
        sent?;
        self.check_output_limits(connection)
    }

    fn check_output_limits(&self, connection: &mut Connection) -> io::Result<()> {
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

    fn writable(&mut self, index: usize) {
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
    fn with_client(&mut self, id: u64, act: impl FnOnce(&mut Worker, &mut Connection)) {
        let Some(index) = self.by_id.get(&id).copied() else { return };
        let Some(mut connection) = self.connections[index].take() else { return };
        act(self, &mut connection);
        let open = self.finish_output(&mut connection).is_ok();
        self.put_back(index, connection, open);
    }

    // Mail.

    fn read_mail(&mut self) {
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
            if !connection.is_mute() {
                worker.out.append(reply);
            }
            worker.resume(connection);
        });
    }

    fn end_block(&mut self, connection: &Connection) {
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
                worker.out.error(text);
            } else {
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
        if shared.core.space.settings.active_expire.load(Ordering::Relaxed) && !is_paused {
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
            // Commands make room for themselves; this is for a limit that was lowered in between.
            self.hub.make_room(&mut Session::new(0), &mut Writer::new(false));
        }
        let timeout_ms = shared.options.number(const { index_of("timeout") }) * 1000;
        for index in 0..self.connections.len() {
            let Some(mut connection) = self.connections[index].take() else { continue };
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

/// The client has shut down its side. It still gets its replies, but no answer to what waits.
fn ended(connection: &mut Connection) -> bool {
    let waits = connection.session.blocked.is_some() || !connection.queue.is_empty();
    connection.peer.closes = true;
    connection.may_read = false;
    !waits && !connection.is_flushed()
}

/// After a read that did not fill its buffer: nothing is left, and an event will tell of more.
pub(crate) fn note_drained(connection: &mut Connection, was_short: bool) {
    if was_short && connection.stream.drains_on_short_read() && !connection.read_closed {
        connection.may_read = false;
    }
}

fn turn<'a>(
    core: &'a commands::engine::Core,
    hub: &'a mut Hub,
    random: &'a mut Random,
) -> Turn<'a> {
    Turn { core, thread: hub.thread, now_ms: hub.now_ms, random, host: hub }
}
