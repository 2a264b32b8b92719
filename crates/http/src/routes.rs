//! The routes, as a table, and what they answer.

use std::sync::Arc;

use http::{HeaderValue, Method, StatusCode, Uri, header};
use serde_json::{Value, json};

use crate::Status;
use crate::alone;
use crate::body::{Request, Response};
use crate::problem::{problem, with_type};
use crate::quota::Quota;
use crate::saga::Saga;
use crate::serve::{Answer, Answering};
use crate::tables::Tables;

type Run = fn(&Doors, &Uri) -> Response;

struct Route {
    path: &'static str,
    run: Run,
    doc: &'static str,
}

/// All are for GET and HEAD.
const ROUTES: &[Route] = &[
    Route { path: "/", run: index, doc: "This list." },
    Route { path: "/livez", run: livez, doc: "Whether the process answers." },
    Route { path: "/readyz", run: readyz, doc: "Whether clients shall be sent here; ?verbose." },
    Route { path: "/healthz", run: readyz, doc: "The same as /readyz." },
    Route { path: "/metrics", run: metrics, doc: "Metrics for Prometheus." },
];

/// What the routes answer from.
pub(crate) struct Doors {
    pub status: Arc<dyn Status>,
    pub quota: Option<Arc<Quota>>,
    pub saga: Option<Arc<Saga>>,
    pub tables: Option<Arc<Tables>>,
}

/// All routes over one server.
pub(crate) fn routes(doors: Arc<Doors>) -> Answer {
    Arc::new(move |request| answer(&doors, request))
}

/// Each service's future has a box of its own: one that has room for any of them would be moved
/// about with every request.
fn answer(doors: &Doors, request: Request) -> Answering {
    alone::begin();
    let path = request.uri().path();
    if let Some(tables) = doors.tables.as_ref().filter(|tables| tables.has(path)) {
        return Box::pin(Arc::clone(tables).answer(request));
    }
    if let Some(saga) = doors.saga.as_ref().filter(|saga| saga.has(path)) {
        return Box::pin(Arc::clone(saga).answer(request));
    }
    if let Some(quota) = doors.quota.as_ref().filter(|quota| quota.has(path)) {
        return Box::pin(Arc::clone(quota).answer(request));
    }
    Box::pin(std::future::ready(own(doors, &request)))
}

/// Answers a request that is for none of the services.
fn own(doors: &Doors, request: &Request) -> Response {
    let Some(route) = ROUTES.iter().find(|route| route.path == request.uri().path()) else {
        return problem(StatusCode::NOT_FOUND, "There is nothing here; GET / lists what there is.");
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = problem(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD do here.");
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    (route.run)(doors, request.uri())
}

fn text(status: StatusCode, body: String) -> Response {
    with_type(status, "text/plain; charset=utf-8", body)
}

fn index(_: &Doors, _: &Uri) -> Response {
    let width = ROUTES.iter().map(|route| route.path.len()).max().unwrap_or(0);
    let line = |route: &Route| format!("{:width$}  {}\n", route.path, route.doc);
    text(StatusCode::OK, ROUTES.iter().map(line).collect())
}

fn livez(_: &Doors, _: &Uri) -> Response {
    text(StatusCode::OK, "ok\n".into())
}

fn readyz(doors: &Doors, uri: &Uri) -> Response {
    let status = &doors.status;
    let is_ready = status.is_ready();
    let code = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut words = uri.query().unwrap_or("").split('&');
    if !words.any(|word| word == "verbose" || word.starts_with("verbose=")) {
        let word = if is_ready { "ready\n" } else { "not ready\n" };
        return text(code, word.into());
    }
    let components = status.components().into_iter().map(|component| {
        let value = json!({ "ready": component.is_ready, "detail": component.detail });
        (component.name.to_string(), value)
    });
    let components: Value = Value::Object(components.collect());
    let body = json!({ "ready": is_ready, "components": components });
    with_type(code, "application/json", format!("{body}\n"))
}

fn metrics(doors: &Doors, _: &Uri) -> Response {
    let mut page = doors.status.metrics();
    page.push_str(&doors.quota.as_ref().map(|quota| quota.metrics()).unwrap_or_default());
    page.push_str(&doors.saga.as_ref().map(|saga| saga.metrics()).unwrap_or_default());
    page.push_str(&doors.tables.as_ref().map(|tables| tables.metrics()).unwrap_or_default());
    with_type(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page)
}
