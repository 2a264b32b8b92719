//! Errors as RFC 9457 has them: `application/problem+json`.

use http::{HeaderValue, StatusCode, header};
use http_body_util::Full;
use serde_json::{Value, json};
use services::quota::answer::Refusal;

use crate::body::Response;

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// An error with nothing special about it.
pub fn problem(status: StatusCode, detail: &str) -> Response {
    of(status, "about:blank", detail, &[])
}

/// An error with members of its own.
pub fn problem_with(status: StatusCode, detail: &str, more: &[(&str, Value)]) -> Response {
    of(status, "about:blank", detail, more)
}

fn of(status: StatusCode, kind: &str, detail: &str, more: &[(&str, Value)]) -> Response {
    let title = status.canonical_reason().unwrap_or("Error");
    let mut body =
        json!({ "type": kind, "title": title, "status": status.as_u16(), "detail": detail });
    for (name, value) in more {
        body[*name] = value.clone();
    }
    with_type(status, "application/problem+json", body.to_string())
}

/// An answer of one type that is not to be cached.
pub fn with_type(status: StatusCode, kind: &'static str, body: String) -> Response {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// An answer that is its status.
pub fn empty(status: StatusCode) -> Response {
    let mut response = Response::default();
    *response.status_mut() = status;
    response
}

/// What a service refuses.
pub fn refused(refusal: &Refusal) -> Response {
    let plain = |status, detail: &str| problem(status, detail);
    match refusal {
        Refusal::Malformed(why) => plain(StatusCode::BAD_REQUEST, why),
        Refusal::Unauthorized(why) => {
            let mut response = plain(StatusCode::UNAUTHORIZED, why);
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
            response
        }
        Refusal::Forbidden(why) => plain(StatusCode::FORBIDDEN, why),
        Refusal::NotFound(why) => plain(StatusCode::NOT_FOUND, why),
        Refusal::TooLarge(why) => plain(StatusCode::PAYLOAD_TOO_LARGE, why),
        Refusal::Quota { policy, retry_after_s } => {
            let detail = format!("the {policy} limit is reached");
            let more = [("violated-policies", json!([policy]))];
            let response = of(StatusCode::TOO_MANY_REQUESTS, QUOTA_EXCEEDED, &detail, &more);
            retry(response, *retry_after_s)
        }
        Refusal::InFlight => {
            let why = "a request with this Idempotency-Key is being worked on";
            retry(plain(StatusCode::CONFLICT, why), 1)
        }
        Refusal::OtherContent => {
            let why = "this idempotency key came with other content before";
            plain(StatusCode::UNPROCESSABLE_ENTITY, why)
        }
        Refusal::Busy { detail, retry_after_s } => {
            let response = of(StatusCode::SERVICE_UNAVAILABLE, REDUCED, detail, &[]);
            retry(response, *retry_after_s)
        }
    }
}

fn retry(mut response: Response, seconds: i64) -> Response {
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}
