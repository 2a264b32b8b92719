//! The API of cached tables: Azure Mobile Apps' (`zumo-api-version: 2.0.0`) and Datasync's
//! (`3.0.0`), under `/tables/`.
//!
//! ```text
//!   read.rs      queries and single rows     headers.rs   what every answer says of the cache
//!   write.rs     changes                     openapi.rs   the document, for every table
//! ```

mod headers;
mod openapi;
mod read;
mod write;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use foldhash::fast::RandomState;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};
use services::tables::ask::{Ask, Fault, Served};
use services::tables::query::{self, Shape};
use services::tables::schema::{Operation, Who};
use services::tables::service::Tables as Service;
use services::tables::token::Verifier;

use crate::body::{self, Request, Response};
use crate::exposition::{Kind, Page};
use crate::problem::{empty, problem_with, with_type};

/// Largest body of a request, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
const API_VERSION: HeaderName = HeaderName::from_static("zumo-api-version");
const TOKEN: HeaderName = HeaderName::from_static("x-zumo-auth");
/// What a service says it is; the client libraries want to see one.
const SERVER: HeaderName = HeaderName::from_static("x-zumo-server-version");
const SERVER_VERSION: HeaderValue = HeaderValue::from_static("node-3.0.0");
const BAD_VERSION: &str = "An invalid API version was specified in the request, this request needs \
                           to specify a ZUMO-API-VERSION of 2.0.0.";
/// Headers that scripts of other origins may read.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "Link, ETag, Age, Cache-Status, X-Cache, X-Table-Version, Server-Timing",
);

/// How the door behaves.
#[derive(Debug, Clone, Default)]
pub struct Manner {
    /// Requests without a version are taken as 2.0.0.
    pub skips_version: bool,
    /// Origins whose scripts may call, apart by blanks; `*` = all.
    pub origins: String,
}

/// The service and what belongs to its door.
pub struct Tables {
    /// The service.
    pub service: Arc<Service>,
    verifier: Option<Verifier>,
    manner: Manner,
    document: String,
    /// Addresses that were understood before.
    known: Mutex<HashMap<Box<str>, Arc<Ask>, RandomState>>,
}

/// A request that was let in.
struct Caller {
    shape: Shape,
    user: Option<Arc<str>>,
}

impl Tables {
    /// A door to a service. Without a verifier no token is believed.
    pub fn new(service: Arc<Service>, verifier: Option<Verifier>, manner: Manner) -> Tables {
        let document = openapi::document(&service).to_string();
        Tables { service, verifier, manner, document, known: Mutex::default() }
    }

    /// Metrics of the service, in Prometheus's text format.
    pub(crate) fn metrics(&self) -> String {
        let mut page = Page::default();
        for (name, help, count) in self.service.stats.rows() {
            let name = format!("forebay_tables_{name}_total");
            page.metric(&name, Kind::Counter, help);
            page.sample(&name, &[], count as f64);
        }
        let (count, bytes) = self.service.hot_size();
        let hot = [
            ("forebay_tables_hot_answers", "Answers that lie ready to be sent.", count),
            ("forebay_tables_hot_bytes", "Their bytes.", bytes),
        ];
        for (name, help, number) in hot {
            page.metric(name, Kind::Gauge, help);
            page.sample(name, &[], number as f64);
        }
        page.into_text()
    }

    /// Whether a path is that of a table, or of their document.
    pub(crate) fn has(&self, path: &str) -> bool {
        path.starts_with("/tables/") || path == "/swagger"
    }

    /// Answers a request for such a path.
    pub(crate) async fn answer(self: Arc<Self>, request: Request) -> Response {
        let path = request.uri().path();
        if path == "/swagger" || path == "/tables/openapi.json" {
            return with_type(StatusCode::OK, "application/json", self.document.clone());
        }
        let origin = request.headers().get(header::ORIGIN).cloned();
        let mut response = if *request.method() == Method::OPTIONS {
            preflight(request.headers())
        } else {
            self.run(request).await.unwrap_or_else(|refusal| *refusal)
        };
        let headers = response.headers_mut();
        headers.insert(SERVER, SERVER_VERSION);
        if let Some(origin) = origin {
            self.allow(headers, origin);
        }
        response
    }

    /// What a script of another origin may do.
    fn allow(&self, headers: &mut HeaderMap, origin: HeaderValue) {
        let mut origins = self.manner.origins.split_ascii_whitespace();
        let is_all = self.manner.origins.trim() == "*";
        if is_all || origins.any(|allowed| allowed.as_bytes() == origin.as_bytes()) {
            let origin = if is_all { HeaderValue::from_static("*") } else { origin };
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
            headers.append(header::VARY, HeaderValue::from_static("origin"));
        }
    }

    async fn run(&self, request: Request) -> Result<Response, Box<Response>> {
        let (parts, body) = request.into_parts();
        let caller = self.caller(&parts)?;
        let path = parts.uri.path().strip_prefix("/tables/").unwrap_or_default();
        let (table, id) = match path.split_once('/') {
            None => (path, None),
            Some((_, id)) if id.contains('/') => return Err(nothing("There is nothing here.")),
            Some((table, "")) => (table, None),
            Some((table, id)) => (table, Some(query::decode(&id.replace('+', "%2B")))),
        };
        let Some(served) = self.service.find(table) else {
            return Err(nothing(&format!("There is no table {table:?}.")));
        };
        let id = match id {
            Some(None) => return Err(nothing("The id is not percent-encoded UTF-8.")),
            id => id.flatten(),
        };
        let Some(operation) = operation(&parts.method, caller.shape, id.is_some()) else {
            return Err(not_allowed(&format!("{} does not do here.", parts.method)));
        };
        permit(&served, operation, &caller)?;
        if operation == Operation::Read {
            return self.read(&parts, &served, id, &caller).await;
        }
        let body = body::read(body, BODY_BYTES_MAX).await.map_err(|_| {
            let why = format!("a body has {BODY_BYTES_MAX} bytes at most");
            refuse(StatusCode::PAYLOAD_TOO_LARGE, &why, &[])
        })?;
        let served = self.widened(served, operation, &body).await?;
        self.write(&parts, &served, operation, id, &caller, &body).await
    }

    /// Which version a request speaks, and for whom.
    fn caller(&self, parts: &Parts) -> Result<Caller, Box<Response>> {
        let header = parts.headers.get(API_VERSION).and_then(|value| value.to_str().ok());
        let version = header.map(Cow::Borrowed).or_else(|| {
            let pairs = parts.uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
            let found =
                pairs.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(API_VERSION.as_str()));
            query::decode(found?.1).map(Cow::Owned)
        });
        let shape = match version.as_deref() {
            Some("3.0.0") => Shape::Datasync3,
            Some(version) if is_two(version) => Shape::Zumo2,
            None if self.manner.skips_version => Shape::Zumo2,
            _ => return Err(refuse(StatusCode::BAD_REQUEST, BAD_VERSION, &[])),
        };
        Ok(Caller { shape, user: self.user(&parts.headers)? })
    }

    fn user(&self, headers: &HeaderMap) -> Result<Option<Arc<str>>, Box<Response>> {
        let token = headers.get(TOKEN).and_then(|value| value.to_str().ok());
        let bearer = || {
            let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        };
        let Some(token) = token.or_else(bearer) else { return Ok(None) };
        let verifier = self.verifier.as_ref();
        let verifier = verifier.ok_or_else(|| unauthorized("tokens are not taken here"))?;
        verifier.user(token, self.service.now_ms()).map(Some).map_err(unauthorized)
    }
}

fn is_two(version: &str) -> bool {
    version
        .strip_prefix("2.0.")
        .is_some_and(|patch| !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What a method does.
fn operation(method: &Method, shape: Shape, has_id: bool) -> Option<Operation> {
    Some(match (method.as_str(), shape) {
        ("GET" | "HEAD", _) => Operation::Read,
        ("POST", _) if has_id => Operation::Undelete,
        ("POST", _) => Operation::Insert,
        ("PATCH", _) => Operation::Update,
        ("PUT", Shape::Datasync3) if has_id => Operation::Update,
        ("DELETE", _) => Operation::Delete,
        _ => return None,
    })
}

fn permit(served: &Served, operation: Operation, caller: &Caller) -> Result<(), Box<Response>> {
    let table = &served.table;
    let who = table.access.of(operation);
    if who == Who::Disabled {
        let why = format!("table {:?}: {} is disabled", table.name, operation.word());
        return Err(not_allowed(&why));
    }
    if caller.user.is_none() && (who == Who::Authenticated || table.owner.is_some()) {
        return Err(unauthorized("a token is needed: x-zumo-auth"));
    }
    Ok(())
}

/// A refusal: problem+json, with `error` as the client libraries of version 2 read it.
fn refuse(status: StatusCode, detail: &str, more: &[(&str, Value)]) -> Box<Response> {
    let mut all = vec![("error", json!(detail))];
    all.extend_from_slice(more);
    Box::new(problem_with(status, detail, &all))
}

fn nothing(why: &str) -> Box<Response> {
    refuse(StatusCode::NOT_FOUND, why, &[])
}

fn unauthorized(why: &str) -> Box<Response> {
    let mut response = refuse(StatusCode::UNAUTHORIZED, why, &[]);
    let scheme = HeaderValue::from_static("Bearer");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    response
}

fn not_allowed(why: &str) -> Box<Response> {
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, why, &[]);
    let methods = HeaderValue::from_static("GET, HEAD, POST, PATCH, PUT, DELETE, OPTIONS");
    response.headers_mut().insert(header::ALLOW, methods);
    response
}

/// What a fault of the service is in HTTP.
fn faulty(fault: &Fault) -> Box<Response> {
    use services::database::DatabaseError::{Duplicate, Refused};
    let (status, detail) = match fault {
        Fault::NotKept => (StatusCode::GATEWAY_TIMEOUT, "there is no kept answer".to_string()),
        Fault::Busy(why) => (StatusCode::SERVICE_UNAVAILABLE, (*why).to_string()),
        Fault::Behind => {
            let why = "the database has not come to that version of the table yet";
            (StatusCode::SERVICE_UNAVAILABLE, why.to_string())
        }
        Fault::Database(error @ (Refused(_) | Duplicate(_))) => {
            tracing::warn!("tables: {error}");
            let why = "the database does not do this; the server's log says why";
            (StatusCode::INTERNAL_SERVER_ERROR, why.to_string())
        }
        Fault::Database(error) => {
            tracing::warn!("tables: {error}");
            (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer".to_string())
        }
    };
    let mut response = refuse(status, &detail, &[]);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(1));
    }
    response
}

fn preflight(asked: &HeaderMap) -> Response {
    let mut response = empty(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static("GET, HEAD, POST, PATCH, PUT, DELETE");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    if let Some(names) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from(300));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_two_or_three() {
        for (version, is) in [("2.0.0", true), ("2.0.17", true), ("2.0.", false), ("2.0.x", false)]
        {
            assert_eq!(is_two(version), is, "{version}");
        }
    }
}
