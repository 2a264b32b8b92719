//! One connection of the load generator: bytes out, bytes in, and what is on its way.
//!
//! Sockets are edge-triggered and registered once for both directions. A read that did not fill
//! the buffer has taken everything there was, so the next edge cannot be missed and no second
//! read is spent on finding that out.

use std::io::{self, Read, Write};

use mio::{Interest, Poll, Token};

use crate::client::{Error, Socket};
use crate::target::Endpoint;
use crate::traffic::Traffic;

/// A request on its way.
#[derive(Clone, Copy, Default)]
pub struct InFlight<S> {
    /// What its reply is checked against.
    pub sent: S,
    /// When it was due, in nanoseconds since the phase began.
    pub due_ns: u64,
    /// When it was sent.
    pub sent_ns: u64,
}

/// Requests in flight, oldest first: a ring whose size is the pipeline's depth.
pub struct Ring<S> {
    slots: Vec<InFlight<S>>,
    first: usize,
    /// How many there are.
    pub count: usize,
}

impl<S: Copy + Default> Ring<S> {
    /// A ring with room for `depth` requests.
    pub fn new(depth: usize) -> Self {
        Ring { slots: vec![InFlight::default(); depth.next_power_of_two()], first: 0, count: 0 }
    }

    /// Adds the youngest.
    #[inline]
    pub fn push(&mut self, request: InFlight<S>) {
        debug_assert!(self.count < self.slots.len());
        let mask = self.slots.len() - 1;
        self.slots[(self.first + self.count) & mask] = request;
        self.count += 1;
    }

    /// The oldest; there has to be one.
    #[inline]
    pub fn front(&self) -> InFlight<S> {
        self.slots[self.first]
    }

    /// Removes the oldest.
    #[inline]
    pub fn pop(&mut self) {
        self.first = (self.first + 1) & (self.slots.len() - 1);
        self.count -= 1;
    }
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// All that there was.
    Drained,
    /// There may be more.
    More,
    /// The server has closed the connection; for traffic that goes on with a new one.
    Ended,
}

/// One connection.
pub struct Connection<T: Traffic> {
    stream: Stream,
    /// Requests not yet written, from `written` on.
    pub out: Vec<u8>,
    written: usize,
    /// Bytes received and not yet consumed: `input[start..end]`.
    pub input: Vec<u8>,
    /// Where they begin.
    pub start: usize,
    /// Where they end.
    pub end: usize,
    /// What they answer.
    pub in_flight: Ring<T::Sent>,
    /// How far the first of the replies has been read.
    pub reader: T::Reader,
    /// Whether the next request needs a new connection.
    pub is_ended: bool,
    /// Whether the server has closed its side: after what there is to read comes the end.
    pub is_closing: bool,
}

/// A socket as mio wants it.
enum Stream {
    Tcp(mio::net::TcpStream),
    Unix(mio::net::UnixStream),
}

impl Stream {
    fn new(socket: Socket) -> io::Result<Self> {
        Ok(match socket {
            Socket::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                Stream::Tcp(mio::net::TcpStream::from_std(stream))
            }
            Socket::Unix(stream) => {
                stream.set_nonblocking(true)?;
                Stream::Unix(mio::net::UnixStream::from_std(stream))
            }
        })
    }

    /// Begins to connect; the socket is writable once it has.
    fn connect(to: &Endpoint) -> io::Result<Self> {
        Ok(match to {
            Endpoint::Tcp(address) => {
                let stream = mio::net::TcpStream::connect(*address)?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            Endpoint::Unix(path) => Stream::Unix(mio::net::UnixStream::connect(path)?),
        })
    }

    fn register(&mut self, poll: &Poll, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self {
            Stream::Tcp(stream) => poll.registry().register(stream, token, interest),
            Stream::Unix(stream) => poll.registry().register(stream, token, interest),
        }
    }

    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }

    #[inline]
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(buffer),
            Stream::Unix(stream) => stream.write(buffer),
        }
    }
}

impl<T: Traffic> Connection<T> {
    /// Takes over a socket on which nothing is outstanding.
    pub fn new(socket: Socket, poll: &Poll, token: Token, depth: usize) -> io::Result<Self> {
        let mut stream = Stream::new(socket)?;
        stream.register(poll, token)?;
        Ok(Connection {
            stream,
            out: Vec::new(),
            written: 0,
            input: vec![0; 16 << 10],
            start: 0,
            end: 0,
            in_flight: Ring::new(depth),
            reader: T::Reader::default(),
            is_ended: false,
            is_closing: false,
        })
    }

    /// Begins to connect again if the last connection was ended. Nothing is in flight.
    #[inline]
    pub fn renew_if_ended(&mut self, poll: &Poll, token: Token, to: &Endpoint) -> io::Result<()> {
        if !self.is_ended {
            return Ok(());
        }
        debug_assert!(self.in_flight.count == 0, "an ended connection has nothing in flight");
        self.stream = Stream::connect(to)?;
        self.stream.register(poll, token)?;
        self.out.clear();
        (self.written, self.start, self.end) = (0, 0, 0);
        self.reader = T::Reader::default();
        (self.is_ended, self.is_closing) = (false, false);
        Ok(())
    }

    /// Writes what can be written.
    #[inline]
    pub fn flush(&mut self) -> Result<(), Error> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(Error::new("server closed the connection")),
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Reading tells it too.
                Err(error) if T::RENEWS && is_end(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads once.
    #[inline]
    pub fn fill(&mut self) -> Result<Filled, Error> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.input.len() {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end * 2 > self.input.len() {
                self.input.resize(self.input.len() * 2, 0);
            }
        }
        loop {
            match self.stream.read(&mut self.input[self.end..]) {
                Ok(0) if T::RENEWS => return Ok(Filled::Ended),
                Ok(0) => return Err(Error::new("server closed the connection")),
                Ok(bytes) => {
                    self.end += bytes;
                    // The end makes no edge of its own if it came together with the last bytes.
                    let is_more = self.is_closing || self.end == self.input.len();
                    return Ok(if is_more { Filled::More } else { Filled::Drained });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Filled::Drained);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if T::RENEWS && is_end(&error) => return Ok(Filled::Ended),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Whether the server has gone away from a connection that there was.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}
