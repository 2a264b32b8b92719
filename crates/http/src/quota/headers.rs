//! Headers about limits: `RateLimit` and `RateLimit-Policy` as draft-ietf-httpapi-ratelimit-headers
//! 11 has them (structured fields, RFC 9651), and the older three.

use std::fmt::Write;

use http::{HeaderMap, HeaderName, HeaderValue};
use services::quota::answer::Usage;
use services::quota::secret::base64;

fn up(ms: i64) -> i64 {
    ms / 1000 + i64::from(ms % 1000 > 0)
}

/// Adds what a client should know of its limits.
pub(super) fn add(headers: &mut HeaderMap, usage: &Usage, sends_older: bool) {
    let plan = &usage.planned.plan;
    let room = || String::with_capacity(128);
    let (mut policy, mut state) = (room(), room());
    if let (Some(burst), Some(limits)) = (&usage.burst, &plan.burst) {
        let (limit, window) = (burst.limit, limits.per);
        let reset = up(burst.retry_after_ms.unwrap_or(burst.reset_after_ms));
        let _ = write!(policy, "\"burst\";q={limit};w={window}");
        let _ = write!(state, "\"burst\";r={};t={reset}", burst.remaining);
    }
    let remaining = usage.remaining();
    if let (Some(limit), Some(remaining)) = (plan.limit, remaining) {
        let comma = if policy.is_empty() { "" } else { ", " };
        let name = plan.period.name();
        let window = (usage.period.end_ms - usage.period.start_ms) / 1000;
        let key = base64(usage.org.as_bytes());
        let reset = usage.reset_after_s();
        let _ = write!(policy, "{comma}\"{name}\";q={limit};w={window};pk=:{key}:");
        let _ = write!(state, "{comma}\"{name}\";r={remaining};t={reset};pk=:{key}:");
        if sends_older {
            let numbers = [limit, remaining, reset].map(HeaderValue::from);
            let names = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];
            for (name, number) in names.into_iter().zip(numbers) {
                headers.insert(HeaderName::from_static(name), number);
            }
        }
    }
    for (name, text) in [("ratelimit-policy", policy), ("ratelimit", state)] {
        if let Ok(value) = HeaderValue::from_str(&text)
            && !text.is_empty()
        {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// Where the time of a request went, in milliseconds.
pub(super) fn timing(headers: &mut HeaderMap, spans: &[(&str, std::time::Duration)]) {
    let mut text = String::with_capacity(64);
    for (name, span) in spans {
        let comma = if text.is_empty() { "" } else { ", " };
        let micros = span.as_micros();
        let _ = write!(text, "{comma}{name};dur={}.{:03}", micros / 1000, micros % 1000);
    }
    if let Ok(value) = HeaderValue::from_str(&text) {
        headers.insert(HeaderName::from_static("server-timing"), value);
    }
}
