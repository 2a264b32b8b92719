//! A client for tests of families: commands as text in, replies as text out, no server around.

use std::sync::{Arc, Mutex};

use keyspace::commit::{CommitLog, LogBatch};
use keyspace::effects::Event;
use keyspace::keyspace::Keyspace;
use keyspace::random::Random;
use resp::{OwnedArgs, Writer};

use crate::command::Family;
use crate::context::{Host, Session};
use crate::engine::{Core, Turn};
use crate::registry::Registry;

/// No server: it only remembers what is said to be published.
#[derive(Default)]
struct NoServer {
    events: Vec<String>,
}

impl Host for NoServer {
    fn announce(&mut self, events: Vec<Event>) {
        let text = |event: &Event| {
            format!("{}:{}:{}", event.db, event.name, String::from_utf8_lossy(&event.key))
        };
        self.events.extend(events.iter().map(text));
    }
}

/// A commit log that tests can read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl CommitLog for Log {
    fn append(&self, batch: LogBatch<'_>) -> u64 {
        let mut lines = self.0.lock().expect("no test panics while it logs");
        lines.extend(request_lines(batch.bytes));
        lines.len() as u64
    }
}

/// Requests as lines of words.
pub fn request_lines(bytes: &[u8]) -> Vec<String> {
    let mut parser = resp::Parser::default();
    let mut requests = resp::Requests::default();
    let (used, _) = parser.parse(bytes, Default::default(), usize::MAX, &mut requests);
    assert_eq!(used, bytes.len(), "the log's records are whole requests");
    let line = |index| {
        let words = requests.command(index, bytes);
        let words: Vec<_> = words.iter().map(String::from_utf8_lossy).collect();
        words.join(" ")
    };
    (0..requests.len()).map(line).collect()
}

/// A keyspace with every family of this crate and one client.
pub struct Client {
    /// The shared parts.
    pub core: Core,
    /// The client's state.
    pub session: Session,
    /// The time that commands see, in milliseconds since 1970.
    pub now_ms: i64,
    random: Random,
    server: NoServer,
    log: Log,
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl Client {
    /// An empty keyspace of 16 databases, in RESP2.
    pub fn new() -> Client {
        Client::with(&[])
    }

    /// The same, with these families of other crates as well.
    pub fn with(families: &[Family]) -> Client {
        let registry = Registry::new(&[crate::FAMILIES, families].concat());
        Client {
            core: Core { space: Keyspace::new(16, 1), registry },
            session: Session::new(1),
            now_ms: 1_700_000_000_000,
            random: Random::new(7),
            server: NoServer::default(),
            log: Log::default(),
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
        let text = String::from_utf8_lossy(&self.reply(words)).replace("\r\n", " ");
        text.strip_suffix(' ').unwrap_or(&text).to_string()
    }

    /// The reply's bytes as they are.
    pub fn reply<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Vec<u8> {
        let args = OwnedArgs::new(words);
        let mut out = Writer::new(self.session.resp3);
        self.turn(|turn, session| turn.run(session, &mut out, args.args()));
        out.to_vec()
    }

    /// Ends the client's wait, if it is blocked, as at its timeout; the reply's bytes.
    pub fn time_out(&mut self) -> Option<Vec<u8>> {
        let blocked = self.turn(|turn, session| turn.end_wait(session))?;
        let mut out = Writer::new(self.session.resp3);
        (blocked.block.on_timeout)(&mut out);
        Some(out.to_vec())
    }

    fn turn<T>(&mut self, run: impl FnOnce(&mut Turn<'_>, &mut Session) -> T) -> T {
        let mut turn = Turn {
            core: &self.core,
            thread: 0,
            now_ms: self.now_ms,
            random: &mut self.random,
            host: &mut self.server,
        };
        run(&mut turn, &mut self.session)
    }

    /// Runs a command and returns the keyspace events it caused, as `db:event:key`, if
    /// `notify-keyspace-events` asks for them.
    pub fn events(&mut self, line: &str) -> Vec<String> {
        self.server.events.clear();
        self.run(line);
        std::mem::take(&mut self.server.events)
    }

    /// Runs a command and returns what it wrote to the commit log.
    pub fn logged(&mut self, line: &str) -> Vec<String> {
        // Attached once only; the second time it is there already.
        let _ = self.core.space.attach_log(Box::new(self.log.clone()));
        self.run(line);
        std::mem::take(&mut *self.log.0.lock().expect("no test panics while it logs"))
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
