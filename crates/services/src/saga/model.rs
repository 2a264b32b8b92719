//! The model check of the state machine: random schedules of answers, lost answers, late calls,
//! time, crashes and operators' verbs, with the invariants of `machine.rs` asserted after every
//! step and the participants' books at the end.
//!
//! Participants keep books as dtm's barrier has them: a compensation that comes before its action
//! does nothing and bars the action; what came twice is done once. So the books tell whether the
//! coordinator kept its promises: everything done once, or nothing left.
//!
//! `FOREBAY_MODEL_STEPS` sets how many steps are taken (`./test --long` takes a million); the
//! seed of a failing schedule is in the panic's text.

use std::sync::Arc;

use super::codec;
use super::machine::{self, Answer, Call};
use super::policy::{Moment, Rules};
use super::transaction::{Branch, QUERY, Transaction};
use super::verbs::{self, Verb};
use super::words::{BranchStatus, Hold, Kind, Op, Status, Verdict};

const STEPS_DEFAULT: u64 = 60_000;
/// Random steps per transaction, before all participants become reliable.
const STORM_STEPS: u64 = 60;
/// Steps in which everything has to be finished then.
const CALM_STEPS: u64 = 5_000;

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// What a participant has written down for one branch number.
#[derive(Default, Clone)]
struct Books {
    did_forward: bool,
    did_back: bool,
    barred: bool,
    /// Effects in force: forward less back.
    net: i32,
}

/// A call on its way.
struct Message {
    call: Call,
    op: Op,
    branch_id: Box<str>,
    /// The coordinator still waits for it.
    is_awaited: bool,
}

struct World {
    dice: Dice,
    rules: Rules,
    now_ms: u64,
    t: Transaction,
    log: Vec<Vec<u8>>,
    recorded_branches: usize,
    messages: Vec<Message>,
    books: std::collections::BTreeMap<Box<str>, Books>,
    /// Calls whose number was given out since the last crash.
    last_call: u64,
    is_overridden: bool,
    is_calm: bool,
    query_says: Verdict,
}

impl World {
    fn new(seed: u64) -> World {
        let mut dice = Dice(seed);
        let now_ms = 1_000_000;
        let kind = [Kind::Saga, Kind::Saga, Kind::Saga, Kind::Msg, Kind::Tcc, Kind::Xa];
        let kind = kind[dice.below(6)];
        let status = match kind {
            Kind::Saga => Status::Submitted,
            Kind::Msg if dice.one_in(2) => Status::Submitted,
            _ => Status::Prepared,
        };
        let mut t = Transaction::new("g", kind, status, now_ms);
        let steps = dice.below(5);
        for step in 0..steps {
            add_branches(&mut t, step, &mut dice);
        }
        choose_options(&mut t, steps, &mut dice);
        let rules = Rules { tries_max: dice.below(4) as u32 * 3, ..Rules::default() };
        let query_says = if dice.one_in(2) { Verdict::Success } else { Verdict::Failure };
        let mut world = World {
            dice,
            rules,
            now_ms,
            recorded_branches: 0,
            t,
            log: Vec::new(),
            messages: Vec::new(),
            books: Default::default(),
            last_call: 0,
            is_overridden: false,
            is_calm: false,
            query_says,
        };
        world.go_on();
        world
    }

    fn moment(&mut self) -> Moment {
        Moment { now_ms: self.now_ms, random: self.dice.next() }
    }

    /// What the coordinator does after every event: advance, record, then let calls leave.
    fn go_on(&mut self) {
        let mut calls = Vec::new();
        let moment = self.moment();
        machine::advance(&mut self.t, &self.rules, moment, &mut calls);
        let record = if self.log.is_empty() {
            codec::clean(&mut self.t);
            Some(codec::snapshot(&self.t))
        } else {
            codec::change(&mut self.t, self.recorded_branches)
        };
        self.recorded_branches = self.t.branches.len();
        self.log.extend(record);
        for call in calls {
            assert!(call.call > self.last_call, "a call's number was used twice");
            self.last_call = call.call;
            self.check_call(call);
            let (op, branch_id) = match call.branch {
                QUERY => (Op::Msg, "00".into()),
                index => {
                    let branch = &self.t.branches[usize::from(index)];
                    (branch.op, branch.branch_id.clone())
                }
            };
            self.messages.push(Message { call, op, branch_id, is_awaited: true });
        }
        self.check_state();
    }

    /// What must hold when a call leaves.
    fn check_call(&self, call: Call) {
        let t = &self.t;
        assert_eq!(t.hold, Hold::None, "called while it stands still");
        if call.branch == QUERY {
            return assert_eq!(t.status, Status::Prepared);
        }
        let index = usize::from(call.branch);
        let is_other = |m: &&Message| m.is_awaited && m.call.branch == call.branch;
        assert_eq!(self.messages.iter().filter(is_other).count(), 0, "two calls of one branch");
        let branch = &t.branches[index];
        assert_eq!(branch.status, BranchStatus::Prepared);
        match branch.op {
            Op::Action | Op::Confirm | Op::Commit => assert_eq!(t.status, Status::Submitted),
            _ => assert_eq!(t.status, Status::Aborting),
        }
        if t.kind == Kind::Saga && !t.plan.concurrent && branch.op == Op::Action && index > 2 {
            assert_eq!(t.branches[index - 2].status, BranchStatus::Succeed, "out of order");
        }
        if branch.op == Op::Compensate {
            let is_action = |m: &Message| m.is_awaited && m.call.branch == call.branch + 1;
            assert!(!self.messages.iter().any(is_action), "compensated during its action");
            let later = t.plan.after.iter().enumerate();
            for (step, _) in later.filter(|(_, b)| b.contains(&((index / 2) as u16))) {
                let (action, undone) = (&t.branches[2 * step + 1], &t.branches[2 * step]);
                assert!(!action.touched || undone.status == BranchStatus::Succeed, "order back");
            }
        }
    }

    /// What must hold always.
    fn check_state(&self) {
        let t = &self.t;
        let due = machine::due_ms(t, &self.rules);
        if t.status.is_final() {
            assert_eq!(due, None);
            return self.check_books(false);
        }
        let waits_for_client = t.kind == Kind::Workflow;
        if t.hold == Hold::None && !t.is_busy() && !waits_for_client {
            let due = due.expect("nothing will ever happen");
            assert!(due > self.now_ms, "due work was left undone");
        }
        let mut replayed = codec::read_snapshot(&self.log[0]).expect("a whole record");
        for change in &self.log[1..] {
            codec::apply_change(&mut replayed, change).expect("a whole record");
        }
        assert_eq!(replayed.status, t.status, "a state that is not in the log");
        assert_eq!(replayed.hold, t.hold);
    }

    /// What the participants' books must show once all is over.
    fn check_books(&self, is_settled: bool) {
        let t = &self.t;
        if self.is_overridden {
            return;
        }
        for branch in t.branches.iter().filter(|b| b.op == Op::Action && t.kind == Kind::Saga) {
            let net = self.books.get(&branch.branch_id).map_or(0, |books| books.net);
            match t.status {
                Status::Succeed => assert_eq!(net, i32::from(!branch.url.is_empty()), "done once"),
                Status::Failed if is_settled => assert_eq!(net, 0, "nothing is left"),
                _ => {}
            }
        }
        if t.kind == Kind::Saga {
            return;
        }
        for branch in t.branches.iter().filter(|branch| !branch.url.is_empty()) {
            let books = self.books.get(&branch.branch_id).cloned().unwrap_or_default();
            let is_forward = matches!(branch.op, Op::Action | Op::Confirm | Op::Commit);
            let is_done = if is_forward { books.did_forward } else { books.did_back };
            let is_wanted = is_forward == (t.status == Status::Succeed);
            assert_eq!(is_done, is_wanted, "{} of {:?}", branch.op.word(), t.status);
        }
    }

    fn step(&mut self) {
        match self.dice.below(12) {
            0..=5 => self.deliver(),
            6 | 7 => self.time_out(),
            8 | 9 => self.pass_time(),
            10 if !self.is_calm => self.crash(),
            11 if !self.is_calm => self.operate(),
            _ => self.client(),
        }
    }

    /// A call arrives; its answer comes back or is lost.
    fn deliver(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let place = self.dice.below(self.messages.len());
        let message = self.messages.swap_remove(place);
        let verdict = self.participant(&message);
        if message.is_awaited {
            let lost = !self.is_calm && self.dice.one_in(5);
            self.reply(message.call, if lost { Verdict::Unknown } else { verdict });
        }
    }

    fn participant(&mut self, message: &Message) -> Verdict {
        if message.op == Op::Msg {
            return if self.is_calm || self.dice.one_in(2) {
                self.query_says
            } else {
                Verdict::Ongoing
            };
        }
        let mood = if self.is_calm { 9 } else { self.dice.below(10) };
        let books = self.books.entry(message.branch_id.clone()).or_default();
        let is_forward = matches!(message.op, Op::Action | Op::Confirm | Op::Commit);
        match mood {
            // Refused, not ready, or broken: nothing was written down.
            0 if !(books.did_forward || books.barred) => return Verdict::Failure,
            1 => return Verdict::Ongoing,
            2 => return Verdict::Unknown,
            _ => {}
        }
        if is_forward {
            if !books.did_forward && !books.barred {
                books.did_forward = true;
                books.net += 1;
            }
        } else if !books.did_back {
            books.did_back = true;
            if books.did_forward {
                books.net -= 1;
            }
            books.barred |= !books.did_forward;
        }
        Verdict::Success
    }

    /// The coordinator gives a call up; the call may still arrive.
    fn time_out(&mut self) {
        let awaited: Vec<usize> =
            (0..self.messages.len()).filter(|&place| self.messages[place].is_awaited).collect();
        if !self.is_calm && !awaited.is_empty() {
            let place = awaited[self.dice.below(awaited.len())];
            self.messages[place].is_awaited = false;
            let call = self.messages[place].call;
            self.reply(call, Verdict::Unknown);
        }
    }

    fn reply(&mut self, call: Call, verdict: Verdict) {
        let moment = self.moment();
        let retry_after_ms = if self.dice.one_in(9) { 7_000 } else { 0 };
        let (code, text) = (200, "text".to_string());
        let answer = Answer { verdict, code, text, began_ms: self.now_ms, retry_after_ms };
        let before = self.t.status;
        machine::answer(&mut self.t, &self.rules, moment, call, &answer);
        assert!(!before.is_final() || self.t.status == before, "a final state changed");
        let again = machine::answer(&mut self.t, &self.rules, moment, call, &answer);
        assert!(!again, "an answer counted twice");
        self.go_on();
    }

    fn pass_time(&mut self) {
        match machine::due_ms(&self.t, &self.rules) {
            Some(due) if self.dice.one_in(2) => self.now_ms = self.now_ms.max(due),
            _ => self.now_ms += self.dice.next() % 5_000,
        }
        self.go_on();
    }

    /// All memory is lost; what was recorded is read back. Calls that had left may still arrive.
    fn crash(&mut self) {
        let mut t = codec::read_snapshot(&self.log[0]).expect("a whole record");
        for change in &self.log[1..] {
            codec::apply_change(&mut t, change).expect("a whole record");
        }
        self.messages.iter_mut().for_each(|message| message.is_awaited = false);
        if self.dice.one_in(4) {
            self.now_ms = self.now_ms.saturating_sub(self.dice.next() % 100_000);
        }
        machine::recover(&mut t, self.now_ms);
        self.t = t;
        self.last_call = 0;
        self.recorded_branches = self.t.branches.len();
        self.go_on();
    }

    fn operate(&mut self) {
        let (word, verb) = Verb::ALL[self.dice.below(Verb::ALL.len())];
        if matches!(verb, Verb::Skip | Verb::Force | Verb::Stop) && !self.dice.one_in(8) {
            return;
        }
        let branch = self.dice.one_in(3).then_some(self.dice.below(6) as u16);
        let moment = self.moment();
        let before = self.t.clone();
        match verbs::apply(&mut self.t, verb, branch, "model", moment) {
            Ok(()) => self.is_overridden |= matches!(verb, Verb::Skip | Verb::Force | Verb::Stop),
            Err(_) => assert_eq!(self.t, before, "{word} was refused and changed something"),
        }
        // A branch that was left out is not waited for any more.
        for message in &mut self.messages {
            if message.call.branch != QUERY {
                let branch = &self.t.branches[usize::from(message.call.branch)];
                message.is_awaited &= branch.is_called();
            }
        }
        self.go_on();
    }

    fn client(&mut self) {
        let moment = self.moment();
        if self.t.status != Status::Prepared {
            return;
        }
        let done = match self.dice.below(6) {
            0 => machine::submit(&mut self.t, moment),
            1 => machine::abort(&mut self.t, "the client's", moment),
            2 if self.t.branches.len() < 12 => {
                let mut other = Transaction::new("", self.t.kind, Status::Prepared, 0);
                let step = self.t.branches.len();
                add_branches(&mut other, step, &mut self.dice);
                machine::register(&mut self.t, other.branches)
            }
            _ => Ok(()),
        };
        done.expect("allowed while prepared");
        self.go_on();
    }

    /// Everything works again: all must come to an end, and the books must be right, even after
    /// the last late call has arrived.
    fn calm_down(&mut self) {
        self.is_calm = true;
        self.rules.tries_max = 0;
        for _ in 0..CALM_STEPS {
            if self.t.status.is_final() && self.messages.is_empty() {
                return self.check_books(true);
            }
            if self.t.hold != Hold::None {
                let moment = self.moment();
                verbs::apply(&mut self.t, Verb::Resume, None, "model", moment).expect("held");
                self.go_on();
            }
            self.step();
        }
        panic!("unfinished: {:#?}", self.t);
    }
}

fn add_branches(t: &mut Transaction, step: usize, dice: &mut Dice) {
    let mut url = || if dice.one_in(6) { "" } else { "http://there/" };
    let id = format!("{:02}", step + 1);
    let payload: Arc<[u8]> = b"{}"[..].into();
    let ops: &[Op] = match t.kind {
        // Both or neither have an address, so that the books can be checked.
        Kind::Saga => {
            let url = url();
            return t.add_step(url, url, &payload);
        }
        Kind::Msg => &[Op::Action],
        Kind::Tcc => &[Op::Cancel, Op::Confirm],
        _ => &[Op::Rollback, Op::Commit],
    };
    for &op in ops {
        t.branches.push(Branch::new(&id, op, url(), Arc::clone(&payload)));
    }
}

fn choose_options(t: &mut Transaction, steps: usize, dice: &mut Dice) {
    t.query_prepared = "http://client/".into();
    if dice.one_in(3) {
        t.options.timeout_to_fail_s = 1 + dice.below(60) as u32;
    }
    if dice.one_in(3) {
        t.options.retry_limit = dice.below(4) as u32;
    }
    t.options.concurrent = dice.one_in(2);
    let mut custom = String::new();
    if t.kind == Kind::Saga && dice.one_in(2) {
        let mut orders = Vec::new();
        for step in 1..steps {
            let before: Vec<String> =
                (0..step).filter(|_| dice.one_in(2)).map(|step| step.to_string()).collect();
            orders.push(format!("\"{step}\":[{}]", before.join(",")));
        }
        let concurrent = !dice.one_in(4);
        custom = format!("{{\"concurrent\":{concurrent},\"orders\":{{{}}}}}", orders.join(","));
    } else if t.kind == Kind::Msg && dice.one_in(3) {
        custom = "{\"delay\":5}".into();
    }
    t.plan = super::plan::plan(t.kind, &custom, steps).expect("a plan that can be followed");
    t.custom_data = custom.into();
}

fn run(seed: u64) -> u64 {
    let mut world = World::new(seed);
    let mut steps = 0;
    while steps < STORM_STEPS && !world.t.status.is_final() {
        world.step();
        steps += 1;
    }
    world.calm_down();
    steps + 1
}

#[test]
fn random_schedules_keep_every_invariant() {
    let wanted = std::env::var("FOREBAY_MODEL_STEPS").ok().and_then(|text| text.parse().ok());
    let wanted: u64 = wanted.unwrap_or(STEPS_DEFAULT);
    let (mut steps, mut seed) = (0, 0);
    while steps < wanted {
        seed += 1;
        let ran = std::panic::catch_unwind(|| run(seed));
        match ran {
            Ok(count) => steps += count,
            Err(_) => panic!("the schedule of seed {seed} breaks an invariant"),
        }
    }
}
