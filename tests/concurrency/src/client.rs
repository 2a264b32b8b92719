//! A RESP2 client of one connection: sends words, reads replies. It knows nothing of the server's
//! crates, so that a mistake in those cannot hide itself here.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longer than any wait a case asks for: a reply later than this counts as lost.
const REPLY_SECONDS_MAX: u64 = 60;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Status(String),
    Error(String),
    Integer(i64),
    Bulk(String),
    Array(Vec<Reply>),
    Nil,
}

/// What went wrong in words; the first one ends its case.
pub type Outcome<T> = Result<T, String>;

pub struct Client {
    reader: BufReader<TcpStream>,
    buffer: Vec<u8>,
}

impl Client {
    pub fn connect(address: &str) -> Outcome<Client> {
        let stream = TcpStream::connect(address).map_err(|e| format!("{address}: {e}"))?;
        let limit = Some(Duration::from_secs(REPLY_SECONDS_MAX));
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        stream.set_read_timeout(limit).map_err(|e| e.to_string())?;
        Ok(Client { reader: BufReader::new(stream), buffer: Vec::new() })
    }

    /// One command and its reply. An error reply ends the case.
    pub fn call<W: AsRef<str>>(&mut self, words: &[W]) -> Outcome<Reply> {
        self.queue(words);
        self.flush()?;
        match self.receive()? {
            Reply::Error(text) => Err(format!("{}: {text}", join(words))),
            reply => Ok(reply),
        }
    }

    /// Adds a command to what the next flush sends.
    pub fn queue<W: AsRef<str>>(&mut self, words: &[W]) {
        self.buffer.extend(format!("*{}\r\n", words.len()).bytes());
        for word in words {
            let word = word.as_ref();
            self.buffer.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
        }
    }

    pub fn flush(&mut self) -> Outcome<()> {
        let sent = self.reader.get_mut().write_all(&self.buffer);
        self.buffer.clear();
        sent.map_err(|e| format!("cannot send: {e}"))
    }

    pub fn receive(&mut self) -> Outcome<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or("an empty line for a reply")?;
        match kind {
            "+" => Ok(Reply::Status(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Integer(count(rest)?)),
            "$" => match usize::try_from(count(rest)?) {
                Ok(length_bytes) => self.bulk(length_bytes),
                Err(_) => Ok(Reply::Nil),
            },
            "*" => match usize::try_from(count(rest)?) {
                Ok(replies) => (0..replies).map(|_| self.receive()).collect::<Outcome<_>>(),
                Err(_) => return Ok(Reply::Nil),
            }
            .map(Reply::Array),
            _ => Err(format!("not a reply: {line:?}")),
        }
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        let bytes = self.reader.read_line(&mut line).map_err(|e| format!("no reply: {e}"))?;
        if bytes == 0 {
            return Err("the server closed the connection".to_owned());
        }
        line.strip_suffix("\r\n").map(str::to_owned).ok_or(format!("not a line: {line:?}"))
    }

    fn bulk(&mut self, length_bytes: usize) -> Outcome<Reply> {
        let mut body = vec![0; length_bytes + 2];
        self.reader.read_exact(&mut body).map_err(|e| format!("half a reply: {e}"))?;
        body.truncate(length_bytes);
        String::from_utf8(body).map(Reply::Bulk).map_err(|e| e.to_string())
    }
}

impl Reply {
    pub fn integer(&self) -> Outcome<i64> {
        match self {
            Reply::Integer(number) => Ok(*number),
            Reply::Bulk(text) => count(text),
            other => Err(format!("expected a number, found {other:?}")),
        }
    }

    pub fn array(self) -> Outcome<Vec<Reply>> {
        match self {
            Reply::Array(replies) => Ok(replies),
            other => Err(format!("expected an array, found {other:?}")),
        }
    }

    pub fn text(self) -> Outcome<String> {
        match self {
            Reply::Bulk(text) | Reply::Status(text) => Ok(text),
            other => Err(format!("expected a string, found {other:?}")),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

fn count(text: &str) -> Outcome<i64> {
    text.parse().map_err(|_| format!("not a number: {text:?}"))
}

fn join<W: AsRef<str>>(words: &[W]) -> String {
    words.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" ")
}
