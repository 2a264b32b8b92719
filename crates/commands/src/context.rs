//! What a command's handler works with: the keys it declared, the reply, the client's session.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use keyspace::effects::{Effects, Event};
use keyspace::keys::Keys;
use keyspace::value::Kind;
use keyspace::waiting::Waiter;
use resp::{Args, OwnedArgs, Writer};

use crate::command::Flags;
use crate::engine::Turn;
use crate::error::Error;
use crate::log::Records;
use crate::registry::Entry;
use crate::widen::ScriptLocks;

/// The server around the engine, as the engine needs it. Families of the server's own crate get
/// at their server by casting it down.
pub trait Host: Any {
    /// The one check before a command runs or is queued: authentication, ACL, memory, client
    /// state. `Err` is the reply.
    fn admit(&mut self, session: &mut Session, entry: &Entry, args: Args<'_>) -> Result<(), Error> {
        let _ = (session, entry, args);
        Ok(())
    }

    /// Called for a command that does not come to run because of its number of words.
    fn reject(&mut self, entry: &Entry) {
        let _ = entry;
    }

    /// Whether a pipeline's commands may run under one taking of locks, and without the calls of
    /// `admit`, `begin` and `end` for each: nothing about this client or server asks for those.
    fn allows_batch(&mut self, session: &Session) -> bool {
        let _ = session;
        true
    }

    /// Called after a batch ran, with its commands; bit N of `failed` is set when the Nth one's
    /// reply was an error.
    fn batch_ran(&mut self, session: &Session, entries: &[&Entry], failed: u64) {
        let _ = (session, entries, failed);
    }

    /// Called before each command runs, queued ones in EXEC included (MONITOR, statistics).
    fn begin(&mut self, session: &Session, entry: &Entry, args: Args<'_>) {
        let _ = (session, entry, args);
    }

    /// Called after each command ran; `failed` when its reply was an error.
    fn end(&mut self, session: &Session, entry: &Entry, args: Args<'_>, failed: bool) {
        let _ = (session, entry, args, failed);
    }

    /// Called when a command that made its client wait ends that wait with an error.
    fn failed_waiting(&mut self, entry: &Entry) {
        let _ = entry;
    }

    /// As [`Host::begin`], for a command of a script.
    fn begin_inside(&mut self, session: &Session, entry: &Entry, args: Args<'_>) {
        let _ = (session, entry, args);
    }

    /// As [`Host::end`], for a command of a script.
    fn end_inside(&mut self, session: &Session, entry: &Entry, args: Args<'_>, failed: bool) {
        let _ = (session, entry, args, failed);
    }

    /// Called for each error reply.
    fn error(&mut self, error: &Error) {
        let _ = error;
    }

    /// Publishes keyspace events, while the locks of the command or transaction that caused them
    /// are still held: subscribers see the events of a key in the order of its changes.
    fn announce(&mut self, events: Vec<Event>) {
        let _ = events;
    }

    /// Acts on what a command or transaction did, after its locks were given back: frees memory.
    fn settle(&mut self, session: &mut Session, out: &mut Writer, effects: Effects) {
        let _ = (session, out, effects);
    }

    /// As [`Host::admit`], for a command that a script runs: only what depends on the client's
    /// rights. Memory is looked at once, when the script begins.
    fn admit_inside(
        &mut self,
        session: &mut Session,
        entry: &Entry,
        args: Args<'_>,
    ) -> Result<(), Error> {
        let _ = (session, entry, args);
        Ok(())
    }

    /// Whether commands that take memory are refused just now.
    fn is_memory_short(&mut self) -> bool {
        false
    }

    /// Why writes of scripts are refused just now, if they are.
    fn write_refusal(&mut self) -> Option<WriteRefusal> {
        None
    }

    /// Called about every millisecond of a script that runs for long, with what it is: others may
    /// be answered meanwhile. What the script is to do.
    fn script_tick(&mut self, script: &Script) -> Tick {
        if script.must_end.load(Ordering::Relaxed) { Tick::End } else { Tick::GoOn }
    }

    /// Called when such a script has ended.
    fn script_ended(&mut self, script: &Script) {
        let _ = script;
    }

    /// What those are answered who would have to wait for such a script.
    fn busy_error(&self) -> Error {
        const TEXT: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or \
                            SHUTDOWN NOSAVE.";
        Error::text(TEXT)
    }

    /// A script's line for the log: 0 = debug, 1 = verbose, 2 = notice, 3 = warning.
    fn script_log(&mut self, level: usize, line: &[u8]) {
        let _ = (level, line);
    }

    /// The most memory that the Lua states of a thread may take each, in bytes.
    fn script_memory_max(&self) -> usize {
        256 << 20
    }

    /// How a waiter's reply reaches its client, from any thread.
    fn deliverer(&self, session: &Session) -> Deliver {
        let _ = session;
        Box::new(|_| {})
    }

    /// The server for threads that are no event loops; `None` where everything has to run where it
    /// arrives.
    fn background(&self) -> Option<Arc<dyn Background>> {
        None
    }
}

/// Why scripts may not write.
#[derive(Debug)]
pub struct WriteRefusal {
    /// What a command that writes is answered.
    pub command: Error,
    /// What a script is answered that says by its flags that it may write.
    pub script: Error,
}

/// The server for threads that are no event loops, such as a SQL database's.
pub trait Background: Send + Sync {
    /// Runs something in a turn of its own. Such turns come one at a time, so they must be short.
    fn turn(&self, run: &mut dyn FnMut(&mut Turn<'_>));
}

/// Something besides the keys that takes part in a transaction, such as a SQL database.
pub trait Participant: Send {
    /// Whether it can be committed; an error's text if not.
    fn prepare(&mut self) -> Result<(), String>;
    /// Keeps what was done in the transaction. `false` undoes it.
    fn end(self: Box<Self>, keep: bool);
    /// For the owner to find it again.
    fn as_any(&mut self) -> &mut dyn Any;
}

/// What a script is to do that has been running for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// Nothing special.
    GoOn,
    /// End, unless it has written.
    End,
    /// End in any case: the server ends.
    EndNow,
}

/// A script that has been running for a while.
#[derive(Debug)]
pub struct Script {
    /// Its digest, or its function's name.
    pub name: String,
    /// Whether EVAL or its like runs it, not FCALL.
    pub is_eval: bool,
    /// The command that runs it.
    pub command: Vec<Vec<u8>>,
    /// When it began, in milliseconds since 1970.
    pub started_ms: i64,
    /// It has run for longer than `busy-reply-threshold`.
    pub is_busy: AtomicBool,
    /// It has called a command that writes: it cannot be ended any more.
    pub has_written: AtomicBool,
    /// SCRIPT KILL or FUNCTION KILL has asked it to end.
    pub must_end: AtomicBool,
    /// For how long it has run, in milliseconds.
    pub ran_ms: AtomicI64,
}

/// Takes the reply of a client that was blocked.
pub type Deliver = Box<dyn Fn(Writer) + Send + Sync>;

/// A queue of commands between MULTI and EXEC.
#[derive(Default)]
pub struct Multi {
    /// Each with its place in the registry.
    pub queue: Vec<(usize, OwnedArgs)>,
    /// A command was refused: EXEC will be, too.
    pub failed: bool,
    /// Bytes queued.
    pub bytes: usize,
    /// What any of the queued commands does.
    pub flags: Flags,
}

/// What a blocked client waits for to happen to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The key holds this type, and something in it to be taken.
    Filled(Kind),
    /// A value of this type has grown: who reads takes nothing from others.
    Grown(Kind),
    /// That, or the key has gone or holds another type, which ends the wait with an error.
    GrownOrGone(Kind),
}

impl Wake {
    /// Whether a key that holds `found` is ready.
    pub fn is_ready(self, found: Option<Kind>) -> bool {
        match self {
            Wake::Filled(kind) | Wake::Grown(kind) => found == Some(kind),
            Wake::GrownOrGone(_) => true,
        }
    }
}

/// What a blocking command asks for when there is nothing to serve.
pub struct Block {
    /// The keys to wait for, in order.
    pub keys: Vec<Vec<u8>>,
    /// What makes a key ready.
    pub wake: Wake,
    /// The words to run again, if they are not those that were sent.
    pub words: Option<OwnedArgs>,
    /// When it times out, in milliseconds since 1970; `None` = never.
    pub deadline_ms: Option<i64>,
    /// Writes the reply at the timeout.
    pub on_timeout: fn(&mut Writer),
}

/// A client that waits, until its waiter ends.
pub struct Blocked {
    /// Who ends the wait.
    pub waiter: Arc<Waiter>,
    /// See [`Block`].
    pub block: Block,
    /// The database of the keys.
    pub db: usize,
    /// The commands that other threads run for it, if that is what it waits for.
    pub report: Option<Report>,
}

/// What became of commands that run on other threads, for the slow log and the histograms of
/// latencies: shared by who runs them and who waits.
#[derive(Debug, Default, Clone)]
pub struct Report {
    ran: Arc<Mutex<Vec<Ran>>>,
    /// How many commands there are, the last ones that were counted.
    pub expected: usize,
}

/// A command that ran on another thread.
#[derive(Debug)]
pub struct Ran {
    /// Its place in the registry.
    pub entry: usize,
    /// Its words.
    pub args: OwnedArgs,
    /// How long it ran; what it waited before does not count.
    pub nanoseconds: u64,
    /// Its reply was an error.
    pub failed: bool,
}

impl Report {
    /// Adds a command that has ended.
    pub fn add(&self, ran: Ran) {
        self.ran.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(ran);
    }

    /// Takes what was added.
    pub fn take(&self) -> Vec<Ran> {
        std::mem::take(&mut *self.ran.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

/// A client's state between commands, as far as commands know it.
pub struct Session {
    /// The client's id.
    pub id: u64,
    /// The selected database.
    pub db: usize,
    /// The open transaction.
    pub multi: Option<Multi>,
    /// Watched keys, each with its database.
    pub watched: Vec<(usize, Vec<u8>)>,
    /// Keys no longer watched whose shards have still to forget it.
    pub unwatched: Vec<(usize, Vec<u8>)>,
    /// Raised when a watched key changes.
    pub watch_flag: Arc<AtomicBool>,
    /// Set while EXEC runs: blocking commands do not block, replies are one array.
    pub in_exec: bool,
    /// Set while a blocked command is tried again for its client.
    pub is_serving: bool,
    /// A blocking command's wish, taken by the engine.
    pub block: Option<Block>,
    /// The wait, if the client is blocked.
    pub blocked: Option<Blocked>,
    /// Reading does not count as use of a key (CLIENT NO-TOUCH).
    pub no_touch: bool,
    /// Replies are written in RESP3.
    pub resp3: bool,
    /// What takes part in the transaction or script that runs, besides the keys.
    pub unit: Vec<Box<dyn Participant>>,
    /// What a family keeps for this client between commands, such as an open SQL transaction:
    /// dropped, and so undone, when the client goes or says RESET.
    pub kept: Option<Box<dyn Any + Send>>,
    /// The commit log's position after this client's last write.
    pub written: u64,
}

impl Session {
    /// A fresh client in database 0.
    pub fn new(id: u64) -> Session {
        Session {
            id,
            db: 0,
            multi: None,
            watched: Vec::new(),
            unwatched: Vec::new(),
            watch_flag: Arc::default(),
            in_exec: false,
            is_serving: false,
            block: None,
            blocked: None,
            no_touch: false,
            resp3: false,
            unit: Vec::new(),
            kept: None,
            written: 0,
        }
    }

    /// Stops watching; the engine clears up in the shards.
    pub fn forget_watches(&mut self) {
        self.watch_flag = Arc::default();
        let stale = std::mem::take(&mut self.watched);
        self.unwatched.extend(stale);
    }

    /// Marks the open transaction as failed.
    pub fn fail_multi(&mut self) {
        if let Some(multi) = &mut self.multi {
            multi.failed = true;
        }
    }
}

/// See the module.
pub struct Context<'a> {
    /// The keyspace, as far as the command declared it.
    pub keys: Keys<'a>,
    /// The reply.
    pub out: &'a mut Writer,
    /// The client.
    pub session: &'a mut Session,
    /// The server.
    pub host: &'a mut dyn Host,
    /// The engine's parts, for commands about commands.
    pub core: &'a crate::engine::Core,
    /// The command that runs.
    pub entry: &'a Entry,
    /// What it leaves for the commit log.
    pub log: Records,
    /// The script that runs it, if one does.
    pub script: Option<ScriptLocks<'a>>,
    /// Commands that cannot be undone, for the moment when the transaction or script is whole.
    pub late: Vec<OwnedArgs>,
}

impl<'a> Context<'a> {
    /// A context with nothing done yet.
    #[inline]
    pub fn new(
        keys: Keys<'a>,
        out: &'a mut Writer,
        session: &'a mut Session,
        host: &'a mut dyn Host,
        core: &'a crate::engine::Core,
        entry: &'a Entry,
    ) -> Context<'a> {
        let (log, script, late) = (Records::default(), None, Vec::new());
        Context { keys, out, session, host, core, entry, log, script, late }
    }

    /// The name of the running command in lower case, as error texts have it.
    pub fn command_name(&self) -> &str {
        &self.entry.full_name
    }

    /// Whether a blocking command may take from `key` now: a fresh one queues behind those that
    /// came before it.
    pub fn may_take(&self, key: &[u8]) -> bool {
        self.session.is_serving || self.session.in_exec || !self.keys.has_waiters(key)
    }

    /// Says that `count` elements of a collection, at least one, were changed: watchers and waiters
    /// of the key, that many changes for the log, one event.
    pub fn changed_elements(&mut self, class: u32, event: &'static str, key: &[u8], count: usize) {
        self.keys.changed(key);
        self.keys.effects.dirty += count as u64 - 1;
        self.keys.notify(class, event, key);
    }

    /// Makes the client wait for one of `keys` to hold a `kind`, and then run the same command
    /// again; `timeout` in seconds, 0 = for ever. Inside a transaction the timeout's reply is
    /// given at once.
    pub fn block<'k>(
        &mut self,
        keys: impl IntoIterator<Item = &'k [u8]>,
        kind: Kind,
        timeout_ms: i64,
        on_timeout: fn(&mut Writer),
    ) {
        self.wait(Waits { wake: Wake::Filled(kind), timeout_ms, on_timeout, words: None }, keys);
    }

    /// As [`Context::block`], with everything said.
    pub fn wait<'k>(&mut self, waits: Waits, keys: impl IntoIterator<Item = &'k [u8]>) {
        let Waits { wake, timeout_ms, on_timeout, words } = waits;
        if self.session.in_exec {
            return on_timeout(self.out);
        }
        let keys: Vec<Vec<u8>> = keys.into_iter().map(<[u8]>::to_vec).collect();
        let deadline_ms = (timeout_ms > 0).then(|| self.keys.now_ms() + timeout_ms);
        self.session.block = Some(Block { keys, wake, words, deadline_ms, on_timeout });
    }
}

/// How a command waits; see [`Block`].
pub struct Waits {
    /// What for.
    pub wake: Wake,
    /// How long, in milliseconds; 0 = for ever.
    pub timeout_ms: i64,
    /// Writes the reply at the timeout.
    pub on_timeout: fn(&mut Writer),
    /// The words to run again, if they are not those that were sent.
    pub words: Option<OwnedArgs>,
}
