//! Transactions as bytes: in the log, and in memory once they are finished.
//!
//! ```text
//!   SNAPSHOT  1 | id | everything                 replaces whatever is known under this id
//!   CHANGE    2 | id | state | attempts | (place, branch state)* | new branches*
//!   TOPIC     3 | name | version | subscribers    empty = the topic is gone
//!
//!   numbers   LEB128; times as the distance from the transaction's beginning, plus 1, 0 = none
//!   texts     length, bytes
//! ```
//!
//! **Invariant:** whatever bytes come in, reading ends with a value or `None`, and takes no more
//! memory than the bytes it was given warrant.

use std::sync::Arc;

use super::plan;
use super::transaction::{Attempt, BRANCHES_MAX, Branch, Options, Transaction, Tries};
use super::words::{BranchStatus, Durability, Hold, Kind, Op, Status, Verdict};

/// A record that holds a whole transaction.
pub const SNAPSHOT: u8 = 1;
/// A record that holds what changed.
pub const CHANGE: u8 = 2;
/// A record that holds a topic.
pub const TOPIC: u8 = 3;

/// Bytes being written.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// A small number.
    pub fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// A number.
    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Bytes with their length.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A text.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// A time, as the distance from another; 0 = none.
    fn time(&mut self, time_ms: u64, from_ms: u64) {
        self.number(if time_ms == 0 { 0 } else { zigzag(time_ms, from_ms) + 1 });
    }
}

/// A signed distance as a number that is small where the distance is.
fn zigzag(value: u64, from: u64) -> u64 {
    let distance = value.wrapping_sub(from) as i64;
    ((distance << 1) ^ (distance >> 63)) as u64
}

/// Bytes being read.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// A small number.
    pub fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    /// A number.
    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    /// Bytes with their length.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A text.
    pub fn text(&mut self) -> Option<Box<str>> {
        std::str::from_utf8(self.bytes()?).ok().map(Into::into)
    }

    fn time(&mut self, from_ms: u64) -> Option<u64> {
        Some(match self.number()? {
            0 => 0,
            number => {
                let number = number - 1;
                let distance = (number >> 1) as i64 ^ -((number & 1) as i64);
                from_ms.wrapping_add(distance as u64)
            }
        })
    }
}

/// A whole transaction, as a record.
pub fn snapshot(t: &Transaction) -> Vec<u8> {
    let mut w = Writer(Vec::with_capacity(128));
    w.byte(SNAPSHOT);
    w.number(t.id);
    w.number(t.created_ms);
    w.text(&t.gid);
    w.text(&t.name);
    w.byte(t.kind as u8);
    w.byte(t.durability as u8);
    // Nearly always the same word.
    w.text(if &*t.protocol == "http" { "" } else { &t.protocol });
    options(&mut w, &t.options);
    w.text(&t.custom_data);
    w.text(&t.query_prepared);
    w.text(&t.trace_parent);
    state(&mut w, t);
    w.number(t.branches.len() as u64);
    for branch in &t.branches {
        whole_branch(&mut w, branch, t.created_ms);
    }
    w.0
}

/// What changed since the last record; `None` if nothing did. Marks it as recorded.
pub fn change(t: &mut Transaction, recorded_branches: usize) -> Option<Vec<u8>> {
    if !t.dirty && t.branches.iter().all(|branch| !branch.dirty) {
        return None;
    }
    let mut w = Writer(Vec::with_capacity(64));
    w.byte(CHANGE);
    w.number(t.id);
    state(&mut w, t);
    let old = &t.branches[..recorded_branches];
    w.number(old.iter().filter(|branch| branch.dirty).count() as u64);
    for (place, branch) in old.iter().enumerate().filter(|(_, branch)| branch.dirty) {
        w.number(place as u64);
        branch_state(&mut w, branch, t.created_ms);
    }
    w.number((t.branches.len() - recorded_branches) as u64);
    for branch in &t.branches[recorded_branches..] {
        whole_branch(&mut w, branch, t.created_ms);
    }
    clean(t);
    Some(w.0)
}

/// Marks everything as recorded.
pub fn clean(t: &mut Transaction) {
    t.dirty = false;
    t.branches.iter_mut().for_each(|branch| branch.dirty = false);
}

/// The id in a record of a transaction.
pub fn id_of(record: &[u8]) -> Option<u64> {
    Reader(record.get(1..)?).number()
}

/// What of a transaction is looked at without making it whole.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Outline<'a> {
    pub id: u64,
    pub gid: &'a str,
    pub name: &'a str,
    pub kind: Kind,
    pub status: Status,
    pub hold: Hold,
    pub finished_ms: u64,
}

/// The outline of the transaction in a snapshot, without reading the rest.
pub fn outline(record: &[u8]) -> Option<Outline<'_>> {
    let mut r = Reader(record);
    (r.byte()? == SNAPSHOT).then_some(())?;
    let (id, created_ms) = (r.number()?, r.number()?);
    let gid = std::str::from_utf8(r.bytes()?).ok()?;
    let name = std::str::from_utf8(r.bytes()?).ok()?;
    let kind = Kind::of_number(r.byte()?)?;
    // Durability, protocol; the options: flags, four numbers, headers.
    r.byte()?;
    r.bytes()?;
    r.byte()?;
    for _ in 0..4 {
        r.number()?;
    }
    for _ in 0..r.number()? {
        r.bytes()?;
        r.bytes()?;
    }
    // The client's data, who is asked, the trace.
    for _ in 0..3 {
        r.bytes()?;
    }
    let status = Status::of_number(r.byte()?)?;
    let hold = Hold::of_number(r.byte()?)?;
    r.time(created_ms)?;
    let finished_ms = r.time(created_ms)?;
    Some(Outline { id, gid, name, kind, status, hold, finished_ms })
}

/// The transaction in a snapshot.
pub fn read_snapshot(record: &[u8]) -> Option<Transaction> {
    let mut r = Reader(record);
    if r.byte()? != SNAPSHOT {
        return None;
    }
    let (id, created_ms) = (r.number()?, r.number()?);
    let mut t = Transaction::new("", Kind::Saga, Status::Prepared, created_ms);
    t.id = id;
    t.gid = r.text()?;
    t.name = r.text()?;
    t.kind = Kind::of_number(r.byte()?)?;
    t.durability = Durability::of_number(r.byte()?)?;
    t.protocol = Some(r.text()?).filter(|text| !text.is_empty()).unwrap_or_else(|| "http".into());
    t.options = read_options(&mut r)?;
    t.custom_data = r.text()?;
    t.query_prepared = r.text()?;
    t.trace_parent = r.text()?;
    read_state(&mut r, &mut t)?;
    read_branches(&mut r, &mut t)?;
    let steps_count = if t.kind == Kind::Saga { t.steps_count() } else { 0 };
    t.plan = plan::plan(t.kind, &t.custom_data, steps_count).ok()?;
    (t.kind != Kind::Saga || t.branches.len().is_multiple_of(2)).then_some(())?;
    clean(&mut t);
    Some(t)
}

/// Makes a change that was recorded. `None` = the record is damaged; then `t` is of no use.
pub fn apply_change(t: &mut Transaction, record: &[u8]) -> Option<()> {
    let mut r = Reader(record);
    (r.byte()? == CHANGE && r.number()? == t.id).then_some(())?;
    read_state(&mut r, t)?;
    for _ in 0..r.number()? {
        let place = usize::try_from(r.number()?).ok()?;
        let created_ms = t.created_ms;
        read_branch_state(&mut r, t.branches.get_mut(place)?, created_ms)?;
    }
    read_branches(&mut r, t)?;
    clean(t);
    Some(())
}

fn options(w: &mut Writer, options: &Options) {
    w.byte(u8::from(options.wait_result) | u8::from(options.concurrent) << 1);
    w.number(u64::from(options.timeout_to_fail_s));
    w.number(u64::from(options.request_timeout_s));
    w.number(u64::from(options.retry_interval_s));
    w.number(u64::from(options.retry_limit));
    w.number(options.headers.len() as u64);
    for (name, value) in &options.headers {
        w.text(name);
        w.text(value);
    }
}

fn read_options(r: &mut Reader) -> Option<Options> {
    let flags = r.byte()?;
    let mut options = Options {
        wait_result: flags & 1 != 0,
        concurrent: flags & 2 != 0,
        timeout_to_fail_s: r.small()?,
        request_timeout_s: r.small()?,
        retry_interval_s: r.small()?,
        retry_limit: r.small()?,
        headers: Vec::new(),
    };
    for _ in 0..r.number()? {
        options.headers.push((r.text()?, r.text()?));
    }
    Some(options)
}

/// What may change of a transaction itself.
fn state(w: &mut Writer, t: &Transaction) {
    w.byte(t.status as u8);
    w.byte(t.hold as u8);
    w.time(t.updated_ms, t.created_ms);
    w.time(t.finished_ms, t.created_ms);
    w.text(&t.rollback_reason);
    w.text(&t.result);
    tries(w, &t.query, t.created_ms);
    w.number(u64::from(t.retry_count));
    w.number(u64::from(t.attempts_dropped));
    w.number(t.attempts.len() as u64);
    for attempt in &t.attempts {
        w.number(u64::from(attempt.branch.wrapping_add(1)));
        w.time(attempt.at_ms, t.created_ms);
        w.number(u64::from(attempt.took_ms));
        w.number(u64::from(attempt.code));
        w.byte(attempt.verdict as u8);
        w.text(&attempt.note);
    }
}

fn read_state(r: &mut Reader, t: &mut Transaction) -> Option<()> {
    t.status = Status::of_number(r.byte()?)?;
    t.hold = Hold::of_number(r.byte()?)?;
    t.updated_ms = r.time(t.created_ms)?;
    t.finished_ms = r.time(t.created_ms)?;
    t.rollback_reason = r.text()?;
    t.result = r.text()?;
    t.query = read_tries(r, t.created_ms)?;
    t.retry_count = r.small()?;
    t.attempts_dropped = r.small()?;
    t.attempts.clear();
    for _ in 0..r.number()? {
        t.attempts.push(Attempt {
            branch: u16::try_from(r.number()?).ok()?.wrapping_sub(1),
            at_ms: r.time(t.created_ms)?,
            took_ms: r.small()?,
            code: u16::try_from(r.number()?).ok()?,
            verdict: Verdict::of_number(r.byte()?)?,
            note: r.text()?,
        });
    }
    Some(())
}

fn tries(w: &mut Writer, tries: &Tries, from_ms: u64) {
    // Most have not been tried: one byte.
    let is_fresh = tries.count == 0 && tries.wait_ms == 0 && tries.due_ms == 0;
    w.number(if is_fresh { 0 } else { u64::from(tries.count) + 1 });
    if !is_fresh {
        w.number(tries.wait_ms);
        w.time(tries.due_ms, from_ms);
    }
}

fn read_tries(r: &mut Reader, from_ms: u64) -> Option<Tries> {
    let Some(count) = r.small()?.checked_sub(1) else { return Some(Tries::default()) };
    Some(Tries { count, wait_ms: r.number()?, due_ms: r.time(from_ms)?, call: 0 })
}

fn whole_branch(w: &mut Writer, branch: &Branch, from_ms: u64) {
    w.text(&branch.branch_id);
    w.byte(branch.op as u8);
    w.text(&branch.own_op);
    w.text(&branch.url);
    // A saga's compensation gets what its action gets, which comes next.
    w.bytes(if branch.op == Op::Compensate { &[] } else { &branch.payload });
    branch_state(w, branch, from_ms);
}

fn branch_state(w: &mut Writer, branch: &Branch, from_ms: u64) {
    let has_output = !branch.output.is_empty();
    w.byte(branch.status as u8 | u8::from(branch.touched) << 2 | u8::from(has_output) << 3);
    if has_output {
        w.text(&branch.output);
    }
    tries(w, &branch.tries, from_ms);
    w.time(branch.finished_ms, from_ms);
}

fn read_branch_state(r: &mut Reader, branch: &mut Branch, from_ms: u64) -> Option<()> {
    let flags = r.byte()?;
    branch.status = BranchStatus::of_number(flags & 3)?;
    branch.touched = flags & 4 != 0;
    branch.output = if flags & 8 != 0 { r.text()? } else { "".into() };
    branch.tries = read_tries(r, from_ms)?;
    branch.finished_ms = r.time(from_ms)?;
    Some(())
}

fn read_branches(r: &mut Reader, t: &mut Transaction) -> Option<()> {
    for _ in 0..r.number()? {
        let branch_id = r.text()?;
        let op = Op::of_number(r.byte()?)?;
        let own_op = r.text()?;
        let url = r.text()?;
        let payload: Arc<[u8]> = r.bytes()?.into();
        if op == Op::Action
            && let Some(before) = t.branches.last_mut()
            && before.op == Op::Compensate
        {
            before.payload = Arc::clone(&payload);
        }
        let mut branch = Branch::new(&branch_id, op, &url, payload);
        branch.own_op = own_op;
        read_branch_state(r, &mut branch, t.created_ms)?;
        t.branches.push(branch);
        (t.branches.len() <= BRANCHES_MAX).then_some(())?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn saga() -> Transaction {
        let mut t = Transaction::new("gid", Kind::Saga, Status::Submitted, 1_700_000_000_000);
        t.id = 77;
        t.add_step("http://a/out", "http://a/undo", b"{\"amount\":30}");
        t.add_step("http://b/in", "", b"{}");
        t.options.headers.push(("x".into(), "y".into()));
        t.rollback_reason = "why".into();
        t.branches[1].touched = true;
        t.branches[1].tries =
            Tries { count: 3, wait_ms: 40_000, due_ms: 1_700_000_040_000, call: 0 };
        t.updated_ms += 5;
        t.keep_attempt(Attempt {
            branch: 1,
            at_ms: 1_700_000_000_001,
            took_ms: 12,
            code: 500,
            verdict: Verdict::Unknown,
            note: "no".into(),
        });
        clean(&mut t);
        t
    }

    #[test]
    fn snapshots_come_back() {
        let t = saga();
        assert_eq!(read_snapshot(&snapshot(&t)).unwrap(), t);
        assert_eq!(id_of(&snapshot(&t)), Some(77));
        let record = snapshot(&t);
        let seen = outline(&record).unwrap();
        assert_eq!((seen.id, seen.gid, seen.name), (t.id, &*t.gid, &*t.name));
        assert_eq!((seen.kind, seen.status, seen.hold), (t.kind, t.status, t.hold));
        assert_eq!(seen.finished_ms, t.finished_ms);
    }

    #[test]
    fn changes_come_back() {
        let before = saga();
        let mut after = before.clone();
        assert!(change(&mut after, 4).is_none(), "nothing changed");
        after.status = Status::Aborting;
        after.dirty = true;
        after.branches[0].status = BranchStatus::Succeed;
        after.branches[0].finished_ms = 1_700_000_000_009;
        after.branches[0].dirty = true;
        let mut extra = Branch::new("03", Op::Compensate, "u", b"p"[..].into());
        extra.payload = b"q"[..].into();
        after.branches.push(extra);
        after.branches.push(Branch::new("03", Op::Action, "u", b"q"[..].into()));
        let record = change(&mut after, 4).unwrap();
        let mut replayed = before;
        apply_change(&mut replayed, &record).unwrap();
        assert_eq!(replayed, after);
    }

    #[test]
    fn a_finished_empty_saga_is_small() {
        let gid = "A".repeat(22);
        let mut t = Transaction::new(&gid, Kind::Saga, Status::Succeed, 1_700_000_000_000);
        t.id = 1 << 60;
        t.add_step("", "", b"{}");
        t.add_step("", "", b"{}");
        t.branches.iter_mut().for_each(|branch| branch.finished_ms = t.created_ms + 1);
        assert!(snapshot(&t).len() <= 120, "{} bytes", snapshot(&t).len());
    }

    proptest! {
        #[test]
        fn no_bytes_make_reading_fail(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            let _ = read_snapshot(&bytes);
            let _ = apply_change(&mut saga(), &bytes);
        }

        #[test]
        fn damaged_snapshots_are_read_or_refused(
            place in 0usize..200, value: u8, cut in 0usize..200,
        ) {
            let mut record = snapshot(&saga());
            let place = place % record.len();
            record[place] = value;
            record.truncate(record.len() - cut % record.len());
            let _ = read_snapshot(&record);
        }
    }
}
