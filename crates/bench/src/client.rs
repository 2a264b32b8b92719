//! A plain blocking client: logs in, asks for `INFO`, fills the keyspace before a run and checks
//! it afterwards. The measured requests themselves do not pass through it, only its connections do.
//!
//! **Invariant:** nothing here waits longer than the timeout given at connect.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use resp::reply::{self, Limits, Scanner, Value};

use crate::target::{Address, Target, TargetKind};

/// Which protocol the server is asked to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// What every server speaks without being asked.
    Resp2,
    /// Asked for by `HELLO 3`.
    Resp3,
}

/// Why a target could not be talked to.
#[derive(Debug)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl Error {
    /// An error of this wording.
    pub fn new(text: impl Into<String>) -> Self {
        Error(text.into())
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::new("no answer in time"),
            io::ErrorKind::UnexpectedEof => Error::new("server closed the connection"),
            _ => Error(error.to_string()),
        }
    }
}

impl From<reply::Error> for Error {
    fn from(error: reply::Error) -> Self {
        Error(format!("protocol error: {error}"))
    }
}

/// A connected socket of either family.
#[derive(Debug)]
pub enum Socket {
    /// TCP, without Nagle's delay.
    Tcp(TcpStream),
    /// A unix socket.
    Unix(UnixStream),
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(buffer),
            Socket::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection on which each request waits for its reply.
#[derive(Debug)]
pub struct Client {
    socket: Socket,
    buffer: Vec<u8>,
    scanner: Scanner,
}

impl Client {
    /// Connects and logs in.
    pub fn connect(target: &Target, protocol: Protocol, timeout: Duration) -> Result<Self, Error> {
        let socket = match &target.address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                Socket::Unix(stream)
            }
            address @ Address::Tcp(..) => {
                let address = address.resolve()?.ok_or_else(|| Error::new("no address"))?;
                let stream = TcpStream::connect_timeout(&address, timeout)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                Socket::Tcp(stream)
            }
        };
        let mut client = Client { socket, buffer: Vec::new(), scanner: Scanner::default() };
        if target.kind == TargetKind::Server {
            client.log_in(target, protocol)?;
        }
        Ok(client)
    }

    fn log_in(&mut self, target: &Target, protocol: Protocol) -> Result<(), Error> {
        if let Some(password) = &target.password {
            let mut auth = vec!["AUTH"];
            auth.extend(target.user.as_deref());
            auth.push(password);
            self.command(&auth)?;
        }
        if protocol == Protocol::Resp3 {
            self.command(&["HELLO", "3"])?;
        }
        Ok(())
    }

    /// Sends one command; an error reply is an error.
    pub fn command<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Value, Error> {
        let mut request = Vec::new();
        append_command(&mut request, words);
        self.socket.write_all(&request)?;
        self.read_reply()
    }

    /// Sends `requests`, which hold `count` commands, and drops the replies unless one is an error.
    pub fn batch(&mut self, requests: &[u8], count: usize) -> Result<(), Error> {
        self.socket.write_all(requests)?;
        for _ in 0..count {
            self.read_reply()?;
        }
        Ok(())
    }

    /// Sends requests whose replies are read one by one ([`Client::read_reply`]).
    pub fn send(&mut self, requests: &[u8]) -> Result<(), Error> {
        Ok(self.socket.write_all(requests)?)
    }

    /// Reads the next reply; an error reply is an error.
    pub fn read_reply(&mut self) -> Result<Value, Error> {
        let bytes = loop {
            if let Some(reply) = self.scanner.next(&self.buffer)? {
                break reply.bytes;
            }
            let filled = self.buffer.len();
            self.buffer.resize(filled + (64 << 10), 0);
            let received = self.socket.read(&mut self.buffer[filled..]);
            self.buffer.truncate(filled + *received.as_ref().unwrap_or(&0));
            if received? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        };
        let parsed = reply::parse(&self.buffer[..bytes], &Limits::default())?;
        self.buffer.drain(..bytes);
        match parsed {
            Some((Value::Error(text), _)) => Err(Error(String::from_utf8_lossy(&text).into())),
            Some((value, _)) => Ok(value),
            None => Err(Error::new("reply ended early")),
        }
    }

    /// The bare socket, once nothing is outstanding on it.
    pub fn into_socket(self) -> Socket {
        self.socket
    }
}

/// Appends a command as an array of bulk strings.
pub fn append_command<W: AsRef<[u8]>>(out: &mut Vec<u8>, words: &[W]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        let word = word.as_ref();
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}
