//! Bodies of requests and answers.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use http_body_util::Full;
use hyper::body::{Body, Incoming};

/// A request whose body is still on its way.
pub(crate) type Request = http::Request<Incoming>;
/// An answer, whole.
pub(crate) type Response = http::Response<Full<Bytes>>;

/// Why there is no body: too long, or the client went away.
#[derive(Debug)]
pub(crate) struct NotRead;

/// Reads a body of so many bytes at most. One that comes in one piece is not copied.
pub(crate) async fn read(
    mut body: impl Body<Data = Bytes> + Unpin,
    bytes_max: usize,
) -> Result<Bytes, NotRead> {
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        // Trailers say nothing that is asked for here.
        let Ok(data) = frame.map_err(|_| NotRead)?.into_data() else { continue };
        if first.len() + joined.len() + data.len() > bytes_max {
            return Err(NotRead);
        }
        if first.is_empty() && joined.is_empty() {
            first = data;
        } else {
            joined.extend_from_slice(&std::mem::take(&mut first));
            joined.extend_from_slice(&data);
        }
    }
    Ok(if joined.is_empty() { first } else { joined.freeze() })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
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
