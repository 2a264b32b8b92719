//! Runs commands: finds them, takes their locks, runs them alone, pipelined or in a transaction,
//! wakes whom they make ready. A whole server but for sockets and threads, which call it.
//!
//! **Invariant:** a command sees and changes its keys with all their shards locked from its first
//! look to its last change; EXEC locks the shards of all its commands and watched keys at once.
//! **Invariant:** a blocked client is served after the whole command or transaction that feeds
//! it, in the order in which clients came to wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use keyspace::effects::Gone;
use keyspace::hasher::hash;
use keyspace::keys::Keys;
use keyspace::keyspace::{Keyspace, Tally, shard_of};
use keyspace::random::Random;
use keyspace::raw::shards::ShardSet;
use keyspace::value::ValueRef;
use keyspace::waiting::Waiter;
use resp::{Args, OwnedArgs, Requests, Writer};

use crate::command::{ALL_KEYS, ATOMIC, BLOCKING, SCRIPT, TRANSACTION, VISITS_ALL, WRITE};
use crate::context::{Blocked, Context, Deliver, Host, Session, Wake};
use crate::error::Error;
use crate::log::Records;
use crate::registry::{Entry, Registry, each_key};
use crate::together::run_atomic;

/// What all threads share.
pub struct Core {
    /// The keys.
    pub space: Keyspace,
    /// The commands.
    pub registry: Registry,
}

/// The locks that a command needs.
pub(crate) enum Locks {
    One(usize),
    Set(ShardSet),
}

/// What a waiter will do: the same command again.
struct Task {
    args: OwnedArgs,
    entry: usize,
    db: usize,
    resp3: bool,
    wake: Wake,
    deliver: Deliver,
}

/// The number of a thread that is no event loop.
pub const BACKGROUND: usize = usize::MAX;

/// Commands of a pipeline that are run under one taking of locks, at most.
pub(crate) const BATCH: usize = 63;
/// The same where other threads may wait for those locks.
const BATCH_SHARED: usize = 16;

/// Collections from this size on do not fit the cache: what a batch looks up in them is fetched
/// ahead.
const PREFETCH_LEN: usize = 4096;

/// One thread's turn: runs commands until it is dropped. Time stands still in it.
pub struct Turn<'a> {
    /// The shared parts.
    pub core: &'a Core,
    /// This thread's number.
    pub thread: usize,
    /// Now, in milliseconds since 1970.
    pub now_ms: i64,
    /// This thread's random numbers.
    pub random: &'a mut Random,
    /// The server.
    pub host: &'a mut dyn Host,
}

/// The shards of the keys that a command declares.
pub fn locks_of(entry: &Entry, args: Args<'_>, set: &mut ShardSet) {
    let command = &entry.command;
    if command.flags.has(ALL_KEYS) || command.wants_all_keys.is_some_and(|wants| wants(args)) {
        *set = ShardSet::ALL;
        return;
    }
    // Words that make no sense declare no keys: the handler refuses them before it looks at one.
    let _ = each_key(command, args, |index, _| set.add(shard_of(hash(args.word(index)))));
}

impl<'a> Turn<'a> {
    /// Runs one command of a client, or queues it.
    pub fn run(&mut self, session: &mut Session, out: &mut Writer, args: Args<'_>) {
        let core = self.core;
        match core.registry.named(args) {
            Ok(entry) if entry.takes(args.len()) => self.run_found(session, out, entry, args),
            Ok(entry) => {
                self.host.reject(entry);
                self.refuse(session, out, &Error::wrong_arity(&entry.full_name));
            }
            Err(error) => self.refuse(session, out, &error),
        }
    }

    fn refuse(&mut self, session: &mut Session, out: &mut Writer, error: &Error) {
        session.fail_multi();
        self.host.error(error);
        out.error(error.message());
    }

    fn run_found(
        &mut self,
        session: &mut Session,
        out: &mut Writer,
        entry: &'a Entry,
        args: Args<'_>,
    ) {
        if let Err(error) = self.host.admit(session, entry, args) {
            if session.multi.is_some() && entry.command.name == "EXEC" {
                return self.drop_transaction(session, out, &format!("of: {}", error.message()));
            }
            return self.refuse(session, out, &error);
        }
        if session.multi.is_some() && !entry.command.flags.has(TRANSACTION) {
            return self.queue(session, out, entry, args);
        }
        if session.multi.is_some() && entry.command.name == "EXEC" {
            return self.exec(session, out, entry, args);
        }
        let locks = self.locks(entry, args);
        self.run_locked(session, out, entry, args, &locks);
    }

    fn locks(&self, entry: &Entry, args: Args<'_>) -> Locks {
        if entry.one_key {
            return Locks::One(shard_of(hash(args.word(1))));
        }
        let mut set = ShardSet::default();
        locks_of(entry, args, &mut set);
        // One lock is handled at less cost than a set of one.
        set.only().map_or(Locks::Set(set), Locks::One)
    }

    pub(crate) fn keys(&mut self, locks: &Locks) -> Keys<'a> {
        let space = &self.core.space;
        let held = match locks {
            Locks::One(shard) => space.lock_one(*shard),
            Locks::Set(set) => space.lock(set),
        };
        let random = Random::new(self.random.bits());
        Keys::new(space, held, self.tally(), self.now_ms, random)
    }

    fn tally(&self) -> &'a Tally {
        let space = &self.core.space;
        if self.thread == BACKGROUND { space.background_tally() } else { space.tally(self.thread) }
    }

    /// As `keys`, but gives up if a script holds them for long.
    fn keys_or_busy(&mut self, locks: &Locks) -> Option<Keys<'a>> {
        let space = &self.core.space;
        let held = match locks {
            Locks::One(shard) => space.lock_one_or_busy(*shard),
            Locks::Set(set) => space.lock_or_busy(set),
        };
        let random = Random::new(self.random.bits());
        Some(Keys::new(space, held?, self.tally(), self.now_ms, random))
    }

    fn run_locked(
        &mut self,
        session: &mut Session,
        out: &mut Writer,
        entry: &'a Entry,
        args: Args<'_>,
        locks: &Locks,
    ) {
        let Some(keys) = self.keys_or_busy(locks) else {
            let error = self.host.busy_error();
            return self.refuse(session, out, &error);
        };
        let (core, host) = (self.core, &mut *self.host);
        let mut cx = Context::new(keys, out, session, host, core, entry);
        call(&mut cx, entry, args);
        if entry.command.flags.has(BLOCKING) {
            start_wait(&mut cx, entry, args);
        }
        let deferred = finish(&mut cx);
        drop(cx);
        self.after(session, out, deferred);
    }

    /// What is left to do for a command once its own locks are given back.
    pub(crate) fn after(
        &mut self,
        session: &mut Session,
        out: &mut Writer,
        deferred: Vec<(usize, Vec<u8>)>,
    ) {
        if !deferred.is_empty() {
            self.serve_deferred(session, out, deferred);
        }
        if !session.unwatched.is_empty() {
            self.tidy_watches(session);
        }
    }

    /// Serves keys whose waiters need locks that could not be had on the spot.
    fn serve_deferred(
        &mut self,
        session: &mut Session,
        out: &mut Writer,
        mut deferred: Vec<(usize, Vec<u8>)>,
    ) {
        // Each round serves at least the first waiter of each key; new ones queue behind.
        while let Some((db, key)) = deferred.pop() {
            let mut set = ShardSet::default();
            set.add(shard_of(hash(&key)));
            for waiter in self.line(db, &key) {
                if let Some(task) = waiter.task.downcast_ref::<Task>() {
                    let entry = &self.core.registry.entries()[task.entry];
                    locks_of(entry, task.args.args(), &mut set);
                }
            }
            let mut keys = self.keys(&Locks::Set(set));
            keys.effects.ready.push((db, key));
            let (core, host) = (self.core, &mut *self.host);
            let entry = &core.registry.entries()[0];
            let mut cx = Context::new(keys, out, session, host, core, entry);
            serve(&mut cx, &mut deferred);
            give_back(&mut cx);
        }
    }

    fn line(&mut self, db: usize, key: &[u8]) -> Vec<Arc<Waiter>> {
        let mut keys = self.keys(&Locks::One(shard_of(hash(key))));
        keys.select(db);
        keys.waiters(key)
    }

    // Pipelines.

    /// Runs the next command of a pipeline, or several: a run of commands with one key each takes
    /// its locks together, and its keys are fetched into the cache side by side. Returns how many
    /// have been run, at least one.
    pub fn run_some(
        &mut self,
        session: &mut Session,
        out: &mut Writer,
        requests: &Requests,
        input: &[u8],
        first: usize,
    ) -> usize {
        let args = requests.command(first, input);
        let core = self.core;
        let Ok(head) = core.registry.find(args) else {
            self.run(session, out, args);
            return 1;
        };
        let may_be_many = requests.len() - first > 1 && session.multi.is_none();
        let mut ran = 0;
        if may_be_many && head.command.run_many.is_some() {
            ran = self.run_alike(session, out, requests, input, first, head);
        }
        if may_be_many && head.batches && ran == 0 {
            ran = self.run_batch(session, out, requests, input, first, head);
        }
        if ran == 0 {
            self.run_found(session, out, head, args);
        }
        ran.max(1)
    }

    /// Runs commands from `first` on as long as each has one key and nothing special about it;
    /// returns how many.
    fn run_batch(
        &mut self,
        session: &mut Session,
        out: &mut Writer,
        requests: &Requests,
        input: &[u8],
        first: usize,
        head: &'a Entry,
    ) -> usize {
        if !self.host.allows_batch(session) {
            return 0;
        }
        let core = self.core;
        let mut entries = [&core.registry.entries()[0]; BATCH];
        let mut hashes = [0; BATCH];
        let mut set = ShardSet::default();
        let mut count = 0;
        let most = if core.space.runners() == 1 { BATCH } else { BATCH_SHARED };
        while count < most && first + count < requests.len() {
            let args = requests.command(first + count, input);
            let found = if count == 0 { Ok(head) } else { core.registry.find(args) };
            let Some(entry) = found.ok().filter(|entry| entry.batches) else { break };
            entries[count] = entry;
            hashes[count] = hash(args.word(1));
            let shard = shard_of(hashes[count]);
            core.space.prefetch_lock(shard);
            set.add(shard);
            count += 1;
        }
        if count < 2 {
            return 0;
        }
        let Some(mut keys) = self.keys_or_busy(&Locks::Set(set)) else { return 0 };
        for hash in &hashes[..count] {
            Keyspace::prefetch(keys.held(), *hash, session.db);
        }
        for hash in &hashes[..count] {
            Keyspace::prefetch_entry(keys.held(), *hash, session.db);
        }
        keys.select(session.db);
        if entries[..count].iter().any(|entry| entry.command.element > 0) {
            let command = |index| requests.command(first + index, input);
            prefetch_elements(&keys, &entries[..count], command);
        }
        let host = &mut *self.host;
        let mut cx = Context::new(keys, out, session, host, core, entries[0]);
        cx.keys.touch = !cx.session.no_touch;
        let mut failed = 0u64;
        for (index, entry) in entries[..count].iter().enumerate() {
            let args = requests.command(first + index, input);
            failed |= u64::from(run_handler(&mut cx, entry, args)) << index;
        }
        cx.host.batch_ran(cx.session, &entries[..count], failed);
        let deferred = finish(&mut cx);
        drop(cx);
        self.after(session, out, deferred);
        count
    }

    // Transactions.

    fn queue(&mut self, session: &mut Session, out: &mut Writer, entry: &Entry, args: Args<'_>) {
        if entry.command.flags.has(crate::command::NO_MULTI) {
            let error = Error::text("ERR Command not allowed inside a transaction");
            return self.refuse(session, out, &error);
        }
        let multi = session.multi.as_mut().expect("the caller looked");
        let owned = args.to_owned();
        multi.bytes += owned.bytes();
        multi.flags = multi.flags.with(entry.command.flags);
        multi.queue.push((entry.index, owned));
        out.simple("QUEUED");
    }

    /// Answers an EXEC that may not run, and forgets its transaction.
    fn drop_transaction(&mut self, session: &mut Session, out: &mut Writer, why: &str) {
        session.multi = None;
        session.forget_watches();
        self.tidy_watches(session);
        let text = format!("EXECABORT Transaction discarded because {why}");
        self.refuse(session, out, &Error::new(text));
    }

    fn exec(&mut self, session: &mut Session, out: &mut Writer, exec: &'a Entry, args: Args<'_>) {
        let core = self.core;
        let multi = session.multi.take().expect("the caller looked");
        if multi.failed {
            self.host.begin(session, exec, args);
            self.drop_transaction(session, out, "of previous errors.");
            return self.host.end(session, exec, args, true);
        }
        let mut set = ShardSet::default();
        for (index, owned) in &multi.queue {
            let entry = &core.registry.entries()[*index];
            locks_of(entry, owned.args(), &mut set);
            if entry.command.flags.has(VISITS_ALL) || entry.command.flags.has(SCRIPT) {
                // Taking shards one by one while holding others could wait for ever.
                set = ShardSet::ALL;
            }
        }
        for (_, key) in &session.watched {
            set.add(shard_of(hash(key)));
        }
        let Some(keys) = self.keys_or_busy(&Locks::Set(set)) else {
            let why = format!("of: {}", self.host.busy_error().message());
            return self.drop_transaction(session, out, &why);
        };
        let host = &mut *self.host;
        let mut cx = Context::new(keys, out, session, host, core, exec);
        if take_watches(&mut cx) {
            cx.out.null_array();
            finish(&mut cx);
            return;
        }
        cx.host.begin(cx.session, exec, args);
        cx.session.in_exec = true;
        cx.log.open();
        if multi.flags.has(ATOMIC) {
            run_atomic(&mut cx, &multi.queue);
        } else {
            cx.out.array(multi.queue.len());
            for (index, owned) in &multi.queue {
                call(&mut cx, &core.registry.entries()[*index], owned.args());
            }
        }
        cx.log.close();
        cx.session.in_exec = false;
        cx.host.end(cx.session, exec, args, false);
        let deferred = finish(&mut cx);
        drop(cx);
        self.after(session, out, deferred);
    }

    /// Takes what is left of a client's watches out of the shards (UNWATCH, DISCARD, disconnect).
    pub fn tidy_watches(&mut self, session: &mut Session) {
        for (db, key) in std::mem::take(&mut session.unwatched) {
            let mut keys = self.keys(&Locks::One(shard_of(hash(&key))));
            keys.select(db);
            keys.tidy_watches(&key);
        }
    }

    // Waiting.

    /// Ends a client's wait if it is over: at its deadline with the timeout's reply, or for
    /// another reason (`forced`: CLIENT UNBLOCK, disconnect). False if somebody serves it just
    /// now: its reply is on the way.
    pub fn end_wait(&mut self, session: &mut Session) -> Option<Blocked> {
        if !session.blocked.as_ref()?.waiter.try_begin() {
            return None;
        }
        let blocked = session.blocked.take()?;
        blocked.waiter.end();
        self.leave_lines(&blocked);
        Some(blocked)
    }

    /// Ends the wait of a client that has gone. If somebody serves it just now, that is waited
    /// for, so that its other lines forget it, too.
    pub fn abandon(&mut self, blocked: &Blocked) {
        while !blocked.waiter.has_ended() {
            if blocked.waiter.try_begin() {
                blocked.waiter.end();
            } else {
                std::thread::yield_now();
            }
        }
        self.leave_lines(blocked);
    }

    /// Takes an ended waiter out of the lines it stood in.
    pub fn leave_lines(&mut self, blocked: &Blocked) {
        for key in &blocked.block.keys {
            let mut keys = self.keys(&Locks::One(shard_of(hash(key))));
            keys.select(blocked.db);
            keys.tidy_waiters(key);
        }
    }

    /// Removes keys that are due, at most `max` of each shard; true if more may be due.
    pub fn expire_due(&mut self, session: &mut Session, out: &mut Writer, max: usize) -> bool {
        let core = self.core;
        let mut more = false;
        let due: Vec<usize> = core.space.due_shards(self.now_ms).collect();
        for shard in due {
            let Some(mut keys) = self.keys_or_busy(&Locks::One(shard)) else { continue };
            more |= keys.expire_due(shard, max);
            self.settle_gone(session, out, keys);
        }
        more
    }

    /// Evicts one key that the policy picked; false if it is gone already.
    pub fn evict(
        &mut self,
        session: &mut Session,
        out: &mut Writer,
        db: usize,
        key: &[u8],
    ) -> bool {
        let mut keys = self.keys(&Locks::One(shard_of(hash(key))));
        keys.select(db);
        let evicted = keys.evict(key);
        self.settle_gone(session, out, keys);
        evicted
    }

    /// Logs and announces keys that went without a command, and gives their locks back.
    fn settle_gone(&mut self, session: &mut Session, out: &mut Writer, mut keys: Keys<'_>) {
        let mut log = Records::default();
        if !keys.effects.touched.is_empty() {
            keys.tell_observer();
        }
        log_expired(&mut keys, &mut log);
        if !log.is_empty() {
            keys.space().commit(log.batch());
        }
        announce(&mut keys, self.host);
        let mut effects = std::mem::take(&mut keys.effects);
        drop(keys);
        // Whoever reads a group's stream learns that it has gone.
        let ready = std::mem::take(&mut effects.ready);
        self.host.settle(session, out, effects);
        if !ready.is_empty() {
            self.serve_deferred(session, out, ready);
        }
    }
}

/// Fetches the fields and members that a batch's commands look up in large collections: first the
/// places in their tables, then themselves.
fn prefetch_elements<'i>(keys: &Keys<'_>, entries: &[&Entry], command: impl Fn(usize) -> Args<'i>) {
    let mut found = [None; BATCH];
    // Neighbours in a pipeline often work on one collection: look it up once.
    let mut last: Option<(&[u8], Option<ValueRef<'_>>)> = None;
    for (index, entry) in entries.iter().enumerate() {
        let args = command(index);
        let Some(element) = args.get(entry.command.element) else { continue };
        if entry.command.element == 0 {
            continue;
        }
        let key = args.word(1);
        let value = match last {
            Some((other, value)) if other == key => value,
            _ => keys.peek(key).filter(|value| value.len() >= PREFETCH_LEN),
        };
        last = Some((key, value));
        if let Some(value) = value {
            let element_hash = hash(element);
            value.prefetch(element_hash);
            found[index] = Some((value, element_hash));
        }
    }
    for (value, element_hash) in found.into_iter().flatten() {
        value.prefetch_element(element_hash);
    }
}

/// Runs one command under the locks it needs, between the host's calls; true if it failed.
#[inline]
pub(crate) fn call<'a>(cx: &mut Context<'a>, entry: &'a Entry, args: Args<'_>) -> bool {
    cx.keys.select(cx.session.db);
    cx.keys.touch = !cx.session.no_touch;
    cx.host.begin(cx.session, entry, args);
    let failed = run_handler(cx, entry, args);
    cx.host.end(cx.session, entry, args, failed);
    failed
}

/// As `call`, for a command of a script.
#[inline]
pub(crate) fn call_inside<'a>(cx: &mut Context<'a>, entry: &'a Entry, args: Args<'_>) -> bool {
    cx.keys.select(cx.session.db);
    cx.keys.touch = !cx.session.no_touch;
    cx.host.begin_inside(cx.session, entry, args);
    let failed = run_handler(cx, entry, args);
    cx.host.end_inside(cx.session, entry, args, failed);
    failed
}

/// Runs one command's handler: its reply, its log record. True if it failed.
#[inline]
fn run_handler<'a>(cx: &mut Context<'a>, entry: &'a Entry, args: Args<'_>) -> bool {
    cx.entry = entry;
    let (dirty, db) = (cx.keys.effects.dirty, cx.keys.db());
    if !entry.one_key && entry.command.flags.has(WRITE) && cx.keys.space().is_logging() {
        expire_sources(cx, entry, args);
    }
    let result = (entry.command.run)(cx, args);
    if let Err(error) = &result {
        cx.host.error(error);
        cx.out.error(error.message());
    }
    if cx.keys.space().is_logging() {
        log(cx, db, args, dirty);
    }
    result.is_err()
}

/// Removes keys that are past their time before a write looks at them, so that the log says that
/// they are gone: the replay, in which nothing expires, must not see them either.
#[inline(never)]
fn expire_sources(cx: &mut Context<'_>, entry: &Entry, args: Args<'_>) {
    let _ = each_key(&entry.command, args, |index, _| cx.keys.expire_if_due(args.word(index)));
}

/// Serves whom the command made ready, gives the locks back, acts on the effects. Returns the keys
/// that could not be served under these locks.
pub(crate) fn finish(cx: &mut Context<'_>) -> Vec<(usize, Vec<u8>)> {
    let mut deferred = Vec::new();
    if !cx.keys.effects.ready.is_empty() {
        serve(cx, &mut deferred);
    }
    give_back(cx);
    deferred
}

/// Logs and announces what was done, gives the locks back, acts on the effects.
#[inline]
fn give_back(cx: &mut Context<'_>) {
    if !cx.keys.effects.touched.is_empty() {
        cx.keys.tell_observer();
    }
    commit(&mut cx.keys, cx.session, &mut cx.log);
    announce(&mut cx.keys, cx.host);
    cx.keys.count_changes();
    cx.keys.unlock();
    if !cx.keys.effects.is_quiet() {
        let effects = std::mem::take(&mut cx.keys.effects);
        cx.host.settle(cx.session, cx.out, effects);
    }
}

/// Hands what was done to the commit log, under the locks.
#[inline]
fn commit(keys: &mut Keys<'_>, session: &mut Session, log: &mut Records) {
    if !keys.effects.expired.is_empty() {
        log_expired(keys, log);
    }
    if !log.is_empty() {
        session.written = keys.space().commit(log.batch());
        log.give_back();
    }
}

/// Publishes the events, under the locks.
fn announce(keys: &mut Keys<'_>, host: &mut dyn Host) {
    if !keys.effects.events.is_empty() {
        host.announce(std::mem::take(&mut keys.effects.events));
    }
}

/// Records what a command that worked in `db` changed.
fn log(cx: &mut Context<'_>, db: usize, args: Args<'_>, dirty: u64) {
    if !cx.keys.effects.expired.is_empty() {
        log_expired(&mut cx.keys, &mut cx.log);
    }
    let rewrites = cx.keys.effects.rewrites.take();
    if cx.keys.effects.dirty == dirty {
        return;
    }
    let Some(commands) = rewrites else { return cx.log.push(db, args.iter()) };
    cx.log.open();
    for words in &commands {
        cx.log.push(db, words.iter().map(Vec::as_slice));
    }
    cx.log.close();
}

fn log_expired(keys: &mut Keys<'_>, log: &mut Records) {
    for Gone { db, key, fields } in std::mem::take(&mut keys.effects.expired) {
        let name: &[u8] = if fields.is_empty() { b"DEL" } else { b"HDEL" };
        let mut words = vec![name, &key];
        words.extend(fields.iter().map(Vec::as_slice));
        log.push(db, words.into_iter());
    }
}

/// Puts the client in line if its command asked for it.
fn start_wait(cx: &mut Context<'_>, entry: &Entry, args: Args<'_>) {
    let Some(mut block) = cx.session.block.take() else { return };
    let task = Task {
        args: block.words.take().unwrap_or_else(|| args.to_owned()),
        entry: entry.index,
        db: cx.session.db,
        resp3: cx.session.resp3,
        wake: block.wake,
        deliver: cx.host.deliverer(cx.session),
    };
    let waiter = Waiter::new(cx.session.id, Box::new(task));
    for key in &block.keys {
        // It queued behind others though there may be something to take: have the line looked at.
        if matches!(block.wake, Wake::Filled(kind) if cx.keys.kind(key) == Some(kind)) {
            cx.keys.effects.ready.push((cx.session.db, key.clone()));
        }
        cx.keys.wait_for(key, Arc::clone(&waiter));
    }
    cx.session.blocked = Some(Blocked { waiter, block, db: cx.session.db, report: None });
}

/// Serves the waiters of the keys that became ready, first come first. Keys whose waiters need
/// locks that are not free go to `deferred`.
fn serve(cx: &mut Context<'_>, deferred: &mut Vec<(usize, Vec<u8>)>) {
    let was = cx.keys.db();
    let mut next = 0;
    while next < cx.keys.effects.ready.len() {
        let (db, key) = cx.keys.effects.ready[next].clone();
        next += 1;
        cx.keys.select(db);
        for waiter in cx.keys.waiters(&key) {
            let Some(task) = waiter.task.downcast_ref::<Task>() else { continue };
            cx.keys.select(db);
            if !task.wake.is_ready(cx.keys.kind(&key)) {
                continue;
            }
            let entry = &cx.core.registry.entries()[task.entry];
            let mut set = ShardSet::default();
            locks_of(entry, task.args.args(), &mut set);
            if !cx.keys.held().try_extend(&set) {
                deferred.push((db, key.clone()));
                break;
            }
            cx.keys.after_locking();
            if waiter.try_begin() {
                serve_one(cx, entry, &waiter, task);
            }
        }
        cx.keys.select(db);
        cx.keys.tidy_waiters(&key);
    }
    cx.keys.effects.ready.clear();
    cx.keys.select(was);
}

/// Tries a waiter's command again, in its client's place; the reply goes to that client.
fn serve_one<'a>(cx: &mut Context<'a>, entry: &'a Entry, waiter: &Waiter, task: &Task) {
    let mut session = Session::new(waiter.client);
    session.db = task.db;
    session.resp3 = task.resp3;
    session.is_serving = true;
    let mut out = Writer::new(task.resp3);
    let dirty = cx.keys.effects.dirty;
    cx.keys.select(task.db);
    std::mem::swap(cx.session, &mut session);
    std::mem::swap(cx.out, &mut out);
    let was = std::mem::replace(&mut cx.entry, entry);
    let result = (entry.command.run)(cx, task.args.args());
    cx.entry = was;
    std::mem::swap(cx.out, &mut out);
    std::mem::swap(cx.session, &mut session);
    if cx.keys.space().is_logging() {
        log(cx, task.db, task.args.args(), dirty);
    }
    if session.block.is_some() {
        return waiter.give_up();
    }
    if let Err(error) = result {
        cx.host.error(&error);
        cx.host.failed_waiting(entry);
        out.error(error.message());
    }
    waiter.end();
    (task.deliver)(out);
}

/// Takes the client's watches back; true if any watched key has changed or expired since.
fn take_watches(cx: &mut Context<'_>) -> bool {
    let db = cx.session.db;
    let watched = std::mem::take(&mut cx.session.watched);
    for (watched_db, key) in &watched {
        cx.keys.select(*watched_db);
        cx.keys.expire_if_due(key);
    }
    let broken = std::mem::take(&mut cx.session.watch_flag).load(Ordering::Acquire);
    for (watched_db, key) in &watched {
        cx.keys.select(*watched_db);
        cx.keys.tidy_watches(key);
    }
    cx.keys.select(db);
    broken
}
