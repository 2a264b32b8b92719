//! dtm's HTTP API and JSON-RPC (dtm, `dtmsvr/api_http.go`, `dtmsvr/api.go`,
//! `dtmsvr/api_json_rpc.go`, `dtmutil/utils.go`).
//!
//! ```text
//!   nothing to say    200 {"dtm_result":"SUCCESS"}
//!   refused           409 {"dtm_result":"FAILURE","message":...}
//!   not yet           425 {"dtm_result":"ONGOING","message":...}
//!   anything else     500 {"message":...}
//! ```

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, StatusCode, request::Parts};
use serde_json::{Value, json};
use services::saga::coordinator::{Error, Report};
use services::saga::index::Filter;
use services::saga::machine;
use services::saga::submission::Request;
use services::saga::view;
use services::saga::words::{Kind, Status, Verdict};

use super::{Saga, json as json_response, parsed, query, wait};
use crate::body::Response;

/// What a request comes to.
#[derive(Debug)]
pub(super) enum Outcome {
    Success,
    Value(Value),
    Failure(String),
    Ongoing(String),
    Wrong(String),
}

/// Transactions or values that a page has unless asked, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1000;

impl Outcome {
    fn response(self) -> Response {
        let (status, body) = match self {
            Outcome::Success => {
                return json_response(StatusCode::OK, r#"{"dtm_result":"SUCCESS"}"#.into());
            }
            Outcome::Value(value) => (StatusCode::OK, value),
            Outcome::Failure(text) => {
                let text = with_word(&text, "FAILURE");
                (StatusCode::CONFLICT, json!({ "dtm_result": "FAILURE", "message": text }))
            }
            Outcome::Ongoing(text) => {
                let text = with_word(&text, "ONGOING");
                (StatusCode::TOO_EARLY, json!({ "dtm_result": "ONGOING", "message": text }))
            }
            Outcome::Wrong(text) => (StatusCode::INTERNAL_SERVER_ERROR, json!({ "message": text })),
        };
        json_response(status, body.to_string())
    }
}

/// A text that ends with a word: dtm's clients look for it.
pub(super) fn with_word(text: &str, word: &str) -> String {
    if text.ends_with(word) { text.into() } else { format!("{text} {word}") }
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Outcome {
        match error {
            Error::Refused(_) | Error::Different => Outcome::Failure(error.text()),
            error => Outcome::Wrong(error.text()),
        }
    }
}

impl From<Result<Report, Error>> for Outcome {
    fn from(result: Result<Report, Error>) -> Outcome {
        result.map_or_else(Outcome::from, |_| Outcome::Success)
    }
}

impl From<Result<Outcome, String>> for Outcome {
    fn from(result: Result<Outcome, String>) -> Outcome {
        result.unwrap_or_else(Outcome::Wrong)
    }
}

impl Saga {
    pub(super) async fn dtm(&self, parts: &Parts, body: Bytes) -> Response {
        let path = parts.uri.path();
        let outcome = match (&parts.method, path) {
            (_, "/api/ping") => Outcome::Value(json!({ "msg": "pong" })),
            (&Method::POST, "/api/json-rpc") => return self.json_rpc(&body).await,
            (&Method::GET, "/api/metrics") => {
                let kind = "text/plain; version=0.0.4; charset=utf-8";
                return crate::problem::with_type(StatusCode::OK, kind, self.metrics());
            }
            (method, path) => match path.strip_prefix("/api/dtmsvr/") {
                Some(name) if *method == Method::POST => self.posted(name, parts, &body).await,
                Some(name) if *method == Method::GET => self.asked(name, parts),
                Some(name) if *method == Method::DELETE => {
                    let topic = name.strip_prefix("topic/").map(crate::query::decode);
                    match topic {
                        Some(topic) if topic.is_empty() => Outcome::Wrong("empty topic".into()),
                        Some(topic) => self.topics(|topics| topics.remove(&topic)),
                        None => return nothing_here(),
                    }
                }
                _ => return nothing_here(),
            },
        };
        match outcome {
            Outcome::Wrong(text) if text == NO_ROUTE => nothing_here(),
            outcome => outcome.response(),
        }
    }

    async fn posted(&self, name: &str, parts: &Parts, body: &[u8]) -> Outcome {
        match name {
            "registerBranch" | "registerTccBranch" | "registerXaBranch" => {
                let fields = serde_json::from_slice(body);
                match fields.map_err(|error| format!("the request: {error}")) {
                    Ok(fields) => self.register(&fields, None).await,
                    Err(text) => Outcome::Wrong(text),
                }
            }
            _ => match Request::read(body) {
                Ok(request) => self.requested(name, &request, trace_parent(parts)).await,
                Err(text) => Outcome::Wrong(text),
            },
        }
    }

    pub(super) async fn requested(
        &self,
        name: &str,
        request: &Request<'_>,
        trace: &str,
    ) -> Outcome {
        match name {
            "prepare" => self.take_on(request, Status::Prepared, trace).await,
            "submit" if request.trans_type == "workflow" => self.end_workflow(request).await,
            "submit" => self.take_on(request, Status::Submitted, trace).await,
            "abort" => self.abort(request).await,
            "forceStop" => {
                let moment = self.moment();
                let stop = |t: &mut _| Ok(machine::force_stop(t, moment)?);
                let gid = request.gid();
                wait(|done| self.coordinator.with(&gid, false, moment, done, stop)).await.into()
            }
            "resetNextCronTime" => {
                let (moment, gid) = (self.moment(), request.gid());
                let now = |t: &mut _| {
                    machine::retry_now(t, moment);
                    Ok(())
                };
                wait(|done| self.coordinator.with(&gid, false, moment, done, now)).await.into()
            }
            "prepareWorkflow" => self.prepare_workflow(request, trace).await,
            _ => Outcome::Wrong(NO_ROUTE.into()),
        }
    }

    pub(super) async fn take_on(
        &self,
        request: &Request<'_>,
        status: Status,
        trace: &str,
    ) -> Outcome {
        let moment = self.moment();
        let built = request.transaction(status, &self.coordinator.topics(), moment.now_ms);
        let mut t = match built {
            Ok(t) => t,
            Err(text) => return Outcome::Wrong(text),
        };
        t.durability = self.coordinator.settings.durability;
        t.trace_parent = trace.into();
        let waits = status == Status::Submitted && request.wait_result;
        let result = wait(|done| self.coordinator.submit(t, waits, moment, done)).await;
        match result {
            Ok(report) if waits => waited(&report),
            result => result.into(),
        }
    }

    async fn abort(&self, request: &Request<'_>) -> Outcome {
        let (moment, gid) = (self.moment(), request.gid());
        let reason = request.rollback_reason.as_deref().unwrap_or("");
        let kind = Kind::of_word(&request.trans_type);
        let undo = |t: &mut services::saga::transaction::Transaction| {
            let is_named = t.kind == Kind::Msg || kind == Some(t.kind);
            match is_named {
                true => Ok(machine::abort(t, reason, moment)?),
                false => Err(machine::Refusal::State(t.kind, t.status, "abort").into()),
            }
        };
        let waits = request.wait_result;
        let result = wait(|done| self.coordinator.with(&gid, waits, moment, done, undo)).await;
        match result {
            Ok(report) if waits && !report.status.is_final() => trouble(&report),
            result => result.into(),
        }
    }

    async fn end_workflow(&self, request: &Request<'_>) -> Outcome {
        let (moment, gid) = (self.moment(), request.gid());
        let (status, reason, result) = match request.workflow_end() {
            Ok(end) => end,
            Err(text) => return Outcome::Wrong(text),
        };
        let end = |t: &mut _| Ok(machine::finish_workflow(t, status, reason, result, moment)?);
        wait(|done| self.coordinator.with(&gid, false, moment, done, end)).await.into()
    }

    async fn prepare_workflow(&self, request: &Request<'_>, trace: &str) -> Outcome {
        match self.known_workflow(request, trace).await {
            Err(outcome) => outcome,
            Ok(t) => {
                let shown = view::transaction(&t, &self.coordinator.settings.rules);
                let progresses = view::branches(&t);
                Outcome::Value(json!({ "transaction": shown, "progresses": progresses }))
            }
        }
    }

    pub(super) async fn register(
        &self,
        fields: &BTreeMap<String, String>,
        payload: Option<&[u8]>,
    ) -> Outcome {
        let moment = self.moment();
        let result = wait(|done| self.coordinator.register(fields, payload, moment, done)).await;
        let gid = fields.get("gid").map_or("", String::as_str);
        match result {
            Err(Error::NotFound | Error::Refused(_)) => {
                Outcome::Failure(format!("no trans with gid: {gid} status: prepared found"))
            }
            result => result.into(),
        }
    }

    fn asked(&self, name: &str, parts: &Parts) -> Outcome {
        let (topic, url) = (query(parts, "topic"), query(parts, "url"));
        match name {
            "version" => Outcome::Value(json!({ "version": self.version })),
            "newGid" => Outcome::Value(json!({ "gid": self.new_gid(), "dtm_result": "SUCCESS" })),
            "query" => self.query(&query(parts, "gid")),
            "all" => self.all(parts).into(),
            "resetCronTime" => self.reset(parts).into(),
            "subscribe" => {
                let remark = query(parts, "remark");
                self.topics(|topics| topics.subscribe(&topic, &url, &remark))
            }
            "unsubscribe" => self.topics(|topics| topics.unsubscribe(&topic, &url)),
            "scanKV" => limit(parts)
                .map(|limit| {
                    let (mut page, mut next) = (Vec::new(), String::new());
                    if matches!(query(parts, "cat").as_str(), "" | "topics") {
                        let position = query(parts, "position");
                        (page, next) = view::topics(&self.coordinator.topics(), &position, limit);
                    }
                    Outcome::Value(json!({ "kv": page, "next_position": next }))
                })
                .into(),
            "queryKV" => {
                let (category, key) = (query(parts, "cat"), query(parts, "key"));
                let topics = self.coordinator.topics();
                let is_meant = |name: &str| category == "topics" && (key.is_empty() || key == name);
                let found = topics.0.iter().filter(|(name, _)| is_meant(name));
                let found: Value = found.map(|(name, topic)| view::topic(name, topic)).collect();
                Outcome::Value(json!({ "kv": found }))
            }
            _ => Outcome::Wrong(NO_ROUTE.into()),
        }
    }

    fn query(&self, gid: &str) -> Outcome {
        if gid.is_empty() {
            return Outcome::Wrong("no gid specified".into());
        }
        let known = self.coordinator.get(gid);
        let rules = &self.coordinator.settings.rules;
        let shown = known.as_ref().map_or(Value::Null, |t| view::transaction(t, rules));
        let branches = known.as_ref().map_or(json!([]), view::branches);
        Outcome::Value(json!({ "transaction": shown, "branches": branches }))
    }

    fn all(&self, parts: &Parts) -> Result<Outcome, String> {
        let rules = &self.coordinator.settings.rules;
        let gid = query(parts, "gid");
        if !gid.is_empty() {
            let known = self.coordinator.get(&gid);
            let shown: Option<Vec<Value>> = known.map(|t| vec![view::transaction(&t, rules)]);
            return Ok(Outcome::Value(json!({ "transactions": shown, "next_position": "" })));
        }
        let number = |name: &str| match query(parts, name) {
            text if text.is_empty() => Ok(None),
            text => text.parse::<u64>().map(Some).map_err(|_| format!("{name}: {text}")),
        };
        let word = |name: &str| Some(query(parts, name)).filter(|text| !text.is_empty());
        let mut filter = Filter {
            from_ms: number("createTimeStart")?,
            to_ms: number("createTimeEnd")?,
            before: number("position")?,
            ..Filter::default()
        };
        let (status, kind) = (word("status"), word("transType"));
        filter.status = status.as_deref().and_then(Status::of_word);
        filter.kind = kind.as_deref().and_then(Kind::of_word);
        // A word that is none matches nothing.
        let is_known =
            status.is_some() == filter.status.is_some() && kind.is_some() == filter.kind.is_some();
        let (found, next) = match is_known {
            true => self.coordinator.list(&filter, limit(parts)?),
            false => (Vec::new(), None),
        };
        let shown: Value = found.iter().map(|t| view::transaction(t, rules)).collect();
        let next = next.map_or(String::new(), |next| next.to_string());
        Ok(Outcome::Value(json!({ "transactions": shown, "next_position": next })))
    }

    /// Makes those due now that would be due later than `timeout` seconds from now.
    fn reset(&self, parts: &Parts) -> Result<Outcome, String> {
        let settings = &self.coordinator.settings;
        let limit = limit(parts)?;
        let timeout_s = match query(parts, "timeout") {
            text if text.is_empty() => 3 * u64::from(settings.rules.timeout_to_fail_s),
            text => text.parse().map_err(|_| format!("timeout: {text}"))?,
        };
        let moment = self.moment();
        let late_ms = moment.now_ms + timeout_s * 1000;
        let mut found = Vec::new();
        for status in [Status::Submitted, Status::Aborting, Status::Prepared] {
            let mut filter = Filter { status: Some(status), ..Filter::default() };
            while found.len() <= limit {
                let (page, next) = self.coordinator.list(&filter, PAGE_MAX);
                let is_late = |t: &services::saga::transaction::Transaction| {
                    machine::due_ms(t, &settings.rules).is_some_and(|due| due > late_ms)
                };
                found.extend(page.into_iter().filter(is_late).map(|t| t.gid));
                filter.before = next;
                if next.is_none() {
                    break;
                }
            }
        }
        let has_remaining = found.len() > limit;
        found.truncate(limit);
        for gid in &found {
            self.coordinator.with(gid, false, moment, Box::new(|_| ()), |t| {
                machine::retry_now(t, moment);
                Ok(())
            });
        }
        let count = found.len();
        Ok(Outcome::Value(json!({ "has_remaining": has_remaining, "succeed_count": count })))
    }

    pub(super) fn topics(
        &self,
        change: impl FnOnce(&mut services::saga::topics::Topics) -> Result<Vec<u8>, String>,
    ) -> Outcome {
        self.coordinator.change_topics(change).map(|()| Outcome::Success).into()
    }

    /// A new gid: 22 letters and digits, as dtm's.
    pub(super) fn new_gid(&self) -> String {
        const LETTERS: &[u8; 57] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
        let moment = self.moment();
        let random = self.moment().random;
        let mut bits = u128::from(moment.random) << 64 | u128::from(random ^ moment.now_ms);
        let mut gid = String::with_capacity(22);
        for _ in 0..22 {
            gid.push(char::from(LETTERS[(bits % 57) as usize]));
            bits /= 57;
        }
        gid
    }

    async fn json_rpc(&self, body: &Bytes) -> Response {
        let Ok(call) = parsed::<Value>(body) else {
            let error = json!({ "code": -32700, "message": "Parse json error" });
            return rpc_response(&Value::Null, error, Value::Null);
        };
        let id = &call["id"];
        if call["jsonrpc"] != "2.0" || id.is_null() || id == "" {
            let error = json!({ "code": -32600, "message": format!("Bad json request: {call}") });
            return rpc_response(id, error, Value::Null);
        }
        let name = call["method"].as_str().unwrap_or("");
        let params = call["params"].to_string();
        let outcome = match name {
            "newGid" => Outcome::Value(json!({ "gid": self.new_gid() })),
            "registerBranch" => match serde_json::from_str(&params) {
                Ok(fields) => self.register(&fields, None).await,
                Err(error) => Outcome::Wrong(error.to_string()),
            },
            "prepare" | "submit" | "abort" => match Request::read(params.as_bytes()) {
                Ok(request) => self.requested(name, &request, "").await,
                Err(text) => Outcome::Wrong(text),
            },
            _ => {
                let text = format!("Method not found: {name}");
                let error = json!({ "code": -32601, "message": text });
                return rpc_response(id, error, Value::Null);
            }
        };
        let error = |code: i32, text: String| json!({ "code": code, "message": text });
        match outcome {
            Outcome::Success => rpc_response(id, Value::Null, Value::Null),
            Outcome::Value(value) => rpc_response(id, Value::Null, value),
            Outcome::Failure(text) => {
                rpc_response(id, error(-32901, with_word(&text, "FAILURE")), Value::Null)
            }
            Outcome::Ongoing(text) => {
                rpc_response(id, error(-32902, with_word(&text, "ONGOING")), Value::Null)
            }
            Outcome::Wrong(text) => rpc_response(id, error(-32603, text), Value::Null),
        }
    }
}

const NO_ROUTE: &str = "no such route";

fn nothing_here() -> Response {
    json_response(StatusCode::NOT_FOUND, r#"{"message":"404 page not found"}"#.into())
}

fn rpc_response(id: &Value, error: Value, result: Value) -> Response {
    let body = json!({ "jsonrpc": "2.0", "id": id, "error": error, "result": result });
    json_response(StatusCode::OK, body.to_string())
}

fn limit(parts: &Parts) -> Result<usize, String> {
    match query(parts, "limit") {
        text if text.is_empty() => Ok(PAGE),
        text => {
            let limit: usize = text.parse().map_err(|_| format!("limit: {text}"))?;
            Ok(limit.clamp(1, PAGE_MAX))
        }
    }
}

/// The W3C trace context of a request; "" if it has none: version, trace, span and flags as
/// digits, 55 characters.
pub(super) fn trace_parent(parts: &Parts) -> &str {
    let header = parts.headers.get("traceparent").and_then(|value| value.to_str().ok());
    let is_one = |text: &&str| {
        let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        let is_in_place = |(place, c)| match place {
            2 | 35 | 52 => c == b'-',
            _ => is_digit(c),
        };
        text.len() == 55 && text.bytes().enumerate().all(is_in_place) && !text.starts_with("ff")
    };
    header.filter(is_one).unwrap_or("")
}

/// What who waits for a submitted transaction is told after the first round.
fn waited(report: &Report) -> Outcome {
    if report.status == Status::Succeed {
        return Outcome::Success;
    }
    if !report.reason.is_empty() {
        return Outcome::Failure(report.reason.to_string());
    }
    match report.kind {
        Kind::Saga => Outcome::Failure("wait result not return success:".into()),
        _ => trouble(report),
    }
}

fn trouble(report: &Report) -> Outcome {
    match (&report.trouble, report.kind) {
        (Some((Verdict::Ongoing, _)), Kind::Msg) | (None, _) => {
            Outcome::Failure("wait result not return success:".into())
        }
        (Some((Verdict::Ongoing, text)), _) => Outcome::Ongoing(text.to_string()),
        (Some((_, text)), _) => Outcome::Wrong(text.to_string()),
    }
}
