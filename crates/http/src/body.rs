//! Bodies of requests and answers.

use std::error::Error;

use bytes::Bytes;
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::{Body, Incoming};

/// A request whose body is still on its way.
pub(crate) type Request = http::Request<Incoming>;
/// An answer, whole.
pub(crate) type Response = http::Response<Full<Bytes>>;

/// What else went wrong with a body.
type Failure = Box<dyn Error + Send + Sync>;

/// Why there is no body: too long, or the client went away.
#[derive(Debug)]
pub(crate) struct NotRead;

/// Reads a body of so many bytes at most. One that comes in one piece is not copied; trailers say
/// nothing that is asked for here.
pub(crate) async fn read(
    body: impl Body<Data = Bytes, Error: Into<Failure>>,
    bytes_max: usize,
) -> Result<Bytes, NotRead> {
    let whole = Limited::new(body, bytes_max).collect().await;
    whole.map(Collected::to_bytes).map_err(|_| NotRead)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::Frame;

    use super::*;

    /// A body that comes in pieces; at the end, trailers.
    struct Pieces(VecDeque<Frame<Bytes>>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }
    }

    fn read_all(pieces: &[&'static str], bytes_max: usize) -> Option<Bytes> {
        let data = |piece: &&'static str| Frame::data(Bytes::from_static(piece.as_bytes()));
        let mut frames: VecDeque<_> = pieces.iter().map(data).collect();
        frames.push_back(Frame::trailers(http::HeaderMap::new()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(read(Pieces(frames), bytes_max)).ok()
    }

    #[test]
    fn pieces_are_joined_up_to_the_limit() {
        for (pieces, whole) in [(&[][..], ""), (&["abc"], "abc"), (&["", "a", "", "b", "c"], "abc")]
        {
            assert_eq!(read_all(pieces, 3).as_deref(), Some(whole.as_bytes()));
        }
        assert_eq!((read_all(&["abcd"], 3), read_all(&["ab", "cd"], 3)), (None, None));
    }
}
