//! Headers about limits: `RateLimit` and `RateLimit-Policy` as draft-ietf-httpapi-ratelimit-headers
//! 11 has them (structured fields, RFC 9651), and the older three.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use services::append::Append;
use services::quota::answer::Usage;
use services::quota::secret::base64;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATE: HeaderName = HeaderName::from_static("ratelimit");
/// The older three.
const OLDER: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];
const TIMING: HeaderName = HeaderName::from_static("server-timing");

fn up(ms: i64) -> i64 {
    ms / 1000 + i64::from(ms % 1000 > 0)
}

/// Adds what a client should know of its limits.
pub(super) fn add(headers: &mut HeaderMap, usage: &Usage, sends_older: bool) {
    let plan = &usage.planned.plan;
    let room = || String::with_capacity(128);
    let (mut policy, mut state) = (room(), room());
    if let (Some(burst), Some(limits)) = (&usage.burst, &plan.burst) {
        let reset = up(burst.retry_after_ms.unwrap_or(burst.reset_after_ms));
        policy.text("\"burst\";q=").number(burst.limit).text(";w=").number(limits.per);
        state.text("\"burst\";r=").number(burst.remaining).text(";t=").number(reset);
    }
    let remaining = usage.remaining();
    if let (Some(limit), Some(remaining)) = (plan.limit, remaining) {
        let begin = if policy.is_empty() { "\"" } else { ", \"" };
        let name = plan.period.name();
        let window = (usage.period.end_ms - usage.period.start_ms) / 1000;
        let key = base64(usage.org.as_bytes());
        let reset = usage.reset_after_s();
        policy.text(begin).text(name).text("\";q=").number(limit).text(";w=").number(window);
        policy.text(";pk=:").text(&key).text(":");
        state.text(begin).text(name).text("\";r=").number(remaining).text(";t=").number(reset);
        state.text(";pk=:").text(&key).text(":");
        if sends_older {
            let numbers = [limit, remaining, reset].map(HeaderValue::from);
            for (name, number) in OLDER.into_iter().zip(numbers) {
                headers.insert(name, number);
            }
        }
    }
    for (name, text) in [(POLICY, policy), (STATE, state)] {
        if let Ok(value) = HeaderValue::from_str(&text)
            && !text.is_empty()
        {
            headers.insert(name, value);
        }
    }
}

/// Where the time of a request went, in milliseconds.
pub(super) fn timing(headers: &mut HeaderMap, spans: &[(&str, Duration)]) {
    let mut text = String::with_capacity(64);
    for (name, span) in spans {
        let comma = if text.is_empty() { "" } else { ", " };
        let micros = span.as_micros() as i64;
        text.text(comma).text(name).text(";dur=").number(micros / 1000).text(".");
        for place in [100, 10, 1] {
            text.push(char::from(b'0' + (micros / place % 10) as u8));
        }
    }
    if let Ok(value) = HeaderValue::from_str(&text) {
        headers.insert(TIMING, value);
    }
}
