//! The connections of one thread: HTTP/1.1, or HTTP/2 where a client begins with its preface.
//!
//! **Invariant:** once the door is closed each connection ends with the request that is under way,
//! and all after `DRAIN`.

use std::convert::Infallible;
use std::net::TcpStream;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, header};
use http_body_util::Full;
use hyper::body::Body;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::sync::{mpsc, watch};

use crate::body::{Request, Response};

/// Requests that run when the server ends may take so long to finish.
const DRAIN: Duration = Duration::from_secs(3);

/// What answers requests.
pub(crate) type Answer = Arc<dyn Fn(Request) -> Answering + Send + Sync>;
/// An answer on its way.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Serves connections as they are handed over, until the door is closed.
pub(crate) async fn serve(
    mut handed: mpsc::UnboundedReceiver<TcpStream>,
    answer: Answer,
    mut stopped: watch::Receiver<bool>,
) {
    // Nothing is sent: that all connections have ended is seen by their senders being gone.
    let (open, mut all_ended) = mpsc::channel::<Infallible>(1);
    loop {
        let socket = tokio::select! {
            Some(socket) = handed.recv() => socket,
            // An error means that the door is gone.
            _ = stopped.wait_for(|is_stopped| *is_stopped) => break,
        };
        if let Ok(socket) = tokio::net::TcpStream::from_std(socket) {
            let (answer, stopped) = (Arc::clone(&answer), stopped.clone());
            tokio::spawn(connection(socket, answer, stopped, open.clone()));
        }
    }
    drop(open);
    // Who is not done by then is left.
    let _ = tokio::time::timeout(DRAIN, all_ended.recv()).await;
}

async fn connection(
    socket: tokio::net::TcpStream,
    answer: Answer,
    mut stopped: watch::Receiver<bool>,
    _open: mpsc::Sender<Infallible>,
) {
    let service = service_fn(move |request: Request| {
        let is_head = *request.method() == Method::HEAD;
        Whole { answering: answer(request), is_head }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut serving = pin!(builder.serve_connection(TokioIo::new(socket), service));
    // How a connection ends concerns nobody but its client.
    tokio::select! {
        biased;
        _ = serving.as_mut() => return,
        _ = stopped.wait_for(|is_stopped| *is_stopped) => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

/// An answer with what the protocol wants of it.
struct Whole {
    answering: Answering,
    is_head: bool,
}

impl Future for Whole {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut response = ready!(self.answering.as_mut().poll(context));
        // The length of any other body is told by hyper.
        if self.is_head || response.body().is_end_stream() {
            let bytes = response.body().size_hint().lower();
            let length = response.headers_mut().entry(header::CONTENT_LENGTH);
            length.or_insert_with(|| HeaderValue::from(bytes));
            *response.body_mut() = Full::new(Bytes::new());
        }
        Poll::Ready(Ok(response))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};

    use super::*;
    use crate::Door;

    /// Says what is asked for, and answers it once the door is told to close.
    fn door(begun: std::sync::mpsc::Sender<()>) -> Door {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let enter = move |_: bool, stopped: &watch::Receiver<bool>| -> Answer {
            let (begun, stopped) = (begun.clone(), stopped.clone());
            Arc::new(move |request: Request| {
                begun.send(()).expect("the test waits");
                let mut stopped = stopped.clone();
                Box::pin(async move {
                    stopped.wait_for(|is_stopped| *is_stopped).await.expect("the door is there");
                    Response::new(Full::from(request.uri().path()[1..].to_owned()))
                })
            })
        };
        crate::start(listener, 1, Arc::new(enter)).expect("a door")
    }

    fn asked(address: SocketAddr, first_line: &str) -> TcpStream {
        let mut socket = TcpStream::connect(address).expect("it listens");
        write!(socket, "{first_line} HTTP/1.1\r\nhost: h\r\n\r\n").expect("it reads");
        socket
    }

    /// All that comes until the other side closes.
    fn come(mut socket: TcpStream) -> String {
        let mut text = String::new();
        socket.read_to_string(&mut text).expect("text");
        text
    }

    #[test]
    fn who_asks_is_answered_before_the_door_closes() {
        let (sender, begun) = std::sync::mpsc::channel();
        let door = door(sender);
        let asked = ["GET /abc", "HEAD /abc", "GET /"].map(|line| {
            let socket = asked(door.address, line);
            begun.recv().expect("it begins");
            socket
        });
        door.close();
        let [whole, head, empty] = asked.map(come);
        assert!(whole.contains("\r\ncontent-length: 3\r\n") && whole.ends_with("\r\n\r\nabc"));
        assert!(head.contains("\r\ncontent-length: 3\r\n") && head.ends_with("\r\n\r\n"));
        assert!(empty.contains("\r\ncontent-length: 0\r\n") && empty.ends_with("\r\n\r\n"));
    }
}
