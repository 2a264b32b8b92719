//! Our own API: `/v1/sagas`, with problem+json for what is refused.
//!
//! ```text
//!   POST /v1/sagas                         201 taken on; 200 with "wait": finished or as it stands
//!   GET  /v1/sagas?status&hold&name&kind&older_than_s&limit&cursor
//!   GET  /v1/sagas/{gid}                   with branches and timeline
//!   POST /v1/sagas/{gid}:VERB              retry skip force compensate cancel pause resume stop
//!   POST /v1/sagas:bulk                    {"filter":{...},"verb":"retry","dry_run":true}
//!   GET  /v1/dead-letters                  what waits for an operator
//! ```

use bytes::Bytes;
use http::{Method, StatusCode, request::Parts};
use serde::Deserialize;
use serde_json::{Value, json};
use services::saga::coordinator::Error;
use services::saga::index::Filter;
use services::saga::submission::{Request, Step};
use services::saga::verbs::Verb;
use services::saga::view;
use services::saga::words::{Durability, Hold, Kind, Status};

use super::{Saga, json as json_response, parsed, query, wait};
use crate::body::Response;
use crate::problem::problem;

const PAGE: usize = 50;
const PAGE_MAX: usize = 1000;
/// Transactions that one bulk request touches.
const BULK_MAX: usize = 10_000;

#[derive(Deserialize)]
struct Submission {
    gid: Option<String>,
    #[serde(default)]
    name: String,
    steps: Vec<OwnStep>,
    #[serde(default)]
    wait: bool,
    #[serde(default)]
    concurrent: bool,
    durability: Option<String>,
    #[serde(default)]
    timeout_s: i64,
    #[serde(default)]
    request_timeout_s: i64,
    #[serde(default)]
    retry_interval_s: i64,
    #[serde(default)]
    headers: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct OwnStep {
    /// An address, or `{"redis": [...]}`, `{"lua": ...}`, `{"sql": ...}`.
    #[serde(default)]
    action: Value,
    #[serde(default)]
    compensate: Value,
    #[serde(default)]
    payload: Value,
    /// Steps, counted from 0, that come before this one.
    #[serde(default)]
    depends_on: Vec<u16>,
}

#[derive(Deserialize, Default)]
struct BulkFilter {
    status: Option<String>,
    hold: Option<String>,
    name: Option<String>,
    kind: Option<String>,
    older_than_s: Option<u64>,
}

#[derive(Deserialize)]
struct Bulk {
    filter: BulkFilter,
    verb: String,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize, Default)]
struct VerbBody {
    branch: Option<u16>,
    by: Option<String>,
}

fn refused(error: &Error) -> Response {
    let status = match error {
        Error::NotFound => StatusCode::NOT_FOUND,
        Error::Refused(_) => StatusCode::CONFLICT,
        Error::Different => StatusCode::UNPROCESSABLE_ENTITY,
        Error::Invalid(_) => StatusCode::BAD_REQUEST,
        Error::Full(_) | Error::Log => StatusCode::SERVICE_UNAVAILABLE,
    };
    problem(status, &error.text())
}

fn bad(text: &str) -> Response {
    problem(StatusCode::BAD_REQUEST, text)
}

impl Saga {
    pub(super) async fn native(&self, parts: &Parts, body: Bytes) -> Response {
        let path = parts.uri.path();
        let rest = path.strip_prefix("/v1/sagas").unwrap_or("");
        match (&parts.method, rest) {
            (&Method::GET, "") if path == "/v1/dead-letters" => {
                self.page(parts, Filter { hold: Some(Hold::Dead), ..Filter::default() })
            }
            (&Method::GET, "") => match self.filter(parts) {
                Ok(filter) => self.page(parts, filter),
                Err(text) => bad(&text),
            },
            (&Method::POST, "") => self.post(parts, &body).await,
            (&Method::POST, ":bulk") => self.bulk(&body).await,
            (method, rest) => match rest.strip_prefix('/') {
                Some(gid) if *method == Method::GET => self.show(&crate::query::decode(gid)),
                Some(rest) if *method == Method::POST => match rest.rsplit_once(':') {
                    Some((gid, verb)) => self.verb(&crate::query::decode(gid), verb, &body).await,
                    None => bad("a verb follows the gid: /v1/sagas/{gid}:retry"),
                },
                _ => problem(StatusCode::NOT_FOUND, "There is nothing here."),
            },
        }
    }

    async fn post(&self, parts: &Parts, body: &Bytes) -> Response {
        let asked: Submission = match parsed(body) {
            Ok(asked) => asked,
            Err(text) => return bad(&text),
        };
        let moment = self.moment();
        let header = |name: &str| {
            let value = parts.headers.get(name).and_then(|value| value.to_str().ok());
            value.map(str::to_string)
        };
        let own = asked.gid.clone().or(header("idempotency-key"));
        let gid = own.unwrap_or_else(|| self.new_gid());
        let request = match own_request(&asked, &gid) {
            Ok(request) => request,
            Err(text) => return bad(&text),
        };
        let built =
            request.transaction(Status::Submitted, &self.coordinator.topics(), moment.now_ms);
        let mut t = match built {
            Ok(t) => t,
            Err(text) => return bad(&text),
        };
        t.durability = match asked.durability.as_deref().map(Durability::of_word) {
            None => self.coordinator.settings.durability,
            Some(Some(durability)) => durability,
            Some(None) => return bad("durability is none, everysec or always"),
        };
        t.trace_parent = super::dtm::trace_parent(parts).into();
        let is_known = self.coordinator.get(&gid).is_some();
        let result = wait(|done| self.coordinator.submit(t, asked.wait, moment, done)).await;
        let shown = self.coordinator.get(&gid);
        match (result, shown) {
            // Finished already: the same request again gets the same answer.
            (Ok(_) | Err(Error::Refused(_)), Some(t)) => {
                let status =
                    if asked.wait || is_known { StatusCode::OK } else { StatusCode::CREATED };
                let shown = view::detail(&t, &self.coordinator.settings.rules);
                json_response(status, shown.to_string())
            }
            (Err(error), _) => refused(&error),
            (Ok(_), None) => refused(&Error::NotFound),
        }
    }

    fn show(&self, gid: &str) -> Response {
        match self.coordinator.get(gid) {
            None => refused(&Error::NotFound),
            Some(t) => {
                let shown = view::detail(&t, &self.coordinator.settings.rules);
                json_response(StatusCode::OK, shown.to_string())
            }
        }
    }

    fn filter(&self, parts: &Parts) -> Result<Filter, String> {
        let word = |name: &str| Some(query(parts, name)).filter(|text| !text.is_empty());
        let older_than_s = match word("older_than_s") {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| format!("older_than_s: {text}"))?),
        };
        let (status, hold, name, kind) = (word("status"), word("hold"), word("name"), word("kind"));
        self.filter_of(&BulkFilter { status, hold, name, kind, older_than_s })
    }

    fn filter_of(&self, asked: &BulkFilter) -> Result<Filter, String> {
        fn known<T>(
            name: &str,
            word: &Option<String>,
            of_word: fn(&str) -> Option<T>,
        ) -> Result<Option<T>, String> {
            let value = word.as_deref().map(|word| of_word(word).ok_or(format!("{name}: {word}")));
            value.transpose()
        }
        let now_ms = self.moment().now_ms;
        Ok(Filter {
            status: known("status", &asked.status, Status::of_word)?,
            hold: known("hold", &asked.hold, Hold::of_word)?,
            kind: known("kind", &asked.kind, Kind::of_word)?,
            name: asked.name.as_deref().map(Into::into),
            to_ms: asked.older_than_s.map(|seconds| now_ms.saturating_sub(seconds * 1000)),
            ..Filter::default()
        })
    }

    fn page(&self, parts: &Parts, mut filter: Filter) -> Response {
        let number = |name: &str, default: u64| match query(parts, name) {
            text if text.is_empty() => Ok(default),
            text => text.parse().map_err(|_| format!("{name}: {text} is no number")),
        };
        let (limit, before) = match (number("limit", PAGE as u64), number("cursor", u64::MAX)) {
            (Ok(limit), Ok(before)) => (limit, before),
            (Err(text), _) | (_, Err(text)) => return bad(&text),
        };
        filter.before = Some(before).filter(|&before| before != u64::MAX);
        let limit = usize::try_from(limit).unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
        let (found, next) = self.coordinator.list(&filter, limit);
        let rules = &self.coordinator.settings.rules;
        let shown: Value = found.iter().map(|t| view::summary(t, rules)).collect();
        let next = next.map(|next| next.to_string());
        json_response(StatusCode::OK, json!({ "sagas": shown, "cursor": next }).to_string())
    }

    async fn verb(&self, gid: &str, verb: &str, body: &Bytes) -> Response {
        let Some(verb) = Verb::of_word(verb) else { return bad(&format!("unknown verb: {verb}")) };
        let asked: VerbBody = match parsed(body) {
            Ok(asked) => asked,
            Err(text) => return bad(&text),
        };
        let who = asked.by.as_deref().unwrap_or("http");
        let moment = self.moment();
        let coordinator = &self.coordinator;
        let result =
            wait(|done| coordinator.operate(gid, verb, asked.branch, who, moment, done)).await;
        match result {
            Ok(_) => self.show(gid),
            Err(error) => refused(&error),
        }
    }

    async fn bulk(&self, body: &Bytes) -> Response {
        let asked: Bulk = match parsed(body) {
            Ok(asked) => asked,
            Err(text) => return bad(&text),
        };
        let Some(verb) = Verb::of_word(&asked.verb) else {
            return bad(&format!("unknown verb: {}", asked.verb));
        };
        let mut filter = match self.filter_of(&asked.filter) {
            Ok(filter) => filter,
            Err(text) => return bad(&text),
        };
        let mut gids = Vec::new();
        loop {
            let (page, next) = self.coordinator.list(&filter, PAGE_MAX);
            let open = page.into_iter().filter(|t| !t.status.is_final());
            gids.extend(open.map(|t| t.gid));
            filter.before = next;
            if next.is_none() || gids.len() >= BULK_MAX {
                break;
            }
        }
        gids.truncate(BULK_MAX);
        let matched = gids.len();
        if asked.dry_run {
            let body = json!({ "matched": matched, "dry_run": true });
            return json_response(StatusCode::OK, body.to_string());
        }
        let mut results = Vec::new();
        for gid in gids {
            let moment = self.moment();
            let coordinator = &self.coordinator;
            let done =
                wait(|done| coordinator.operate(&gid, verb, None, "http bulk", moment, done)).await;
            let outcome = done.map_or_else(|error| error.text(), |_| "done".into());
            results.push(json!({ "gid": &*gid, "result": outcome }));
        }
        let body = json!({ "matched": matched, "results": results });
        json_response(StatusCode::OK, body.to_string())
    }
}

/// Our own form as dtm's.
fn own_request<'a>(asked: &'a Submission, gid: &'a str) -> Result<Request<'a>, String> {
    let payload = |step: &OwnStep| match &step.payload {
        Value::Null => "".into(),
        Value::String(text) => text.clone().into(),
        other => other.to_string().into(),
    };
    let orders = asked.steps.iter().enumerate().filter(|(_, step)| !step.depends_on.is_empty());
    let orders: serde_json::Map<String, Value> =
        orders.map(|(index, step)| (index.to_string(), json!(step.depends_on))).collect();
    let concurrent = asked.concurrent || !orders.is_empty();
    let has_references = |step: &OwnStep| {
        let values = [&step.action, &step.compensate, &step.payload];
        values.iter().any(|value| value.to_string().contains("${"))
    };
    let outputs = asked.steps.iter().any(has_references);
    let custom = json!({ "concurrent": concurrent, "orders": orders, "outputs": outputs });
    let steps = asked.steps.iter().map(|step| {
        let (action, compensate) = (address(&step.action)?, address(&step.compensate)?);
        Ok(Step { action, compensate, data: "".into() })
    });
    Ok(Request {
        gid: gid.into(),
        trans_type: "saga".into(),
        name: asked.name.as_str().into(),
        steps: Some(steps.collect::<Result<_, String>>()?),
        payloads: Some(asked.steps.iter().map(payload).collect()),
        custom_data: (concurrent || outputs).then(|| custom.to_string()),
        timeout_to_fail: asked.timeout_s,
        request_timeout: asked.request_timeout_s,
        retry_interval: asked.retry_interval_s,
        branch_headers: Some(asked.headers.clone()),
        ..Request::default()
    })
}

/// A step's address as it is kept.
fn address(step: &Value) -> Result<std::borrow::Cow<'_, str>, String> {
    match step {
        Value::Null => Ok("".into()),
        Value::String(url) => Ok(url.as_str().into()),
        Value::Object(fields) if fields.contains_key("sql") => Ok(format!("sql:{step}").into()),
        Value::Object(fields) if fields.contains_key("lua") => Ok(format!("redis:{step}").into()),
        Value::Object(fields) => match fields.get("redis") {
            Some(words) => Ok(format!("redis:{words}").into()),
            None => Err("a step is an address, or has redis, lua or sql".into()),
        },
        _ => Err("a step is an address, or has redis, lua or sql".into()),
    }
}
