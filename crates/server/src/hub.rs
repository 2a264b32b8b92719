//! The server as the engine sees it, one per thread: admission, counting, publishing, and the part
//! of the connection whose command runs just now.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use commands::command::{
    ADMIN, ALLOW_BUSY, DENY_OOM, FAST, LOADING, NO_AUTH, READONLY, SKIP_MONITOR, SKIP_SLOWLOG,
    SUBSCRIBED, TRANSACTION, WRITE,
};
use commands::context::{Background, Deliver, Host, Report, Script, Session, WriteRefusal};
use commands::engine::{BACKGROUND, Turn};
use commands::error::Error;
use commands::registry::Entry;
use keyspace::effects::{Effects, Event, class};
use keyspace::evict::Evictor;
use keyspace::keyspace::add;
use keyspace::random::Random;
use resp::{Args, OwnedArgs, Writer};

use crate::aof::recovery::Replaying;
use crate::client::Client;
use crate::connection::{Peer, Replies};
use crate::crash;
use crate::message::{Message, Pushed};
use crate::options::{Kind, Options, index_of};
use crate::pubsub::{Channel, Subscriber};
use crate::records::Slow;
use crate::shared::{Counts, Shared};
use crate::sys;
use crate::worker::Worker;

/// Commands slower than this many microseconds are always timed one by one: batches hold only
/// those that cannot take so long.
const BATCH_MICROSECONDS: i64 = 1000;

const NO_REPLICAS: Error = Error::text("NOREPLICAS Not enough good replicas to write.");

/// Of a script's commands, one of so many is timed.
const TIMED_INSIDE: u64 = 16;

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
    /// This thread's mail, taken out of its mailbox and not read yet.
    pub mail: VecDeque<Message>,
    /// Messages for the client whose command runs: they follow the reply.
    pub(crate) own: Vec<Arc<Pushed>>,
    /// A command has looked at keys since this was last taken.
    pub touched: bool,
    /// Random numbers.
    pub random: Random,
    evictor: Evictor,
    pub(crate) started: Instant,
    /// A pipeline's commands follow each other at once: the end of one is the start of the next,
    /// which saves every other look at the clock.
    in_pipeline: bool,
    ended: Option<Instant>,
    /// Commands of scripts, and when the one that runs began if it is timed.
    inside: u64,
    inside_started: Option<Instant>,
}

impl Hub {
    /// The hub of one thread.
    pub fn new(shared: Arc<Shared>, thread: usize, seed: u64) -> Hub {
        Hub {
            shared,
            thread,
            now_ms: 0,
            peer: None,
            mail: VecDeque::new(),
            own: Vec::new(),
            touched: false,
            random: Random::new(seed),
            evictor: Evictor::default(),
            started: Instant::now(),
            in_pipeline: false,
            ended: None,
            inside: 0,
            inside_started: None,
        }
    }

    /// The hub that a server's own command runs under.
    ///
    /// # Panics
    /// In a command of another server: the binary brings these families and hubs together.
    pub fn of(host: &mut dyn Host) -> &mut Hub {
        Hub::try_of(host).expect("families of the server run under its hub")
    }

    /// As `of`; `None` for a command of a service: there is no hub around it.
    pub fn try_of(host: &mut dyn Host) -> Option<&mut Hub> {
        let host: &mut dyn std::any::Any = host;
        if host.is::<Worker>() {
            return host.downcast_mut::<Worker>().map(|worker| &mut worker.hub);
        }
        if host.is::<Replaying>() {
            return host.downcast_mut::<Replaying>().map(|replaying| &mut replaying.hub);
        }
        host.downcast_mut()
    }

    /// Says whether the commands that follow come in one piece.
    pub(crate) fn set_in_pipeline(&mut self, in_pipeline: bool) {
        (self.in_pipeline, self.ended) = (in_pipeline, None);
    }

    /// This thread's counts.
    pub fn counts(&self) -> &Counts {
        // What is no event loop has none of its own, and counts nothing itself.
        self.shared.counts.get(self.thread).unwrap_or(&self.shared.counts[0])
    }

    /// The connection whose command runs.
    ///
    /// # Panics
    /// Outside of a command.
    pub fn peer(&mut self) -> &mut Peer {
        self.peer.as_mut().expect("a command runs for a connection")
    }

    /// Sends a message to all who listen to a channel; how many they are.
    pub fn publish(&mut self, kind: Channel, channel: &[u8], message: &[u8]) -> usize {
        let shared = Arc::clone(&self.shared);
        let word: &[u8] = if kind == Channel::Shard { b"smessage" } else { b"message" };
        shared.subscriptions.reach(kind, channel, |pattern, listeners| {
            let pushed = match pattern {
                None => Pushed::new(&[word, channel, message]),
                Some(pattern) => Pushed::new(&[b"pmessage", pattern, channel, message]),
            };
            self.hand(listeners, &Arc::new(pushed));
        })
    }

    /// Hands a message to the threads of those who listen. Mail for this thread's own clients is
    /// put behind what other threads have sent already, so that the order is the same for all.
    fn hand(&mut self, listeners: &[Subscriber], pushed: &Arc<Pushed>) {
        let own = self.peer.as_ref().map(|peer| peer.client.id);
        for thread in 0..self.shared.threads() {
            let mut ids: Vec<u64> = Vec::new();
            for (_, id) in listeners.iter().filter(|(other, _)| *other == thread) {
                if Some(*id) == own {
                    self.claim_own();
                    self.own.push(Arc::clone(pushed));
                } else {
                    ids.push(*id);
                }
            }
            if ids.is_empty() {
                continue;
            }
            let message = Message::Push(ids, Arc::clone(pushed));
            if thread == self.thread {
                self.fetch_mail();
                self.mail.push_back(message);
            } else {
                self.shared.send(thread, message);
            }
        }
    }

    /// Moves this thread's mail out of its mailbox.
    pub fn fetch_mail(&mut self) {
        if let Some(mailboxes) = self.shared.mailboxes.get() {
            self.mail.extend(mailboxes[self.thread].take());
        }
    }

    /// Takes the messages that are on their way to the running command's client out of the mail:
    /// they come before its next one, or before it stops listening.
    fn claim_own(&mut self) {
        self.fetch_mail();
        let Some(own) = self.peer.as_ref().map(|peer| peer.client.id) else { return };
        for message in &mut self.mail {
            if let Message::Push(ids, pushed) = message
                && let Some(at) = ids.iter().position(|id| *id == own)
            {
                ids.swap_remove(at);
                self.own.push(Arc::clone(pushed));
            }
        }
    }

    /// Writes what has been sent to the running command's client, which is about to stop
    /// listening, ahead of the confirmation. Inside EXEC it has to wait for the end of the reply,
    /// where only a RESP3 client can still tell it from another command's reply.
    pub fn write_claimed(&mut self, session: &Session, out: &mut Writer) {
        if self.peer().mutes || session.in_exec && session.resp3 {
            return self.claim_own();
        }
        let before = std::mem::take(&mut self.own);
        self.claim_own();
        let claimed = std::mem::replace(&mut self.own, before);
        if !session.in_exec {
            claimed.iter().for_each(|pushed| out.raw(pushed.bytes(session.resp3)));
        }
    }

    /// Writes the confirmation of a subscription, which is a push message: even CLIENT REPLY OFF
    /// lets it through.
    pub fn confirm(&mut self, session: &Session, out: &mut Writer, write: impl Fn(&mut Writer)) {
        if !self.peer().mutes {
            return write(out);
        }
        let mut confirmation = Writer::new(session.resp3);
        write(&mut confirmation);
        let bytes = confirmation.to_vec();
        self.own.push(Arc::new(Pushed { resp2: bytes.clone(), resp3: bytes }));
    }

    /// Drops the messages that would follow the reply: the client has ceased to listen.
    pub fn forget_own(&mut self) {
        self.own.clear();
    }

    /// Writes the messages that the command's own client gets, after its reply.
    pub fn write_own(&mut self, session: &Session, out: &mut Writer) {
        for pushed in self.own.drain(..) {
            out.raw(pushed.bytes(session.resp3));
        }
    }

    fn publish_event(&mut self, event: &Event) {
        let wanted = self.shared.core.space.settings.notify.load(Ordering::Relaxed);
        let db = event.db;
        if wanted & class::KEYSPACE != 0 {
            let channel = [format!("__keyspace@{db}__:").as_bytes(), &event.key].concat();
            self.publish(Channel::Exact, &channel, event.name.as_bytes());
        }
        if wanted & class::KEYEVENT != 0 {
            let channel = format!("__keyevent@{db}__:{}", event.name);
            self.publish(Channel::Exact, channel.as_bytes(), &event.key);
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
            let mut turn = Turn {
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

    /// The checks of [`Host::admit`].
    fn check(&mut self, session: &mut Session, entry: &Entry) -> Result<(), Error> {
        let flags = entry.command.flags;
        let peer = self.peer();
        if !peer.is_authenticated && !flags.has(NO_AUTH) {
            return Err(Error::text("NOAUTH Authentication required."));
        }
        if !session.resp3 && peer.subscriptions() > 0 && !flags.has(SUBSCRIBED) {
            let name = &entry.full_name;
            return Err(Error::new(format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / \
                 QUIT / RESET are allowed in this context"
            )));
        }
        if self.shared.busy.is_any() {
            return self.check_busy(session, entry);
        }
        let uses_keys = flags.has(READONLY) || flags.has(WRITE);
        if uses_keys && self.peer().client.monitor.load(Ordering::Relaxed) {
            return Err(Error::text("ERR Replica can't interact with the keyspace"));
        }
        self.check_files(session, entry)?;
        self.check_log(session, entry)?;
        if !self.make_room(session, &mut Writer::new(false)) && takes_memory(session, entry) {
            return Err(Error::text("OOM command not allowed when used memory > 'maxmemory'."));
        }
        Ok(())
    }

    /// Refuses writes while the append-only file cannot be written, and where replicas are asked
    /// for.
    fn check_log(&self, session: &Session, entry: &Entry) -> Result<(), Error> {
        if self.lacks_replicas() && writes(session, entry) {
            return Err(NO_REPLICAS);
        }
        let aof = &self.shared.aof;
        if !aof.log.is_failing() {
            return Ok(());
        }
        let Some(error) = aof.log.error() else { return Ok(()) };
        if !writes(session, entry) && entry.full_name != "ping" {
            return Ok(());
        }
        aof.refused.fetch_add(1, Ordering::Relaxed);
        let text = sys::error_text(&error);
        Err(Error::new(format!("MISCONF Errors writing to the AOF file: {text}")))
    }

    /// Whether writes want more replicas than there are, which is none.
    fn lacks_replicas(&self) -> bool {
        let options = &self.shared.options;
        options.number(const { index_of("min-replicas-to-write") }) > 0
            && options.number(const { index_of("min-replicas-max-lag") }) > 0
    }

    /// Refuses most commands while a script runs for long. What remains touches no key: it can run
    /// in the middle of that script.
    fn check_busy(&self, session: &Session, entry: &Entry) -> Result<(), Error> {
        // To forget watches takes the locks of their keys.
        let is_free = entry.command.flags.has(ALLOW_BUSY) && session.watched.is_empty();
        if is_free { Ok(()) } else { Err(self.shared.busy.error()) }
    }

    /// Refuses what may not run while data is loaded or cannot be saved.
    fn check_files(&self, session: &Session, entry: &Entry) -> Result<(), Error> {
        let persistence = &self.shared.persistence;
        if persistence.is_loading() && !entry.command.flags.has(LOADING) {
            return Err(Error::text("LOADING Redis is loading the dataset in memory"));
        }
        if !persistence.may_refuse() || !(writes(session, entry) || entry.full_name == "ping") {
            return Ok(());
        }
        if persistence.is_closing.load(Ordering::Acquire) {
            return Err(Error::text("LOADING The server is shutting down"));
        }
        crate::persistence::write_refusal(&self.shared)
            .map_or(Ok(()), |text| Err(Error::text(text)))
    }

    /// Counts the command that a client waited in as failed.
    pub fn count_failure(&self, client: &Client) {
        let index = client.last_command.load(Ordering::Relaxed) as usize;
        if let Some(failed) = self.counts().failed.get(index) {
            add(failed, 1);
        }
    }

    fn is_memory_short(&self) -> bool {
        let max = self.shared.core.space.settings.maxmemory.load(Ordering::Relaxed);
        max > 0 && sys::used_memory() > max
    }

    /// Shows a command to all that watch; one of a script comes from `lua`, as Redis has it.
    fn feed_monitors(&mut self, session: &Session, args: Args<'_>, is_script: bool) {
        let client = self.peer.as_ref().map(|peer| Arc::clone(&peer.client));
        let addr = match &client {
            _ if is_script => "lua".to_string(),
            Some(client) if client.is_unix => {
                format!("unix:{}", client.addr.strip_suffix(":0").unwrap_or(&client.addr))
            }
            Some(client) => client.addr.clone(),
            None => String::new(),
        };
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (seconds, micros) = (time.as_secs(), time.subsec_micros());
        let mut line = format!("+{seconds}.{micros:06} [{} {addr}]", session.db).into_bytes();
        for word in args.iter() {
            line.push(b' ');
            quote(&mut line, word);
        }
        line.extend_from_slice(b"\r\n");
        let pushed = Arc::new(Pushed { resp2: line.clone(), resp3: line });
        let shared = Arc::clone(&self.shared);
        // Held while the line is handed over: all monitors see all commands in one order.
        let monitors = shared.monitors.lock().unwrap_or_else(|p| p.into_inner());
        self.hand(&monitors, &pushed);
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

    /// Counts commands that other threads have run for a client: their time, their failures, the
    /// slow ones. That they were called was counted when they came.
    pub fn ran_elsewhere(&mut self, client: Option<&Arc<Client>>, report: &Report) {
        let slow = self.shared.options.number(const { index_of("slowlog-log-slower-than") });
        for ran in report.take() {
            let counts = self.counts();
            add(&counts.nanoseconds[ran.entry], ran.nanoseconds);
            if ran.failed {
                add(&counts.failed[ran.entry], 1);
            }
            if self.tracks_latency() {
                counts.note_latency(ran.entry, ran.nanoseconds, 1);
            }
            self.note_event("command", ran.nanoseconds);
            let microseconds = ran.nanoseconds / 1000;
            if slow >= 0 && microseconds >= slow as u64 {
                self.note_slow_of(client, ran.args.args(), microseconds);
            }
        }
    }

    fn note_slow(&mut self, args: Args<'_>, microseconds: u64) {
        let client = self.peer.as_ref().map(|peer| Arc::clone(&peer.client));
        self.note_slow_of(client.as_ref(), args, microseconds);
    }

    fn note_slow_of(&self, client: Option<&Arc<Client>>, args: Args<'_>, microseconds: u64) {
        let max = self.shared.options.number(const { index_of("slowlog-max-len") }).max(0);
        let name = client.map_or_else(String::new, |client| client.names().name);
        let words = shown_words(args);
        let addr = client.map_or_else(String::new, |client| client.addr.clone());
        let unix_seconds = self.now_ms / 1000;
        let slow = Slow { id: 0, unix_seconds, microseconds, words, addr, name };
        self.shared.records.add_slow(slow, max as usize);
    }
}

/// Whether a command is refused when memory is short: by its own nature, by that of a transaction
/// it runs, or because it would be queued.
fn takes_memory(session: &Session, entry: &Entry) -> bool {
    let flags = entry.command.flags;
    let Some(multi) = &session.multi else { return flags.has(DENY_OOM) };
    match entry.command.name {
        "EXEC" => multi.flags.has(DENY_OOM),
        "QUIT" | "RESET" => false,
        _ => !flags.has(TRANSACTION),
    }
}

/// Whether a command may change keys, by itself or by the transaction that it runs.
fn writes(session: &Session, entry: &Entry) -> bool {
    let flags = entry.command.flags;
    match &session.multi {
        Some(multi) if entry.command.name == "EXEC" => multi.flags.has(WRITE),
        _ => flags.has(WRITE),
    }
}

/// Whether a word is a password, or may be one.
fn is_secret(entry: &Entry, args: Args<'_>, index: usize) -> bool {
    let is_auth = |at: usize| args.word(at).eq_ignore_ascii_case(b"AUTH");
    match entry.full_name.as_str() {
        "auth" => index > 0,
        "hello" => index > 2 && (is_auth(index - 1) || is_auth(index - 2)),
        "acl|setuser" => index > 2,
        "migrate" => {
            let is_auth2 = |at: usize| args.word(at).eq_ignore_ascii_case(b"AUTH2");
            index > 6 && (is_auth(index - 1) || is_auth2(index - 1))
                || index > 7 && is_auth2(index - 2)
        }
        "config|set" if index > 2 && index % 2 == 1 => {
            let name = String::from_utf8_lossy(args.word(index - 1));
            Options::row(&name).is_some_and(|(_, row)| matches!(row.kind, Kind::Secret))
        }
        _ => false,
    }
}

/// The words without passwords, if there are any among them: what MONITOR and the slow log show.
fn without_passwords(entry: &Entry, args: Args<'_>) -> Option<OwnedArgs> {
    if !(0..args.len()).any(|index| is_secret(entry, args, index)) {
        return None;
    }
    let shown = |(index, word)| {
        if is_secret(entry, args, index) { b"(redacted)" as &[u8] } else { word }
    };
    Some(OwnedArgs::new(args.iter().enumerate().map(shown)))
}

/// Words as the slow log keeps them: at most 32, each at most 128 bytes.
fn shown_words(args: Args<'_>) -> Vec<Vec<u8>> {
    const WORDS: usize = 32;
    const BYTES: usize = 128;
    let shown = if args.len() > WORDS { WORDS - 1 } else { args.len() };
    let mut words: Vec<Vec<u8>> = Vec::with_capacity(shown + 1);
    for word in args.iter().take(shown) {
        if word.len() > BYTES {
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
        let result = self.check(session, entry);
        if result.is_err() {
            self.reject(entry);
        }
        result
    }

    fn busy_error(&self) -> Error {
        self.shared.busy.error()
    }

    fn script_ended(&mut self, script: &Script) {
        if script.is_busy.swap(false, Ordering::Relaxed) {
            self.shared.busy.end(&self.shared.core.space, script.is_eval);
        }
    }

    fn is_memory_short(&mut self) -> bool {
        Hub::is_memory_short(self)
    }

    fn write_refusal(&mut self) -> Option<WriteRefusal> {
        const BLOCKED: &str = "but it's currently unable to persist to disk. Writable scripts are \
                               blocked. Use 'no-writes' flag for read only scripts.";
        let shared = &self.shared;
        if shared.persistence.may_refuse()
            && let Some(text) = crate::persistence::write_refusal(shared)
        {
            let script = format!("MISCONF Redis is configured to save RDB snapshots, {BLOCKED}");
            return Some(WriteRefusal { command: Error::text(text), script: Error::new(script) });
        }
        if shared.aof.log.is_failing()
            && let Some(error) = shared.aof.log.error()
        {
            shared.aof.refused.fetch_add(1, Ordering::Relaxed);
            let why = sys::error_text(&error);
            let command = format!("MISCONF Errors writing to the AOF file: {why}");
            let script = format!(
                "MISCONF Redis is configured to persist data to AOF, {BLOCKED} AOF error: {why}"
            );
            let (command, script) = (Error::new(command), Error::new(script));
            return Some(WriteRefusal { command, script });
        }
        let lacks = self.lacks_replicas();
        lacks.then_some(WriteRefusal { command: NO_REPLICAS, script: NO_REPLICAS })
    }

    fn script_log(&mut self, level: usize, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        match level {
            0 => tracing::debug!("{line}"),
            1 | 2 => tracing::info!("{line}"),
            _ => tracing::warn!("{line}"),
        }
    }

    fn script_memory_max(&self) -> usize {
        self.shared.options.number(const { index_of("lua-memory-limit") }) as usize
    }

    fn reject(&mut self, entry: &Entry) {
        add(&self.counts().rejected[entry.index], 1);
    }

    fn allows_batch(&mut self, _: &Session) -> bool {
        let options = &self.shared.options;
        let slow = options.number(const { index_of("slowlog-log-slower-than") });
        let persistence = &self.shared.persistence;
        let quiet = !self.shared.busy.is_any()
            && !persistence.is_loading()
            && !persistence.may_refuse()
            && self.shared.monitor_count.load(Ordering::Relaxed) == 0
            && !(0..BATCH_MICROSECONDS).contains(&slow)
            && self.shared.pause.until_ms.load(Ordering::Relaxed) == 0
            && !self.is_memory_short()
            && !self.shared.aof.log.is_failing()
            && !self.lacks_replicas();
        self.started = Instant::now();
        let peer = self.peer();
        // A client that listens gets its own messages right behind the reply that belongs to them.
        let listens = peer.subscriptions() > 0 || peer.client.monitor.load(Ordering::Relaxed);
        quiet && peer.is_authenticated && peer.replies == Replies::On && !listens
    }

    fn batch_ran(&mut self, session: &Session, entries: &[&Entry], failed: u64) {
        self.touched = true;
        let each = self.started.elapsed().as_nanos() as u64 / entries.len() as u64;
        let counts = self.counts();
        add(&counts.commands, entries.len() as u64);
        let tracks = self.tracks_latency();
        let report = session.blocked.as_ref().and_then(|blocked| blocked.report.as_ref());
        // Those that go on elsewhere are measured there.
        let here = entries.len() - report.map_or(0, |report| report.expected);
        let mut from = 0;
        // A pipeline mostly repeats one command: count each run of it at once.
        for run in entries.chunk_by(|one, other| one.index == other.index) {
            let (index, calls) = (run[0].index, run.len() as u64);
            add(&counts.calls[index], calls);
            add(&counts.nanoseconds[index], each * calls);
            let failures = failed >> from & ((1u64 << calls) - 1);
            if failures != 0 {
                add(&counts.failed[index], failures.count_ones().into());
            }
            let ended = run.len().min(here.saturating_sub(from)) as u64;
            if tracks && ended > 0 {
                counts.note_latency(index, each, ended);
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
        let flags = entry.command.flags;
        if entry.command.name == "FLUSHALL" {
            crate::persistence::save::flushing(&self.shared);
        }
        if self.shared.monitor_count.load(Ordering::Relaxed) > 0
            && !flags.has(SKIP_MONITOR)
            && !flags.has(ADMIN)
        {
            match without_passwords(entry, args) {
                Some(shown) => self.feed_monitors(session, shown.args(), false),
                None => self.feed_monitors(session, args, false),
            }
        }
        self.started = self.ended.take().unwrap_or_else(Instant::now);
        crash::note(&entry.full_name, args.len(), session.id);
    }

    fn failed_waiting(&mut self, entry: &Entry) {
        add(&self.counts().failed[entry.index], 1);
    }

    /// The clock costs as much as a small command: one of so many is timed, for all of them.
    fn begin_inside(&mut self, session: &Session, entry: &Entry, args: Args<'_>) {
        if self.shared.monitor_count.load(Ordering::Relaxed) > 0
            && !entry.command.flags.has(SKIP_MONITOR)
        {
            self.feed_monitors(session, args, true);
        }
        self.inside += 1;
        self.inside_started = self.inside.is_multiple_of(TIMED_INSIDE).then(Instant::now);
    }

    fn end_inside(&mut self, _: &Session, entry: &Entry, _: Args<'_>, failed: bool) {
        let elapsed = self.inside_started.take().map(|started| started.elapsed().as_nanos() as u64);
        // EVAL itself declares neither: what it calls makes its reply wait for the log.
        self.touched |= entry.command.flags.has(READONLY) || entry.command.flags.has(WRITE);
        let counts = self.counts();
        counts.call(entry.index, elapsed.map_or(0, |each| each * TIMED_INSIDE));
        if failed {
            add(&counts.failed[entry.index], 1);
        }
        if let Some(each) = elapsed
            && self.tracks_latency()
        {
            counts.note_latency(entry.index, each, TIMED_INSIDE);
        }
    }

    fn end(&mut self, session: &Session, entry: &Entry, args: Args<'_>, failed: bool) {
        crash::forget();
        // One that goes on elsewhere is measured there.
        let goes_on = session.blocked.as_ref().is_some_and(|blocked| blocked.report.is_some());
        let now = Instant::now();
        self.ended = self.in_pipeline.then_some(now);
        let nanoseconds = now.saturating_duration_since(self.started).as_nanos() as u64;
        self.touched |= entry.command.flags.has(READONLY) || entry.command.flags.has(WRITE);
        let counts = self.counts();
        counts.call(entry.index, nanoseconds);
        if failed {
            add(&counts.failed[entry.index], 1);
        }
        if self.tracks_latency() && !goes_on {
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
        let is_slow = slow >= 0 && microseconds >= slow as u64 && !goes_on;
        if is_slow && !entry.command.flags.has(SKIP_SLOWLOG) {
            match without_passwords(entry, args) {
                Some(shown) => self.note_slow(shown.args(), microseconds),
                None => self.note_slow(args, microseconds),
            }
        }
    }

    fn error(&mut self, error: &Error) {
        if error.is_counted() {
            return;
        }
        add(&self.counts().errors, 1);
        self.shared.records.add_error(error.message());
    }

    fn announce(&mut self, events: Vec<Event>) {
        events.iter().for_each(|event| self.publish_event(event));
    }

    fn settle(&mut self, _: &mut Session, _: &mut Writer, mut effects: Effects) {
        if !effects.background.is_empty() {
            self.shared.free_later(std::mem::take(&mut effects.background));
        }
    }

    fn deliverer(&self, session: &Session) -> Deliver {
        let (shared, thread, id) = (Arc::clone(&self.shared), self.thread, session.id);
        Box::new(move |out| shared.send(thread, Message::Served(id, Box::new(out))))
    }

    fn background(&self) -> Option<Arc<dyn Background>> {
        Some(Arc::new(Aside(Arc::clone(&self.shared))))
    }
}

/// Turns of threads that are no event loops.
struct Aside(Arc<Shared>);

impl Background for Aside {
    fn turn(&self, run: &mut dyn FnMut(&mut Turn<'_>)) {
        let one_at_a_time = &self.0.aside;
        let mut seed = one_at_a_time.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *seed = seed.wrapping_add(1);
        let mut hub = Hub::new(Arc::clone(&self.0), BACKGROUND, *seed);
        hub.now_ms = crate::worker::now_ms();
        let mut random = Random::new(*seed ^ 0xaaaa);
        let (now_ms, core) = (hub.now_ms, &self.0.core);
        run(&mut Turn { core, thread: BACKGROUND, now_ms, random: &mut random, host: &mut hub });
    }
}
