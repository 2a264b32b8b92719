//! A client for tests of families: commands as text in, replies as text out, no server around.

use keyspace::keyspace::Keyspace;
use keyspace::random::Random;
use resp::{OwnedArgs, Writer};

use crate::context::{Host, Session};
use crate::engine::{Core, Turn};
use crate::registry::Registry;

struct NoServer;
impl Host for NoServer {}

/// A keyspace with every family of this crate and one client.
pub struct Client {
    /// The shared parts.
    pub core: Core,
    /// The client's state.
    pub session: Session,
    /// The time that commands see, in milliseconds since 1970.
    pub now_ms: i64,
    random: Random,
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl Client {
    /// An empty keyspace of 16 databases, in RESP2.
    pub fn new() -> Client {
        Client {
            core: Core { space: Keyspace::new(16, 1), registry: Registry::new(crate::FAMILIES) },
            session: Session::new(1),
            now_ms: 1_700_000_000_000,
            random: Random::new(7),
        }
    }

    /// Answers in RESP3 from now on.
    pub fn resp3(mut self) -> Client {
        self.session.resp3 = true;
        self
    }

    /// Runs a command given as one line (quotes as in redis-cli) and returns the reply's bytes as
    /// text, `\r\n` written as a space: `*2 $1 a $1 b`.
    pub fn run(&mut self, line: &str) -> String {
        let words = resp::request::split_line(line.as_bytes()).expect("quotes close");
        self.run_words(&words)
    }

    /// As [`Client::run`], for words of any bytes.
    pub fn run_words<W: AsRef<[u8]>>(&mut self, words: &[W]) -> String {
        let args = OwnedArgs::new(words);
        let mut out = Writer::new(self.session.resp3);
        let mut turn = Turn {
            core: &self.core,
            thread: 0,
            now_ms: self.now_ms,
            random: &mut self.random,
            host: &mut NoServer,
        };
        turn.run(&mut self.session, &mut out, args.args());
        let text = String::from_utf8_lossy(&out.to_vec()).replace("\r\n", " ");
        text.strip_suffix(' ').unwrap_or(&text).to_string()
    }

    /// Runs lines in order and checks each reply: `[("SET k v", "+OK")]`.
    ///
    /// # Panics
    /// At the first reply that is not the expected one.
    pub fn check(&mut self, cases: &[(&str, &str)]) {
        for (line, want) in cases {
            assert_eq!(self.run(line), *want, "{line}");
        }
    }
}
