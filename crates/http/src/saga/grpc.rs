//! gRPC over HTTP/2 in the clear (grpc.io, "gRPC over HTTP2"): connections, frames and statuses;
//! unary calls only.
//!
//! ```text
//!   request   POST /package.Service/Method, content-type: application/grpc
//!   body      0 (not compressed), length (4 bytes, most significant first), message
//!   answer    200, the same body, then trailers: grpc-status, grpc-message
//!   error     200 with grpc-status and grpc-message beside it, no body
//! ```
//!
//! **Invariant:** every request gets a status; none takes more than `MESSAGE_BYTES_MAX`.

use std::convert::Infallible;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::watch;

use super::Saga;
use crate::body;
use crate::routes::Doors;

/// Bytes of a message.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Calls that a connection may have under way.
const CALLS_MAX: u32 = 1024;
/// How often a connection that is silent is asked whether it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// How long no connection is taken after one could not be.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The statuses of gRPC that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub(super) enum Code {
    Unknown = 2,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    Unimplemented = 12,
    Internal = 13,
    Unauthenticated = 16,
}

/// What a call comes to: a message, or why there is none.
pub(super) type Answer = Result<Vec<u8>, (Code, String)>;

/// Takes connections until the door is closed. Several threads may share a listener.
pub(crate) async fn serve(
    listener: TcpListener,
    doors: Arc<Doors>,
    mut stopped: watch::Receiver<bool>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "gRPC ends"),
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return,
        };
        match accepted.and_then(|(socket, _)| socket.set_nodelay(true).map(|()| socket)) {
            Ok(socket) => {
                tokio::spawn(connection(socket, Arc::clone(&doors), stopped.clone()));
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn connection(
    socket: tokio::net::TcpStream,
    doors: Arc<Doors>,
    mut stopped: watch::Receiver<bool>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let doors = Arc::clone(&doors);
        async move {
            let response = match &doors.saga {
                Some(saga) => saga.grpc(request).await,
                None => status(Code::Unimplemented, "there are no sagas"),
            };
            Ok::<_, Infallible>(response)
        }
    });
    let mut serving = std::pin::pin!(
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .max_concurrent_streams(CALLS_MAX)
            .serve_connection(TokioIo::new(socket), service)
    );
    // How a connection ends concerns nobody but its client.
    tokio::select! {
        _ = serving.as_mut() => return,
        _ = stopped.wait_for(|is_stopped| *is_stopped) => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

impl Saga {
    async fn grpc(&self, request: Request<Incoming>) -> Response<Reply> {
        let began = Instant::now();
        let (parts, body) = request.into_parts();
        let kind = parts.headers.get("content-type").map_or(&b""[..], HeaderValue::as_bytes);
        if parts.method != Method::POST || !kind.starts_with(b"application/grpc") {
            drain(body).await;
            let mut response = Response::new(Reply::default());
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return response;
        }
        let answer = match self.admits(&parts.headers) {
            false => {
                drain(body).await;
                Err((Code::Unauthenticated, "an API key is needed".into()))
            }
            true => match message(body).await {
                Ok(message) => self.grpc_call(&parts, &message).await,
                Err(error) => Err(error),
            },
        };
        self.served.count_grpc(parts.uri.path(), answer.is_ok(), began.elapsed());
        match answer {
            Ok(message) => reply(&message),
            Err((code, text)) => status(code, &text),
        }
    }
}

/// Reads a body and keeps nothing of it: a stream that is answered before its end is reset, and
/// some clients take that for an error of the transport.
async fn drain(mut body: Incoming) {
    let mut seen = 0;
    while seen <= MESSAGE_BYTES_MAX {
        let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        match frame.await {
            Some(Ok(frame)) => seen += frame.data_ref().map_or(0, Bytes::len),
            Some(Err(_)) | None => return,
        }
    }
}

/// The message in a request's body.
async fn message(body: Incoming) -> Result<Bytes, (Code, String)> {
    let body = body::read(body, MESSAGE_BYTES_MAX + 5).await;
    let too_large = || {
        let text = format!("a message has {MESSAGE_BYTES_MAX} bytes at most");
        (Code::ResourceExhausted, text)
    };
    let body = body.map_err(|_| too_large())?;
    unframed(&body).map(|message| body.slice_ref(message))
}

/// Takes a message out of its frame.
fn unframed(body: &[u8]) -> Result<&[u8], (Code, String)> {
    let (&[compressed, a, b, c, d], message) =
        body.split_first_chunk().ok_or((Code::Internal, "no message".to_string()))?;
    if compressed != 0 {
        return Err((Code::Unimplemented, "messages are not to be compressed".into()));
    }
    match message.len() == u32::from_be_bytes([a, b, c, d]) as usize {
        true => Ok(message),
        false => Err((Code::Internal, "the message is not as long as it says".into())),
    }
}

/// Puts a message into a frame.
pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(5 + message.len());
    framed.push(0);
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(message);
    framed
}

/// A body with trailers.
#[derive(Default)]
struct Reply {
    message: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let message = self.message.take().map(Frame::data);
        let frame = message.or_else(|| self.trailers.take().map(Frame::trailers));
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.message.is_none() && self.trailers.is_none()
    }
}

fn reply(message: &[u8]) -> Response<Reply> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let mut response =
        Response::new(Reply { message: Some(framed(message).into()), trailers: Some(trailers) });
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    response
}

fn status(code: Code, text: &str) -> Response<Reply> {
    let mut response = Response::new(Reply::default());
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(code as u16));
    if let Ok(text) = HeaderValue::from_str(&encoded(text)) {
        headers.insert("grpc-message", text);
    }
    response
}

/// A text as `grpc-message` has it: what is not printable ASCII, and the per cent sign itself,
/// as `%XX`.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames() {
        assert_eq!(unframed(&framed(b"abc")), Ok(&b"abc"[..]));
        assert_eq!(unframed(&framed(b"")), Ok(&b""[..]));
        for (body, code) in [
            (&b""[..], Code::Internal),
            (b"\0\0\0\0", Code::Internal),
            (b"\x01\0\0\0\0", Code::Unimplemented),
            (b"\0\0\0\0\x02a", Code::Internal),
            (b"\0\0\0\0\x01ab", Code::Internal),
        ] {
            assert_eq!(unframed(body).unwrap_err().0, code, "{body:?}");
        }
    }

    #[test]
    fn messages_of_statuses_are_encoded() {
        assert_eq!(encoded("100% ü\n"), "100%25 %C3%BC%0A");
    }
}
