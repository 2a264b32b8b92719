//! Queries and single rows.
//!
//! **Invariant:** a hit reads no SQL, writes no JSON and compresses nothing: bytes and headers lie
//! ready.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body_util::Full;
use serde_json::json;
use services::tables::ask::{Answer, Ask, Control, Fault, Filled, Served};
use services::tables::page::{Coding, Page};
use services::tables::query::{BadQuery, Query, Shape, Target, id_of};
use services::tables::service::{Fetch, Look};
use tokio::sync::oneshot;

use super::headers::{self, Form, Story};
use super::{Caller, Tables, faulty, nothing, refuse};
use crate::alone::is_alone;
use crate::body::Response;

/// Addresses that are remembered at most; then all are forgotten.
const KNOWN_MAX: usize = 20_000;
/// Longer ones are not remembered, in bytes.
const ADDRESS_BYTES_MAX: usize = 2048;

const VERSION_AT_LEAST: HeaderName = HeaderName::from_static("if-version-at-least");

thread_local! {
    /// Where an address is put together to be looked up.
    static MEMO: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What was wrong with an address.
pub(super) fn bad_query(bad: &BadQuery) -> Box<Response> {
    let BadQuery { parameter, at, why } = bad;
    let place = at.map(|at| format!(" at position {at}")).unwrap_or_default();
    let detail = format!("{parameter}{place}: {why}");
    let detail = if parameter == "$top" && why.starts_with("You") { why.clone() } else { detail };
    let more = [("parameter", json!(parameter)), ("position", json!(at))];
    refuse(StatusCode::BAD_REQUEST, &detail, &more)
}

/// `no-cache, max-age=0` and the like.
fn control(headers: &HeaderMap) -> Control {
    let mut control = Control::default();
    if let Some(version) = headers.get(VERSION_AT_LEAST) {
        control.at_least = version.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    }
    for value in headers.get_all(header::CACHE_CONTROL) {
        for directive in value.to_str().unwrap_or("").split(',') {
            let (name, value) = directive.trim().split_once('=').unwrap_or((directive.trim(), ""));
            let seconds = value.trim_matches('"').parse::<u64>().ok();
            let ms = seconds.map(|seconds| seconds.saturating_mul(1000));
            match name.to_ascii_lowercase().as_str() {
                "no-cache" => control.no_cache = true,
                "no-store" => control.no_store = true,
                "only-if-cached" => control.only_if_cached = true,
                "max-age" => control.max_age_ms = ms,
                "min-fresh" => control.min_fresh_ms = ms.unwrap_or(0),
                "max-stale" => control.max_stale_ms = Some(ms.unwrap_or(u64::MAX)),
                _ => {}
            }
        }
    }
    control
}

/// Which coding a client takes that there is, and which it would rather have; the smallest it likes
/// best.
fn codings(headers: &HeaderMap, page: &Page) -> (Coding, Coding) {
    let (mut best, mut liked) = ((Coding::Plain, 0), (Coding::Plain, 0));
    for value in headers.get_all(header::ACCEPT_ENCODING) {
        for offer in value.to_str().unwrap_or("").split(',') {
            let (name, more) = offer.trim().split_once(';').unwrap_or((offer.trim(), ""));
            let weight = more.trim().strip_prefix("q=").map_or(1.0, |q| q.parse().unwrap_or(0.0));
            let coding = match name.trim() {
                "gzip" | "x-gzip" => Coding::Gzip,
                "br" => Coding::Br,
                "zstd" => Coding::Zstd,
                "*" => Coding::Gzip,
                _ => continue,
            };
            let rank = (weight * 1000.0) as i32 * 10 + coding as i32;
            if weight <= 0.0 {
                continue;
            }
            if rank > liked.1 {
                liked = (coding, rank);
            }
            if rank > best.1 && !page.bodies[coding as usize].is_empty() {
                best = (coding, rank);
            }
        }
    }
    (best.0, liked.0)
}

impl Tables {
    /// The question of an address; those that came before are remembered.
    fn ask(
        &self,
        parts: &Parts,
        served: &Arc<Served>,
        id: Option<String>,
        caller: &Caller,
    ) -> Result<Arc<Ask>, Box<Response>> {
        let address = parts.uri.path_and_query().map_or("", |both| both.as_str());
        let shape = if caller.shape == Shape::Zumo2 { "2 " } else { "3 " };
        let owner = served.table.owner.and(caller.user.as_deref()).unwrap_or("");
        let lock = || self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let known = MEMO.with_borrow_mut(|memo| {
            memo.clear();
            memo.extend([address, shape, owner]);
            // A table that has grown is another one.
            let is_this = |ask: &&Arc<Ask>| Arc::ptr_eq(&ask.served, served);
            lock().get(memo.as_str()).filter(is_this).map(Arc::clone)
        });
        if let Some(ask) = known {
            return Ok(ask);
        }
        let memo = [address, shape, owner].concat();
        let target = self.target(parts, served, id, caller)?;
        let ask = Arc::new(Ask::new(served, target, caller.shape, caller.user.as_ref()));
        if memo.len() <= ADDRESS_BYTES_MAX {
            let mut known = lock();
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(memo.into(), Arc::clone(&ask));
        }
        Ok(ask)
    }

    fn target(
        &self,
        parts: &Parts,
        served: &Served,
        id: Option<String>,
        caller: &Caller,
    ) -> Result<Target, Box<Response>> {
        let text = parts.uri.query().unwrap_or("");
        let query = Query::read(text, &served.table, caller.shape);
        let query = query.map_err(|bad| bad_query(&bad))?;
        let Some(id) = id else { return Ok(Target::List(Box::new(query))) };
        let id = id_of(&served.table, &id).ok_or_else(|| nothing("The item does not exist"))?;
        Ok(Target::One { id, includes_deleted: query.includes_deleted })
    }

    /// GET of a table or a row.
    pub(super) async fn read(
        &self,
        parts: &Parts,
        served: &Arc<Served>,
        id: Option<String>,
        caller: &Caller,
    ) -> Result<Response, Box<Response>> {
        let begun = Instant::now();
        let ask = self.ask(parts, served, id, caller)?;
        let control = control(&parts.headers);
        let (answer, waited) = match self.service.look(&ask, &control) {
            Look::Answer(answer) => (answer, None),
            Look::Fault(fault) => {
                let mut response = faulty(&fault);
                headers::refused(response.headers_mut());
                return Err(response);
            }
            Look::Fetch(fetch) => {
                let asked = Instant::now();
                let answer = self.fetched(&ask, fetch).await?;
                (answer, Some(asked.elapsed()))
            }
        };
        let (coding, liked) = codings(&parts.headers, &answer.page);
        if liked != coding && answer.is_kept() {
            self.service.pack(&ask, &answer.page, liked);
        }
        let story = Story { ask: &ask, answer: &answer, spent: begun.elapsed(), waited };
        Ok(respond(parts, &story, coding))
    }

    async fn fetched(&self, ask: &Arc<Ask>, fetch: Fetch) -> Result<Answer, Box<Response>> {
        let (sender, receiver) = oneshot::channel();
        let done = Box::new(move |filled: Result<Filled, Fault>| {
            // If nobody waits any more, the client has gone or has been answered.
            let _ = sender.send(filled);
        });
        let is_shared = match is_alone().await {
            true => self.service.fetch_here(ask, &fetch, done),
            false => self.service.fetch(ask, &fetch, done),
        };
        let limit = Duration::from_millis(self.service.wait_ms());
        let late = Fault::Busy("the database takes too long");
        let filled = match tokio::time::timeout(limit, receiver).await {
            Ok(Ok(filled)) => filled,
            Ok(Err(_)) => Err(Fault::Busy("the server is about to end")),
            Err(_) => Err(late),
        };
        match filled {
            Ok(filled) => Ok(self.service.answer(&fetch, filled, is_shared)),
            Err(fault) => self.service.rescue(ask, &fetch).ok_or_else(|| faulty(&fault)),
        }
    }
}

/// The tag without the coding that was added to it.
pub(super) fn bare_tag(tag: &str) -> &str {
    let tag = tag.trim();
    tag.strip_prefix("W/").unwrap_or(tag)
}

/// Whether a list of tags names this one, in any coding.
fn names(list: &HeaderValue, etag: &str) -> bool {
    let Ok(list) = list.to_str() else { return false };
    let inner = etag.trim_end_matches('"');
    list.split(',').any(|tag| {
        let tag = bare_tag(tag);
        let rest = tag.strip_prefix(inner);
        tag == "*" || matches!(rest, Some("\"" | "-gzip\"" | "-br\"" | "-zstd\""))
    })
}

fn respond(parts: &Parts, story: &Story<'_>, coding: Coding) -> Response {
    let page = &story.answer.page;
    let is_tagged = !page.etag.is_empty();
    let is_known = |name| parts.headers.get(name).map(|list| names(list, &page.etag));
    let mut has_body = true;
    let mut status = StatusCode::from_u16(page.status).unwrap_or(StatusCode::OK);
    if is_tagged && is_known(header::IF_MATCH) == Some(false) {
        status = StatusCode::PRECONDITION_FAILED;
    } else if is_tagged && is_known(header::IF_NONE_MATCH) == Some(true) {
        status = StatusCode::NOT_MODIFIED;
        has_body = false;
    }
    let body = match has_body {
        true => Full::new(page.bodies[coding as usize].clone()),
        false => Full::default(),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers::of(parts, story, Form { coding, has_body });
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_in_lists() {
        let etag = "\"abc\"";
        for (list, is) in [
            ("\"abc\"", true),
            ("W/\"x\", W/\"abc\"", true),
            ("\"abc-gzip\"", true),
            ("*", true),
            ("\"abcd\"", false),
            ("abc", false),
            ("", false),
        ] {
            assert_eq!(names(&HeaderValue::from_static(list), etag), is, "{list}");
        }
    }

    #[test]
    fn the_best_coding_is_taken() {
        let bodies = ["plain", "gzip", "br", ""].map(|text| text.as_bytes().into());
        let page = Page { bodies, ..Page::default() };
        let best = |accept| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(accept));
            codings(&headers, &page)
        };
        assert_eq!(best("gzip, deflate, br, zstd"), (Coding::Br, Coding::Zstd));
        assert_eq!(best("gzip, br;q=0.5"), (Coding::Gzip, Coding::Gzip));
        assert_eq!(best("gzip;q=0, br;q=0"), (Coding::Plain, Coding::Plain));
        assert_eq!(best("zstd"), (Coding::Plain, Coding::Zstd));
        assert_eq!(best("identity"), (Coding::Plain, Coding::Plain));
        assert_eq!(best(""), (Coding::Plain, Coding::Plain));
    }

    #[test]
    fn directives_are_read() {
        let mut headers = HeaderMap::new();
        let text = "No-Cache, max-age=5, min-fresh=\"2\", max-stale, only-if-cached, x=1";
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(text));
        let read = control(&headers);
        assert!(read.no_cache && read.only_if_cached && !read.no_store);
        assert_eq!((read.max_age_ms, read.min_fresh_ms), (Some(5000), 2000));
        assert_eq!(read.max_stale_ms, Some(u64::MAX));
    }
}
