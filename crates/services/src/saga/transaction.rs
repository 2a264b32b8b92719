//! A transaction with its branches, as data: what the state machine changes and the log keeps.
//!
//! ```text
//!   saga      branches: 01 compensate, 01 action, 02 compensate, 02 action, ...
//!   msg       branches: 01 action, 02 action, ... (03-01, 03-02, ... for a topic's subscribers)
//!   tcc       branches: ID cancel, ID confirm, ... as registered
//!   xa        branches: ID rollback, ID commit, ... as registered
//!   workflow  branches: results that the client recorded
//! ```
//!
//! **Invariant:** for a saga, `branches[2 * step]` compensates `branches[2 * step + 1]`.

use std::sync::Arc;

use super::local;
use super::words::{BranchStatus, Durability, Hold, Kind, Op, Status, Verdict};

/// Attempts that are kept per transaction: the first and the last of them, half each.
pub const ATTEMPTS_KEPT_MAX: usize = 32;
/// Bytes of an answer that are kept with an attempt.
pub const NOTE_BYTES_MAX: usize = 160;
/// The branch number of questions to the client: query_prepared and a workflow's callback.
pub const QUERY: u16 = u16::MAX;
/// Branches a transaction may have.
pub const BRANCHES_MAX: usize = 2000;

/// What a client may choose per transaction (dtm's `TransOptions`). 0 = the server's default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether the submitter waits for the first round.
    pub wait_result: bool,
    /// When to give up, in seconds.
    pub timeout_to_fail_s: u32,
    /// How long a branch may take to answer, in seconds.
    pub request_timeout_s: u32,
    /// The first wait before another attempt, in seconds.
    pub retry_interval_s: u32,
    /// How many attempts of a saga's actions may go wrong, all together, before it is undone.
    pub retry_limit: u32,
    /// Whether a message's branches are called at once.
    pub concurrent: bool,
    /// Headers for every call.
    pub headers: Vec<(Box<str>, Box<str>)>,
}

/// Attempts at one thing: how many there were and when the next is due.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tries {
    /// Attempts that brought no result.
    pub count: u32,
    /// The present wait between attempts, in ms; 0 before the first.
    pub wait_ms: u64,
    /// No attempt before this, in ms since 1970.
    pub due_ms: u64,
    /// The call that is under way; 0 = none. Never logged.
    pub call: u64,
}

/// A branch: one thing to be asked of a participant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// Its number within the transaction, as the participant sees it.
    pub branch_id: Box<str>,
    /// What is asked.
    pub op: Op,
    /// A workflow's own word for what was done; empty for all others.
    pub own_op: Box<str>,
    /// Whom to ask; empty = done without asking.
    pub url: Box<str>,
    /// What to send.
    pub payload: Arc<[u8]>,
    /// How far it is.
    pub status: BranchStatus,
    /// Whether it may have been called, though no result is known.
    pub touched: bool,
    /// Attempts.
    pub tries: Tries,
    /// When it was done, in ms since 1970; 0 = it is not.
    pub finished_ms: u64,
    /// What its answer was, where later steps may want it.
    pub output: Box<str>,
    /// Changed since the last record in the log. Never logged.
    pub dirty: bool,
}

/// How a transaction's branches depend on each other; follows from `custom_data`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// A saga's steps run at once, but for `after`.
    pub concurrent: bool,
    /// Per step of a saga, which steps come before it. Empty = no orders.
    pub after: Vec<Vec<u16>>,
    /// A message's branches are called this many seconds after it was made.
    pub delay_s: u32,
    /// The name of a workflow.
    pub workflow: Box<str>,
    /// The data of a workflow.
    pub workflow_data: Box<[u8]>,
    /// Answers of branches are kept, and put in where later ones refer to them.
    pub outputs: bool,
}

/// One attempt, for those who ask what happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Which branch; [`QUERY`] = the client's own.
    pub branch: u16,
    /// When it began, in ms since 1970.
    pub at_ms: u64,
    /// How long it took, in ms.
    pub took_ms: u32,
    /// The HTTP status, 0 without an answer.
    pub code: u16,
    /// What came of it.
    pub verdict: Verdict,
    /// The beginning of the answer, or the error.
    pub note: Box<str>,
}

/// A transaction; see the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Its number here, ascending with time.
    pub id: u64,
    /// Its name everywhere.
    pub gid: Box<str>,
    /// What kind of business it is, for lists; may be empty.
    pub name: Box<str>,
    /// What it is.
    pub kind: Kind,
    /// Where it stands.
    pub status: Status,
    /// Whether it stands still.
    pub hold: Hold,
    /// What must be safe before anything leaves.
    pub durability: Durability,
    /// `http`, `json-rpc` or `grpc`.
    pub protocol: Box<str>,
    /// In ms since 1970.
    pub created_ms: u64,
    /// In ms since 1970.
    pub updated_ms: u64,
    /// In ms since 1970; 0 = not finished.
    pub finished_ms: u64,
    /// What the client chose.
    pub options: Options,
    /// dtm's own extensible field, JSON.
    pub custom_data: Box<str>,
    /// Whom to ask about a prepared transaction.
    pub query_prepared: Box<str>,
    /// Why it is undone.
    pub rollback_reason: Box<str>,
    /// A workflow's result.
    pub result: Box<str>,
    /// The W3C trace context of whoever submitted it.
    pub trace_parent: Box<str>,
    /// Its branches.
    pub branches: Vec<Branch>,
    /// Follows from `custom_data`.
    pub plan: Plan,
    /// Questions to the client.
    pub query: Tries,
    /// Attempts of actions counted against `retry_limit`.
    pub retry_count: u32,
    /// Attempts, oldest first.
    pub attempts: Vec<Attempt>,
    /// Attempts in the middle that were dropped.
    pub attempts_dropped: u32,
    /// Something but branches changed since the last record. Never logged.
    pub dirty: bool,
    /// Calls made so far; never logged.
    pub calls: u64,
}

impl Branch {
    /// A branch that is to be called.
    pub fn new(branch_id: &str, op: Op, url: &str, payload: Arc<[u8]>) -> Branch {
        Branch {
            branch_id: branch_id.into(),
            op,
            own_op: "".into(),
            url: url.into(),
            payload,
            status: BranchStatus::Prepared,
            touched: false,
            tries: Tries::default(),
            finished_ms: 0,
            output: "".into(),
            dirty: true,
        }
    }

    /// The word of what is asked.
    pub fn op_word(&self) -> &str {
        if self.own_op.is_empty() { self.op.word() } else { &self.own_op }
    }

    /// Whether a call is under way.
    pub fn is_called(&self) -> bool {
        self.tries.call != 0
    }
}

impl Transaction {
    /// A transaction without branches, made now.
    pub fn new(gid: &str, kind: Kind, status: Status, now_ms: u64) -> Transaction {
        Transaction {
            id: 0,
            gid: gid.into(),
            name: "".into(),
            kind,
            status,
            hold: Hold::None,
            durability: Durability::EverySecond,
            protocol: "http".into(),
            created_ms: now_ms,
            updated_ms: now_ms,
            finished_ms: 0,
            options: Options::default(),
            custom_data: "".into(),
            query_prepared: "".into(),
            rollback_reason: "".into(),
            result: "".into(),
            trace_parent: "".into(),
            branches: Vec::new(),
            plan: Plan::default(),
            query: Tries::default(),
            retry_count: 0,
            attempts: Vec::new(),
            attempts_dropped: 0,
            dirty: true,
            calls: 0,
        }
    }

    /// Adds a saga's step.
    pub fn add_step(&mut self, action: &str, compensate: &str, payload: &[u8]) {
        let id = format!("{:02}", self.branches.len() / 2 + 1);
        let payload: Arc<[u8]> = payload.into();
        self.branches.push(Branch::new(&id, Op::Compensate, compensate, Arc::clone(&payload)));
        self.branches.push(Branch::new(&id, Op::Action, action, payload));
    }

    /// Steps of a saga.
    pub fn steps_count(&self) -> usize {
        self.branches.len() / 2
    }

    /// Whether the answers of branches are kept for later ones.
    pub fn keeps_outputs(&self) -> bool {
        self.plan.outputs || self.branches.iter().any(|branch| local::is_local(&branch.url))
    }

    /// Whether a call is under way.
    pub fn is_busy(&self) -> bool {
        self.query.call != 0 || self.branches.iter().any(Branch::is_called)
    }

    /// Keeps an attempt; in the middle, old ones give way.
    pub fn keep_attempt(&mut self, attempt: Attempt) {
        if self.attempts.len() >= ATTEMPTS_KEPT_MAX {
            self.attempts.remove(ATTEMPTS_KEPT_MAX / 2);
            self.attempts_dropped += 1;
        }
        self.attempts.push(attempt);
        self.dirty = true;
    }
}

/// The beginning of a text, at most [`NOTE_BYTES_MAX`] bytes of it.
pub fn note(text: &str) -> Box<str> {
    let mut end = text.len().min(NOTE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_attempts_in_the_middle_give_way() {
        let mut transaction = Transaction::new("g", Kind::Saga, Status::Submitted, 1);
        for at_ms in 0..100 {
            let verdict = Verdict::Unknown;
            let attempt =
                Attempt { branch: 0, at_ms, took_ms: 0, code: 0, verdict, note: "".into() };
            transaction.keep_attempt(attempt);
        }
        assert_eq!(transaction.attempts.len(), ATTEMPTS_KEPT_MAX);
        assert_eq!(transaction.attempts_dropped, 100 - ATTEMPTS_KEPT_MAX as u32);
        assert_eq!(transaction.attempts[0].at_ms, 0);
        assert_eq!(transaction.attempts[ATTEMPTS_KEPT_MAX - 1].at_ms, 99);
    }

    #[test]
    fn notes_end_at_a_whole_character() {
        let text = "ä".repeat(NOTE_BYTES_MAX);
        assert!(note(&text).len() <= NOTE_BYTES_MAX);
        assert_eq!(&*note("short"), "short");
    }
}
