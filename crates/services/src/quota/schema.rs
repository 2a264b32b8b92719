//! The tables, as numbered steps: each is run once in a database's life, in its own transaction
//! where the product allows that, and its number written down.
//!
//! **Invariant:** a step that has been published never changes; a change is a new step.
//!
//! Words in braces stand for what products call differently: `{id}` a number that counts by
//! itself, `{key}` a short text that is compared by bytes, `{text}` any text, `{int}` 64 bits.

use crate::database::{Database, DatabaseError, Dialect, Statement};

/// The steps, in order; the first one is number 1. Statements are separated by `;`.
const STEPS: &[&str] = &[
    "
CREATE TABLE quota_org (
    org_id {key} NOT NULL PRIMARY KEY, plan {text} NOT NULL,
    created_ms {int} NOT NULL, updated_ms {int} NOT NULL);
CREATE TABLE quota_key (
    key_id {key} NOT NULL PRIMARY KEY, org_id {key} NOT NULL, secret_hash {key} NOT NULL,
    prefix {key} NOT NULL, name {text} NOT NULL, scopes {text} NOT NULL,
    is_enabled {int} NOT NULL, expires_ms {int}, created_ms {int} NOT NULL);
CREATE UNIQUE INDEX quota_key_secret ON quota_key (secret_hash);
CREATE INDEX quota_key_org ON quota_key (org_id);
CREATE TABLE quota_counter (
    org_id {key} NOT NULL, period_ms {int} NOT NULL, used {int} NOT NULL,
    adjusted {int} NOT NULL, records {int} NOT NULL, PRIMARY KEY (org_id, period_ms));
CREATE TABLE quota_record (
    record_id {id}, org_id {key} NOT NULL, key_id {key} NOT NULL, period_ms {int} NOT NULL,
    received_ms {int} NOT NULL, event_ms {int} NOT NULL, kind {key}, source {key}, subject {key},
    event_key {key}, cost {int} NOT NULL, data {text} NOT NULL);
CREATE INDEX quota_record_time ON quota_record (org_id, event_ms);
CREATE UNIQUE INDEX quota_record_event ON quota_record (org_id, event_key){some event_key};
CREATE TABLE quota_batch (
    writer {key} NOT NULL, number {int} NOT NULL, at_ms {int} NOT NULL,
    PRIMARY KEY (writer, number));
CREATE TABLE quota_idempotency (
    org_id {key} NOT NULL, idempotency_key {key} NOT NULL, fingerprint {key} NOT NULL,
    status {int} NOT NULL, answer {text} NOT NULL, at_ms {int} NOT NULL,
    PRIMARY KEY (org_id, idempotency_key));
CREATE INDEX quota_idempotency_time ON quota_idempotency (at_ms);
CREATE TABLE quota_audit (
    audit_id {id}, org_id {key} NOT NULL, at_ms {int} NOT NULL, kind {key} NOT NULL,
    actor {key} NOT NULL, detail {text} NOT NULL);
CREATE INDEX quota_audit_org ON quota_audit (org_id, audit_id)
",
    "
CREATE TABLE quota_webhook (
    webhook_id {key} NOT NULL PRIMARY KEY, org_id {key} NOT NULL, url {text} NOT NULL,
    secret {text} NOT NULL, is_enabled {int} NOT NULL, created_ms {int} NOT NULL);
CREATE INDEX quota_webhook_org ON quota_webhook (org_id);
CREATE TABLE quota_threshold (
    org_id {key} NOT NULL, period_ms {int} NOT NULL, percent {int} NOT NULL, at_ms {int} NOT NULL,
    PRIMARY KEY (org_id, period_ms, percent));
CREATE TABLE quota_delivery (
    delivery_id {key} NOT NULL PRIMARY KEY, webhook_id {key} NOT NULL, org_id {key} NOT NULL,
    kind {key} NOT NULL, body {text} NOT NULL, state {key} NOT NULL, tries {int} NOT NULL,
    next_ms {int}, status {int} NOT NULL, detail {text} NOT NULL, created_ms {int} NOT NULL,
    updated_ms {int} NOT NULL);
CREATE INDEX quota_delivery_due ON quota_delivery (next_ms);
CREATE INDEX quota_delivery_org ON quota_delivery (org_id, created_ms)
",
    "
ALTER TABLE quota_webhook ADD COLUMN old_secret {text};
ALTER TABLE quota_webhook ADD COLUMN old_until_ms {int}
",
    // One index less for each row, two on MySQL: records lie in the order of their time, and the
    // few events that say who they are have their names in a table of its own.
    "
CREATE TABLE quota_event (
    org_id {key} NOT NULL, event_key {key} NOT NULL, PRIMARY KEY (org_id, event_key));
INSERT INTO quota_event (org_id, event_key)
    SELECT org_id, event_key FROM quota_record WHERE event_key IS NOT NULL;
{records by time}
",
];

/// How the records' table gets the key (org_id, event_ms, record_id). Each way can be gone again if
/// it was cut short: SQLite's and PostgreSQL's are undone then, MySQL's is one statement.
fn records_by_time(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Mysql => {
            "ALTER TABLE quota_record MODIFY COLUMN record_id BIGINT NOT NULL,
    DROP PRIMARY KEY, ADD PRIMARY KEY (org_id, event_ms, record_id),
    DROP INDEX quota_record_time, DROP INDEX quota_record_event"
        }
        Dialect::Postgres => {
            "ALTER TABLE quota_record DROP CONSTRAINT quota_record_pkey;
ALTER TABLE quota_record ALTER COLUMN record_id DROP IDENTITY;
ALTER TABLE quota_record ADD PRIMARY KEY (org_id, event_ms, record_id);
DROP INDEX quota_record_time;
DROP INDEX quota_record_event"
        }
        Dialect::Sqlite => {
            "CREATE TABLE quota_record_new (
    record_id INTEGER NOT NULL, org_id TEXT NOT NULL, key_id TEXT NOT NULL,
    period_ms INTEGER NOT NULL, received_ms INTEGER NOT NULL, event_ms INTEGER NOT NULL,
    kind TEXT, source TEXT, subject TEXT, event_key TEXT, cost INTEGER NOT NULL,
    data TEXT NOT NULL, PRIMARY KEY (org_id, event_ms, record_id));
INSERT INTO quota_record_new SELECT record_id, org_id, key_id, period_ms, received_ms, event_ms,
    kind, source, subject, event_key, cost, data FROM quota_record;
DROP TABLE quota_record;
ALTER TABLE quota_record_new RENAME TO quota_record"
        }
    }
}

/// How a step reads in a dialect.
fn words(step: &str, dialect: Dialect) -> String {
    let (id, key, text, int, some) = match dialect {
        Dialect::Sqlite => (
            "INTEGER PRIMARY KEY AUTOINCREMENT",
            "TEXT",
            "TEXT",
            "INTEGER",
            " WHERE $1 IS NOT NULL",
        ),
        Dialect::Postgres => (
            "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
            "TEXT",
            "TEXT",
            "BIGINT",
            " WHERE $1 IS NOT NULL",
        ),
        Dialect::Mysql => (
            "BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY",
            "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
            "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
            "BIGINT",
            "",
        ),
    };
    step.replace("{records by time}", records_by_time(dialect))
        .replace("{id}", id)
        .replace("{key}", key)
        .replace("{text}", text)
        .replace("{int}", int)
        .replace("{some event_key}", &some.replace("$1", "event_key"))
}

/// Brings a database to the last step.
pub fn migrate(database: &mut dyn Database) -> Result<(), DatabaseError> {
    migrate_to(database, STEPS.len())
}

/// Brings a database to this step, the first being 1, as an earlier program did.
pub fn migrate_to(database: &mut dyn Database, last: usize) -> Result<(), DatabaseError> {
    let table = "CREATE TABLE IF NOT EXISTS quota_schema (step {int} NOT NULL PRIMARY KEY)";
    let dialect = database.dialect();
    done_before(database.transact(&[Statement::run(words(table, dialect), Vec::new())]))?;
    let rows = database.query("SELECT MAX(step) FROM quota_schema", &[])?;
    let done = rows.first().map_or(0, |row| row[0].int());
    if done > STEPS.len() as i64 {
        let text = format!("its quota tables are at step {done}, newer than this program's");
        return Err(DatabaseError::Refused(text));
    }
    for (index, step) in STEPS.iter().enumerate().take(last).skip(done as usize) {
        let text = words(step, dialect);
        let mut statements: Vec<Statement> =
            text.split(';').map(|sql| Statement::run(sql.trim(), Vec::new())).collect();
        let number = index as i64 + 1;
        let note = "INSERT INTO quota_schema (step) VALUES (?)";
        statements.push(Statement::run(note, vec![number.into()]));
        if dialect == Dialect::Mysql {
            // It has no transactions around tables: a step that was cut short has made some.
            for statement in statements {
                done_before(database.transact(&[statement]))?;
            }
        } else {
            done_before(database.transact(&statements))?;
        }
    }
    Ok(())
}

/// What is there already was made by an earlier try, or by another server at the same time.
fn done_before<T>(result: Result<T, DatabaseError>) -> Result<(), DatabaseError> {
    match result {
        Err(DatabaseError::Duplicate(_)) => Ok(()),
        result => result.map(drop),
    }
}
