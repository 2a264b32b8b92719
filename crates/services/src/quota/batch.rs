//! A batch: the rows, the counters' growth and the answers that go into one transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::event::Event;
use super::queue::{Idempotency, Work};
use crate::database::{Dialect, Statement, Value};

/// After so many batches the rows of old ones are deleted.
const PRUNE_EVERY: i64 = 256;

/// A record as a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Record {
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

/// What counters grow by: cost and records, by organisation and start of the period.
type Deltas = BTreeMap<(Arc<str>, i64), (i64, i64)>;

const RECORD_COLUMNS: &str = "quota_record (org_id, key_id, period_ms, received_ms, event_ms, \
                              kind, source, subject, event_key, cost, data)";

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

    /// The transaction that stores these batches, each under the writer's number for it; numbers
    /// up to `forgotten` can not come again.
    pub fn statements(
        batches: Vec<(i64, Batch)>,
        dialect: Dialect,
        writer: &str,
        forgotten: i64,
        now_ms: i64,
    ) -> Vec<Statement> {
        let mut numbers = Vec::new();
        let mut all = Batch::default();
        for (number, mut batch) in batches {
            numbers.extend([writer.into(), Value::Int(number), Value::Int(now_ms)]);
            all.records.append(&mut batch.records);
            all.kept.append(&mut batch.kept);
        }
        let last = numbers.get(numbers.len().wrapping_sub(2)).map_or(0, Value::int);
        let into = "quota_batch (writer, number, at_ms)";
        // First: a batch that was applied before must fail before it does anything.
        let mut statements =
            vec![Statement::Insert { into, columns: 3, values: numbers, tail: String::new() }];
        let deltas = all.deltas();
        all.rows(&mut statements);
        // Last: an organisation's counter is what writers wait for, and it is held until the end.
        counters(deltas, dialect, &mut statements);
        if last % PRUNE_EVERY == 0 && forgotten > 0 {
            let sql = "DELETE FROM quota_batch WHERE writer = ? AND number <= ?";
            let values = vec![writer.into(), Value::Int(forgotten)];
            statements.push(Statement::run(sql, values));
        }
        statements
    }

    /// The events that were taken for a transaction, out of its statements.
    pub fn events(statements: Vec<Statement>) -> Vec<Event> {
        let mut events = Vec::new();
        for statement in statements {
            let Statement::Insert { into: RECORD_COLUMNS, mut values, .. } = statement else {
                continue;
            };
            for row in values.chunks_mut(11) {
                let mut text = |index: usize| std::mem::take(&mut row[index]).into_text();
                let (kind, source, subject, event_key) = (text(5), text(6), text(7), text(8));
                let data = text(10).unwrap_or_default();
                let at_ms = Some(row[4].int());
                events.push(Event { data, kind, source, subject, event_key, cost: None, at_ms });
            }
        }
        events
    }

    fn rows(self, statements: &mut Vec<Statement>) {
        let mut values = Vec::with_capacity(self.records.len() * 11);
        for record in self.records {
            values.extend([
                Value::from(&*record.org),
                record.key_id.into(),
                record.period_ms.into(),
                record.received_ms.into(),
                record.event_ms.into(),
                record.kind.into(),
                record.source.into(),
                record.subject.into(),
                record.event_key.into(),
                record.cost.into(),
                record.data.into(),
            ]);
        }
        let tail = String::new;
        if !values.is_empty() {
            let into = RECORD_COLUMNS;
            statements.push(Statement::Insert { into, columns: 11, values, tail: tail() });
        }
        let mut values = Vec::new();
        for kept in self.kept {
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
            statements.push(Statement::Insert { into, columns: 6, values, tail: tail() });
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
