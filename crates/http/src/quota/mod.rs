//! The API of metered ingest: routes as a table, from which the OpenAPI document comes, too.

mod auth;
mod events;
mod headers;
mod manage;
mod metrics;
mod openapi;
mod relay;
mod webhooks;

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use services::database::Database;
use services::quota::answer::Refusal;
use services::quota::secret::hex;
use services::quota::service::Service;
use tokio::sync::oneshot;

use crate::body::{self, Request, Response};
use crate::problem::{problem, refused, with_type};
use crate::saga::Guard;

/// Largest body, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The service and what belongs to its door.
pub struct Quota {
    /// The service.
    pub service: Arc<Service>,
    /// Whether the older RateLimit-Limit, -Remaining and -Reset are sent, too.
    pub sends_older_headers: bool,
    /// Which addresses webhooks may have.
    pub guard: Guard,
    /// The document, made once.
    document: String,
    prefix: u32,
    count: std::sync::atomic::AtomicU32,
}

/// What a route does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    Ingest,
    OpenSession,
    CloseSession,
    OwnQuota,
    GetQuota,
    PutQuota,
    Usage,
    Adjust,
    Keys,
    MakeKey,
    DisableKey,
    Audit,
    Webhooks,
    MakeWebhook,
    RemoveWebhook,
    TestWebhook,
    RotateSecret,
    Deliveries,
    Verify,
    Document,
    Page,
}

/// One route.
pub(crate) struct Route {
    pub method: Method,
    /// Segments in braces stand for any one segment.
    pub path: &'static str,
    pub run: Run,
    pub doc: &'static str,
}

const fn route(method: Method, path: &'static str, run: Run, doc: &'static str) -> Route {
    Route { method, path, run, doc }
}

/// All routes; the hot one first.
pub(crate) const ROUTES: &[Route] = &[
    route(Method::POST, "/v1/events", Run::Ingest, "Stores and counts records."),
    route(Method::POST, "/v1/sessions", Run::OpenSession, "Opens a session for a key."),
    route(
        Method::DELETE,
        "/v1/sessions/{session}",
        Run::CloseSession,
        "Ends a session; tells what it has accepted.",
    ),
    route(Method::GET, "/v1/quota", Run::OwnQuota, "Where the key's own organisation stands."),
    route(
        Method::GET,
        "/v1/orgs/{org}/quota",
        Run::GetQuota,
        "An organisation's plan and where it stands.",
    ),
    route(
        Method::PUT,
        "/v1/orgs/{org}/quota",
        Run::PutQuota,
        "Makes an organisation, or gives it another plan.",
    ),
    route(
        Method::POST,
        "/v1/orgs/{org}/quota/adjust",
        Run::Adjust,
        "Adds to the counter of the present period, or takes from it.",
    ),
    route(
        Method::GET,
        "/v1/orgs/{org}/usage",
        Run::Usage,
        "Records and their cost by window, as JSON or CSV.",
    ),
    route(Method::GET, "/v1/orgs/{org}/keys", Run::Keys, "An organisation's API keys."),
    route(
        Method::POST,
        "/v1/orgs/{org}/keys",
        Run::MakeKey,
        "Makes an API key; its secret is told this once.",
    ),
    route(Method::DELETE, "/v1/orgs/{org}/keys/{key}", Run::DisableKey, "Disables an API key."),
    route(
        Method::GET,
        "/v1/orgs/{org}/webhooks",
        Run::Webhooks,
        "Who is told when a threshold is passed.",
    ),
    route(
        Method::POST,
        "/v1/orgs/{org}/webhooks",
        Run::MakeWebhook,
        "Makes a webhook; its secret is told this once.",
    ),
    route(
        Method::DELETE,
        "/v1/orgs/{org}/webhooks/{webhook}",
        Run::RemoveWebhook,
        "Removes a webhook and what waits for it.",
    ),
    route(
        Method::POST,
        "/v1/orgs/{org}/webhooks/{webhook}/test",
        Run::TestWebhook,
        "Sends a webhook a message of type webhook.test.",
    ),
    route(
        Method::POST,
        "/v1/orgs/{org}/webhooks/{webhook}/secret",
        Run::RotateSecret,
        "Gives a webhook another secret, told this once; the old one signs for a day, too.",
    ),
    route(
        Method::GET,
        "/v1/orgs/{org}/deliveries",
        Run::Deliveries,
        "The log of what webhooks were sent, newest first.",
    ),
    route(Method::GET, "/v1/audit", Run::Audit, "What was done, newest first."),
    route(
        Method::GET,
        "/v1/verify",
        Run::Verify,
        "Compares rows, counters and memory; 200 whether they agree or not.",
    ),
    route(Method::GET, "/openapi.json", Run::Document, "This document."),
    route(Method::GET, "/v1/docs", Run::Page, "The routes, to be read."),
];

/// The segments of a path that stand where a route has braces, if the path is that route's.
fn fits<'p>(pattern: &str, path: &'p str) -> Option<[&'p str; 2]> {
    let mut found = ["", ""];
    // What the hot route comes to.
    if pattern == path && !pattern.contains('{') {
        return Some(found);
    }
    let mut count = 0;
    let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
    loop {
        match (pattern.next(), path.next()) {
            (None, None) => return Some(found),
            (Some(want), Some(segment)) if want.starts_with('{') && !segment.is_empty() => {
                found[count] = segment;
                count += 1;
            }
            (Some(want), Some(segment)) if want == segment => {}
            _ => return None,
        }
    }
}

/// What is to be run for a request, with the segments that its route leaves open; or the methods
/// that do at its path.
fn found<'p>(method: &Method, path: &'p str) -> Result<(Run, [&'p str; 2]), Vec<&'static str>> {
    let mut allowed = Vec::new();
    for route in ROUTES {
        let Some(names) = fits(route.path, path) else { continue };
        if route.method == *method {
            return Ok((route.run, names));
        }
        allowed.push(route.method.as_str());
    }
    Err(allowed)
}

impl Quota {
    /// A door to a service; `prefix` makes this process's request ids its own.
    pub fn new(
        service: Arc<Service>,
        sends_older_headers: bool,
        guard: Guard,
        prefix: u32,
    ) -> Quota {
        let document = openapi::document().to_string();
        let count = std::sync::atomic::AtomicU32::new(0);
        Quota { service, sends_older_headers, guard, document, prefix, count }
    }

    /// Whether a path is one of the API's.
    pub(crate) fn has(&self, path: &str) -> bool {
        path.starts_with("/v1/") || path == "/openapi.json"
    }

    /// Answers a request for a path of the API.
    pub(crate) async fn answer(self: Arc<Self>, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let mut response = match found(&parts.method, parts.uri.path()) {
            Err(allowed) => not_here(&allowed),
            Ok((run, names)) => match body::read(body, BODY_BYTES_MAX).await {
                Err(body::NotRead) => {
                    let why = format!("a body has {BODY_BYTES_MAX} bytes at most");
                    refused(&Refusal::TooLarge(why))
                }
                Ok(body) if run == Run::Ingest => self.ingest(&parts, &body).await,
                // Boxed: a record's future is moved, and would have room for the largest of these.
                Ok(body) => Box::pin(self.manage(run, names, &parts, &body)).await,
            },
        };
        response.headers_mut().insert(REQUEST_ID, self.request_id(&parts.headers));
        response
    }

    /// All routes but the hot one.
    async fn manage(&self, run: Run, names: [&str; 2], parts: &Parts, body: &[u8]) -> Response {
        let [one, two] = names.map(crate::query::decode);
        let result = match run {
            Run::Ingest => return self.ingest(parts, body).await,
            Run::OpenSession => self.open_session(parts, body).await,
            Run::CloseSession => self.close_session(parts, &one).await,
            Run::OwnQuota => self.own_quota(parts).await,
            Run::GetQuota => self.get_quota(parts, one).await,
            Run::PutQuota => self.put_quota(parts, one, body).await,
            Run::Usage => self.usage(parts, one).await,
            Run::Adjust => self.adjust(parts, one, body).await,
            Run::Keys => self.keys(parts, one).await,
            Run::MakeKey => self.make_key(parts, one, body).await,
            Run::DisableKey => self.disable_key(parts, one, two).await,
            Run::Audit => self.audit(parts).await,
            Run::Webhooks => self.webhooks(parts, one).await,
            Run::MakeWebhook => self.make_webhook(parts, one, body).await,
            Run::RemoveWebhook => self.remove_webhook(parts, one, two).await,
            Run::TestWebhook => self.test_webhook(parts, one, two).await,
            Run::RotateSecret => self.rotate_secret(parts, one, two, body).await,
            Run::Deliveries => self.deliveries(parts, one).await,
            Run::Verify => self.verify(parts).await,
            Run::Document => Ok(json(StatusCode::OK, self.document.clone())),
            Run::Page => Ok(with_type(StatusCode::OK, "text/html; charset=utf-8", openapi::page())),
        };
        result.unwrap_or_else(|refusal| refused(&refusal))
    }

    /// Runs something at the service's desk; its result.
    async fn at_desk<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Service, &mut dyn Database) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        wait(|done| self.service.desk(run, done)).await
    }

    /// Runs something between two of the service's transactions; its result.
    async fn alone<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Service, &mut dyn Database) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        wait(|done| self.service.between_transactions(run, done)).await
    }

    /// The client's own id for its request if it makes sense as one, else a new one.
    fn request_id(&self, headers: &HeaderMap) -> HeaderValue {
        let own = headers.get(REQUEST_ID).filter(|id| {
            let is_good = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
            (1..=128).contains(&id.len()) && id.as_bytes().iter().all(is_good)
        });
        if let Some(id) = own {
            return id.clone();
        }
        let count = self.count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let number = u64::from(self.prefix) << 32 | u64::from(count);
        let id = hex(&number.to_be_bytes());
        HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("none"))
    }
}

fn not_here(allowed: &[&str]) -> Response {
    if allowed.is_empty() {
        return problem(StatusCode::NOT_FOUND, "There is nothing here; see /v1/docs.");
    }
    let methods = allowed.join(", ");
    let mut response =
        problem(StatusCode::METHOD_NOT_ALLOWED, &format!("Only {methods} does here."));
    if let Ok(methods) = HeaderValue::from_str(&methods) {
        response.headers_mut().insert(header::ALLOW, methods);
    }
    response
}

fn json(status: StatusCode, body: String) -> Response {
    with_type(status, "application/json", body)
}

/// The JSON of a body.
fn parsed<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let body = if body.is_empty() { b"{}" } else { body };
    let why = |error| Refusal::Malformed(format!("the body does not make sense: {error}"));
    serde_json::from_slice(body).map_err(why)
}

/// Takes the result of something; once.
type Take<T> = Box<dyn FnOnce(Result<T, Refusal>) + Send>;

/// Waits for something that the service answers from another thread.
async fn wait<T: Send + 'static>(ask: impl FnOnce(Take<T>)) -> Result<T, Refusal> {
    let (sender, receiver) = oneshot::channel();
    ask(Box::new(move |result| {
        // If nobody waits any more, the client has gone.
        let _ = sender.send(result);
    }));
    receiver.await.unwrap_or_else(|_| {
        let detail = "the server is about to end".to_string();
        Err(Refusal::Busy { detail, retry_after_s: 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_find_their_routes() {
        assert_eq!(fits("/v1/events", "/v1/events"), Some(["", ""]));
        assert_eq!(fits("/v1/orgs/{org}/keys/{key}", "/v1/orgs/a/keys/b"), Some(["a", "b"]));
        for path in ["/v1/orgs//keys/b", "/v1/orgs/a/keys", "/v1/orgs/a/keys/b/c", "/v1/orgs/a/x/b"]
        {
            assert_eq!(fits("/v1/orgs/{org}/keys/{key}", path), None, "{path}");
        }
    }
}
