//! What every answer says of itself: its tag, how it may be used again (RFC 9111, RFC 5861),
//! whether it was a hit and if not why (RFC 9211), and where the time went.
//!
//! The headers of a hit are the same for a second: they are made once and lie beside its body.

use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use services::tables::ask::{Answer, Ask, From, Watch};
use services::tables::page::{Coding, Page};
use services::tables::schema::{Operation, Who};

/// By what an answer differs.
const VARY: HeaderValue = HeaderValue::from_static(
    "x-zumo-auth, authorization, zumo-api-version, x-zumo-version, accept-encoding",
);
/// What the client libraries of Azure Mobile Apps say of themselves.
const CLIENT: &str = "x-zumo-version";
const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
const X_CACHE: HeaderName = HeaderName::from_static("x-cache");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const X_TABLE_VERSION: HeaderName = HeaderName::from_static("x-table-version");

/// An answer and how it came about.
pub(super) struct Story<'a> {
    pub ask: &'a Ask,
    pub answer: &'a Answer,
    pub spent: Duration,
    /// How long the database was waited for.
    pub waited: Option<Duration>,
}

/// Text of ours as a header.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

/// The tag in a coding: another one, since the bytes are others.
fn tag_in(etag: &str, coding: Coding) -> String {
    match coding {
        Coding::Plain => etag.to_string(),
        coding => format!("{}-{}\"", etag.trim_end_matches('"'), coding.word()),
    }
}

/// What clients and proxies may do with an answer. Unless the table says otherwise they may keep
/// it, and have to ask whether it is still right: they do not hear of changes.
fn cache_control(ask: &Ask) -> String {
    let table = &ask.served.table;
    let is_public = table.owner.is_none() && table.access.of(Operation::Read) == Who::Anonymous;
    let who = if is_public { "public" } else { "private" };
    let caching = &table.caching;
    let (age, error_s) = (caching.client_seconds, caching.stale_if_error_ms / 1000);
    if age == 0 {
        return format!("{who}, max-age=0, must-revalidate, stale-if-error={error_s}");
    }
    let stale_s = caching.stale_ms / 1000;
    format!("{who}, max-age={age}, stale-while-revalidate={stale_s}, stale-if-error={error_s}")
}

/// How an answer is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    pub coding: Coding,
    /// Without one it is a 304 or the like.
    pub has_body: bool,
}

/// The headers of a hit, as they are for a second, and until it outlives a change.
struct Ready {
    form: Form,
    ttl: i64,
    age: i64,
    version: i64,
    headers: HeaderMap,
}

type Prepared = Mutex<Option<Ready>>;

/// What an answer has every time.
fn common(ask: &Ask, page: &Page, form: Form) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(16);
    if form.has_body {
        headers.insert(header::CONTENT_TYPE, JSON);
        let length = page.bodies[form.coding as usize].len();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        if form.coding != Coding::Plain {
            let word = HeaderValue::from_static(form.coding.word());
            headers.insert(header::CONTENT_ENCODING, word);
        }
    }
    headers.insert(header::VARY, VARY);
    headers.insert(header::CACHE_CONTROL, value(&cache_control(ask)));
    headers.insert(X_TABLE_VERSION, HeaderValue::from(page.right_at()));
    if !page.etag.is_empty() {
        headers.insert(header::ETAG, value(&tag_in(&page.etag, form.coding)));
    }
    // Places for what comes later: a map that has been copied has no room for more.
    headers.insert(SERVER_TIMING, HeaderValue::from_static(""));
    headers.insert(super::SERVER, super::SERVER_VERSION);
    headers
}

/// How Cache-Status ends: the key, and how soon others' writes are seen.
fn tail(ask: &Ask, detail: Option<&str>) -> String {
    let mut tail = "; key=\"".to_string();
    for byte in ask.key.bytes() {
        match byte {
            b'"' | b'\\' => tail.extend(['\\', char::from(byte)]),
            b' '..=b'~' => tail.push(char::from(byte)),
            byte => drop(write!(tail, "%{byte:02x}")),
        }
    }
    let _ = match (detail, ask.served.watch) {
        (Some(detail), _) => write!(tail, "\"; detail=\"{detail}\""),
        (None, Watch::Triggers(ms)) => {
            write!(tail, "\"; detail=\"others' writes seen within {ms} ms\"")
        }
        (None, Watch::Nothing) => {
            write!(tail, "\"; detail=\"others' writes seen at the end of ttl\"")
        }
    };
    tail
}

/// The headers of an answer.
pub(super) fn of(parts: &Parts, story: &Story<'_>, form: Form) -> HeaderMap {
    let Story { ask, answer, spent, waited } = story;
    let page = &answer.page;
    let mut headers = match answer.from {
        From::Hit => of_hit(ask, answer, form),
        _ => all(ask, answer, form),
    };
    timing(&mut headers, *spent, *waited, page);
    if !page.next.is_empty() && !page.plain().starts_with(b"{\"items\"") {
        headers.insert(header::LINK, link(parts, &page.next));
    }
    headers
}

/// Those of a hit: mostly there.
fn of_hit(ask: &Ask, answer: &Answer, form: Form) -> HeaderMap {
    let page = &answer.page;
    let prepared = page.prepared.get_or_init(|| Box::new(Prepared::default()));
    let Some(prepared) = prepared.downcast_ref::<Prepared>() else {
        return all(ask, answer, form);
    };
    let (ttl, age) = (answer.fresh_ms.div_euclid(1000), answer.age_ms / 1000);
    let version = page.right_at();
    let mut prepared = prepared.lock().unwrap_or_else(PoisonError::into_inner);
    match &*prepared {
        Some(ready)
            if (ready.form, ready.ttl, ready.age, ready.version) == (form, ttl, age, version) =>
        {
            ready.headers.clone()
        }
        _ => {
            let headers = all(ask, answer, form);
            *prepared = Some(Ready { form, ttl, age, version, headers: headers.clone() });
            headers
        }
    }
}

/// All but when and where to go on.
fn all(ask: &Ask, answer: &Answer, form: Form) -> HeaderMap {
    let page = &answer.page;
    let mut headers = common(ask, page, form);
    let ttl = answer.fresh_ms.div_euclid(1000);
    let mut text = String::with_capacity(160);
    let word = match answer.from {
        From::Hit => {
            let _ = write!(text, "forebay; hit; ttl={ttl}");
            "HIT"
        }
        From::Stale => {
            let _ = write!(text, "forebay; hit; ttl={ttl}");
            "STALE"
        }
        From::StaleIfError => {
            let _ = write!(text, "forebay; hit; fwd=stale; ttl={ttl}");
            "STALE"
        }
        From::New { why, is_kept, is_shared } => {
            let _ = write!(text, "forebay; fwd={}; fwd-status={}", why.word(), page.status);
            text += if is_kept { "; stored" } else { "" };
            text += if is_shared { "; collapsed" } else { "" };
            let _ = if is_kept { write!(text, "; ttl={ttl}") } else { Ok(()) };
            if why.word() == "bypass" { "BYPASS" } else { "MISS" }
        }
    };
    text += &tail(ask, (answer.from == From::StaleIfError).then_some("sql-error"));
    headers.insert(CACHE_STATUS, value(&text));
    headers.insert(X_CACHE, HeaderValue::from_static(word));
    if !matches!(answer.from, From::New { .. }) {
        headers.insert(header::AGE, HeaderValue::from(answer.age_ms / 1000));
    }
    headers
}

/// Where the time went, in milliseconds.
fn timing(headers: &mut HeaderMap, spent: Duration, waited: Option<Duration>, page: &Page) {
    let ms = |span: Duration| span.as_secs_f64() * 1000.0;
    let mut text = String::with_capacity(64);
    match waited {
        // By hand: of a hit this is most of the work.
        None => {
            let us = spent.as_micros();
            let _ = write!(text, "cache;dur={}.{:03}", us / 1000, us % 1000);
        }
        Some(waited) => {
            let sql = f64::from(page.cost_us) / 1000.0;
            let cache = ms(spent.saturating_sub(waited));
            let _ =
                write!(text, "cache;dur={cache:.3}, wait;dur={:.3}, sql;dur={sql:.3}", ms(waited));
        }
    }
    let text = HeaderValue::from_maybe_shared(Bytes::from(text));
    headers.insert(SERVER_TIMING, text.unwrap_or(HeaderValue::from_static("")));
}

/// The address of the next page: that of this one with other `$top` and `$skip`. The client
/// libraries of Azure Mobile Apps read it only as their server wrote it, without the brackets and
/// quotes of RFC 8288 (azure-mobile-apps-js-client, sdk/src/MobileServiceTable.js).
fn link(parts: &Parts, next: &str) -> HeaderValue {
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let is_theirs = parts.headers.contains_key(CLIENT);
    let mut text = if is_theirs { String::new() } else { "<".to_string() };
    if let Some(host) = host {
        let _ = write!(text, "http://{host}");
    }
    text += parts.uri.path();
    text.push('?');
    for pair in parts.uri.query().unwrap_or("").split('&').filter(|pair| !pair.is_empty()) {
        let name = pair.split('=').next().unwrap_or("").replace("%24", "$");
        if !matches!(name.as_str(), "$top" | "$skip") {
            text += pair;
            text.push('&');
        }
    }
    value(&(text + next + if is_theirs { "; rel=next" } else { ">; rel=\"next\"" }))
}

/// For a refusal because nothing is kept.
pub(super) fn refused(headers: &mut HeaderMap) {
    let status = "forebay; detail=\"only-if-cached\"";
    headers.insert(CACHE_STATUS, HeaderValue::from_static(status));
    headers.insert(X_CACHE, HeaderValue::from_static("MISS"));
}

/// For the answer to a change.
pub(super) fn changed(headers: &mut HeaderMap, version: Option<i64>, etag: Option<&str>) {
    headers.insert(CACHE_STATUS, HeaderValue::from_static("forebay; fwd=method"));
    headers.insert(X_CACHE, HeaderValue::from_static("BYPASS"));
    if let Some(version) = version {
        headers.insert(X_TABLE_VERSION, HeaderValue::from(version));
    }
    if let Some(etag) = etag {
        headers.insert(header::ETAG, value(etag));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_keeps_the_question() {
        let request = http::Request::builder()
            .uri("/tables/todo?$filter=a%20eq%201&%24skip=0&$top=70")
            .header("host", "h:1")
            .body(())
            .expect("a request");
        let (mut parts, ()) = request.into_parts();
        let want = "<http://h:1/tables/todo?$filter=a%20eq%201&$top=20&$skip=50>; rel=\"next\"";
        assert_eq!(link(&parts, "$top=20&$skip=50"), want);
        parts.headers.insert(CLIENT, HeaderValue::from_static("ZUMO/2.0 (lang=Web)"));
        let theirs = "http://h:1/tables/todo?$filter=a%20eq%201&$top=20&$skip=50; rel=next";
        assert_eq!(link(&parts, "$top=20&$skip=50"), theirs);
    }
}
