//! A connection: its socket (plain or TLS), what has arrived and is not run yet, what is to be sent
//! and is not sent yet.

use std::collections::{HashSet, VecDeque};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use commands::context::Session;
use resp::request::ProtocolError;
use resp::{OwnedArgs, Parser, Writer};

use crate::client::Client;

/// The socket's kind.
pub enum Socket {
    /// TCP.
    Tcp(mio::net::TcpStream),
    /// A unix socket.
    Unix(mio::net::UnixStream),
}

impl Socket {
    /// Its number with the kernel.
    pub fn number(&self) -> RawFd {
        match self {
            Socket::Tcp(socket) => socket.as_raw_fd(),
            Socket::Unix(socket) => socket.as_raw_fd(),
        }
    }
}

/// A socket, with its TLS session if it has one.
pub struct Stream {
    /// The socket.
    pub socket: Socket,
    /// The TLS session.
    pub tls: Option<Box<rustls::ServerConnection>>,
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.read(buffer),
            Socket::Unix(socket) => socket.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write(bytes),
            Socket::Unix(socket) => socket.write(bytes),
        }
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write_vectored(pieces),
            Socket::Unix(socket) => socket.write_vectored(pieces),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.read(buffer) };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            if tls.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            if let Err(error) = tls.process_new_packets() {
                // The alert tells the client what is wrong.
                let _ = self.send_tls();
                return Err(io::Error::other(error));
            }
        }
    }
}

impl Stream {
    /// Whether a read that did not fill its buffer means that nothing is left: with TLS, only
    /// `WouldBlock` does.
    pub fn drains_on_short_read(&self) -> bool {
        self.tls.is_none()
    }

    /// Says goodbye as TLS does it, as far as that goes without waiting.
    pub fn say_goodbye(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = self.send_tls();
        }
    }

    /// Sends what TLS has encrypted or has itself to say: handshake, alerts. False while some is
    /// left.
    fn send_tls(&mut self) -> io::Result<bool> {
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                match tls.write_tls(&mut self.socket) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(true)
    }
}

/// Bytes on their way out.
enum Piece {
    Bytes(Vec<u8>),
    Shared(Arc<Vec<u8>>),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Bytes(bytes) => bytes,
            Piece::Shared(bytes) => bytes,
        }
    }
}

/// What could not be sent yet.
#[derive(Default)]
pub struct Unsent {
    pieces: VecDeque<Piece>,
    /// How much of the first piece has gone.
    sent: usize,
    bytes: usize,
}

impl Unsent {
    /// Bytes to go.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn push(&mut self, piece: Piece) {
        self.bytes += piece.bytes().len();
        if let (Some(Piece::Bytes(last)), Piece::Bytes(more)) = (self.pieces.back_mut(), &piece)
            && last.len() < 64 * 1024
        {
            return last.extend_from_slice(more);
        }
        self.pieces.push_back(piece);
    }

    /// Puts all of another behind what is there; of the other nothing has gone.
    fn take_over(&mut self, other: Unsent) {
        debug_assert_eq!(other.sent, 0);
        other.pieces.into_iter().for_each(|piece| self.push(piece));
    }

    /// The rest of the first piece.
    fn first(&self) -> Option<&[u8]> {
        self.pieces.front().map(|piece| &piece.bytes()[self.sent..])
    }

    /// Adds a reply of which `sent` bytes have gone already.
    fn push_rest(&mut self, out: &Writer, sent: usize) {
        let mut skip = sent;
        for (piece, shared) in out.pieces_shared() {
            if skip >= piece.len() {
                skip -= piece.len();
                continue;
            }
            match shared {
                // Only ever the first pushed, so that `sent` can say how much of it has gone.
                Some(block) if skip == 0 || self.pieces.is_empty() => {
                    self.sent = if self.pieces.is_empty() { skip } else { self.sent };
                    self.push(Piece::Shared(Arc::clone(block)));
                    self.bytes -= skip;
                }
                _ => self.push(Piece::Bytes(piece[skip..].to_vec())),
            }
            skip = 0;
        }
    }

    fn went(&mut self, mut count: usize) {
        self.bytes -= count;
        while count > 0 {
            let left = self.pieces[0].bytes().len() - self.sent;
            if count < left {
                self.sent += count;
                return;
            }
            count -= left;
            self.sent = 0;
            self.pieces.pop_front();
        }
    }
}

/// CLIENT REPLY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replies {
    /// Every command is answered.
    On,
    /// None is.
    Off,
    /// The next one is not.
    Skip,
}

/// What the server's own commands know of their connection. Lent to the hub while a command of
/// this connection runs.
pub struct Peer {
    /// What all threads can see of it.
    pub client: Arc<Client>,
    /// Has shown who it is, or need not.
    pub is_authenticated: bool,
    /// Channels it listens to.
    pub channels: HashSet<Vec<u8>>,
    /// Patterns it listens by.
    pub patterns: HashSet<Vec<u8>>,
    /// Shard channels it listens to.
    pub shard_channels: HashSet<Vec<u8>>,
    /// CLIENT REPLY.
    pub replies: Replies,
    /// The running command's reply is not sent, by CLIENT REPLY; pushed messages are.
    pub mutes: bool,
    /// To be closed once its replies are sent.
    pub closes: bool,
    /// What it waits for in WAITAOF.
    pub wish: Option<crate::aof::commands::Wish>,
}

impl Peer {
    /// A new connection's part.
    pub fn new(client: Arc<Client>, is_authenticated: bool) -> Peer {
        Peer {
            client,
            is_authenticated,
            channels: HashSet::new(),
            patterns: HashSet::new(),
            shard_channels: HashSet::new(),
            replies: Replies::On,
            mutes: false,
            closes: false,
            wish: None,
        }
    }

    /// Number of subscriptions of all kinds.
    pub fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.shard_channels.len()
    }
}

/// See the module.
pub struct Connection {
    /// The socket.
    pub stream: Stream,
    /// The part that the server's commands see.
    pub peer: Box<Peer>,
    /// The part that all commands see.
    pub session: Session,
    /// The protocol's state.
    pub parser: Parser,
    /// Bytes of a command that has not all arrived, or that waits behind one that blocks.
    pub input: Vec<u8>,
    /// Commands that wait behind one that blocks or that is held back by CLIENT PAUSE.
    pub queue: VecDeque<OwnedArgs>,
    /// What could not be sent yet.
    pub unsent: Unsent,
    /// Since when the soft output limit has been exceeded, in milliseconds since 1970; 0 = not.
    pub soft_limit_since_ms: i64,
    /// Whether the socket may have more to read.
    pub may_read: bool,
    /// How many bytes the last read brought.
    pub last_read_bytes: usize,
    /// How many bytes at the end of `input` were read ahead of this connection's turn.
    pub ahead: Option<usize>,
    /// The client has shut down its side: there is an end to be read.
    pub read_closed: bool,
    /// Something went wrong that ends it at once, whatever is left to send.
    pub is_broken: bool,
    /// Held back by CLIENT PAUSE.
    pub is_held: bool,
    /// CLIENT REPLY SKIP stood before the command that it waits for.
    pub skips_wait: bool,
    /// What is wrong with the input behind the queued commands.
    pub error: Option<ProtocolError>,
    /// Pushed messages wait in `unsent` for the end of the turn.
    pub is_to_flush: bool,
    /// Replies that wait until the log is safe up to a position.
    pub held: VecDeque<(u64, Unsent)>,
}

/// What TLS is given to encrypt at a time: what waits beyond that is counted in `unsent`.
const TLS_BYTES: usize = 64 * 1024;

impl Connection {
    /// Sends a reply, as much as goes; the rest is kept.
    pub fn send(&mut self, out: &Writer) -> io::Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        if self.stream.tls.is_some() {
            self.unsent.push_rest(out, 0);
            return self.send_rest().map(|_| ());
        }
        let sent = if self.unsent.bytes > 0 {
            0
        } else if out.has_shared() {
            send_pieces(&mut self.stream.socket, out)?
        } else {
            send_some(&mut self.stream.socket, out.bytes())?
        };
        if sent < out.len() {
            let was_empty = self.unsent.bytes == 0;
            self.unsent.push_rest(out, sent);
            // One write takes so many pieces and no more. Only a socket that has refused some tells
            // when it has room again.
            if was_empty && out.has_shared() {
                return self.send_rest().map(|_| ());
            }
        }
        Ok(())
    }

    /// Adds bytes behind what waits to be sent; the caller sees to it that they are.
    pub fn push(&mut self, bytes: &[u8]) {
        let last = self.held.back_mut().map_or(&mut self.unsent, |(_, held)| held);
        last.push(Piece::Bytes(bytes.to_vec()));
    }

    /// Keeps a reply until the log is safe up to `position`, which is no lower than those before.
    pub fn hold(&mut self, position: u64, out: &Writer) {
        match self.held.back_mut() {
            Some((last, held)) if *last >= position => held.push_rest(out, 0),
            _ => {
                let mut held = Unsent::default();
                held.push_rest(out, 0);
                self.held.push_back((position, held));
            }
        }
    }

    /// Whether replies are held.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Moves what may be sent, now that the log is safe up to `durable`, to what is being sent.
    pub fn release(&mut self, durable: u64) {
        while let Some((_, held)) = self.held.pop_front_if(|(position, _)| *position <= durable) {
            self.unsent.take_over(held);
        }
    }

    fn send_rest_tls(&mut self) -> io::Result<bool> {
        loop {
            if !self.stream.send_tls()? {
                return Ok(false);
            }
            let Some(first) = self.unsent.first() else { return Ok(true) };
            let count = first.len().min(TLS_BYTES);
            let Some(tls) = &mut self.stream.tls else { return Ok(true) };
            tls.writer().write_all(&first[..count])?;
            self.unsent.went(count);
        }
    }

    /// Sends what is left; false while some still is.
    pub fn send_rest(&mut self) -> io::Result<bool> {
        if self.stream.tls.is_some() {
            return self.send_rest_tls();
        }
        while self.unsent.bytes > 0 {
            let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(16);
            for (index, piece) in self.unsent.pieces.iter().take(16).enumerate() {
                let skip = if index == 0 { self.unsent.sent } else { 0 };
                slices.push(IoSlice::new(&piece.bytes()[skip..]));
            }
            match self.stream.socket.write_vectored(&slices) {
                Ok(count) => self.unsent.went(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether the reply to what it waited for is not to be sent (CLIENT REPLY).
    pub fn is_mute(&self) -> bool {
        self.skips_wait || self.peer.replies == Replies::Off
    }

    /// Bytes that wait to be sent.
    pub fn unsent_bytes(&self) -> usize {
        self.unsent.bytes() + self.held.iter().map(|(_, held)| held.bytes()).sum::<usize>()
    }

    /// Whether what was written has all gone.
    pub fn is_flushed(&self) -> bool {
        self.unsent.bytes == 0
            && self.held.is_empty()
            && !self.stream.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Bytes that have arrived and not been run, those of a transaction's queue included.
    pub fn input_bytes(&self) -> usize {
        let queued: usize = self.queue.iter().map(OwnedArgs::bytes).sum();
        let multi = self.session.multi.as_ref().map_or(0, |multi| multi.bytes);
        self.input.len() + self.parser.held_bytes() + queued + multi
    }
}

fn send_some(socket: &mut Socket, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match socket.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn send_pieces(socket: &mut Socket, out: &Writer) -> io::Result<usize> {
    let slices: Vec<IoSlice<'_>> = out.pieces().take(64).map(IoSlice::new).collect();
    loop {
        match socket.write_vectored(&slices) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
