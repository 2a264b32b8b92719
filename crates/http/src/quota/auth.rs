//! Who calls: the bearer of a key, a session, or the root key.

use std::sync::Arc;

use http::header;
use http::request::Parts;
use services::quota::answer::Refusal;
use services::quota::caller::{Caller, Scope};
use services::quota::secret::digest;
use services::quota::service::Found;

use super::{Quota, wait};
use crate::query;

/// Who calls.
pub(super) enum Who {
    /// Whoever set up the server.
    Root,
    /// The bearer of a key, or of a session of it.
    Caller(Arc<Caller>),
}

impl Who {
    /// The name in the audit.
    pub fn name(&self) -> &str {
        match self {
            Who::Root => "root",
            Who::Caller(caller) => &caller.key.key_id,
        }
    }
}

fn bearer(parts: &Parts) -> Option<&[u8]> {
    let value = parts.headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, secret) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| secret.trim_ascii())
}

const NO_KEY: Refusal = Refusal::Unauthorized("an API key is needed: Authorization: Bearer ...");
const WRONG_KEY: Refusal = Refusal::Unauthorized("nobody knows this API key");

impl Quota {
    /// Who calls, by key or session.
    pub(super) async fn who(&self, parts: &Parts) -> Result<Who, Refusal> {
        self.who_at(parts, self.service.now_ms()).await
    }

    async fn who_at(&self, parts: &Parts, now_ms: i64) -> Result<Who, Refusal> {
        if let Some(session) = query::value(parts.uri.query(), "session") {
            return self.service.session(&session, now_ms).map(Who::Caller);
        }
        let hash = digest(bearer(parts).ok_or(NO_KEY)?);
        if self.service.is_root(&hash) {
            return Ok(Who::Root);
        }
        match self.service.find(&hash, now_ms) {
            Found::Caller(caller) => Ok(Who::Caller(caller)),
            Found::Nobody => Err(WRONG_KEY),
            Found::Unknown => {
                let found = wait(|done| self.service.look_up(hash, done)).await?;
                found.map(Who::Caller).ok_or(WRONG_KEY)
            }
        }
    }

    /// Who calls, with a key of an organisation that has this scope.
    pub(super) async fn caller(&self, parts: &Parts, scope: Scope) -> Result<Arc<Caller>, Refusal> {
        let now_ms = self.service.now_ms();
        match self.who_at(parts, now_ms).await? {
            Who::Root => Err(Refusal::Forbidden("the root key is nobody's: use an API key".into())),
            Who::Caller(caller) => {
                caller.may(scope, now_ms)?;
                Ok(caller)
            }
        }
    }

    /// Who calls, if it may do this to that organisation: root, or one of its own keys.
    pub(super) async fn one_of(
        &self,
        parts: &Parts,
        org: &str,
        scope: Scope,
    ) -> Result<Who, Refusal> {
        let who = self.who(parts).await?;
        if let Who::Caller(caller) = &who {
            if &*caller.org.id != org {
                return Err(Refusal::Forbidden(format!("this key is not one of {org}'s")));
            }
            caller.may(scope, self.service.now_ms())?;
        }
        Ok(who)
    }

    /// That the root key calls.
    pub(super) async fn root(&self, parts: &Parts) -> Result<Who, Refusal> {
        match self.who(parts).await? {
            Who::Root => Ok(Who::Root),
            Who::Caller(_) => Err(Refusal::Forbidden("only the root key may do this".into())),
        }
    }
}
