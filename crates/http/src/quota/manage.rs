//! Quotas, usage, keys, adjustments, audit.

use std::sync::Arc;

use http::request::Parts;
use http::{StatusCode, header};
use serde_json::{Value, json as value};
use services::quota::answer::{Refusal, Usage};
use services::quota::caller::Scope;
use services::quota::manage::{Adjustment, NewKey};
use services::quota::period::{Every, from_rfc3339};
use services::quota::plan::Plan;
use services::quota::usage::{Query, to_csv, to_json};

use super::auth::Who;
use super::{Quota, headers, json, parsed, wait};
use crate::body::Response;
use crate::problem::{empty, with_type};
use crate::query;

fn usage_value(usage: &Usage) -> Value {
    let mut text = String::new();
    usage.write_json(&mut text);
    serde_json::from_str(&text).unwrap_or_default()
}

impl Quota {
    /// GET /v1/quota
    pub(super) async fn own_quota(&self, parts: &Parts) -> Result<Response, Refusal> {
        let caller = self.caller(parts, Scope::Read).await?;
        let (org, now_ms) = (Arc::clone(&caller.org), self.service.now_ms());
        let usage = wait(|done| self.service.usage_of(org, now_ms, done)).await?;
        Ok(self.standing(&usage))
    }

    fn standing(&self, usage: &Usage) -> Response {
        let body = value!({ "usage": usage_value(usage), "plan": usage.planned.plan });
        let mut response = json(StatusCode::OK, body.to_string());
        headers::add(response.headers_mut(), usage, self.sends_older_headers);
        response
    }

    /// GET /v1/orgs/{org}/quota
    pub(super) async fn get_quota(&self, parts: &Parts, org: String) -> Result<Response, Refusal> {
        self.one_of(parts, &org, Scope::Read).await?;
        let org = self.at_desk(move |service, database| service.org_or_none(database, &org));
        let (org, now_ms) = (org.await?, self.service.now_ms());
        let usage = wait(|done| self.service.usage_of(org, now_ms, done)).await?;
        Ok(self.standing(&usage))
    }

    /// PUT /v1/orgs/{org}/quota
    pub(super) async fn put_quota(
        &self,
        parts: &Parts,
        org: String,
        body: &[u8],
    ) -> Result<Response, Refusal> {
        let who = self.root(parts).await?;
        let plan: Plan = parsed(body)?;
        let (name, told) = (org.clone(), plan.clone());
        let actor = who.name().to_string();
        let is_new =
            self.at_desk(move |service, database| service.put_plan(database, &org, plan, &actor));
        let status = if is_new.await? { StatusCode::CREATED } else { StatusCode::OK };
        Ok(json(status, value!({ "org": name, "plan": told }).to_string()))
    }

    /// GET /v1/orgs/{org}/usage
    pub(super) async fn usage(&self, parts: &Parts, org: String) -> Result<Response, Refusal> {
        self.one_of(parts, &org, Scope::Read).await?;
        let query = usage_query(parts, self.service.now_ms())?;
        let lines = self.at_desk(move |service, database| service.usage(database, &org, &query));
        let lines = lines.await?;
        let accept = parts.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        if accept.is_some_and(|accept| accept.contains("text/csv")) {
            return Ok(with_type(StatusCode::OK, "text/csv; charset=utf-8", to_csv(&lines)));
        }
        Ok(json(StatusCode::OK, to_json(&lines).to_string()))
    }

    /// POST /v1/orgs/{org}/quota/adjust
    pub(super) async fn adjust(
        &self,
        parts: &Parts,
        org: String,
        body: &[u8],
    ) -> Result<Response, Refusal> {
        let who = self.root(parts).await?;
        let adjustment: Adjustment = parsed(body)?;
        let (name, actor) = (org.clone(), who.name().to_string());
        let was_made = self.alone(move |service, database| {
            let was_made = service.adjust(database, &name, &adjustment, &actor)?;
            Ok((was_made, service.org_or_none(database, &name)?))
        });
        let ((was_made, org), now_ms) = (was_made.await?, self.service.now_ms());
        let usage = wait(|done| self.service.usage_of(org, now_ms, done)).await?;
        let mut response = self.standing(&usage);
        if was_made {
            let name = header::HeaderName::from_static("idempotency-replayed");
            response.headers_mut().insert(name, header::HeaderValue::from_static("true"));
        }
        Ok(response)
    }

    /// GET /v1/orgs/{org}/keys
    pub(super) async fn keys(&self, parts: &Parts, org: String) -> Result<Response, Refusal> {
        self.one_of(parts, &org, Scope::Manage).await?;
        let keys = self.at_desk(move |service, database| service.keys(database, &org));
        Ok(json(StatusCode::OK, value!(keys.await?).to_string()))
    }

    /// POST /v1/orgs/{org}/keys
    pub(super) async fn make_key(
        &self,
        parts: &Parts,
        org: String,
        body: &[u8],
    ) -> Result<Response, Refusal> {
        let who = self.one_of(parts, &org, Scope::Manage).await?;
        let new: NewKey = parsed(body)?;
        let actor = who.name().to_string();
        let key =
            self.at_desk(move |service, database| service.make_key(database, &org, new, &actor));
        Ok(json(StatusCode::CREATED, value!(key.await?).to_string()))
    }

    /// DELETE /v1/orgs/{org}/keys/{key}
    pub(super) async fn disable_key(
        &self,
        parts: &Parts,
        org: String,
        key: String,
    ) -> Result<Response, Refusal> {
        let who = self.one_of(parts, &org, Scope::Manage).await?;
        let actor = who.name().to_string();
        let done = self
            .at_desk(move |service, database| service.disable_key(database, &org, &key, &actor));
        done.await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    /// GET /v1/verify
    pub(super) async fn verify(&self, parts: &Parts) -> Result<Response, Refusal> {
        self.root(parts).await?;
        let report = self.alone(|service, database| service.verify(database));
        let report = report.await?;
        let body = value!({
            "records": report.records, "counters": report.counters,
            "compared": report.compared, "differences": report.differences,
        });
        Ok(json(StatusCode::OK, body.to_string()))
    }

    /// GET /v1/audit
    pub(super) async fn audit(&self, parts: &Parts) -> Result<Response, Refusal> {
        let number = |name: &str, default: i64| {
            query::number(parts.uri.query(), name, default).map_err(Refusal::Malformed)
        };
        let org = match query::value(parts.uri.query(), "org") {
            Some(org) => org,
            None => match self.who(parts).await? {
                Who::Caller(caller) => caller.org.id.to_string(),
                Who::Root => return Err(Refusal::Malformed("org is needed".into())),
            },
        };
        self.one_of(parts, &org, Scope::Read).await?;
        let (before, limit) = (number("before", i64::MAX)?, number("limit", 100)?);
        let lines =
            self.at_desk(move |service, database| service.audit(database, &org, before, limit));
        Ok(json(StatusCode::OK, lines.await?.to_string()))
    }
}

fn usage_query(parts: &Parts, now_ms: i64) -> Result<Query, Refusal> {
    let value = |name: &str| query::value(parts.uri.query(), name);
    let wrong = |why: &str| Refusal::Malformed(why.to_string());
    let moment = |name: &str, default: i64| match value(name) {
        None => Ok(default),
        Some(text) => {
            from_rfc3339(&text).ok_or_else(|| wrong(&format!("{name} is as RFC 3339 has it")))
        }
    };
    let to_ms = moment("to", now_ms)?;
    let from_ms = moment("from", to_ms - 86_400_000)?;
    let window = value("window").unwrap_or_else(|| "day".into());
    let window = Every::of(&window)
        .ok_or_else(|| wrong("window is one of minute, hour, day, week, month, year"))?;
    let tz = value("tz").unwrap_or_else(|| "UTC".into());
    let (mut by_key, mut by_type) = (false, false);
    for word in value("group_by").unwrap_or_default().split(',').filter(|word| !word.is_empty()) {
        match word {
            "key" => by_key = true,
            "type" => by_type = true,
            _ => return Err(wrong("group_by is of key, type")),
        }
    }
    Ok(Query { from_ms, to_ms, window, tz, by_key, by_type })
}
