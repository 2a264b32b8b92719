//! The coordinator: many transactions at once, over the pure machine.
//!
//! ```text
//!   request, answer, timer, verb
//!        |
//!        v
//!   a shard's lock: machine --> record --> log.append --> index, timer
//!        |  lock given back
//!        v
//!   leave: calls to branches, answers to clients
//!          none      calls and answers: written to the OS
//!          everysec  calls and answers: written to the OS; on the disk within a second
//!          always    calls and answers: on the disk (group commit)
//! ```
//!
//! Locks are taken in this order: a shard, the index, the timers; none while a call leaves.
//!
//! **Invariant:** a call or an answer leaves only after the record of the transition that causes it
//! is out of this process's hands, in every mode: kill -9 loses nothing that anybody has seen.
//! **Invariant:** an unfinished transaction is never forgotten.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};

use foldhash::fast::RandomState;
use persist::journal::Position;

use super::codec;
use super::index::{Entry, Filter, Finished, ID_TIME_SHIFT, Index};
use super::local;
use super::machine::{self, Answer, Call, Refusal};
use super::outgoing::{Caller, NOT_CALLED, Outgoing};
use super::policy::{Moment, Rules};
use super::state::State;
use super::submission;
use super::topics::Topics;
use super::transaction::{BRANCHES_MAX, Branch, Transaction};
use super::verbs::{self, Verb};
use super::words::{Durability, Hold, Kind, Op, Status, Verdict};

/// In every id: not to be changed.
pub(super) const SHARDS_COUNT: usize = 16;
/// Due transactions that one call of [`Coordinator::run_due`] goes on with.
const DUE_AT_ONCE: usize = 256;

/// Clients that may wait for one transaction's end.
const WATCHERS_MAX: usize = 10_000;
/// When a call is tried again that could not leave because of the log, in ms.
const PUT_OFF_MS: u64 = 1000;

/// Bounds and defaults of a coordinator.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Defaults for transactions that choose nothing.
    pub rules: Rules,
    /// For transactions that choose nothing.
    pub durability: Durability,
    /// Transactions that may be unfinished at a time.
    pub unfinished_max: usize,
    /// How long a succeeded one is kept, in ms.
    pub succeed_keep_ms: u64,
    /// How long a failed one is kept, in ms.
    pub failed_keep_ms: u64,
    /// Finished ones that are kept at most.
    pub finished_max: usize,
    /// Bytes that finished ones may take.
    pub finished_bytes_max: u64,
    /// Whether steps may be run by the server itself, on its keyspace and its SQL database.
    pub local_steps: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            rules: Rules::default(),
            durability: Durability::EverySecond,
            unfinished_max: 1_000_000,
            succeed_keep_ms: 24 * 3600 * 1000,
            failed_keep_ms: 30 * 24 * 3600 * 1000,
            finished_max: 2_000_000,
            finished_bytes_max: 1 << 30,
            local_steps: false,
        }
    }
}

/// How a transaction stands, for those who asked for something or wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What it is.
    pub kind: Kind,
    /// Its status.
    pub status: Status,
    /// Whether it stands still.
    pub hold: Hold,
    /// Why it is undone, if it is.
    pub reason: Box<str>,
    /// What came of the last attempt that did not succeed, with its text.
    pub trouble: Option<(Verdict, Box<str>)>,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// There is no such transaction.
    NotFound,
    /// Its state does not allow it.
    Refused(Refusal),
    /// There is another one with the same gid.
    Different,
    /// The request makes no sense; why.
    Invalid(String),
    /// No room for more.
    Full(String),
    /// The log cannot be written.
    Log,
}

impl Error {
    /// The text for the client.
    pub fn text(&self) -> String {
        match self {
            Error::NotFound => "no transaction with this gid".into(),
            Error::Refused(refusal) => refusal.text(),
            Error::Different => "a transaction with this gid and other content exists".into(),
            Error::Invalid(text) | Error::Full(text) => text.clone(),
            Error::Log => "the log cannot be written: nothing new is taken on".into(),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error::Refused(refusal)
    }
}

/// Called once, from any thread, with what came of a request.
pub type Done = Box<dyn FnOnce(Result<Report, Error>) + Send>;

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Transactions taken on.
    pub submitted: AtomicU64,
    /// Transactions that succeeded.
    pub succeeded: AtomicU64,
    /// Transactions that failed.
    pub failed: AtomicU64,
    /// Calls made.
    pub calls: AtomicU64,
    /// Calls that brought no result.
    pub retries: AtomicU64,
    /// Transactions that became dead letters.
    pub dead: AtomicU64,
    /// Transactions forgotten by retention.
    pub forgotten: AtomicU64,
    /// Transactions that have ended, by kind: succeeded and failed.
    pub ended: [[AtomicU64; 2]; Kind::ALL.len()],
    /// How long those took, in ms, added up.
    pub ended_ms: [AtomicU64; Kind::ALL.len()],
    /// Those that took no longer than a bound, by kind and [`BUCKETS_MS`].
    pub ended_within: [[AtomicU64; BUCKETS_MS.len()]; Kind::ALL.len()],
    /// Answers of branches, by kind, operation and verdict.
    pub answers: [[[AtomicU64; Verdict::ALL.len()]; Op::ALL.len()]; Kind::ALL.len()],
}

/// Bounds of durations in metrics, in ms; as Prometheus's clients have them.
pub const BUCKETS_MS: [u64; 11] = [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000];

/// The first bound that so many ms are within.
pub fn bucket(took_ms: u64) -> Option<usize> {
    BUCKETS_MS.iter().position(|&bound| took_ms <= bound)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub(super) struct Live {
    pub(super) t: Transaction,
    waiters: Vec<Done>,
    /// Who waits for the end, not just for the round's.
    watchers: Vec<Done>,
    pub(super) recorded_branches: usize,
    scheduled_ms: u64,
    /// The position after its last record in the log; 0 = that is on the disk.
    recorded: Position,
    pub(super) entry: Entry,
}

impl Live {
    pub(super) fn new(t: Transaction, entry: Entry) -> Live {
        let (waiters, watchers) = (Vec::new(), Vec::new());
        Live { t, waiters, watchers, recorded_branches: 0, scheduled_ms: 0, recorded: 0, entry }
    }
}

pub(super) enum Slot {
    Live(Box<Live>),
    /// A finished one, as its snapshot.
    Done(Box<[u8]>),
}

#[derive(Default)]
pub(super) struct Shard {
    pub(super) by_gid: HashMap<Box<str>, u64, RandomState>,
    pub(super) slots: HashMap<u64, Slot, RandomState>,
}

/// What is to leave once a transition is recorded.
struct Effects {
    id: u64,
    durability: Durability,
    /// The position after its last record.
    position: Position,
    calls: Vec<(Call, Outgoing)>,
    answers: Vec<(Done, Report)>,
}

/// See the module.
pub struct Coordinator {
    pub(super) shards: Box<[Mutex<Shard>]>,
    pub(super) index: Mutex<Index>,
    timers: Mutex<BinaryHeap<Reverse<(u64, u64)>>>,
    pub(super) topics: RwLock<Topics>,
    pub(super) state: OnceLock<Arc<dyn State>>,
    caller: OnceLock<Arc<dyn Caller>>,
    pub(super) last_id: AtomicU64,
    unfinished: AtomicU64,
    /// Its bounds.
    pub settings: Settings,
    /// Its counters.
    pub counters: Counters,
}

pub(super) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Coordinator {
    /// An empty coordinator. What the log holds is given to [`Coordinator::replay`], then
    /// [`Coordinator::start`] connects it.
    pub fn new(settings: Settings) -> Coordinator {
        Coordinator {
            shards: (0..SHARDS_COUNT).map(|_| Mutex::default()).collect(),
            index: Mutex::default(),
            timers: Mutex::default(),
            topics: RwLock::default(),
            state: OnceLock::new(),
            caller: OnceLock::new(),
            last_id: AtomicU64::new(0),
            unfinished: AtomicU64::new(0),
            settings,
            counters: Counters::default(),
        }
    }

    /// Takes on a new transaction, or goes on with the one of this gid that is there. With `wait`,
    /// `done` is called after the first round: when it is finished, or waits for time or people.
    pub fn submit(self: &Arc<Self>, t: Transaction, wait: bool, moment: Moment, done: Done) {
        let (number, mut shard) = self.shard_of_gid(&t.gid);
        if let Some(&id) = shard.by_gid.get(&t.gid) {
            let outcome = match shard.slots.get_mut(&id) {
                Some(Slot::Live(live)) if is_other(&live.t, &t) => Err(Error::Different),
                Some(Slot::Live(live)) if t.status == Status::Prepared => match live.t.status {
                    Status::Prepared => Ok(()),
                    status => Err(Refusal::State(live.t.kind, status, "prepare").into()),
                },
                Some(Slot::Live(live)) => {
                    if !t.custom_data.is_empty() && live.t.status == Status::Prepared {
                        live.t.custom_data = t.custom_data.clone();
                        live.t.plan = t.plan.clone();
                    }
                    machine::submit(&mut live.t, moment).map_err(Error::from)
                }
                Some(Slot::Done(bytes)) => Err(refuse_again(bytes, &t)),
                None => Err(Error::NotFound),
            };
            return match outcome {
                Ok(()) => self.go_on(shard, id, wait, Some(done), moment),
                Err(error) => {
                    drop(shard);
                    done(Err(error));
                }
            };
        }
        if let Err(error) = self.has_room().and_then(|()| self.may_run(&t)) {
            drop(shard);
            return done(Err(error));
        }
        let id = self.next_id(number, moment);
        self.unfinished.fetch_add(1, Ordering::Relaxed);
        count(&self.counters.submitted);
        let entry = Entry::of(&t);
        let live = Live::new(t, entry);
        self.begin(shard, id, live, wait, done, moment);
    }

    fn begin(
        self: &Arc<Self>,
        mut shard: MutexGuard<'_, Shard>,
        id: u64,
        mut live: Live,
        wait: bool,
        done: Done,
        moment: Moment,
    ) {
        live.t.id = id;
        shard.by_gid.insert(live.t.gid.clone(), id);
        let mut calls = Vec::new();
        machine::advance(&mut live.t, &self.settings.rules, moment, &mut calls);
        codec::clean(&mut live.t);
        let bytes = codec::snapshot(&live.t);
        let position = self.append(&bytes);
        live.recorded_branches = live.t.branches.len();
        let mut index = held(&self.index);
        index.based(position - 1, id);
        live.entry = Entry::of(&live.t);
        index.update(id, None, Some(&live.entry));
        drop(index);
        live.recorded = position;
        let mut effects = self.effects(&live, &calls, moment);
        if wait && !live.t.status.is_final() && live.t.is_busy() {
            live.waiters.push(done);
        } else {
            effects.answers.push((done, report(&live.t)));
        }
        if live.t.status.is_final() {
            self.finished(&live.t, bytes.len());
            shard.slots.insert(id, Slot::Done(bytes.into()));
        } else {
            self.schedule(&mut live);
            shard.slots.insert(id, Slot::Live(Box::new(live)));
        }
        drop(shard);
        self.leave(effects);
    }

    /// Does something to the transaction of a gid; `done` is told how it stands then, or, with
    /// `wait`, after the round that follows.
    pub fn with(
        self: &Arc<Self>,
        gid: &str,
        wait: bool,
        moment: Moment,
        done: Done,
        change: impl FnOnce(&mut Transaction) -> Result<(), Error>,
    ) {
        let (_, mut shard) = self.shard_of_gid(gid);
        let id = shard.by_gid.get(gid).copied();
        let outcome = match id.and_then(|id| shard.slots.get_mut(&id)) {
            Some(Slot::Live(live)) => change(&mut live.t),
            Some(Slot::Done(bytes)) => match codec::read_snapshot(bytes) {
                // Nothing changes a finished one: this is for its refusal.
                Some(mut t) => change(&mut t),
                None => Err(Error::NotFound),
            },
            None => Err(Error::NotFound),
        };
        match (outcome, id) {
            (Ok(()), Some(id)) => self.go_on(shard, id, wait, Some(done), moment),
            (outcome, _) => {
                drop(shard);
                done(Err(outcome.err().unwrap_or(Error::NotFound)));
            }
        }
    }

    /// Calls `done` when the transaction of a gid is finished; at once if it is.
    pub fn when_finished(&self, gid: &str, done: Done) {
        let (_, mut shard) = self.shard_of_gid(gid);
        let id = shard.by_gid.get(gid).copied();
        let known = match id.and_then(|id| shard.slots.get_mut(&id)) {
            Some(Slot::Live(live)) if live.watchers.len() >= WATCHERS_MAX => {
                Err(Error::Full(format!("{WATCHERS_MAX} clients wait for it already")))
            }
            Some(Slot::Live(live)) => return live.watchers.push(done),
            Some(slot) => whole(slot).map(|t| report(&t)).ok_or(Error::NotFound),
            None => Err(Error::NotFound),
        };
        drop(shard);
        done(known);
    }

    /// Registers branches with a prepared transaction.
    pub fn register(
        self: &Arc<Self>,
        fields: &BTreeMap<String, String>,
        payload: Option<&[u8]>,
        moment: Moment,
        done: Done,
    ) {
        let branches = match submission::registered(fields, payload) {
            Ok(branches) => branches,
            Err(text) => return done(Err(Error::Invalid(text))),
        };
        let gid = fields.get("gid").map_or("", String::as_str);
        self.with(gid, false, moment, done, |t| {
            if t.branches.len() + branches.len() > BRANCHES_MAX {
                return Err(Error::Full(format!("more than {BRANCHES_MAX} branches")));
            }
            Ok(machine::register(t, branches)?)
        });
    }

    /// An operator's verb.
    pub fn operate(
        self: &Arc<Self>,
        gid: &str,
        verb: Verb,
        branch: Option<u16>,
        who: &str,
        moment: Moment,
        done: Done,
    ) {
        self.with(gid, false, moment, done, |t| Ok(verbs::apply(t, verb, branch, who, moment)?));
    }

    /// Takes the answer to a call.
    pub fn answer(self: &Arc<Self>, id: u64, call: Call, answer: &Answer, moment: Moment) {
        let mut shard = self.shard_of_id(id);
        let Some(Slot::Live(live)) = shard.slots.get_mut(&id) else { return };
        if answer.code == NOT_CALLED {
            machine::put_off(&mut live.t, call, moment.now_ms + answer.retry_after_ms);
            return self.go_on(shard, id, false, None, moment);
        }
        let op = live.t.branches.get(usize::from(call.branch)).map_or(Op::Msg, |b| b.op);
        let by_op = &self.counters.answers[live.t.kind as usize][op as usize];
        count(&by_op[answer.verdict as usize]);
        if machine::answer(&mut live.t, &self.settings.rules, moment, call, answer) {
            if answer.verdict == Verdict::Unknown {
                count(&self.counters.retries);
            }
            self.go_on(shard, id, false, None, moment);
        }
    }

    /// Goes on with what is due. Gives when to call it again, in ms since 1970, if anything waits.
    /// Several threads may call it at once.
    pub fn run_due(self: &Arc<Self>, moment: Moment) -> Option<u64> {
        for _ in 0..DUE_AT_ONCE {
            let id = {
                let mut timers = held(&self.timers);
                match timers.peek() {
                    None => return None,
                    Some(&Reverse((due_ms, _))) if due_ms > moment.now_ms => return Some(due_ms),
                    Some(_) => timers.pop().map_or(0, |Reverse((_, id))| id),
                }
            };
            let mut shard = self.shard_of_id(id);
            if let Some(Slot::Live(live)) = shard.slots.get_mut(&id)
                && live.scheduled_ms <= moment.now_ms
                && live.scheduled_ms != 0
            {
                live.scheduled_ms = 0;
                self.go_on(shard, id, false, None, moment);
            }
        }
        Some(moment.now_ms)
    }

    /// Advances a live transaction after something happened to it, records it, and lets out what
    /// follows.
    fn go_on(
        self: &Arc<Self>,
        mut shard: MutexGuard<'_, Shard>,
        id: u64,
        wait: bool,
        done: Option<Done>,
        moment: Moment,
    ) {
        let Some(Slot::Live(live)) = shard.slots.get_mut(&id) else {
            let known = shard.slots.get(&id).and_then(whole).map(|t| report(&t));
            drop(shard);
            return done.into_iter().for_each(|done| done(known.clone().ok_or(Error::NotFound)));
        };
        let mut calls = Vec::new();
        machine::advance(&mut live.t, &self.settings.rules, moment, &mut calls);
        let record = codec::change(&mut live.t, live.recorded_branches);
        live.recorded_branches = live.t.branches.len();
        if let Some(record) = record {
            live.recorded = self.append(&record);
        }
        let mut effects = self.effects(live, &calls, moment);
        let entry = Entry::of(&live.t);
        if entry != live.entry {
            if live.t.hold == Hold::Dead {
                count(&self.counters.dead);
                if let Some(caller) = self.caller.get() {
                    caller.finished(&live.t);
                }
            }
            held(&self.index).update(id, Some(&live.entry), Some(&entry));
            live.entry = entry;
        }
        let is_round_over = live.t.status.is_final() || !live.t.is_busy();
        match done {
            Some(done) if wait && !is_round_over => live.waiters.push(done),
            Some(done) => effects.answers.push((done, report(&live.t))),
            None => {}
        }
        let mut over = if is_round_over { std::mem::take(&mut live.waiters) } else { Vec::new() };
        if live.t.status.is_final() {
            over.append(&mut live.watchers);
        }
        effects.answers.extend(over.into_iter().map(|waiter| (waiter, report(&live.t))));
        if live.t.status.is_final() {
            let bytes = codec::snapshot(&live.t);
            self.finished(&live.t, bytes.len());
            shard.slots.insert(id, Slot::Done(bytes.into()));
        } else {
            self.schedule(live);
        }
        drop(shard);
        self.leave(effects);
    }

    fn effects(&self, live: &Live, calls: &[Call], moment: Moment) -> Effects {
        let t = &live.t;
        let outgoing = |&call: &Call| (call, Outgoing::of(t, call, &self.settings.rules, moment));
        Effects {
            id: t.id,
            durability: t.durability,
            position: live.recorded,
            calls: calls.iter().map(outgoing).collect(),
            answers: Vec::new(),
        }
    }

    /// Lets calls and answers out, as soon as the transaction's durability allows.
    fn leave(self: &Arc<Self>, effects: Effects) {
        let Some(state) = self.state.get() else { return self.let_out(effects, true) };
        let position = effects.position;
        if effects.durability == Durability::Always {
            if effects.calls.is_empty() && effects.answers.is_empty() {
                return;
            }
            let this = Arc::clone(self);
            let out = move |is_safe: bool| this.let_out(effects, is_safe);
            return state.when_safe(position, Box::new(out));
        }
        let is_idle = effects.calls.is_empty() && effects.answers.is_empty();
        let is_out = is_idle || state.write().is_ok();
        self.let_out(effects, is_out);
    }

    fn let_out(self: &Arc<Self>, effects: Effects, is_recorded: bool) {
        for (done, report) in effects.answers {
            done(if is_recorded { Ok(report) } else { Err(Error::Log) });
        }
        for (call, outgoing) in effects.calls {
            count(&self.counters.calls);
            let began_ms = outgoing.began_ms;
            let (this, id) = (Arc::clone(self), effects.id);
            match self.caller.get() {
                Some(caller) if is_recorded => {
                    let done = move |answer: Answer, moment| {
                        this.answer(id, call, &answer, moment);
                    };
                    caller.call(outgoing, Box::new(done));
                }
                _ => self.put_off(id, call, began_ms),
            }
        }
    }

    /// A call could not leave because the log cannot be written: it is tried again soon.
    fn put_off(&self, id: u64, call: Call, now_ms: u64) {
        let mut shard = self.shard_of_id(id);
        if let Some(Slot::Live(live)) = shard.slots.get_mut(&id) {
            machine::put_off(&mut live.t, call, now_ms + PUT_OFF_MS);
            self.schedule(live);
        }
    }

    fn append(&self, record: &[u8]) -> Position {
        self.state.get().map_or(1, |state| state.keep(record))
    }

    fn has_room(&self) -> Result<(), Error> {
        let unfinished = self.unfinished.load(Ordering::Relaxed) as usize;
        if unfinished >= self.settings.unfinished_max {
            return Err(Error::Full(format!("{unfinished} transactions are unfinished already")));
        }
        match self.state.get() {
            Some(state) if !state.is_healthy() => Err(Error::Log),
            _ => Ok(()),
        }
    }

    fn may_run(&self, t: &Transaction) -> Result<(), Error> {
        let is_local = |branch: &Branch| local::is_local(&branch.url);
        if !self.settings.local_steps && t.branches.iter().any(is_local) {
            let why = "steps on the keyspace and on SQL are off; start with --saga-local-steps yes";
            return Err(Error::Invalid(why.into()));
        }
        Ok(())
    }

    fn finished(&self, t: &Transaction, bytes: usize) {
        self.unfinished.fetch_sub(1, Ordering::Relaxed);
        let is_failed = t.status == Status::Failed;
        count(if is_failed { &self.counters.failed } else { &self.counters.succeeded });
        count(&self.counters.ended[t.kind as usize][usize::from(is_failed)]);
        let took_ms = t.finished_ms.saturating_sub(t.created_ms);
        self.counters.ended_ms[t.kind as usize].fetch_add(took_ms, Ordering::Relaxed);
        if let Some(bucket) = bucket(took_ms) {
            count(&self.counters.ended_within[t.kind as usize][bucket]);
        }
        if let Some(caller) = self.caller.get() {
            caller.finished(t);
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let finished = Finished { id: t.id, at_ms: t.finished_ms, bytes };
        held(&self.index).finish(t.status, finished);
    }

    fn schedule(&self, live: &mut Live) {
        let due_ms = machine::due_ms(&live.t, &self.settings.rules).unwrap_or(0);
        if due_ms != 0 && due_ms != live.scheduled_ms {
            let mut timers = held(&self.timers);
            let is_next = timers.peek().is_none_or(|&Reverse((next, _))| due_ms < next);
            timers.push(Reverse((due_ms, live.t.id)));
            drop(timers);
            if is_next && let Some(caller) = self.caller.get() {
                caller.wake_at(due_ms);
            }
        }
        live.scheduled_ms = due_ms;
    }

    fn next_id(&self, shard: usize, moment: Moment) -> u64 {
        let least = moment.now_ms << ID_TIME_SHIFT;
        let step = SHARDS_COUNT as u64;
        let next = |last: u64| (last / step * step + step).max(least) + shard as u64;
        let order = Ordering::Relaxed;
        let last = self.last_id.fetch_update(order, order, |last| Some(next(last)));
        next(last.unwrap_or(0))
    }

    fn shard_of_gid(&self, gid: &str) -> (usize, MutexGuard<'_, Shard>) {
        let number = shard_number(gid);
        (number, held(&self.shards[number]))
    }

    pub(super) fn shard_of_id(&self, id: u64) -> MutexGuard<'_, Shard> {
        held(&self.shards[id as usize % SHARDS_COUNT])
    }

    /// The transaction of a gid, as it is now.
    pub fn get(&self, gid: &str) -> Option<Transaction> {
        let (_, shard) = self.shard_of_gid(gid);
        shard.slots.get(shard.by_gid.get(gid)?).and_then(whole)
    }

    /// Transactions that match, newest first, and the id to go on from where there may be more.
    pub fn list(&self, filter: &Filter, limit: usize) -> (Vec<Transaction>, Option<u64>) {
        let (ids, next) = held(&self.index).list(filter, limit);
        let known = |id| self.shard_of_id(id).slots.get(&id).and_then(whole);
        (ids.into_iter().filter_map(known).collect(), next)
    }

    /// Looks at the counts by status and hold.
    pub fn index(&self) -> MutexGuard<'_, Index> {
        held(&self.index)
    }

    /// Unfinished transactions.
    pub fn unfinished_count(&self) -> u64 {
        self.unfinished.load(Ordering::Relaxed)
    }

    /// All topics, to look at.
    pub fn topics(&self) -> std::sync::RwLockReadGuard<'_, Topics> {
        self.topics.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Changes the topics; the record that comes of it is logged.
    pub fn change_topics(
        &self,
        change: impl FnOnce(&mut Topics) -> Result<Vec<u8>, String>,
    ) -> Result<(), String> {
        let mut topics = self.topics.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let record = change(&mut topics)?;
        self.append(&record);
        Ok(())
    }

    /// Connects the state and the calls and goes on with everything that is unfinished.
    pub fn start(self: &Arc<Self>, state: Arc<dyn State>, caller: Arc<dyn Caller>, moment: Moment) {
        let is_first = self.state.set(state).is_ok() && self.caller.set(caller).is_ok();
        assert!(is_first, "a coordinator is started once");
        let mut open = Vec::new();
        for shard in &self.shards {
            for (&id, slot) in &mut held(shard).slots {
                if let Slot::Live(live) = slot {
                    machine::recover(&mut live.t, moment.now_ms);
                    live.scheduled_ms = moment.now_ms.max(1);
                    open.push(Reverse((live.scheduled_ms, id)));
                }
            }
        }
        self.unfinished.store(open.len() as u64, Ordering::Relaxed);
        *held(&self.timers) = BinaryHeap::from(open);
        self.caller.get().expect("set above").wake_at(moment.now_ms);
    }

    /// Forgets a finished transaction.
    pub(super) fn forget(&self, id: u64) {
        let mut shard = self.shard_of_id(id);
        let Some(Slot::Done(bytes)) = shard.slots.remove(&id) else { return };
        if let Some(t) = codec::read_snapshot(&bytes) {
            shard.by_gid.remove(&t.gid);
            held(&self.index).update(id, Some(&Entry::of(&t)), None);
            if let Some(caller) = self.caller.get() {
                caller.forget(&t);
            }
        }
        if let Some(state) = self.state.get() {
            state.forget(id);
        }
        count(&self.counters.forgotten);
    }
}

/// The shard of a gid; ids end in it, so it must not change (FNV-1a).
fn shard_number(gid: &str) -> usize {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = gid.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, mix);
    (hash >> 32) as usize % SHARDS_COUNT
}

pub(super) fn whole(slot: &Slot) -> Option<Transaction> {
    match slot {
        Slot::Live(live) => Some(live.t.clone()),
        Slot::Done(bytes) => codec::read_snapshot(bytes),
    }
}

fn refuse_again(bytes: &[u8], asked: &Transaction) -> Error {
    match codec::read_snapshot(bytes) {
        Some(t) if is_other(&t, asked) => Error::Different,
        Some(t) => Refusal::State(t.kind, t.status, "submit").into(),
        None => Error::NotFound,
    }
}

/// Whether two transactions under one gid are not the same one. Later requests may leave steps
/// out; those they name must be the ones that are known.
fn is_other(known: &Transaction, asked: &Transaction) -> bool {
    let is_same = |(a, b): (&Branch, &Branch)| a.url == b.url && a.payload == b.payload;
    known.kind != asked.kind
        || !asked.branches.is_empty()
            && (known.branches.len() != asked.branches.len()
                || !known.branches.iter().zip(&asked.branches).all(is_same))
}

fn report(t: &Transaction) -> Report {
    let is_trouble = |verdict| matches!(verdict, Verdict::Ongoing | Verdict::Unknown);
    let trouble = t.attempts.last().filter(|attempt| is_trouble(attempt.verdict));
    Report {
        kind: t.kind,
        status: t.status,
        hold: t.hold,
        reason: t.rollback_reason.clone(),
        trouble: trouble.map(|attempt| (attempt.verdict, attempt.note.clone())),
    }
}
