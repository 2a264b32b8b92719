//! A handler that answers every request alike: what the HTTP stack costs by itself, for benchmarks
//! to measure against.

use std::net::TcpListener;
use std::sync::Arc;
use std::{io, str};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body_util::Full;

use crate::Door;
use crate::body::Response;
use crate::serve::Answer;

/// An answer.
#[derive(Debug)]
pub struct Fixed {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Fixed {
    /// Reads an answer as a server has sent it. Headers that the stack sets are left to it.
    pub fn read(answer: &[u8]) -> Option<Fixed> {
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
        let mut lines = str::from_utf8(&answer[..end]).ok()?.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(": ")?;
            let name = HeaderName::try_from(name).ok()?;
            if !matches!(name.as_str(), "date" | "content-length" | "connection") {
                headers.append(name, HeaderValue::from_str(value).ok()?);
            }
        }
        let status = StatusCode::from_u16(status).ok()?;
        Some(Fixed { status, headers, body: Bytes::copy_from_slice(&answer[end + 4..]) })
    }
}

fn answer(fixed: &Fixed) -> Response {
    let mut response = Response::new(Full::new(fixed.body.clone()));
    *response.status_mut() = fixed.status;
    *response.headers_mut() = fixed.headers.clone();
    response
}

/// Serves an answer with so many threads until the door is closed.
///
/// # Errors
/// No threads, or no runtime for them.
pub fn open(listener: TcpListener, fixed: Fixed, threads: usize) -> io::Result<Door> {
    let all: Answer = Arc::new(move |_| Box::pin(std::future::ready(answer(&fixed))));
    crate::start(listener, threads, Arc::new(move |_, _| Arc::clone(&all)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_was_sent() {
        let sent = b"HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\ncontent-length: 2\r\n\r\nxy";
        let fixed = Fixed::read(sent).expect("an answer");
        assert_eq!(
            (fixed.status.as_u16(), fixed.headers.len(), &fixed.body[..]),
            (304, 1, &b"xy"[..])
        );
        assert!(Fixed::read(&sent[..20]).is_none());
    }
}
