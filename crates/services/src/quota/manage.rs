//! What managers do: plans, keys, adjustments, audit. Each of these runs with a connection at the
//! desk, or (adjustments) in the writer's thread; see [`Service::desk`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::answer::{Refusal, Usage};
use super::caller::{ApiKey, PREFIX, Scope};
use super::org::{Glance, NotCharged, Org};
use super::period::{from_rfc3339, rfc3339};
use super::plan::{NUMBER_MAX, Plan};
use super::secret;
use super::service::{Service, busy, lock, unreachable_database};
use crate::database::{Database, DatabaseError, Statement, Value};

/// Rows of the audit in one answer.
const AUDIT_ROWS_MAX: i64 = 1000;

/// What a new key shall be.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewKey {
    /// What people call it.
    pub name: String,
    /// What it allows: ingest and read unless given.
    pub scopes: Option<Vec<String>>,
    /// When it ends, in RFC 3339.
    pub expires_at: Option<String>,
}

/// A key that was just made: the only time that its secret is told.
#[derive(Debug, Serialize)]
pub struct FreshKey {
    /// The key.
    #[serde(flatten)]
    pub key: ApiKey,
    /// The secret.
    pub secret: String,
}

/// A change of a counter by hand: above 0 uses up quota, below 0 gives some back.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adjustment {
    /// What is added to the counter.
    pub delta: i64,
    /// Why.
    pub reason: String,
    /// The same adjustment is made once.
    pub idempotency_key: String,
}

/// Whether this can be the name of an organisation: part of keys and addresses.
pub fn is_name(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=64).contains(&name.len()) && name.bytes().all(is_good)
}

pub(super) fn malformed<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Malformed(why.into()))
}

pub(super) fn audit(org: &str, at_ms: i64, kind: &str, actor: &str, detail: &Json) -> Statement {
    let values =
        vec![org.into(), at_ms.into(), kind.into(), actor.into(), Value::Text(detail.to_string())];
    let into = "quota_audit (org_id, at_ms, kind, actor, detail)";
    Statement::Insert { into, columns: 5, values, tail: String::new() }
}

pub(super) fn transact(
    database: &mut dyn Database,
    statements: &[Statement],
) -> Result<Vec<u64>, Refusal> {
    database.transact(statements).map_err(unreachable_database)
}

impl Service {
    /// Runs something with a connection, away from the caller's thread; `done` takes the result.
    pub fn desk<T: 'static>(
        self: &Arc<Self>,
        run: impl FnOnce(&Service, &mut dyn Database) -> Result<T, Refusal> + Send + 'static,
        done: impl FnOnce(Result<T, Refusal>) + Send + 'static,
    ) {
        let service = Arc::clone(self);
        self.at_desk(move |database| {
            let result = database.map_err(unreachable_database);
            done(result.and_then(|database| run(&service, database)));
        });
    }

    /// The same in the writer's thread, between two of its transactions.
    pub fn between_transactions<T: 'static>(
        self: &Arc<Self>,
        run: impl FnOnce(&Service, &mut dyn Database) -> Result<T, Refusal> + Send + 'static,
        done: impl FnOnce(Result<T, Refusal>) + Send + 'static,
    ) {
        let service = Arc::clone(self);
        self.changer.job(Box::new(move |database| {
            let result = database.map_err(unreachable_database);
            done(result.and_then(|database| run(&service, database)));
        }));
    }

    /// Writes a line of the audit, soon.
    pub(super) fn note(&self, org: &str, kind: &'static str, actor: &str, count: i64) {
        let (org, actor, at_ms) = (org.to_string(), actor.to_string(), self.now_ms());
        self.at_desk(move |database| {
            let line = audit(&org, at_ms, kind, &actor, &json!({ "count": count }));
            if let Err(error) = database.and_then(|database| database.transact(&[line])) {
                tracing::warn!("quota: {kind} of {org}: {count}, not in the audit: {error}");
            }
        });
    }

    /// An organisation, or that there is none.
    pub fn org_or_none(&self, database: &mut dyn Database, id: &str) -> Result<Arc<Org>, Refusal> {
        let org = self.org(database, id).map_err(unreachable_database)?;
        org.ok_or_else(|| Refusal::NotFound(format!("there is no organisation {id}")))
    }

    /// Makes an organisation, or gives it another plan; true if it is new.
    pub fn put_plan(
        &self,
        database: &mut dyn Database,
        id: &str,
        plan: Plan,
        actor: &str,
    ) -> Result<bool, Refusal> {
        if !is_name(id) {
            return malformed("an organisation's name has 1 to 64 letters, digits, '-', '_', '.'");
        }
        plan.check().map_err(Refusal::Malformed)?;
        let _alone = lock(&self.planning);
        let now_ms = self.now_ms();
        let text = serde_json::to_string(&plan).map_err(|error| busy(error.to_string()))?;
        let known = self.org(database, id).map_err(unreachable_database)?;
        let write = match known {
            None => Statement::run(
                "INSERT INTO quota_org (org_id, plan, created_ms, updated_ms) VALUES (?, ?, ?, ?)",
                vec![id.into(), text.into(), now_ms.into(), now_ms.into()],
            ),
            Some(_) => Statement::run(
                "UPDATE quota_org SET plan = ?, updated_ms = ? WHERE org_id = ?",
                vec![text.into(), now_ms.into(), id.into()],
            ),
        };
        let line = audit(id, now_ms, "plan", actor, &json!(plan));
        transact(database, &[write, line])?;
        match &known {
            Some(org) => org.set_plan(plan).map_err(Refusal::Malformed)?,
            None => self.forget_callers(),
        }
        Ok(known.is_none())
    }

    /// Makes a key.
    pub fn make_key(
        &self,
        database: &mut dyn Database,
        org: &str,
        new: NewKey,
        actor: &str,
    ) -> Result<FreshKey, Refusal> {
        self.org_or_none(database, org)?;
        let scopes = new.scopes.unwrap_or_else(|| vec!["ingest".into(), "read".into()]);
        let is_scope = |name: &String| Scope::ALL.iter().any(|(_, scope)| scope == name);
        if scopes.is_empty() || !scopes.iter().all(is_scope) {
            return malformed("scopes are of ingest, read, manage");
        }
        if new.name.len() > 255 {
            return malformed("a key's name has 255 bytes at most");
        }
        let expires_ms = match new.expires_at.as_deref().map(from_rfc3339) {
            Some(None) => return malformed("expires_at is as RFC 3339 has it"),
            expires => expires.flatten(),
        };
        let secret = format!("{PREFIX}{}", self.fresh_secret());
        let key_id = format!("key_{}", &self.fresh_secret()[..16]);
        let (prefix, now_ms) = (&secret[..PREFIX.len() + 6], self.now_ms());
        let row: Vec<Value> = vec![
            key_id.as_str().into(),
            org.into(),
            prefix.into(),
            new.name.into(),
            scopes.join(" ").into(),
            Value::Int(1),
            expires_ms.into(),
            now_ms.into(),
        ];
        let key = ApiKey::of(&row);
        let mut values = row;
        values.push(secret::digest(secret.as_bytes()).into());
        let sql = format!(
            "INSERT INTO quota_key ({}, secret_hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ApiKey::COLUMNS
        );
        let line = audit(org, now_ms, "key-made", actor, &json!({ "key": key_id }));
        transact(database, &[Statement::run(sql, values), line])?;
        Ok(FreshKey { key, secret })
    }

    /// An organisation's keys.
    pub fn keys(&self, database: &mut dyn Database, org: &str) -> Result<Vec<ApiKey>, Refusal> {
        self.org_or_none(database, org)?;
        let columns = ApiKey::COLUMNS;
        let sql =
            format!("SELECT {columns} FROM quota_key WHERE org_id = ? ORDER BY created_ms, key_id");
        let rows = database.query(&sql, &[org.into()]).map_err(unreachable_database)?;
        Ok(rows.iter().map(ApiKey::of).collect())
    }

    /// Disables a key. It is kept, for the audit.
    pub fn disable_key(
        &self,
        database: &mut dyn Database,
        org: &str,
        key_id: &str,
        actor: &str,
    ) -> Result<(), Refusal> {
        let sql = "SELECT 1 FROM quota_key WHERE org_id = ? AND key_id = ?";
        let found = database.query(sql, &[org.into(), key_id.into()]);
        if found.map_err(unreachable_database)?.is_empty() {
            return Err(Refusal::NotFound(format!("{org} has no key {key_id}")));
        }
        let sql = "UPDATE quota_key SET is_enabled = 0 WHERE org_id = ? AND key_id = ?";
        let write = Statement::run(sql, vec![org.into(), key_id.into()]);
        let line = audit(org, self.now_ms(), "key-disabled", actor, &json!({ "key": key_id }));
        transact(database, &[write, line])?;
        self.forget_callers();
        Ok(())
    }

    /// Adjusts the counter of the present period. In the writer's thread. True if it was made
    /// before.
    pub fn adjust(
        &self,
        database: &mut dyn Database,
        org: &str,
        adjustment: &Adjustment,
        actor: &str,
    ) -> Result<bool, Refusal> {
        let Adjustment { delta, reason, idempotency_key } = adjustment;
        if !(1..=200).contains(&idempotency_key.len()) || reason.len() > 1000 {
            return malformed("idempotency_key has 1 to 200 bytes, reason 1000 at most");
        }
        if !(-NUMBER_MAX..=NUMBER_MAX).contains(delta) {
            return malformed(format!("delta lies between -{NUMBER_MAX} and {NUMBER_MAX}"));
        }
        let org = self.org_or_none(database, org)?;
        let now_ms = self.now_ms();
        let (period, _) = org.period(now_ms);
        let fingerprint = secret::digest(format!("{delta} {reason}").as_bytes());
        let name = format!("adjust:{idempotency_key}");
        let statements = self.adjustment(database, &org, period.start_ms, *delta);
        let keep = Statement::run(
            "INSERT INTO quota_idempotency \
             (org_id, idempotency_key, fingerprint, status, answer, at_ms) \
             VALUES (?, ?, ?, 200, '', ?)",
            vec![
                (&*org.id).into(),
                name.as_str().into(),
                fingerprint.as_str().into(),
                now_ms.into(),
            ],
        );
        let detail = json!({ "delta": delta, "reason": reason, "period_ms": period.start_ms });
        let line = audit(&org.id, now_ms, "adjustment", actor, &detail);
        match database.transact(&[vec![keep], statements, vec![line]].concat()) {
            Ok(_) => {}
            Err(DatabaseError::Duplicate(_)) => {
                let sql = "SELECT fingerprint FROM quota_idempotency \
                           WHERE org_id = ? AND idempotency_key = ?";
                let rows = database.query(sql, &[(&*org.id).into(), name.into()]);
                let rows = rows.map_err(unreachable_database)?;
                let is_same = rows.first().is_some_and(|row| row[0].text() == fingerprint);
                return if is_same { Ok(true) } else { Err(Refusal::OtherContent) };
            }
            Err(error) => return Err(unreachable_database(error)),
        }
        match org.adjust(&*self.store, period.start_ms, *delta, now_ms) {
            Ok(true) => lock(&self.counts.passed).push((org, period.start_ms)),
            Ok(false) => {}
            Err(error) => tracing::warn!("quota: {error}"),
        }
        Ok(false)
    }

    fn adjustment(
        &self,
        database: &mut dyn Database,
        org: &Org,
        period_ms: i64,
        delta: i64,
    ) -> Vec<Statement> {
        let values =
            vec![(&*org.id).into(), period_ms.into(), Value::Int(0), delta.into(), Value::Int(0)];
        let into = "quota_counter (org_id, period_ms, used, adjusted, records)";
        let tail = database.dialect().or_add("quota_counter", "org_id, period_ms", &["adjusted"]);
        vec![Statement::Insert { into, columns: 5, values, tail }]
    }

    /// The newest lines of the audit before `before` (a line's number), newest first.
    pub fn audit(
        &self,
        database: &mut dyn Database,
        org: &str,
        before: i64,
        limit: i64,
    ) -> Result<Json, Refusal> {
        let sql = "SELECT audit_id, org_id, at_ms, kind, actor, detail FROM quota_audit \
                   WHERE org_id = ? AND audit_id < ? ORDER BY audit_id DESC LIMIT ?";
        let limit = limit.clamp(1, AUDIT_ROWS_MAX);
        let rows = database.query(sql, &[org.into(), before.into(), limit.into()]);
        let line = |row: &Vec<Value>| {
            let detail: Json = serde_json::from_str(row[5].text()).unwrap_or_default();
            json!({
                "id": row[0].int(), "org": row[1].text(), "at": rfc3339(row[2].int()),
                "kind": row[3].text(), "actor": row[4].text(), "detail": detail,
            })
        };
        Ok(rows.map_err(unreachable_database)?.iter().map(line).collect())
    }

    /// Where an organisation stands, from memory alone and without waiting for anybody.
    pub fn glance(&self, id: &str, now_ms: i64) -> Option<Glance> {
        self.known_org(id)?.glance(now_ms)
    }

    /// Calls back when all that was accepted before is in the database.
    pub fn flush(self: &Arc<Self>, then: impl FnOnce() + Send + 'static) {
        match self.frames.clone() {
            None => self.queue.when_finished(Box::new(then)),
            Some(frames) => {
                self.queue.when_finished(Box::new(move || frames.when_finished(Box::new(then))))
            }
        }
    }

    /// Where an organisation stands; `then` takes it.
    pub fn usage_of(
        self: &Arc<Self>,
        org: Arc<Org>,
        now_ms: i64,
        then: impl FnOnce(Result<Usage, Refusal>) + Send + 'static,
    ) {
        match self.standing(&org, now_ms) {
            Ok(usage) => then(Ok(usage)),
            Err(NotCharged::Store(error)) => then(Err(busy(error.to_string()))),
            Err(NotCharged::Missing) => {
                let service = Arc::clone(self);
                self.load(Arc::clone(&org), now_ms, move |result| {
                    then(result.and_then(|()| {
                        let usage = service.standing(&org, now_ms);
                        usage.map_err(|_| busy("the counter is gone again".into()))
                    }));
                });
            }
        }
    }

    fn standing(&self, org: &Org, now_ms: i64) -> Result<Usage, NotCharged> {
        let (period, _) = org.period(now_ms);
        let standing = org.reserve(&*self.store, now_ms, now_ms, &mut [])?;
        let burst = org.throttle(&*self.store, now_ms, 0)?;
        let (org, planned) = (Arc::clone(&org.id), org.planned());
        Ok(Usage { org, planned, period, standing, burst, now_ms })
    }
}
