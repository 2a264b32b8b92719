//! Ingest and sessions.

use std::time::Instant;

use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use services::quota::answer::{Refusal, refuse};
use services::quota::caller::Scope;
use services::quota::event::{self, Format, RECORDS_MAX};
use services::quota::ingest::Ingest;
use services::quota::lead::{Lead, Led};
use services::quota::queue::Idempotency;
use services::quota::secret::digest;

use super::auth::Who;
use super::{BODY_BYTES_MAX, Quota, headers, json, parsed, relay, wait};
use crate::alone::is_alone;
use crate::body::Response;
use crate::problem::refused;
use crate::query;

/// Longest idempotency key, in bytes.
const KEY_BYTES_MAX: usize = 200;
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

fn format(parts: &Parts) -> Result<Format, Refusal> {
    let kind = parts.headers.get(header::CONTENT_TYPE).map_or(Ok("application/json"), |kind| {
        kind.to_str().map_err(|_| Refusal::Malformed("a Content-Type is text".into()))
    })?;
    // What nearly all say.
    if kind == "application/json" {
        return Ok(Format::Json);
    }
    let kind = kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    match kind.as_str() {
        // The latter is what curl -d says of whatever it sends.
        "application/json" | "application/x-www-form-urlencoded" => Ok(Format::Json),
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Ok(Format::Lines),
        "application/cloudevents+json" => Ok(Format::CloudEvent),
        "application/cloudevents-batch+json" => Ok(Format::CloudEvents),
        _ => Err(Refusal::Malformed(format!(
            "a Content-Type is application/json, application/x-ndjson, \
             application/cloudevents+json or application/cloudevents-batch+json, not {kind}"
        ))),
    }
}

/// The idempotency key: a structured field's string, quotes included; bare words are taken, too.
fn idempotency(parts: &Parts, body: &[u8]) -> Result<Option<Idempotency>, Refusal> {
    let Some(value) = parts.headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let wrong = || {
        let why = format!("an Idempotency-Key is text of 1 to {KEY_BYTES_MAX} bytes, in quotes");
        Refusal::Malformed(why)
    };
    let text = value.to_str().map_err(|_| wrong())?.trim();
    let inside = text.strip_prefix('"').map_or(Some(text), |text| text.strip_suffix('"'));
    let key = inside.ok_or_else(wrong)?;
    if !(1..=KEY_BYTES_MAX).contains(&key.len()) || key.contains(['"', '\\']) {
        return Err(wrong());
    }
    let kind = parts.headers.get(header::CONTENT_TYPE).map_or(b"".as_slice(), |k| k.as_bytes());
    let query = parts.uri.query().unwrap_or("").as_bytes();
    // A session is not content: a client that opens a new one may repeat a request.
    let query = if query.starts_with(b"session=") { b"" } else { query };
    let fingerprint = digest(&[kind, b"\0", query, b"\0", body].concat());
    Ok(Some(Idempotency { key: format!("http:{key}"), fingerprint }))
}

impl Quota {
    /// POST /v1/events
    pub(super) async fn ingest(&self, parts: &Parts, body: &[u8]) -> Response {
        let begun = Instant::now();
        let caller = match self.caller(parts, Scope::Ingest).await {
            Ok(caller) => caller,
            Err(refusal) => return refused(&refusal),
        };
        let known = Instant::now();
        let (records, cost, idempotency) = match read(parts, body) {
            Ok(read) => read,
            Err(refusal) => return refused(&refusal),
        };
        let now_ms = self.service.now_ms();
        let (done, receiver) = relay::channel();
        let request = Ingest { caller, records, cost, idempotency, now_ms, done };
        let lead = self.service.ingest_and_lead(request);
        let reserved = Instant::now();
        if let Some(lead) = lead {
            go(lead).await;
        }
        let outcome = receiver.await.unwrap_or_else(|_| {
            let detail = "the server is about to end".to_string();
            refuse(Refusal::Busy { detail, retry_after_s: 1 }, None)
        });
        let (mut response, usage) = match outcome {
            Ok(answer) => {
                let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
                if let Some(session) = query::value(parts.uri.query(), "session")
                    && !answer.is_replay
                {
                    self.service.session_accepted(&session, answer.accepted);
                }
                let mut response = json(status, answer.body);
                if answer.is_replay {
                    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
                }
                (response, answer.usage)
            }
            Err(no) => (refused(&no.refusal), no.usage),
        };
        if let Some(usage) = usage {
            headers::add(response.headers_mut(), &usage, self.sends_older_headers);
        }
        let spans =
            [("auth", known - begun), ("quota", reserved - known), ("commit", reserved.elapsed())];
        headers::timing(response.headers_mut(), &spans);
        response
    }

    /// POST /v1/sessions
    pub(super) async fn open_session(
        &self,
        parts: &Parts,
        body: &[u8],
    ) -> Result<Response, Refusal> {
        let _: serde_json::Map<String, Value> = parsed(body)?;
        let caller = self.caller(parts, Scope::Ingest).await?;
        let now_ms = self.service.now_ms();
        let session = self.service.open_session(&caller, now_ms)?;
        let org = std::sync::Arc::clone(&caller.org);
        let usage = wait(|done| self.service.usage_of(org, now_ms, done)).await?;
        let mut quota = String::new();
        usage.write_json(&mut quota);
        let (org, idle_s) = (&caller.org.id, self.service.session_idle_s());
        let body = format!(
            "{{\"session\":\"{session}\",\"org\":\"{org}\",\"expires_in\":{idle_s},\
             \"quota\":{quota}}}"
        );
        let mut response = json(StatusCode::CREATED, body);
        headers::add(response.headers_mut(), &usage, self.sends_older_headers);
        Ok(response)
    }

    /// DELETE /v1/sessions/{session}
    pub(super) async fn close_session(
        &self,
        parts: &Parts,
        session: &str,
    ) -> Result<Response, Refusal> {
        let now_ms = self.service.now_ms();
        let gone = || Refusal::NotFound("this session has ended, or never was".into());
        let caller = self.service.session(session, now_ms).map_err(|_| gone())?;
        // The session is a secret; a key that comes with it must be one of the same organisation.
        if parts.headers.contains_key(header::AUTHORIZATION)
            && let Who::Caller(other) = self.who(parts).await?
            && other.org.id != caller.org.id
        {
            return Err(gone());
        }
        let (caller, accepted) = self.service.close_session(session, now_ms).ok_or_else(gone)?;
        let org = std::sync::Arc::clone(&caller.org);
        let usage = wait(|done| self.service.usage_of(org, now_ms, done)).await?;
        let mut text = String::new();
        usage.write_json(&mut text);
        let usage: Value = serde_json::from_str(&text).unwrap_or_default();
        let body = json!({ "accepted": accepted, "usage": usage });
        Ok(json(StatusCode::OK, body.to_string()))
    }
}

/// Has a lone request acknowledged by this thread; where others want it, another one takes the
/// request.
async fn go(mut lead: Lead) {
    if !is_alone().await {
        return;
    }
    match lead.go() {
        Led::Elsewhere => {}
        Led::Here => {
            tokio::task::yield_now().await;
            lead.look_around();
        }
        // The client may go away; the transaction goes on.
        Led::Task(task) => drop(tokio::spawn(task)),
    }
}

type Read = (event::Parsed, Option<i64>, Option<Idempotency>);

fn read(parts: &Parts, body: &[u8]) -> Result<Read, Refusal> {
    let format = format(parts)?;
    let text = std::str::from_utf8(body);
    let text = text.map_err(|_| Refusal::Malformed("the body is not UTF-8".into()))?;
    let cost = query::value(parts.uri.query(), "cost");
    let cost = cost.map(|cost| event::cost_of(&cost)).transpose().map_err(Refusal::Malformed)?;
    let idempotency = idempotency(parts, body)?;
    debug_assert!(body.len() <= BODY_BYTES_MAX);
    let records = event::parse(text, format);
    if records.as_ref().is_ok_and(|records| records.len() > RECORDS_MAX) {
        return Err(Refusal::TooLarge(format!("a request has {RECORDS_MAX} records at most")));
    }
    Ok((records, cost, idempotency))
}
