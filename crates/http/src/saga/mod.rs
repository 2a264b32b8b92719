//! Sagas over HTTP: dtm's API under `/api`, so that dtm's clients work unchanged, and our own
//! under `/v1/sagas`.
//!
//! With an API key set, every route asks for it: `authorization: Bearer KEY` or `x-api-key: KEY`.

pub(crate) mod caller;
pub(crate) mod client;
mod dtm;
mod grpc;
mod grpc_api;
mod grpc_call;
mod metrics;
mod native;
pub mod protobuf;
mod served;
mod targets;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts};
use services::saga::coordinator::{Coordinator, Done, Error, Report};
use services::saga::policy::Moment;
use tokio::sync::{oneshot, watch};

use crate::body::{self, Request, Response};
use crate::problem::{problem, with_type};
use crate::routes::Doors;

pub use caller::{Calls, Clock, HttpCaller, Steps};
pub use client::{Guard, Trust};
pub use served::Served;
pub use targets::Limits;

/// Largest body, in bytes.
const BODY_BYTES_MAX: usize = 16 << 20;

/// The coordinator and what belongs to its door.
pub struct Saga {
    /// The coordinator; started.
    pub coordinator: Arc<Coordinator>,
    /// Makes its calls.
    pub caller: Arc<HttpCaller>,
    /// Its time.
    pub clock: Arc<Clock>,
    /// What clients have to show; empty = nothing.
    pub api_key: String,
    /// The server's version, as dtm's `version` tells it.
    pub version: &'static str,
    /// Where gRPC is served, if it is; not blocking.
    pub grpc: Option<TcpListener>,
    /// What was served.
    pub served: Served,
}

impl Saga {
    /// Begins to work in the runtime that this is called in.
    pub(crate) fn attach(&self) {
        let handle = tokio::runtime::Handle::current();
        self.caller.attach(handle, Arc::clone(&self.coordinator));
    }

    /// Takes gRPC's connections in the runtime that this is called in as well.
    pub(crate) fn serve_grpc(&self, doors: &Arc<Doors>, stopped: &watch::Receiver<bool>) {
        let Some(listener) = &self.grpc else { return };
        match listener.try_clone() {
            Ok(listener) => {
                tokio::spawn(grpc::serve(listener, Arc::clone(doors), stopped.clone()));
            }
            Err(error) => tracing::error!(%error, "gRPC ends"),
        }
    }

    /// Whether a path is one of the routes'.
    pub(crate) fn has(&self, path: &str) -> bool {
        path.starts_with("/api/") || path.starts_with("/v1/sagas") || path == "/v1/dead-letters"
    }

    /// Answers a request for one of the routes.
    pub(crate) async fn answer(self: Arc<Self>, request: Request) -> Response {
        let is_dtm = request.uri().path().starts_with("/api/");
        if !self.admits(request.headers()) {
            let mut response = problem(StatusCode::UNAUTHORIZED, "An API key is needed.");
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
            return response;
        }
        let (parts, body) = request.into_parts();
        let Ok(body) = body::read(body, BODY_BYTES_MAX).await else {
            let why = format!("a body has {BODY_BYTES_MAX} bytes at most");
            return problem(StatusCode::PAYLOAD_TOO_LARGE, &why);
        };
        if !is_dtm {
            return self.native(&parts, body).await;
        }
        let began = Instant::now();
        let response = self.dtm(&parts, body).await;
        let is_ok = response.status().as_u16() < 400;
        self.served.count_http(parts.uri.path(), is_ok, began.elapsed());
        response
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let bearer = text("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let shown = bearer.or(text("x-api-key")).unwrap_or("");
        let (shown, wanted) = (shown.as_bytes(), self.api_key.as_bytes());
        // As long for a wrong key as for a right one.
        let pairs = wanted.iter().zip(shown.iter().chain(std::iter::repeat(&0)));
        let difference = pairs.fold(0, |difference, (a, b)| difference | (a ^ b));
        wanted.is_empty() || shown.len() == wanted.len() && difference == 0
    }

    fn moment(&self) -> Moment {
        self.clock.moment()
    }

    /// All metrics of sagas, in Prometheus's text format.
    pub fn metrics(&self) -> String {
        metrics::page(&self.coordinator, &self.served, self.version)
    }
}

/// Waits for something that the coordinator answers, from another thread or at once.
async fn wait(ask: impl FnOnce(Done)) -> Result<Report, Error> {
    let (sender, receiver) = oneshot::channel();
    ask(Box::new(move |result| {
        // If nobody waits any more, the client has gone.
        let _ = sender.send(result);
    }));
    receiver.await.unwrap_or(Err(Error::Log))
}

fn json(status: StatusCode, body: String) -> Response {
    with_type(status, "application/json; charset=utf-8", body)
}

/// A body as JSON; empty is an empty object.
fn parsed<T: serde::de::DeserializeOwned>(body: &Bytes) -> Result<T, String> {
    let body: &[u8] = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| format!("the request: {error}"))
}

/// A value of the query; "" if it is not there.
fn query(parts: &Parts, name: &str) -> String {
    crate::query::value(parts.uri.query(), name).unwrap_or_default()
}
