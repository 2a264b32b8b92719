//! The state machine: what happens to a transaction when somebody asks, a branch answers, or time
//! passes. Pure: no clock, no randomness, no I/O; calls to make are handed back.
//!
//! ```text
//!              prepare                       submit
//!                 |                             |
//!                 v          (1)                v          (3)
//!            PREPARED ------------------> SUBMITTED ------------------> SUCCEED
//!             |     |                         |
//!         (2) |     | (4)                     | (5)
//!             |     +--------> ABORTING <-----+
//!             |                   |
//!             |                   | (6)
//!             +------------> FAILED <---- (7) any that is not final
//!
//!   (1) submit; query_prepared said yes             `submit`, `answer_query`
//!   (2) msg: abort, or query_prepared said no       `abort`, `answer_query`
//!       workflow: its client says so (also SUCCEED) `finish_workflow`
//!   (3) every action, confirm, commit has succeeded `transition`
//!   (4) tcc, xa: abort, or the time is over         `abort`, `transition`
//!   (5) saga: an action was refused, the time or    `answer_branch`, `transition`,
//!       the retries are used up, an operator        `verbs::compensate`
//!   (6) every compensation, cancel, rollback that   `transition`
//!       is needed has succeeded
//!   (7) an operator                                 `force_stop`
//! ```
//!
//! Beside that, any transaction that is not final may stand still (`Hold`): paused by an operator,
//! or dead because a branch used up its attempts. Then nothing is called and no time runs out;
//! answers to calls under way still count.
//!
//! **Invariants** (asserted by the model check in `model.rs`):
//! - A final state never changes.
//! - A branch has at most one call under way, and an answer counts only for that call.
//! - No action is called once the saga is ABORTING; no compensation before its action's call has
//!   ended; both in the order of the plan.
//! - SUCCEED means that every action succeeded. FAILED, unless an operator forced it, means that
//!   every step that may have been called has been compensated.
//! - Who is neither final, nor held, nor busy has a time at which it goes on, but for what waits
//!   for its client alone.

use super::local::OUTPUT_BYTES_MAX;
use super::policy::{Moment, Rules};
use super::transaction::{Attempt, Branch, QUERY, Transaction, note};
use super::words::{BranchStatus, Hold, Kind, Op, Status, Verdict};

/// A call that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Which branch; [`QUERY`] = the client itself.
    pub branch: u16,
    /// The call's number within the transaction, never used twice in a process.
    pub call: u64,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What it means.
    pub verdict: Verdict,
    /// The HTTP status, 0 without an answer.
    pub code: u16,
    /// The body, or the error; cut.
    pub text: String,
    /// When the call began, in ms since 1970.
    pub began_ms: u64,
    /// The wait that the branch asked for, in ms; 0 = none.
    pub retry_after_ms: u64,
}

/// Why something asked for is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The state does not allow it: what was asked for.
    State(Kind, Status, &'static str),
    /// There is no such branch, or none that it could mean.
    NoBranch,
    /// A word that is none.
    Unknown(String),
}

impl Refusal {
    /// The text for the client.
    pub fn text(&self) -> String {
        match self {
            Refusal::State(kind, status, what) => {
                let (kind, status) = (kind.word(), status.word());
                format!("trans type: '{kind}' current status '{status}', cannot {what}.")
            }
            Refusal::NoBranch => "there is no branch that this could be done to".into(),
            Refusal::Unknown(word) => format!("unknown: {word}"),
        }
    }
}

/// Goes on as far as possible at this moment. To be called after everything below.
pub fn advance(t: &mut Transaction, rules: &Rules, moment: Moment, calls: &mut Vec<Call>) {
    while !t.status.is_final() && t.hold == Hold::None {
        if let Some((status, reason)) = transition(t, rules, moment.now_ms) {
            enter(t, status, &reason, moment);
        } else if !launch(t, rules, moment, calls) {
            break;
        }
    }
}

/// When [`advance`] has something to do again, in ms since 1970, if no answer comes before.
pub fn due_ms(t: &Transaction, rules: &Rules) -> Option<u64> {
    if t.status.is_final() || t.hold != Hold::None {
        return None;
    }
    let waiting = |&index: &usize| {
        let tries = &t.branches[index].tries;
        (tries.call == 0).then_some(tries.due_ms.max(not_before_ms(t)))
    };
    let branches = targets(t).iter().filter_map(waiting).min();
    let query = query_due_ms(t, rules).filter(|_| t.query.call == 0);
    [branches, query, deadline_ms(t, rules)].into_iter().flatten().min()
}

/// Takes the answer to a call. Says whether it was awaited.
pub fn answer(
    t: &mut Transaction,
    rules: &Rules,
    moment: Moment,
    call: Call,
    answer: &Answer,
) -> bool {
    let tries = match call.branch {
        QUERY => Some(&mut t.query),
        index => t.branches.get_mut(index as usize).map(|branch| &mut branch.tries),
    };
    match tries {
        Some(tries) if call.call != 0 && tries.call == call.call => tries.call = 0,
        _ => return false,
    }
    if t.status.is_final() {
        return false;
    }
    t.keep_attempt(Attempt {
        branch: call.branch,
        at_ms: answer.began_ms,
        took_ms: u32::try_from(moment.now_ms.saturating_sub(answer.began_ms)).unwrap_or(u32::MAX),
        code: answer.code,
        verdict: answer.verdict,
        note: note(&answer.text),
    });
    match call.branch {
        QUERY => answer_query(t, rules, moment, answer),
        index => answer_branch(t, rules, moment, index as usize, answer),
    }
    true
}

/// Takes a call back that could not leave; it is due again at a time, in ms since 1970.
pub fn put_off(t: &mut Transaction, call: Call, due_ms: u64) {
    let tries = match call.branch {
        QUERY => Some(&mut t.query),
        index => t.branches.get_mut(usize::from(index)).map(|branch| &mut branch.tries),
    };
    if let Some(tries) = tries.filter(|tries| tries.call == call.call) {
        tries.call = 0;
        tries.due_ms = due_ms;
    }
}

/// Carries a prepared transaction out; one that is being carried out is tried again at once.
pub fn submit(t: &mut Transaction, moment: Moment) -> Result<(), Refusal> {
    match t.status {
        Status::Prepared => {
            enter(t, Status::Submitted, "", moment);
            Ok(())
        }
        Status::Submitted => {
            retry_now(t, moment);
            Ok(())
        }
        status => Err(Refusal::State(t.kind, status, "submit")),
    }
}

/// Undoes a prepared transaction: only TCC, XA and messages can be.
pub fn abort(t: &mut Transaction, reason: &str, moment: Moment) -> Result<(), Refusal> {
    match (t.kind, t.status) {
        (Kind::Msg, Status::Prepared) => enter(t, Status::Failed, "", moment),
        (Kind::Tcc | Kind::Xa, Status::Prepared) => enter(t, Status::Aborting, reason, moment),
        (Kind::Tcc | Kind::Xa, Status::Aborting) => retry_now(t, moment),
        (kind, status) => return Err(Refusal::State(kind, status, "abort")),
    }
    Ok(())
}

/// Ends a transaction as failed without undoing anything.
pub fn force_stop(t: &mut Transaction, moment: Moment) -> Result<(), Refusal> {
    if t.status.is_final() {
        return Err(Refusal::State(t.kind, t.status, "force stop"));
    }
    enter(t, Status::Failed, "", moment);
    Ok(())
}

/// Adds branches to a prepared transaction; those that are there (number and operation) stay.
pub fn register(t: &mut Transaction, branches: Vec<Branch>) -> Result<(), Refusal> {
    if t.status != Status::Prepared {
        return Err(Refusal::State(t.kind, t.status, "register a branch"));
    }
    for branch in branches {
        let is_known = t.branches.iter().any(|known| {
            known.branch_id == branch.branch_id && known.op_word() == branch.op_word()
        });
        if !is_known {
            t.branches.push(branch);
            t.dirty = true;
        }
    }
    Ok(())
}

/// Ends a workflow as its client says.
pub fn finish_workflow(
    t: &mut Transaction,
    status: Status,
    reason: &str,
    result: &str,
    moment: Moment,
) -> Result<(), Refusal> {
    if t.kind != Kind::Workflow || t.status.is_final() && t.status != status {
        return Err(Refusal::State(t.kind, t.status, "submit"));
    }
    if !t.status.is_final() {
        t.result = result.into();
        enter(t, status, reason, moment);
    }
    Ok(())
}

/// Makes every attempt that is waited for due now.
pub fn retry_now(t: &mut Transaction, moment: Moment) {
    let now_ms = moment.now_ms;
    t.query.due_ms = t.query.due_ms.min(now_ms);
    if t.status == Status::Prepared && t.kind == Kind::Workflow {
        t.query.due_ms = now_ms;
    }
    for branch in &mut t.branches {
        if branch.status == BranchStatus::Prepared && branch.tries.due_ms > now_ms {
            branch.tries.due_ms = now_ms;
            branch.dirty = true;
        }
    }
    t.dirty = true;
}

/// Prepares what was read from the log for going on: nothing is under way, and no wait is longer
/// than it was meant to be, whatever happened to the clock.
pub fn recover(t: &mut Transaction, now_ms: u64) {
    let all = t.branches.iter_mut().map(|branch| &mut branch.tries);
    for tries in all.chain([&mut t.query]) {
        tries.call = 0;
        tries.due_ms = tries.due_ms.min(now_ms + tries.wait_ms);
    }
}

/// The state that is to be entered now, if any, and why.
fn transition(t: &Transaction, rules: &Rules, now_ms: u64) -> Option<(Status, String)> {
    let is_late = deadline_ms(t, rules).is_some_and(|deadline| deadline <= now_ms);
    let late = || (Status::Aborting, format!("Timeout after {} seconds", timeout_s(t, rules)));
    let done = |op: Op| {
        let mut branches = t.branches.iter().filter(|branch| branch.op == op);
        branches.all(|branch| branch.status == BranchStatus::Succeed)
    };
    let succeed = || (Status::Succeed, String::new());
    let failed = || (Status::Failed, String::new());
    match (t.kind, t.status) {
        (Kind::Saga | Kind::Msg, Status::Submitted) if done(Op::Action) => Some(succeed()),
        (Kind::Tcc, Status::Submitted) if done(Op::Confirm) => Some(succeed()),
        (Kind::Xa, Status::Submitted) if done(Op::Commit) => Some(succeed()),
        (Kind::Saga, Status::Submitted) if is_late => Some(late()),
        (Kind::Tcc | Kind::Xa, Status::Prepared) if is_late => Some(late()),
        (Kind::Saga, Status::Aborting) => {
            (0..t.steps_count()).all(|step| is_undone(t, step)).then(failed)
        }
        (Kind::Tcc, Status::Aborting) if done(Op::Cancel) => Some(failed()),
        (Kind::Xa, Status::Aborting) if done(Op::Rollback) => Some(failed()),
        _ => None,
    }
}

/// Enters a state. The reason is kept if there is none yet.
pub(super) fn enter(t: &mut Transaction, status: Status, reason: &str, moment: Moment) {
    debug_assert!(!t.status.is_final(), "{} is final", t.status.word());
    if status == Status::Aborting && t.kind == Kind::Saga {
        for index in targets_of_saga(t) {
            t.branches[index].touched = true;
        }
        for branch in t.branches.iter_mut().filter(|branch| branch.touched) {
            branch.dirty = true;
        }
    }
    t.status = status;
    t.updated_ms = moment.now_ms;
    t.dirty = true;
    if t.rollback_reason.is_empty() && !reason.is_empty() {
        t.rollback_reason = reason.into();
    }
    if status.is_final() {
        t.finished_ms = moment.now_ms;
        t.hold = Hold::None;
    }
}

/// Does what is due: branches without an address at once, all others by calls. Says whether any
/// was done at once.
fn launch(t: &mut Transaction, rules: &Rules, moment: Moment, calls: &mut Vec<Call>) -> bool {
    let now_ms = moment.now_ms;
    if t.query.call == 0 && query_due_ms(t, rules).is_some_and(|due| due <= now_ms) {
        if t.query_prepared.is_empty() && t.kind == Kind::Msg {
            enter(t, Status::Submitted, "", moment);
            return true;
        }
        t.calls += 1;
        t.query.call = t.calls;
        calls.push(Call { branch: QUERY, call: t.calls });
    }
    let mut is_changed = false;
    for index in targets(t) {
        let not_before_ms = not_before_ms(t);
        let branch = &mut t.branches[index];
        if branch.is_called() || branch.tries.due_ms.max(not_before_ms) > now_ms {
            continue;
        }
        if branch.url.is_empty() {
            done(branch, BranchStatus::Succeed, now_ms);
            t.updated_ms = now_ms;
            is_changed = true;
            continue;
        }
        t.calls += 1;
        branch.tries.call = t.calls;
        branch.touched = true;
        calls.push(Call { branch: index as u16, call: t.calls });
    }
    is_changed
}

/// Marks a branch as done.
pub(super) fn done(branch: &mut Branch, status: BranchStatus, now_ms: u64) {
    branch.status = status;
    branch.finished_ms = now_ms;
    branch.tries.call = 0;
    branch.dirty = true;
}

fn answer_branch(
    t: &mut Transaction,
    rules: &Rules,
    moment: Moment,
    index: usize,
    answer: &Answer,
) {
    let is_action_of_saga = t.kind == Kind::Saga && t.branches[index].op == Op::Action;
    let keeps_output = answer.text.len() <= OUTPUT_BYTES_MAX && t.keeps_outputs();
    let branch = &mut t.branches[index];
    t.updated_ms = moment.now_ms;
    match answer.verdict {
        Verdict::Success | Verdict::Operator => {
            if keeps_output {
                branch.output = answer.text.as_str().into();
            }
            return done(branch, BranchStatus::Succeed, moment.now_ms);
        }
        Verdict::Failure if is_action_of_saga => {
            done(branch, BranchStatus::Failed, moment.now_ms);
            if t.status == Status::Submitted {
                let text = answer.text.trim_end().trim_end_matches(" FAILURE");
                let reason = format!("url:{} return failed: {text} FAILURE", branch.url);
                enter(t, Status::Aborting, &reason, moment);
            }
            return;
        }
        Verdict::Ongoing => rules.keep_waiting(&mut branch.tries, &t.options, moment),
        Verdict::Failure | Verdict::Unknown => {
            rules.back_off(&mut branch.tries, &t.options, moment, answer.retry_after_ms);
        }
    }
    branch.dirty = true;
    if is_action_of_saga && t.status != Status::Submitted {
        return;
    }
    if is_action_of_saga && t.options.retry_limit > 0 {
        branch.tries.due_ms = moment.now_ms;
        if t.retry_count >= t.options.retry_limit {
            let limit = t.options.retry_limit;
            let reason = format!("RetryCount is greater than RetryLimit, RetryLimit: {limit}");
            return enter(t, Status::Aborting, &reason, moment);
        }
        t.retry_count += 1;
    } else if rules.is_dead(&branch.tries) {
        t.hold = Hold::Dead;
    }
}

fn answer_query(t: &mut Transaction, rules: &Rules, moment: Moment, answer: &Answer) {
    if t.status != Status::Prepared {
        return;
    }
    match (t.kind, answer.verdict) {
        (Kind::Msg, Verdict::Success) => enter(t, Status::Submitted, "", moment),
        (Kind::Msg, Verdict::Failure) => enter(t, Status::Failed, "", moment),
        (_, Verdict::Failure | Verdict::Unknown) => {
            rules.back_off(&mut t.query, &t.options, moment, answer.retry_after_ms);
            if rules.is_dead(&t.query) {
                t.hold = Hold::Dead;
            }
        }
        _ => rules.keep_waiting(&mut t.query, &t.options, moment),
    }
    t.dirty = true;
}

fn timeout_s(t: &Transaction, rules: &Rules) -> u32 {
    match (t.options.timeout_to_fail_s, t.kind) {
        (0, Kind::Saga) => 0,
        (0, _) => rules.timeout_to_fail_s,
        (chosen, _) => chosen,
    }
}

/// When the time is over, in ms since 1970, for what is undone then.
fn deadline_ms(t: &Transaction, rules: &Rules) -> Option<u64> {
    let can_end = matches!(
        (t.kind, t.status),
        (Kind::Saga, Status::Submitted) | (Kind::Tcc | Kind::Xa, Status::Prepared)
    );
    let timeout_ms = u64::from(timeout_s(t, rules)) * 1000;
    (can_end && timeout_ms > 0).then_some(t.created_ms + timeout_ms)
}

/// When the client is asked next, in ms since 1970: about a prepared message's outcome when its
/// time is over, and to go on with a workflow when it has been silent for an interval.
fn query_due_ms(t: &Transaction, rules: &Rules) -> Option<u64> {
    let silence_ms = match (t.kind, t.status) {
        (Kind::Msg, Status::Prepared) => u64::from(timeout_s(t, rules)) * 1000,
        (Kind::Workflow, Status::Prepared) if !t.query_prepared.is_empty() => {
            rules.first_wait_ms(&t.options)
        }
        _ => return None,
    };
    // What was made due by hand does not wait for the first silence.
    Some(if t.query.due_ms > 0 { t.query.due_ms } else { t.created_ms + silence_ms })
}

/// No branch is called before this, in ms since 1970.
fn not_before_ms(t: &Transaction) -> u64 {
    match t.plan.delay_s {
        0 => 0,
        delay_s => t.created_ms + u64::from(delay_s) * 1000,
    }
}

/// The branches whose turn it is, called or not, due or not.
pub(super) fn targets(t: &Transaction) -> Vec<usize> {
    let is_open = |index: &usize| t.branches[*index].status == BranchStatus::Prepared;
    let all = 0..t.branches.len();
    let first = |op: Op, is_forward: bool| {
        let mut open = all.clone().filter(is_open).filter(|&index| t.branches[index].op == op);
        let found = if is_forward { open.next() } else { open.next_back() };
        found.into_iter().collect()
    };
    match (t.kind, t.status) {
        (Kind::Saga, Status::Submitted) => targets_of_saga(t),
        (Kind::Saga, Status::Aborting) => {
            let compensations = all.clone().step_by(2).filter(is_open);
            compensations.filter(|&index| may_undo(t, index / 2)).collect()
        }
        (Kind::Msg, Status::Submitted) if t.options.concurrent => all.filter(is_open).collect(),
        (Kind::Msg, Status::Submitted) => first(Op::Action, true),
        (Kind::Tcc, Status::Submitted) => first(Op::Confirm, false),
        (Kind::Tcc, Status::Aborting) => first(Op::Cancel, false),
        (Kind::Xa, Status::Submitted) => first(Op::Commit, true),
        (Kind::Xa, Status::Aborting) => first(Op::Rollback, true),
        _ => Vec::new(),
    }
}

/// A saga's actions whose turn it is, or would be.
fn targets_of_saga(t: &Transaction) -> Vec<usize> {
    let has_succeeded = |step: usize| t.branches[2 * step + 1].status == BranchStatus::Succeed;
    let may_start = |step: usize| {
        let before = t.plan.after.get(step).map_or(&[][..], Vec::as_slice);
        (t.plan.concurrent || step == 0 || has_succeeded(step - 1))
            && before.iter().all(|&earlier| has_succeeded(usize::from(earlier)))
    };
    let is_open = |step: &usize| t.branches[2 * step + 1].status == BranchStatus::Prepared;
    let steps = (0..t.steps_count()).filter(is_open).filter(|&step| may_start(step));
    steps.map(|step| 2 * step + 1).collect()
}

/// Whether a step has left nothing behind.
fn is_undone(t: &Transaction, step: usize) -> bool {
    let action = &t.branches[2 * step + 1];
    let was_called = action.status != BranchStatus::Prepared || action.touched;
    !was_called || t.branches[2 * step].status == BranchStatus::Succeed
}

/// Whether it is a step's turn to be compensated: it has to be, its action's call has ended, and
/// whatever came after it is undone.
fn may_undo(t: &Transaction, step: usize) -> bool {
    if is_undone(t, step) || t.branches[2 * step + 1].is_called() {
        return false;
    }
    if !t.plan.concurrent && step + 1 < t.steps_count() && !is_undone(t, step + 1) {
        return false;
    }
    let after = t.plan.after.iter().enumerate();
    let mut later = after.filter(|(_, before)| before.contains(&(step as u16)));
    later.all(|(later, _)| is_undone(t, later))
}
