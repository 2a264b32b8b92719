//! Webhooks: who is told when an organisation passes a threshold of its quota, as Standard Webhooks
//! (github.com/standard-webhooks/standard-webhooks, spec) has it.
//!
//! ```text
//!  settle: a line is passed -> tidy -> one transaction: threshold, audit, a delivery an endpoint
//!  waiting --- 2xx ---> delivered                  (threshold is unique: told once a period)
//!     |  \---- 410 ---> gone (the endpoint is disabled)
//!     |   \--- else --> waiting, later; after the last try: failed
//! ```
//!
//! **Invariant:** a threshold is told once for each period, whatever dies when; a delivery may come
//! more than once, under the same id.
//! **Invariant:** a delivery that is being made is leased: another server does not make it, too.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::answer::Refusal;
use super::manage::{audit, malformed, transact};
use super::org::{Org, Passed};
use super::period::rfc3339;
use super::secret;
use super::service::{Service, lock, unreachable_database};
use crate::database::{Database, DatabaseError, Statement, Value};
use crate::saga::base64;

/// Seconds after which a delivery is tried again, as Standard Webhooks proposes.
const WAITS_S: [i64; 9] = [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400];
/// Nobody else makes a delivery for so long.
const LEASE_MS: i64 = 60_000;
/// How often the database is asked though nothing seems to be due: another server may have died.
const LOOK_MS: i64 = 60_000;
/// Deliveries that are over are kept for so long.
const KEPT_MS: i64 = 30 * 86_400_000;
/// Deliveries that are made at once.
pub const AT_ONCE: usize = 16;
/// The secret before the last one signs for so long, too: receivers change theirs meanwhile.
const OLD_SECRET_MS: i64 = 86_400_000;
const WEBHOOKS_MAX: usize = 10;
const WAITING_MAX: i64 = 1000;
const URL_BYTES_MAX: usize = 2000;
const DELIVERY_ROWS_MAX: i64 = 1000;

/// What a new webhook shall be.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewWebhook {
    /// Where it is called.
    pub url: String,
    /// What its calls are signed with: `whsec_` and base64; made unless given.
    #[serde(default)]
    pub secret: Option<String>,
}

/// What a webhook's next secret shall be.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewSecret {
    /// `whsec_` and base64; made unless given.
    pub secret: Option<String>,
}

/// A webhook's next secret: the only time that it is told.
#[derive(Debug, Serialize)]
pub struct FreshSecret {
    /// The secret.
    pub secret: String,
    /// Until when the one before it signs, too.
    pub old_until: String,
}

/// A webhook, without its secret.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Webhook {
    pub id: String,
    pub org: String,
    pub url: String,
    pub enabled: bool,
    pub created_at: String,
}

/// A webhook that was just made: the only time that its secret is told.
#[derive(Debug, Serialize)]
pub struct FreshWebhook {
    /// The webhook.
    #[serde(flatten)]
    pub webhook: Webhook,
    /// The secret.
    pub secret: String,
}

/// A delivery to be made now.
#[derive(Debug, Clone)]
pub struct Due {
    /// Its id, the same at every try.
    pub id: String,
    webhook_id: String,
    org: String,
    /// Where to.
    pub url: String,
    /// What signs: the secret, and the one before it while that is known to receivers.
    secrets: Vec<String>,
    /// What.
    pub body: String,
    /// Tries, this one included.
    pub tries: i64,
}

impl Due {
    /// The header `webhook-signature` for a delivery at a moment, in seconds since 1970.
    pub fn signature(&self, at_s: i64) -> String {
        let text = format!("{}.{at_s}.{}", self.id, self.body);
        let by = |secret: &String| {
            let key = key_of(secret).unwrap_or_default();
            format!("v1,{}", secret::base64(&secret::sign(&key, text.as_bytes())))
        };
        self.secrets.iter().map(by).collect::<Vec<_>>().join(" ")
    }
}

/// The bytes that a secret stands for.
fn key_of(secret: &str) -> Option<Vec<u8>> {
    let key = base64::decode(secret.strip_prefix("whsec_")?)?;
    (24..=64).contains(&key.len()).then_some(key)
}

/// When a delivery is tried again after so many tries; none = never. `random` spreads it.
fn again_ms(tries: i64, now_ms: i64, random: u64) -> Option<i64> {
    let wait_s = WAITS_S.get(usize::try_from(tries).ok()?.checked_sub(1)?)?;
    let spread_ms = (random % 1000) as i64 * wait_s / 10;
    Some(now_ms + wait_s * 1000 + spread_ms)
}

const COLUMNS: &str = "webhook_id, org_id, url, is_enabled, created_ms";

fn webhook_of(row: &[Value]) -> Webhook {
    Webhook {
        id: row[0].text().into(),
        org: row[1].text().into(),
        url: row[2].text().into(),
        enabled: row[3].int() != 0,
        created_at: rfc3339(row[4].int()),
    }
}

impl Service {
    /// Makes a webhook.
    pub fn make_webhook(
        &self,
        database: &mut dyn Database,
        org: &str,
        new: NewWebhook,
        actor: &str,
    ) -> Result<FreshWebhook, Refusal> {
        self.org_or_none(database, org)?;
        if new.url.len() > URL_BYTES_MAX {
            return malformed(format!("url has {URL_BYTES_MAX} bytes at most"));
        }
        let secret = self.signing_secret(new.secret)?;
        if self.webhooks(database, org)?.len() >= WEBHOOKS_MAX {
            return malformed(format!("an organisation has {WEBHOOKS_MAX} webhooks at most"));
        }
        let (id, now_ms) = (format!("wh_{}", &self.fresh_secret()[..16]), self.now_ms());
        let row =
            vec![id.as_str().into(), org.into(), new.url.into(), Value::Int(1), now_ms.into()];
        let webhook = webhook_of(&row);
        let mut values = row;
        values.push(secret.as_str().into());
        let sql = format!("INSERT INTO quota_webhook ({COLUMNS}, secret) VALUES (?,?,?,?,?,?)");
        let line = audit(org, now_ms, "webhook-made", actor, &json!({ "webhook": id }));
        transact(database, &[Statement::run(sql, values), line])?;
        Ok(FreshWebhook { webhook, secret })
    }

    /// The secret that somebody wants, or a new one.
    fn signing_secret(&self, wanted: Option<String>) -> Result<String, Refusal> {
        let fresh = || {
            let bits = [0; 4].map(|_: u64| self.random_bits().to_le_bytes());
            format!("whsec_{}", secret::base64(&bits.concat()))
        };
        let secret = wanted.unwrap_or_else(fresh);
        if key_of(&secret).is_none() {
            return malformed("secret is whsec_ and base64 of 24 to 64 bytes");
        }
        Ok(secret)
    }

    /// Gives a webhook another secret; for a day the old one signs, too.
    pub fn rotate_secret(
        &self,
        database: &mut dyn Database,
        org: &str,
        id: &str,
        new: NewSecret,
        actor: &str,
    ) -> Result<FreshSecret, Refusal> {
        self.webhook(database, org, id)?;
        let (secret, now_ms) = (self.signing_secret(new.secret)?, self.now_ms());
        let old_until_ms = now_ms + OLD_SECRET_MS;
        // Two statements: in MySQL the second of two assignments would see the first.
        let statements = [
            Statement::run(
                "UPDATE quota_webhook SET old_secret = secret, old_until_ms = ? \
                 WHERE webhook_id = ?",
                vec![old_until_ms.into(), id.into()],
            ),
            Statement::run(
                "UPDATE quota_webhook SET secret = ? WHERE webhook_id = ?",
                vec![secret.as_str().into(), id.into()],
            ),
            audit(org, now_ms, "webhook-secret", actor, &json!({ "webhook": id })),
        ];
        transact(database, &statements)?;
        Ok(FreshSecret { secret, old_until: rfc3339(old_until_ms) })
    }

    /// An organisation's webhooks.
    pub fn webhooks(
        &self,
        database: &mut dyn Database,
        org: &str,
    ) -> Result<Vec<Webhook>, Refusal> {
        self.org_or_none(database, org)?;
        let sql = format!(
            "SELECT {COLUMNS} FROM quota_webhook WHERE org_id = ? ORDER BY created_ms, webhook_id"
        );
        let rows = database.query(&sql, &[org.into()]).map_err(unreachable_database)?;
        Ok(rows.iter().map(|row| webhook_of(row)).collect())
    }

    fn webhook(
        &self,
        database: &mut dyn Database,
        org: &str,
        id: &str,
    ) -> Result<Webhook, Refusal> {
        let all = self.webhooks(database, org)?;
        let found = all.into_iter().find(|webhook| webhook.id == id);
        found.ok_or_else(|| Refusal::NotFound(format!("{org} has no webhook {id}")))
    }

    /// Removes a webhook, and gives up what waits for it.
    pub fn remove_webhook(
        &self,
        database: &mut dyn Database,
        org: &str,
        id: &str,
        actor: &str,
    ) -> Result<(), Refusal> {
        self.webhook(database, org, id)?;
        let now_ms = self.now_ms();
        let statements = [
            Statement::run("DELETE FROM quota_webhook WHERE webhook_id = ?", vec![id.into()]),
            Statement::run(
                "UPDATE quota_delivery SET state = 'dropped', next_ms = NULL, updated_ms = ? \
                 WHERE webhook_id = ? AND state = 'waiting'",
                vec![now_ms.into(), id.into()],
            ),
            audit(org, now_ms, "webhook-removed", actor, &json!({ "webhook": id })),
        ];
        transact(database, &statements).map(drop)
    }

    /// Sends a webhook a message of type `webhook.test`; the delivery's id.
    pub fn test_webhook(
        &self,
        database: &mut dyn Database,
        org: &str,
        id: &str,
    ) -> Result<String, Refusal> {
        let webhook = self.webhook(database, org, id)?;
        let sql = "SELECT COUNT(*) FROM quota_delivery WHERE org_id = ? AND state = 'waiting'";
        let waiting = database.query(sql, &[org.into()]).map_err(unreachable_database)?;
        if waiting.first().is_some_and(|row| row[0].int() >= WAITING_MAX) {
            return malformed(format!("{WAITING_MAX} deliveries wait already"));
        }
        let now_ms = self.now_ms();
        let (delivery, statement) =
            self.delivery(&webhook, "webhook.test", json!({ "org": org }), now_ms);
        transact(database, &[statement])?;
        self.due_ms.store(0, Ordering::Release);
        Ok(delivery)
    }

    fn delivery(&self, to: &Webhook, kind: &str, data: Json, now_ms: i64) -> (String, Statement) {
        let id = format!("msg_{}", &self.fresh_secret()[..24]);
        let body = json!({ "type": kind, "timestamp": rfc3339(now_ms), "data": data });
        let into = "quota_delivery (delivery_id, webhook_id, org_id, kind, body, state, tries, \
                    next_ms, status, detail, created_ms, updated_ms)";
        let values: Vec<Value> = vec![
            id.as_str().into(),
            to.id.as_str().into(),
            to.org.as_str().into(),
            kind.into(),
            body.to_string().into(),
            "waiting".into(),
            Value::Int(0),
            now_ms.into(),
            Value::Int(0),
            "".into(),
            now_ms.into(),
            now_ms.into(),
        ];
        (id, Statement::Insert { into, columns: 12, values, tail: String::new() })
    }

    /// The log of deliveries, newest first.
    pub fn deliveries(
        &self,
        database: &mut dyn Database,
        org: &str,
        limit: i64,
    ) -> Result<Json, Refusal> {
        self.org_or_none(database, org)?;
        let sql = "SELECT delivery_id, webhook_id, kind, state, tries, next_ms, status, detail, \
                   created_ms, updated_ms, body FROM quota_delivery \
                   WHERE org_id = ? ORDER BY created_ms DESC, delivery_id LIMIT ?";
        let limit = limit.clamp(1, DELIVERY_ROWS_MAX);
        let rows = database.query(sql, &[org.into(), limit.into()]);
        let line = |row: &Vec<Value>| {
            let next = (row[5] != Value::Null).then(|| rfc3339(row[5].int()));
            let body: Json = serde_json::from_str(row[10].text()).unwrap_or_default();
            json!({
                "id": row[0].text(), "webhook": row[1].text(), "type": row[2].text(),
                "state": row[3].text(), "tries": row[4].int(), "next_at": next,
                "status": row[6].int(), "detail": row[7].text(),
                "created_at": rfc3339(row[8].int()), "updated_at": rfc3339(row[9].int()),
                "body": body,
            })
        };
        Ok(rows.map_err(unreachable_database)?.iter().map(line).collect())
    }

    /// Writes down who has passed a threshold, and what is to be delivered for it.
    pub(super) fn tell_passed(self: &Arc<Self>) {
        let passed = std::mem::take(&mut *lock(&self.counts.passed));
        if passed.is_empty() {
            return;
        }
        let service = Arc::clone(self);
        self.at_desk(move |database| match database {
            Err(_) => lock(&service.counts.passed).extend(passed),
            Ok(database) => {
                for (org, period_ms) in passed {
                    let Some(found) = org.passed(period_ms) else { continue };
                    if let Err(error) = service.tell(database, &org, &found) {
                        tracing::warn!("quota: a threshold of {} is told later: {error}", org.id);
                        lock(&service.counts.passed).push((org, period_ms));
                    }
                }
            }
        });
    }

    fn tell(
        &self,
        database: &mut dyn Database,
        org: &Org,
        passed: &Passed,
    ) -> Result<(), DatabaseError> {
        if passed.percents.is_empty() {
            return Ok(());
        }
        let sql =
            format!("SELECT {COLUMNS} FROM quota_webhook WHERE org_id = ? AND is_enabled = 1");
        let rows = database.query(&sql, &[(&*org.id).into()])?;
        let webhooks: Vec<Webhook> = rows.iter().map(|row| webhook_of(row)).collect();
        let now_ms = self.now_ms();
        for percent in &passed.percents {
            let data = json!({
                "org": &*org.id, "period": passed.name, "percent": percent, "used": passed.used,
                "limit": passed.limit, "resets_at": rfc3339(passed.period.end_ms),
            });
            let values = [passed.period.start_ms, i64::from(*percent), now_ms].map(Value::Int);
            let mut statements = vec![
                Statement::run(
                    "INSERT INTO quota_threshold (org_id, period_ms, percent, at_ms) \
                     VALUES (?, ?, ?, ?)",
                    [vec![(&*org.id).into()], values.into()].concat(),
                ),
                audit(&org.id, now_ms, "threshold", "", &data),
            ];
            for webhook in &webhooks {
                let (_, statement) =
                    self.delivery(webhook, "quota.threshold", data.clone(), now_ms);
                statements.push(statement);
            }
            match database.transact(&statements) {
                Ok(_) => self.due_ms.store(0, Ordering::Release),
                // It was told before.
                Err(DatabaseError::Duplicate(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether webhooks may have to be called now.
    pub fn is_due(&self) -> bool {
        self.now_ms() >= self.due_ms.load(Ordering::Acquire)
    }

    /// Takes deliveries that are due; nobody else makes them for a minute.
    pub fn take_due(&self, database: &mut dyn Database) -> Result<Vec<Due>, DatabaseError> {
        let now_ms = self.now_ms();
        self.due_ms.store(now_ms + LOOK_MS, Ordering::Release);
        let sql = "SELECT d.delivery_id, d.webhook_id, d.org_id, w.url, w.secret, d.body, \
                   d.tries, d.next_ms, w.old_secret, w.old_until_ms FROM quota_delivery d \
                   JOIN quota_webhook w ON w.webhook_id = d.webhook_id \
                   WHERE d.next_ms IS NOT NULL AND w.is_enabled = 1 ORDER BY d.next_ms LIMIT ?";
        let mut taken = Vec::new();
        for row in database.query(sql, &[Value::Int(AT_ONCE as i64)])? {
            let next_ms = row[7].int();
            if next_ms > now_ms {
                self.due_ms.fetch_min(next_ms, Ordering::AcqRel);
                break;
            }
            let lease = Statement::run(
                "UPDATE quota_delivery SET next_ms = ?, tries = tries + 1, updated_ms = ? \
                 WHERE delivery_id = ? AND next_ms = ?",
                vec![(now_ms + LEASE_MS).into(), now_ms.into(), row[0].clone(), next_ms.into()],
            );
            if database.transact(&[lease])?.first() != Some(&1) {
                continue;
            }
            let text = |index: usize| row[index].text().to_string();
            let is_old_good = row[9] != Value::Null && row[9].int() > now_ms;
            let old = is_old_good.then(|| text(8));
            taken.push(Due {
                id: text(0),
                webhook_id: text(1),
                org: text(2),
                url: text(3),
                secrets: [Some(text(4)), old].into_iter().flatten().collect(),
                body: text(5),
                tries: row[6].int() + 1,
            });
        }
        if taken.len() == AT_ONCE {
            self.due_ms.store(0, Ordering::Release);
        }
        Ok(taken)
    }

    /// Writes down how a delivery went: the status, or what went wrong.
    pub fn delivered(
        &self,
        database: &mut dyn Database,
        due: &Due,
        result: &Result<u16, String>,
    ) -> Result<(), DatabaseError> {
        let now_ms = self.now_ms();
        let again = again_ms(due.tries, now_ms, self.random_bits());
        let (state, next_ms) = match result {
            Ok(200..=299) => ("delivered", None),
            Ok(410) => ("gone", None),
            _ if again.is_none() => ("failed", None),
            _ => ("waiting", again),
        };
        let status = result.as_ref().map_or(0, |status| i64::from(*status));
        let detail: String =
            result.as_ref().err().map_or("", |why| why).chars().take(500).collect();
        let mut statements = vec![
            Statement::run(
                "UPDATE quota_delivery SET state = ?, next_ms = ?, status = ?, detail = ?, \
                 updated_ms = ? WHERE delivery_id = ? AND state = 'waiting'",
                vec![
                    state.into(),
                    next_ms.into(),
                    status.into(),
                    detail.into(),
                    now_ms.into(),
                    due.id.as_str().into(),
                ],
            ),
            Statement::run(
                "DELETE FROM quota_delivery WHERE org_id = ? AND created_ms < ? \
                 AND next_ms IS NULL",
                vec![due.org.as_str().into(), (now_ms - KEPT_MS).into()],
            ),
        ];
        if state == "gone" {
            let sql = "UPDATE quota_webhook SET is_enabled = 0 WHERE webhook_id = ?";
            statements.push(Statement::run(sql, vec![due.webhook_id.as_str().into()]));
            let detail = json!({ "webhook": due.webhook_id });
            statements.push(audit(&due.org, now_ms, "webhook-gone", "", &detail));
        }
        database.transact(&statements)?;
        if let Some(next_ms) = next_ms {
            self.due_ms.fetch_min(next_ms, Ordering::AcqRel);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_the_standard() {
        // Computed apart from this code, with Python's hmac over "{id}.{timestamp}.{body}".
        let due = Due {
            id: "msg_p5jXN8AQM9LWM0D4loKWxJek".into(),
            webhook_id: String::new(),
            org: String::new(),
            url: String::new(),
            secrets: vec!["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into()],
            body: r#"{"test": 2432232314}"#.into(),
            tries: 1,
        };
        let signature = due.signature(1_614_265_330);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        // While secrets are changed, receivers may take either.
        let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".to_string();
        let both = Due { secrets: [vec![other], due.secrets.clone()].concat(), ..due };
        let both = both.signature(1_614_265_330);
        let (first, second) = both.split_once(' ').expect("two signatures");
        assert!(first.starts_with("v1,") && first != signature);
        assert_eq!(second, signature);
    }

    #[test]
    fn tries_lie_further_and_further_apart_and_end() {
        let waits: Vec<i64> = (1..=9).map(|tries| again_ms(tries, 0, 0).expect("again")).collect();
        assert!(waits.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!((waits[0], waits[8]), (5000, 86_400_000));
        assert_eq!(again_ms(10, 0, 0), None);
        let spread = again_ms(2, 0, 999).expect("again");
        assert!((300_000..330_000).contains(&spread), "{spread}");
    }

    #[test]
    fn secrets_are_long_enough() {
        assert!(key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").is_some());
        for secret in ["", "whsec_", "whsec_Zm9v", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_?"] {
            assert!(key_of(secret).is_none(), "{secret}");
        }
    }
}
