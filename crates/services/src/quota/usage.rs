//! Usage by window: how many records, and what they cost, in each minute, hour, day or month of a
//! time zone.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value as Json, json};

use super::answer::Refusal;
use super::period::{Calendar, Every, rfc3339};
use super::service::{Service, unreachable_database};
use crate::database::{Database, Value};

/// The longest time that is asked for at once, by window: at most so many windows.
const WINDOWS_MAX: i64 = 50_000;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Query {
    /// From this moment.
    pub from_ms: i64,
    /// To before this one.
    pub to_ms: i64,
    /// The windows.
    pub window: Every,
    /// The time zone whose hours, days and months they are.
    pub tz: String,
    /// Whether keys are told apart.
    pub by_key: bool,
    /// Whether types are told apart.
    pub by_type: bool,
}

/// One line of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Line {
    pub from_ms: i64,
    pub to_ms: i64,
    pub key: Option<String>,
    pub kind: Option<String>,
    pub records: i64,
    pub cost: i64,
}

impl Service {
    /// Adds up an organisation's records.
    pub fn usage(
        &self,
        database: &mut dyn Database,
        org: &str,
        query: &Query,
    ) -> Result<Vec<Line>, Refusal> {
        let calendar = Calendar::new(query.window, &query.tz, 1)
            .map_err(|error| Refusal::Malformed(error.to_string()))?;
        let first = calendar.period_of(query.from_ms);
        let length_ms = (first.end_ms - first.start_ms).max(1);
        if query.to_ms <= query.from_ms || (query.to_ms - query.from_ms) / length_ms > WINDOWS_MAX {
            let why = format!("from lies before to, and not more than {WINDOWS_MAX} windows");
            return Err(Refusal::Malformed(why));
        }
        self.org_or_none(database, org)?;
        // Time zones differ by whole minutes: the database adds up minutes, we add up those.
        let mut groups = vec!["event_ms / 60000"];
        groups.extend(query.by_key.then_some("key_id"));
        groups.extend(query.by_type.then_some("kind"));
        let minute = if database.dialect() == crate::database::Dialect::Mysql {
            "event_ms DIV 60000"
        } else {
            groups[0]
        };
        groups[0] = minute;
        let key = if query.by_key { "key_id" } else { "NULL" };
        let kind = if query.by_type { "kind" } else { "NULL" };
        let sql = format!(
            "SELECT {minute}, {key}, {kind}, COUNT(*), CAST(SUM(cost) AS {}) FROM quota_record \
             WHERE org_id = ? AND event_ms >= ? AND event_ms < ? GROUP BY {}",
            int(database),
            groups.join(", ")
        );
        let values: [Value; 3] = [org.into(), query.from_ms.into(), query.to_ms.into()];
        let rows = database.query(&sql, &values).map_err(unreachable_database)?;
        let mut sums: BTreeMap<_, (i64, i64)> = BTreeMap::new();
        for row in rows {
            let [minute, key, kind, records, cost] = row.try_into().unwrap_or_default();
            let period = calendar.period_of((minute.int() * 60_000).max(query.from_ms));
            let name = (period.start_ms, period.end_ms, key.into_text(), kind.into_text());
            let sum = sums.entry(name).or_default();
            *sum = (sum.0 + records.int(), sum.1 + cost.int());
        }
        let line = |((from_ms, to_ms, key, kind), (records, cost))| Line {
            from_ms,
            to_ms,
            key,
            kind,
            records,
            cost,
        };
        Ok(sums.into_iter().map(line).collect())
    }
}

fn int(database: &dyn Database) -> &'static str {
    match database.dialect() {
        crate::database::Dialect::Mysql => "SIGNED",
        _ => "BIGINT",
    }
}

/// Lines as JSON.
pub fn to_json(lines: &[Line]) -> Json {
    let line = |line: &Line| {
        let mut json = json!({
            "from": rfc3339(line.from_ms), "to": rfc3339(line.to_ms),
            "records": line.records, "cost": line.cost,
        });
        if let Some(key) = &line.key {
            json["key"] = json!(key);
        }
        if let Some(kind) = &line.kind {
            json["type"] = json!(kind);
        }
        json
    };
    lines.iter().map(line).collect()
}

/// Lines as CSV (RFC 4180).
pub fn to_csv(lines: &[Line]) -> String {
    let mut csv = String::from("from,to,key,type,records,cost\r\n");
    for line in lines {
        let (from, to) = (rfc3339(line.from_ms), rfc3339(line.to_ms));
        let word = |word: &Option<String>| {
            let word = word.as_deref().unwrap_or("");
            // Quotes are doubled; a leading sign of a formula stays text in a spreadsheet.
            let needs_quotes = word.contains(['"', ',', '\r', '\n']);
            let safe = if word.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
            let word = format!("{safe}{}", word.replace('"', "\"\""));
            if needs_quotes { format!("\"{word}\"") } else { word }
        };
        let (key, kind) = (word(&line.key), word(&line.kind));
        let _ = write!(csv, "{from},{to},{key},{kind},{},{}\r\n", line.records, line.cost);
    }
    csv
}
