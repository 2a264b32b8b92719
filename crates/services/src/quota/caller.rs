//! API keys: who calls, for which organisation, and what the key allows.

use std::sync::Arc;

use serde::Serialize;

use super::answer::Refusal;
use super::org::Org;
use super::period::rfc3339;
use crate::database::Row;

/// What every key begins with.
pub const PREFIX: &str = "fb_";

/// What a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Scope {
    Ingest,
    Read,
    Manage,
}

impl Scope {
    /// All of them, by name.
    pub const ALL: [(Scope, &'static str); 3] =
        [(Scope::Ingest, "ingest"), (Scope::Read, "read"), (Scope::Manage, "manage")];

    fn name(self) -> &'static str {
        Scope::ALL.iter().find(|(scope, _)| *scope == self).map_or("", |(_, name)| name)
    }
}

/// A key as it is kept: without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApiKey {
    /// Its public name.
    #[serde(rename = "id")]
    pub key_id: String,
    /// Whose it is.
    pub org: String,
    /// The beginning of the secret.
    pub prefix: String,
    /// What people call it.
    pub name: String,
    /// What it allows.
    pub scopes: Vec<String>,
    /// Whether it may be used.
    pub enabled: bool,
    /// When it ends, in RFC 3339.
    pub expires_at: Option<String>,
    /// When it was made.
    pub created_at: String,
    #[serde(skip)]
    expires_ms: i64,
}

impl ApiKey {
    /// The columns that [`ApiKey::of`] reads.
    pub const COLUMNS: &str =
        "key_id, org_id, prefix, name, scopes, is_enabled, expires_ms, created_ms";

    /// From a row.
    pub fn of(row: &Row) -> ApiKey {
        let expires_ms = row[6].int();
        ApiKey {
            key_id: row[0].text().to_string(),
            org: row[1].text().to_string(),
            prefix: row[2].text().to_string(),
            name: row[3].text().to_string(),
            scopes: row[4].text().split(' ').map(str::to_string).collect(),
            enabled: row[5].int() != 0,
            expires_at: (expires_ms != 0).then(|| rfc3339(expires_ms)),
            created_at: rfc3339(row[7].int()),
            expires_ms,
        }
    }
}

/// Who calls.
#[derive(Debug)]
pub struct Caller {
    /// With which key.
    pub key: ApiKey,
    /// For whom.
    pub org: Arc<Org>,
}

impl Caller {
    /// Whether the key may be used for this now.
    pub fn may(&self, scope: Scope, now_ms: i64) -> Result<(), Refusal> {
        let refuse = |why: String| Err(Refusal::Forbidden(why));
        if !self.key.enabled {
            return refuse("this key is disabled".into());
        }
        if self.key.expires_ms != 0 && self.key.expires_ms <= now_ms {
            return refuse("this key has expired".into());
        }
        if !self.key.scopes.iter().any(|name| name == scope.name()) {
            return refuse(format!("this key has not the scope {}", scope.name()));
        }
        Ok(())
    }
}
