//! What an operator may do to one transaction, as pure transitions. Each leaves an attempt in the
//! timeline that says who did what.
//!
//! | verb | does |
//! |---|---|
//! | retry | every waiting attempt is due now; a dead letter's attempts are forgotten |
//! | skip | the branch is left out: neither done nor ever undone |
//! | force | the branch counts as done |
//! | compensate | a saga that is carried out is undone |
//! | cancel | whatever is prepared or carried out is undone, as far as its kind can be |
//! | pause, resume | stands still, goes on |
//! | stop | ends as failed; nothing is undone |
//!
//! **Invariant:** a verb that is refused has changed nothing.

use super::machine::{self, Refusal};
use super::policy::Moment;
use super::transaction::{Attempt, QUERY, Transaction, Tries, note};
use super::words::{BranchStatus, Hold, Kind, Op, Status, Verdict};

/// An operator's verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Verb {
    Retry,
    Skip,
    Force,
    Compensate,
    Cancel,
    Pause,
    Resume,
    Stop,
}

impl Verb {
    /// All of them with their words.
    pub const ALL: &[(&str, Verb)] = &[
        ("retry", Verb::Retry),
        ("skip", Verb::Skip),
        ("force", Verb::Force),
        ("compensate", Verb::Compensate),
        ("cancel", Verb::Cancel),
        ("pause", Verb::Pause),
        ("resume", Verb::Resume),
        ("stop", Verb::Stop),
    ];

    /// The verb with this word, whatever its case.
    pub fn of_word(word: &str) -> Option<Verb> {
        let mut all = Self::ALL.iter();
        all.find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|&(_, verb)| verb)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|(_, verb)| *verb == self).map_or("", |&(word, _)| word)
    }
}

/// Does it. `branch` is the place of the branch that is meant, for `skip` and `force`: without
/// one, it is the one that hinders the transaction. `who` is for the timeline.
pub fn apply(
    t: &mut Transaction,
    verb: Verb,
    branch: Option<u16>,
    who: &str,
    moment: Moment,
) -> Result<(), Refusal> {
    if t.status.is_final() {
        return Err(Refusal::State(t.kind, t.status, verb.word()));
    }
    let mut place = QUERY;
    match verb {
        Verb::Retry => retry(t, moment),
        Verb::Skip | Verb::Force => place = leave_out(t, verb, branch, moment)?,
        Verb::Compensate => compensate(t, verb, who, moment)?,
        Verb::Cancel => match (t.kind, t.status) {
            (Kind::Saga, Status::Submitted) => compensate(t, verb, who, moment)?,
            (Kind::Saga, Status::Prepared) | (Kind::Workflow, _) => {
                machine::force_stop(t, moment)?;
            }
            _ => machine::abort(t, &format!("cancelled by {who}"), moment)?,
        },
        Verb::Pause => t.hold = Hold::Paused,
        Verb::Resume => retry(t, moment),
        Verb::Stop => machine::force_stop(t, moment)?,
    }
    if matches!(verb, Verb::Compensate | Verb::Cancel) {
        t.hold = Hold::None;
    }
    t.updated_ms = moment.now_ms;
    t.keep_attempt(Attempt {
        branch: place,
        at_ms: moment.now_ms,
        took_ms: 0,
        code: 0,
        verdict: Verdict::Operator,
        note: note(&format!("{} by {who}", verb.word())),
    });
    Ok(())
}

fn retry(t: &mut Transaction, moment: Moment) {
    if t.hold == Hold::Dead {
        let open = t.branches.iter_mut().filter(|b| b.status == BranchStatus::Prepared);
        for branch in open {
            branch.tries = Tries { call: branch.tries.call, ..Tries::default() };
            branch.dirty = true;
        }
        t.query = Tries { call: t.query.call, due_ms: t.query.due_ms, ..Tries::default() };
    }
    t.hold = Hold::None;
    machine::retry_now(t, moment);
}

fn compensate(t: &mut Transaction, verb: Verb, who: &str, moment: Moment) -> Result<(), Refusal> {
    if t.kind != Kind::Saga || t.status != Status::Submitted {
        return Err(Refusal::State(t.kind, t.status, verb.word()));
    }
    machine::enter(t, Status::Aborting, &format!("{} by {who}", verb.word()), moment);
    Ok(())
}

/// Marks a branch as done without its having been; gives its place.
fn leave_out(
    t: &mut Transaction,
    verb: Verb,
    branch: Option<u16>,
    moment: Moment,
) -> Result<u16, Refusal> {
    let targets = machine::targets(t);
    let hinders = |&&index: &&usize| t.branches[index].tries.count > 0;
    let meant = match branch {
        Some(index) => Some(usize::from(index)).filter(|index| targets.contains(index)),
        None => targets.iter().find(hinders).or(targets.first()).copied(),
    };
    let index = meant.ok_or(Refusal::NoBranch)?;
    machine::done(&mut t.branches[index], BranchStatus::Succeed, moment.now_ms);
    let is_action_of_saga = t.kind == Kind::Saga && t.branches[index].op == Op::Action;
    if verb == Verb::Skip && is_action_of_saga {
        machine::done(&mut t.branches[index - 1], BranchStatus::Succeed, moment.now_ms);
    }
    if t.hold == Hold::Dead {
        t.hold = Hold::None;
    }
    Ok(index as u16)
}
