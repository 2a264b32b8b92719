//! The server as the engine sees it, one per thread: admission, counting, publishing, and the part
//! of the connection whose command runs just now.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use commands::command::{DENY_OOM, FAST, NO_AUTH, SKIP_MONITOR, SKIP_SLOWLOG, SUBSCRIBED};
use commands::context::{Deliver, Host, Session};
use commands::error::Error;
use commands::registry::Entry;
use keyspace::effects::{Effects, Event, class};
use keyspace::evict::Evictor;
use keyspace::keyspace::add;
use keyspace::random::Random;
use resp::{Args, Writer};

use crate::connection::{Peer, Replies};
use crate::message::{Message, Pushed};
use crate::options::{Kind, Options, index_of};
use crate::pubsub::Channel;
use crate::records::Slow;
use crate::shared::{Counts, Shared};
use crate::sys;

/// Commands slower than this many microseconds are always timed one by one: batches hold only
/// those that cannot take so long.
const BATCH_MICROSECONDS: i64 = 1000;

/// See the module.
pub struct Hub {
    /// What all threads share.
    pub shared: Arc<Shared>,
    /// This thread's number.
    pub thread: usize,
    /// Now, in milliseconds since 1970, taken once a turn.
    pub now_ms: i64,
    /// The connection whose command runs.
    pub peer: Option<Box<Peer>>,
    /// Messages for clients of this thread, delivered after the command.
    pub pushes: Vec<(u64, Arc<Pushed>)>,
    /// Random numbers.
    pub random: Random,
    evictor: Evictor,
    started: Instant,
}

impl Hub {
    /// The hub of one thread.
    pub fn new(shared: Arc<Shared>, thread: usize, seed: u64) -> Hub {
        Hub {
            shared,
            thread,
            now_ms: 0,
            peer: None,
            pushes: Vec::new(),
            random: Random::new(seed),
            evictor: Evictor::default(),
            started: Instant::now(),
        }
    }

    /// The hub that a server's own command runs under.
    ///
    /// # Panics
    /// In a command of another server: the binary brings these families and hubs together.
    pub fn of(host: &mut dyn Host) -> &mut Hub {
        let host: &mut dyn std::any::Any = host;
        host.downcast_mut().expect("families of the server run under its hub")
    }

    /// This thread's counts.
    pub fn counts(&self) -> &Counts {
        &self.shared.counts[self.thread]
    }

    /// The connection whose command runs.
    ///
    /// # Panics
    /// Outside of a command.
    pub fn peer(&mut self) -> &mut Peer {
        self.peer.as_mut().expect("a command runs for a connection")
    }

    /// Sends a message to all who listen to a channel; how many they are. `out` takes what the
    /// running command's own client gets, ahead of its reply.
    pub fn publish(
        &mut self,
        session: &Session,
        out: &mut Writer,
        kind: Channel,
        channel: &[u8],
        message: &[u8],
    ) -> usize {
        let shared = Arc::clone(&self.shared);
        let word: &[u8] = if kind == Channel::Shard { b"smessage" } else { b"message" };
        let listeners = shared.subscriptions.listeners(kind, channel);
        let mut count = listeners.len();
        if count > 0 {
            self.push(session, out, &listeners, &[word, channel, message]);
        }
        if kind == Channel::Exact {
            for (pattern, listeners) in shared.subscriptions.pattern_listeners(channel) {
                count += listeners.len();
                self.push(session, out, &listeners, &[b"pmessage", &pattern, channel, message]);
            }
        }
        count
    }

    fn push(
        &mut self,
        session: &Session,
        out: &mut Writer,
        listeners: &[crate::pubsub::Subscriber],
        words: &[&[u8]],
    ) {
        let write = |resp3| {
            let mut writer = Writer::new(resp3);
            writer.push(words.len());
            words.iter().for_each(|word| writer.bulk(word));
            writer.to_vec()
        };
        let pushed = Arc::new(Pushed { resp2: write(false), resp3: write(true) });
        for (thread, id) in listeners {
            if *id == session.id {
                out.raw(if session.resp3 { &pushed.resp3 } else { &pushed.resp2 });
            } else if *thread == self.thread {
                self.pushes.push((*id, Arc::clone(&pushed)));
            } else {
                self.shared.send(*thread, Message::Push(*id, Arc::clone(&pushed)));
            }
        }
    }

    fn publish_event(&mut self, session: &Session, out: &mut Writer, event: &Event) {
        let wanted = self.shared.core.space.settings.notify.load(Ordering::Relaxed);
        let db = event.db;
        if wanted & class::KEYSPACE != 0 {
            let channel = [format!("__keyspace@{db}__:").as_bytes(), &event.key].concat();
            self.publish(session, out, Channel::Exact, &channel, event.name.as_bytes());
        }
        if wanted & class::KEYEVENT != 0 {
            let channel = format!("__keyevent@{db}__:{}", event.name);
            self.publish(session, out, Channel::Exact, channel.as_bytes(), &event.key);
        }
    }

    /// Whether there is room for a write, keys evicted where the policy says so.
    pub fn make_room(&mut self, session: &mut Session, out: &mut Writer) -> bool {
        let shared = Arc::clone(&self.shared);
        let max = shared.core.space.settings.maxmemory.load(Ordering::Relaxed);
        if max == 0 || sys::used_memory() <= max {
            return true;
        }
        let started = Instant::now();
        let has_room = self.evict_down_to(max, session, out);
        self.note_event("eviction-cycle", started.elapsed().as_nanos() as u64);
        has_room
    }

    fn evict_down_to(&mut self, max: u64, session: &mut Session, out: &mut Writer) -> bool {
        let shared = Arc::clone(&self.shared);
        while sys::used_memory() > max {
            let space = &shared.core.space;
            let picked = self.evictor.pick(space, self.now_ms, &mut self.random);
            let Some((db, key)) = picked else { return false };
            let mut random = Random::new(self.random.bits());
            let mut turn = commands::engine::Turn {
                core: &shared.core,
                thread: self.thread,
                now_ms: self.now_ms,
                random: &mut random,
                host: self,
            };
            turn.evict(session, out, db, &key);
        }
        true
    }

    fn is_memory_short(&self) -> bool {
        let max = self.shared.core.space.settings.maxmemory.load(Ordering::Relaxed);
        max > 0 && sys::used_memory() > max
    }

    fn feed_monitors(&mut self, session: &Session, args: Args<'_>) {
        let peer = self.peer.as_ref().map(|peer| Arc::clone(&peer.client));
        let addr = peer.as_ref().map_or("", |client| client.addr.as_str());
        let (seconds, micros) = (self.now_ms / 1000, self.now_ms % 1000 * 1000);
        let mut line = format!("+{seconds}.{micros:06} [{} {addr}]", session.db).into_bytes();
        for (index, word) in args.iter().enumerate() {
            line.push(b' ');
            quote(&mut line, if is_secret(args, index) { REDACTED } else { word });
        }
        line.extend_from_slice(b"\r\n");
        let pushed = Arc::new(Pushed { resp2: line.clone(), resp3: line });
        let monitors = self.shared.monitors.lock().unwrap_or_else(|p| p.into_inner()).clone();
        for (thread, id) in monitors {
            if thread == self.thread {
                self.pushes.push((id, Arc::clone(&pushed)));
            } else {
                self.shared.send(thread, Message::Push(id, Arc::clone(&pushed)));
            }
        }
    }

    fn tracks_latency(&self) -> bool {
        self.shared.options.is_on(const { index_of("latency-tracking") })
    }

    /// Keeps the latency of an event if `latency-monitor-threshold` says so.
    #[inline]
    pub fn note_event(&self, event: &'static str, nanoseconds: u64) {
        let threshold = self.shared.options.number(const { index_of("latency-monitor-threshold") });
        let ms = nanoseconds / 1_000_000;
        if threshold > 0 && ms >= threshold as u64 {
            self.shared.records.add_latency(event, self.now_ms / 1000, ms);
        }
    }

    fn note_slow(&mut self, args: Args<'_>, microseconds: u64) {
        let max = self.shared.options.number(const { index_of("slowlog-max-len") }).max(0);
        let client = self.peer.as_ref().map(|peer| Arc::clone(&peer.client));
        let name = client.as_ref().map_or_else(String::new, |client| client.names().name);
        let words = shown_words(args);
        let addr = client.map_or_else(String::new, |client| client.addr.clone());
        let unix_seconds = self.now_ms / 1000;
        let slow = Slow { id: 0, unix_seconds, microseconds, words, addr, name };
        self.shared.records.add_slow(slow, max as usize);
    }
}

/// What logs show in place of a password.
const REDACTED: &[u8] = b"(redacted)";

/// Whether a word is a password, or may be one.
fn is_secret(args: Args<'_>, index: usize) -> bool {
    let is = |at: usize, name: &str| {
        args.get(at).is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    match args.word(0).to_ascii_lowercase().as_slice() {
        b"auth" => index > 0,
        b"hello" => index > 1 && (is(index - 1, "auth") || is(index - 2, "auth")),
        b"acl" => index > 2 && is(1, "setuser"),
        b"config" if index > 2 && index % 2 == 1 && is(1, "set") => {
            let name = String::from_utf8_lossy(args.word(index - 1));
            Options::row(&name).is_some_and(|(_, row)| matches!(row.kind, Kind::Secret))
        }
        _ => false,
    }
}

/// Words as the slow log keeps them: at most 32, each at most 128 bytes.
fn shown_words(args: Args<'_>) -> Vec<Vec<u8>> {
    const WORDS: usize = 32;
    const BYTES: usize = 128;
    let shown = if args.len() > WORDS { WORDS - 1 } else { args.len() };
    let mut words: Vec<Vec<u8>> = Vec::with_capacity(shown + 1);
    for (index, word) in args.iter().take(shown).enumerate() {
        if is_secret(args, index) {
            words.push(REDACTED.to_vec());
        } else if word.len() > BYTES {
            let more = format!("... ({} more bytes)", word.len() - BYTES);
            words.push([&word[..BYTES], more.as_bytes()].concat());
        } else {
            words.push(word.to_vec());
        }
    }
    if shown < args.len() {
        words.push(format!("... ({} more arguments)", args.len() - shown).into_bytes());
    }
    words
}

/// Appends a word in double quotes, as MONITOR shows it.
pub fn quote(line: &mut Vec<u8>, word: &[u8]) {
    line.push(b'"');
    for byte in word {
        match byte {
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', *byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            7 => line.extend_from_slice(b"\\a"),
            8 => line.extend_from_slice(b"\\b"),
            byte if byte.is_ascii_graphic() || *byte == b' ' => line.push(*byte),
            byte => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    line.push(b'"');
}

impl Host for Hub {
    fn admit(&mut self, session: &mut Session, entry: &Entry, args: Args<'_>) -> Result<(), Error> {
        let _ = args;
        let flags = entry.command.flags;
        let peer = self.peer();
        if !peer.is_authenticated && !flags.has(NO_AUTH) {
            return Err(Error::text("NOAUTH Authentication required."));
        }
        if !session.resp3 && peer.subscriptions() > 0 && !flags.has(SUBSCRIBED) {
            let name = &entry.full_name;
            return Err(Error::new(format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are allowed in this context"
            )));
        }
        if flags.has(DENY_OOM) && !self.make_room(session, &mut Writer::new(false)) {
            let counts = &self.counts().rejected[entry.index];
            add(counts, 1);
            return Err(Error::text("OOM command not allowed when used memory > 'maxmemory'."));
        }
        Ok(())
    }

    fn allows_batch(&mut self, session: &Session) -> bool {
        let options = &self.shared.options;
        let slow = options.number(const { index_of("slowlog-log-slower-than") });
        let quiet = self.shared.monitor_count.load(Ordering::Relaxed) == 0
            && (slow < 0 || slow >= BATCH_MICROSECONDS)
            && self.shared.pause.until_ms.load(Ordering::Relaxed) == 0
            && !self.is_memory_short();
        self.started = Instant::now();
        let peer = self.peer();
        quiet
            && peer.is_authenticated
            && peer.replies == Replies::On
            && (session.resp3 || peer.subscriptions() == 0)
    }

    fn batch_ran(&mut self, _: &Session, entries: &[&Entry], failed: u32) {
        let each = self.started.elapsed().as_nanos() as u64 / entries.len() as u64;
        let counts = self.counts();
        add(&counts.commands, entries.len() as u64);
        let tracks = self.tracks_latency();
        let mut from = 0;
        // A pipeline mostly repeats one command: count each run of it at once.
        for run in entries.chunk_by(|one, other| one.index == other.index) {
            let (index, calls) = (run[0].index, run.len() as u64);
            add(&counts.calls[index], calls);
            add(&counts.nanoseconds[index], each * calls);
            let failures = failed >> from & ((1u64 << calls) - 1) as u32;
            if failures != 0 {
                add(&counts.failed[index], failures.count_ones().into());
            }
            if tracks {
                counts.note_latency(index, each, calls);
            }
            from += run.len();
        }
        let last = entries.last().map_or(u32::MAX, |entry| entry.index as u32);
        if let Some(peer) = &self.peer {
            peer.client.last_command.store(last, Ordering::Relaxed);
            add(&peer.client.commands, entries.len() as u64);
        }
    }

    fn begin(&mut self, session: &Session, entry: &Entry, args: Args<'_>) {
        if self.shared.monitor_count.load(Ordering::Relaxed) > 0
            && !entry.command.flags.has(SKIP_MONITOR)
        {
            self.feed_monitors(session, args);
        }
        self.started = Instant::now();
    }

    fn end(&mut self, _: &Session, entry: &Entry, args: Args<'_>, failed: bool) {
        let nanoseconds = self.started.elapsed().as_nanos() as u64;
        let counts = self.counts();
        counts.call(entry.index, nanoseconds);
        if failed {
            add(&counts.failed[entry.index], 1);
        }
        if self.tracks_latency() {
            counts.note_latency(entry.index, nanoseconds, 1);
        }
        let is_fast = entry.command.flags.has(FAST);
        self.note_event(if is_fast { "fast-command" } else { "command" }, nanoseconds);
        if let Some(peer) = &self.peer {
            peer.client.last_command.store(entry.index as u32, Ordering::Relaxed);
            add(&peer.client.commands, 1);
        }
        let slow = self.shared.options.number(const { index_of("slowlog-log-slower-than") });
        let microseconds = nanoseconds / 1000;
        if slow >= 0 && microseconds >= slow as u64 && !entry.command.flags.has(SKIP_SLOWLOG) {
            self.note_slow(args, microseconds);
        }
    }

    fn error(&mut self, error: &Error) {
        add(&self.counts().errors, 1);
        self.shared.records.add_error(error.message());
    }

    fn settle(&mut self, session: &mut Session, out: &mut Writer, mut effects: Effects) {
        for event in std::mem::take(&mut effects.events) {
            self.publish_event(session, out, &event);
        }
        if effects.frees_lazily && !effects.garbage.is_empty() {
            self.shared.free_later(std::mem::take(&mut effects.garbage));
        }
    }

    fn deliverer(&self, session: &Session) -> Deliver {
        let (shared, thread, id) = (Arc::clone(&self.shared), self.thread, session.id);
        Box::new(move |out| shared.send(thread, Message::Served(id, Box::new(out))))
    }
}
