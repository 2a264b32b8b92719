//! Whether everything adds up: the rows, the counters in the database, the counters in memory.

use std::collections::BTreeMap;

use super::answer::Refusal;
use super::service::{Service, busy, unreachable_database};
use crate::database::{Database, DatabaseError, Dialect};

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Records stored.
    pub records: i64,
    /// Counters in the database.
    pub counters: i64,
    /// Counters in memory that were compared.
    pub compared: i64,
    /// What does not agree, in words.
    pub differences: Vec<String>,
}

type Sums = BTreeMap<(String, i64), (i64, i64)>;

/// Compares the rows with the counters, for every organisation and period.
pub fn check(database: &mut dyn Database) -> Result<Report, DatabaseError> {
    let int = if database.dialect() == Dialect::Mysql { "SIGNED" } else { "BIGINT" };
    let sql = format!(
        "SELECT org_id, period_ms, CAST(SUM(cost) AS {int}), COUNT(*) FROM quota_record \
         GROUP BY org_id, period_ms"
    );
    let rows = sums(database, &sql)?;
    let counters = sums(database, "SELECT org_id, period_ms, used, records FROM quota_counter")?;
    let mut report = Report { counters: counters.len() as i64, ..Report::default() };
    report.records = rows.values().map(|(_, records)| records).sum();
    for name in rows.keys().chain(counters.keys().filter(|name| !rows.contains_key(*name))) {
        let (stored, counted) = (of(&rows, name), of(&counters, name));
        if stored != counted {
            report.differences.push(format!(
                "{} from {}: rows cost {} in {} records, the counter says {} in {}",
                name.0,
                super::period::rfc3339(name.1),
                stored.0,
                stored.1,
                counted.0,
                counted.1
            ));
        }
    }
    Ok(report)
}

fn of(sums: &Sums, name: &(String, i64)) -> (i64, i64) {
    sums.get(name).copied().unwrap_or_default()
}

fn sums(database: &mut dyn Database, sql: &str) -> Result<Sums, DatabaseError> {
    let rows = database.query(sql, &[])?;
    let sum = |row: Vec<crate::database::Value>| {
        ((row[0].text().to_string(), row[1].int()), (row[2].int(), row[3].int()))
    };
    Ok(rows.into_iter().map(sum).collect())
}

impl Service {
    /// Compares rows, counters and memory. In the writer's thread: nothing is settled meanwhile,
    /// though new records may be reserved.
    pub fn verify(&self, database: &mut dyn Database) -> Result<Report, Refusal> {
        let mut report = check(database).map_err(unreachable_database)?;
        let sql = "SELECT org_id, period_ms, used + adjusted, 0 FROM quota_counter";
        let held = sums(database, sql).map_err(unreachable_database)?;
        let now_ms = self.now_ms();
        for org in self.known_orgs() {
            for (period_ms, key, pending) in org.counters() {
                let read = self.store.read(&key, now_ms);
                let Some(used) = read.map_err(|error| busy(error.to_string()))? else { continue };
                report.compared += 1;
                let held = of(&held, &(org.id.to_string(), period_ms)).0;
                // What is reserved may change between the two looks.
                if used != held + pending && used != held + org.pending(period_ms) {
                    report.differences.push(format!(
                        "{key}: memory says {used}, the database {held} and {pending} on the way"
                    ));
                }
            }
        }
        Ok(report)
    }
}
