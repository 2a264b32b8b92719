//! A batch: the rows, the counters' growth and the answers that go into one transaction.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::event::Event;
use super::queue::{Idempotency, Work};
use crate::database::{Dialect, Statement, Value};

/// A record as a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Record {
    /// Tells it from others of the same organisation and millisecond; given by [`Batch::name`].
    #[serde(default)]
    pub record_id: i64,
    pub org: Arc<str>,
    pub key_id: String,
    pub period_ms: i64,
    pub received_ms: i64,
    pub event_ms: i64,
    pub kind: Option<String>,
    pub source: Option<String>,
    pub subject: Option<String>,
    pub event_key: Option<String>,
    pub cost: i64,
    pub data: String,
}

/// An answer that is kept for when the same request comes again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Whose it is.
    pub org: Arc<str>,
    /// The request's idempotency key and content.
    pub idempotency: Idempotency,
    /// The status over HTTP.
    pub status: u16,
    /// The body.
    pub answer: String,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Rows.
    pub records: Vec<Record>,
    /// Answers.
    pub kept: Vec<Kept>,
}

/// The number of a transaction in the batch table, under its writer's name: what tells that it
/// happened where no record does, or where records may be gone by then.
#[derive(Debug, Clone)]
pub struct Number {
    /// Whose number.
    pub writer: String,
    /// Another one for each transaction.
    pub number: i64,
    /// When, in milliseconds since 1970.
    pub now_ms: i64,
}

impl Number {
    fn statement(&self) -> Statement {
        let into = "quota_batch (writer, number, at_ms)";
        let values = vec![self.writer.as_str().into(), self.number.into(), self.now_ms.into()];
        Statement::Insert { into, columns: 3, values, tail: String::new() }
    }

    /// Its row, or a later one's: numbers of a writer happen in order.
    pub fn proof(&self) -> Proof {
        let sql = "SELECT 1 FROM quota_batch WHERE writer = ? AND number >= ?";
        Proof { sql, values: vec![self.writer.as_str().into(), self.number.into()] }
    }
}

/// A query that answers a row if a transaction happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The query.
    pub sql: &'static str,
    /// Its values.
    pub values: Vec<Value>,
}

/// What counters grow by: cost and records, by organisation and start of the period.
type Deltas = BTreeMap<(Arc<str>, i64), (i64, i64)>;

/// Columns that every record fills.
const PLAIN_COLUMNS: &str =
    "quota_record (record_id, org_id, key_id, period_ms, received_ms, event_ms, cost, data)";
/// All columns: those of events that say what they are come last.
const RECORD_COLUMNS: &str = "quota_record (record_id, org_id, key_id, period_ms, received_ms, \
                              event_ms, cost, data, kind, source, subject, event_key)";

impl Batch {
    /// Takes the accepted records out of a request.
    pub fn add(&mut self, work: &mut Work) {
        let caller = &work.caller;
        for item in &mut work.items {
            if !item.is_charged {
                continue;
            }
            let Some(event) = item.event.take() else { continue };
            self.records.push(Record {
                record_id: 0,
                org: Arc::clone(&caller.org.id),
                key_id: caller.key.key_id.clone(),
                period_ms: item.period_ms,
                received_ms: work.received_ms,
                event_ms: event.at_ms.unwrap_or(work.received_ms),
                kind: event.kind,
                source: event.source,
                subject: event.subject,
                event_key: event.event_key,
                cost: item.cost,
                data: event.data,
            });
        }
    }

    /// Whether there is nothing to be stored.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.kept.is_empty()
    }

    /// What each counter grows by, ordered so that two writers never wait for each other.
    pub fn deltas(&self) -> Deltas {
        let mut deltas = BTreeMap::new();
        for record in &self.records {
            let key = (Arc::clone(&record.org), record.period_ms);
            let delta: &mut (i64, i64) = deltas.entry(key).or_default();
            *delta = (delta.0 + record.cost, delta.1 + 1);
        }
        deltas
    }

    /// Gives its records numbers, the first this one.
    pub fn name(&mut self, first: i64) {
        for (number, record) in (first..).zip(&mut self.records) {
            record.record_id = number;
        }
    }

    /// What is in the database if this was stored, as long as its records were not deleted: its
    /// first record. Nothing if there is none.
    pub fn proof(&self) -> Option<Proof> {
        let first = self.records.first()?;
        let sql = "SELECT 1 FROM quota_record WHERE org_id = ? AND event_ms = ? AND record_id = ?";
        let values = vec![Value::from(&*first.org), first.event_ms.into(), first.record_id.into()];
        Some(Proof { sql, values })
    }

    /// The transaction that stores this, under a number if one is given.
    pub fn statements(self, dialect: Dialect, number: Option<&Number>) -> Vec<Statement> {
        let mut statements = Vec::with_capacity(5);
        // First: a batch that was applied before must fail before it does anything.
        statements.extend(number.map(Number::statement));
        let deltas = self.deltas();
        Batch::records(self.records, &mut statements);
        Batch::answers(self.kept, &mut statements);
        // Last: an organisation's counter is what writers wait for, and it is held until the end.
        counters(deltas, dialect, &mut statements);
        statements
    }

    /// The events that were taken for a transaction, out of its statements.
    pub fn events(statements: Vec<Statement>) -> Vec<Event> {
        let mut events = Vec::new();
        for statement in statements {
            let Statement::Insert { into, columns, mut values, .. } = statement else { continue };
            if !matches!(into, PLAIN_COLUMNS | RECORD_COLUMNS) {
                continue;
            }
            for row in values.chunks_mut(columns) {
                let at_ms = Some(row[5].int());
                let mut text =
                    |index: usize| row.get_mut(index).and_then(|value| take(value).into_text());
                let data = text(7).unwrap_or_default();
                let (kind, source, subject, event_key) = (text(8), text(9), text(10), text(11));
                events.push(Event { data, kind, source, subject, event_key, cost: None, at_ms });
            }
        }
        events
    }

    /// The records' rows. Where no event says what it is, those columns are left out: a fifth of
    /// what MariaDB works for a row is reading its NULLs.
    fn records(records: Vec<Record>, statements: &mut Vec<Statement>) {
        let is_plain = |record: &Record| {
            let Record { kind, source, subject, event_key, .. } = record;
            [kind, source, subject, event_key].into_iter().all(Option::is_none)
        };
        let (into, columns) = match records.iter().all(is_plain) {
            true => (PLAIN_COLUMNS, 8),
            false => (RECORD_COLUMNS, 12),
        };
        let mut values = Vec::with_capacity(records.len() * columns);
        let mut names = Vec::new();
        for record in records {
            if let Some(key) = &record.event_key {
                names.extend([Value::from(&*record.org), Value::from(key.as_str())]);
            }
            values.extend([
                record.record_id.into(),
                Value::from(&*record.org),
                record.key_id.into(),
                record.period_ms.into(),
                record.received_ms.into(),
                record.event_ms.into(),
                record.cost.into(),
                record.data.into(),
            ]);
            if columns > 8 {
                let texts = [record.kind, record.source, record.subject, record.event_key];
                values.extend(texts.map(Value::from));
            }
        }
        if !values.is_empty() {
            statements.push(Statement::Insert { into, columns, values, tail: String::new() });
        }
        if !names.is_empty() {
            let (into, tail) = ("quota_event (org_id, event_key)", String::new());
            statements.push(Statement::Insert { into, columns: 2, values: names, tail });
        }
    }

    fn answers(all: Vec<Kept>, statements: &mut Vec<Statement>) {
        let mut values = Vec::new();
        for kept in all {
            values.extend([
                Value::from(&*kept.org),
                kept.idempotency.key.into(),
                kept.idempotency.fingerprint.into(),
                i64::from(kept.status).into(),
                kept.answer.into(),
                kept.at_ms.into(),
            ]);
        }
        if !values.is_empty() {
            let into = "quota_idempotency \
                        (org_id, idempotency_key, fingerprint, status, answer, at_ms)";
            let tail = String::new();
            statements.push(Statement::Insert { into, columns: 6, values, tail });
        }
    }
}

fn counters(deltas: Deltas, dialect: Dialect, statements: &mut Vec<Statement>) {
    let mut values = Vec::with_capacity(deltas.len() * 5);
    for ((org, period_ms), (used, records)) in deltas {
        values.push(Value::from(&*org));
        values.extend([period_ms, used, 0, records].map(Value::Int));
    }
    if !values.is_empty() {
        let into = "quota_counter (org_id, period_ms, used, adjusted, records)";
        let tail = dialect.or_add("quota_counter", "org_id, period_ms", &["used", "records"]);
        statements.push(Statement::Insert { into, columns: 5, values, tail });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: Option<&str>, data: &str) -> Record {
        Record {
            record_id: 7,
            org: "acme".into(),
            key_id: "key".into(),
            period_ms: 1,
            received_ms: 2,
            event_ms: 3,
            kind: kind.map(str::to_string),
            source: None,
            subject: None,
            event_key: None,
            cost: 4,
            data: data.into(),
        }
    }

    #[test]
    fn events_come_back_out_of_both_kinds_of_rows() {
        for (kind, want) in [(None, 8), (Some("k"), 12)] {
            let records = vec![record(None, "a"), record(kind, "b")];
            let batch = Batch { records, kept: Vec::new() };
            let number = Number { writer: "w".into(), number: 1, now_ms: 5 };
            let statements = batch.statements(Dialect::Mysql, Some(&number));
            let columns: Vec<usize> = statements
                .iter()
                .filter_map(|statement| match statement {
                    Statement::Insert { columns, .. } => Some(*columns),
                    Statement::Run { .. } => None,
                })
                .collect();
            assert_eq!(columns, [3, want, 5], "number, records, counter");
            let events = Batch::events(statements);
            let told = events.iter().map(|event| (event.kind.as_deref(), &*event.data));
            assert_eq!(told.collect::<Vec<_>>(), [(None, "a"), (kind, "b")]);
            assert!(events.iter().all(|event| event.at_ms == Some(3)));
        }
    }
}
