//! Webhooks: their routes, and the task that calls them.
//!
//! **Invariant:** a call ends within its time; no redirect is followed; no connection goes to an
//! address that the guard refuses.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use http::request::Parts;
use http_body_util::Full;
use serde_json::json as value;
use services::database::Database;
use services::quota::answer::Refusal;
use services::quota::caller::Scope;
use services::quota::service::Service;
use services::quota::webhook::{Due, NewSecret, NewWebhook};
use tokio::task::JoinSet;

use super::{Quota, json, parsed, wait};
use crate::body::Response;
use crate::problem::empty;
use crate::query;
use crate::saga::client::{Caller, Ready, exchange};
use crate::saga::{Guard, Trust};

/// A call takes so long at most.
const TIMEOUT: Duration = Duration::from_secs(15);
/// How often it is looked whether something is due.
const LOOK: Duration = Duration::from_millis(250);

impl Quota {
    /// POST /v1/orgs/{org}/webhooks
    pub(super) async fn make_webhook(
        &self,
        parts: &Parts,
        org: String,
        body: &[u8],
    ) -> Result<Response, Refusal> {
        let who = self.one_of(parts, &org, Scope::Manage).await?;
        let new: NewWebhook = parsed(body)?;
        let wrong = |why: String| Refusal::Malformed(format!("url: {why}"));
        let uri: hyper::Uri = new.url.parse().map_err(|error| wrong(format!("{error}")))?;
        self.guard.check(&uri).map_err(wrong)?;
        let actor = who.name().to_string();
        let made = self
            .at_desk(move |service, database| service.make_webhook(database, &org, new, &actor));
        Ok(json(StatusCode::CREATED, value!(made.await?).to_string()))
    }

    /// GET /v1/orgs/{org}/webhooks
    pub(super) async fn webhooks(&self, parts: &Parts, org: String) -> Result<Response, Refusal> {
        self.one_of(parts, &org, Scope::Manage).await?;
        let all = self.at_desk(move |service, database| service.webhooks(database, &org));
        Ok(json(StatusCode::OK, value!(all.await?).to_string()))
    }

    /// DELETE /v1/orgs/{org}/webhooks/{webhook}
    pub(super) async fn remove_webhook(
        &self,
        parts: &Parts,
        org: String,
        id: String,
    ) -> Result<Response, Refusal> {
        let who = self.one_of(parts, &org, Scope::Manage).await?;
        let actor = who.name().to_string();
        let remove = self
            .at_desk(move |service, database| service.remove_webhook(database, &org, &id, &actor));
        remove.await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    /// POST /v1/orgs/{org}/webhooks/{webhook}/test
    pub(super) async fn test_webhook(
        &self,
        parts: &Parts,
        org: String,
        id: String,
    ) -> Result<Response, Refusal> {
        self.one_of(parts, &org, Scope::Manage).await?;
        let delivery =
            self.at_desk(move |service, database| service.test_webhook(database, &org, &id));
        let body = value!({ "delivery": delivery.await? });
        Ok(json(StatusCode::ACCEPTED, body.to_string()))
    }

    /// POST /v1/orgs/{org}/webhooks/{webhook}/secret
    pub(super) async fn rotate_secret(
        &self,
        parts: &Parts,
        org: String,
        id: String,
        body: &[u8],
    ) -> Result<Response, Refusal> {
        let who = self.one_of(parts, &org, Scope::Manage).await?;
        let new: NewSecret = parsed(body)?;
        let actor = who.name().to_string();
        let fresh = self.at_desk(move |service, database| {
            service.rotate_secret(database, &org, &id, new, &actor)
        });
        Ok(json(StatusCode::OK, value!(fresh.await?).to_string()))
    }

    /// GET /v1/orgs/{org}/deliveries
    pub(super) async fn deliveries(&self, parts: &Parts, org: String) -> Result<Response, Refusal> {
        self.one_of(parts, &org, Scope::Read).await?;
        let limit = query::number(parts.uri.query(), "limit", 100).map_err(Refusal::Malformed)?;
        let lines =
            self.at_desk(move |service, database| service.deliveries(database, &org, limit));
        Ok(json(StatusCode::OK, lines.await?.to_string()))
    }

    /// Calls webhooks from now on, in the runtime that this is called in.
    pub(crate) fn attach(&self) {
        tokio::spawn(call_due(Arc::clone(&self.service), self.guard.clone()));
    }
}

/// Makes the deliveries that are due, some at once, until the runtime ends.
async fn call_due(service: Arc<Service>, guard: Guard) {
    let http = Caller::new(&guard, &Trust::of_system());
    let mut calls = JoinSet::new();
    loop {
        tokio::time::sleep(LOOK).await;
        if !service.is_due() {
            continue;
        }
        let due = wait(|done| {
            service.desk(|service, database| Ok(service.take_due(database)), done);
        });
        let due = match due.await {
            Ok(Ok(due)) => due,
            Ok(Err(error)) => {
                tracing::warn!("quota: webhooks wait: {error}");
                continue;
            }
            Err(_) => continue,
        };
        for due in due {
            calls.spawn(call(Arc::clone(&service), http.clone(), guard.clone(), due));
        }
        while calls.join_next().await.is_some() {}
    }
}

async fn call(service: Arc<Service>, http: Caller, guard: Guard, due: Due) {
    let result = match request(&due, &guard) {
        Err(why) => Err(why),
        Ok(request) => match tokio::time::timeout(TIMEOUT, exchange(&http, request)).await {
            Err(_) => Err(format!("no answer in {} s", TIMEOUT.as_secs())),
            Ok(answer) => answer.map(|came| came.status),
        },
    };
    let written = wait(|done| {
        let write = move |service: &Service, database: &mut dyn Database| {
            Ok(service.delivered(database, &due, &result))
        };
        service.desk(write, done);
    });
    if let Ok(Err(error)) = written.await {
        // Its lease ends, and it is made again.
        tracing::warn!("quota: a webhook was called, which is not written down: {error}");
    }
}

fn request(due: &Due, guard: &Guard) -> Result<Ready, String> {
    let uri: hyper::Uri = due.url.parse().map_err(|error| format!("{error}"))?;
    guard.check(&uri)?;
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
    hyper::Request::post(uri)
        .header("content-type", "application/json")
        .header("user-agent", concat!("forebay/", env!("CARGO_PKG_VERSION")))
        .header("webhook-id", &due.id)
        .header("webhook-timestamp", at)
        .header("webhook-signature", due.signature(at))
        .body(Full::from(due.body.clone()))
        .map_err(|error| error.to_string())
}
