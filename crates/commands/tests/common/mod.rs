//! Several clients on one keyspace, with what they cause kept to be looked at: log records, events,
//! replies to blocked clients.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod pair;
pub mod random_words;

use std::sync::{Arc, Mutex};

use forebay_commands::FAMILIES;
use forebay_commands::context::{Deliver, Host, Session};
use forebay_commands::engine::{Core, Turn};
use forebay_commands::registry::Registry;
use forebay_commands::testing::request_lines;
use keyspace::commit::{CommitLog, LogBatch};
use keyspace::effects::{Event, class};
use keyspace::keyspace::Keyspace;
use keyspace::random::Random;
use resp::{OwnedArgs, Writer};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn push(&self, line: String) {
        self.0.lock().expect("no test panics while it holds this").push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("as above"))
    }
}

impl CommitLog for Lines {
    fn append(&self, batch: LogBatch<'_>) -> u64 {
        request_lines(batch.bytes).into_iter().for_each(|line| self.push(line));
        0
    }
}

struct Recorder {
    events: Lines,
    delivered: Lines,
}

impl Host for Recorder {
    fn announce(&mut self, events: Vec<Event>) {
        for event in events {
            let key = String::from_utf8_lossy(&event.key).into_owned();
            self.events.push(format!("{} {key}", event.name));
        }
    }

    fn deliverer(&self, session: &Session) -> Deliver {
        let (delivered, id) = (self.delivered.clone(), session.id);
        Box::new(move |out| delivered.push(format!("{id}: {}", text(&out))))
    }
}

fn text(out: &Writer) -> String {
    let text = String::from_utf8_lossy(&out.to_vec()).replace("\r\n", " ");
    text.strip_suffix(' ').unwrap_or(&text).to_owned()
}

/// See the module.
pub struct Server {
    core: Core,
    sessions: Vec<Session>,
    random: Random,
    host: Recorder,
    log: Lines,
    /// The time that commands see.
    pub now_ms: i64,
}

impl Server {
    /// A server with four clients, in RESP2; the last one in RESP3.
    pub fn new() -> Server {
        let space = Keyspace::new(16, 1);
        let log = Lines::default();
        assert!(space.attach_log(Box::new(log.clone())).is_ok());
        let wanted = class::ALL | class::KEYEVENT;
        space.settings.notify.store(wanted, std::sync::atomic::Ordering::Relaxed);
        let mut sessions: Vec<Session> = (0..4).map(Session::new).collect();
        sessions[3].resp3 = true;
        Server {
            core: Core { space, registry: Registry::new(FAMILIES) },
            sessions,
            random: Random::new(11),
            host: Recorder { events: Lines::default(), delivered: Lines::default() },
            log,
            now_ms: 1_700_000_000_000,
        }
    }

    /// The settings, to be changed.
    pub fn settings(&self) -> &keyspace::settings::Settings {
        &self.core.space.settings
    }

    /// Runs one line as a client and returns the reply, line ends as spaces.
    pub fn run_as(&mut self, client: usize, line: &str) -> String {
        let words = resp::request::split_line(line.as_bytes()).expect("quotes close");
        let args = OwnedArgs::new(words);
        let mut out = Writer::new(self.sessions[client].resp3);
        let mut turn = Turn {
            core: &self.core,
            thread: 0,
            now_ms: self.now_ms,
            random: &mut self.random,
            host: &mut self.host,
        };
        turn.run(&mut self.sessions[client], &mut out, args.args());
        text(&out)
    }

    /// Removes the keys that are due, as a server does between commands.
    pub fn expire_due(&mut self) {
        let mut out = Writer::new(false);
        let mut turn = Turn {
            core: &self.core,
            thread: 0,
            now_ms: self.now_ms,
            random: &mut self.random,
            host: &mut self.host,
        };
        turn.expire_due(&mut self.sessions[0], &mut out, 100);
    }

    /// Runs one line as client 0.
    pub fn run(&mut self, line: &str) -> String {
        self.run_as(0, line)
    }

    /// Runs lines in order as client 0 and checks each reply.
    pub fn check(&mut self, cases: &[(&str, &str)]) {
        for (line, want) in cases {
            assert_eq!(self.run(line), *want, "{line}");
        }
    }

    /// As [`Server::check`], in RESP3.
    pub fn check3(&mut self, cases: &[(&str, &str)]) {
        for (line, want) in cases {
            assert_eq!(self.run_as(3, line), *want, "{line}");
        }
    }

    /// The words of the bulk strings in a reply, sorted.
    pub fn members(&mut self, line: &str) -> Vec<String> {
        let reply = self.run(line);
        let words = reply.split(' ').skip(1);
        let mut members: Vec<String> =
            words.filter(|word| !word.starts_with('$')).map(str::to_owned).collect();
        members.sort();
        members
    }

    /// What OBJECT ENCODING would say.
    pub fn encoding(&mut self, key: &str) -> &'static str {
        use keyspace::hasher::hash;
        use keyspace::keys::Keys;
        use keyspace::keyspace::shard_of;
        use keyspace::value::ValueRef;
        let space = &self.core.space;
        let held = space.lock_one(shard_of(hash(key.as_bytes())));
        let keys = Keys::new(space, held, space.tally(0), self.now_ms, Random::new(1));
        match keys.peek(key.as_bytes()) {
            Some(ValueRef::List(list)) => list.encoding(),
            Some(ValueRef::Set(set)) => set.encoding(),
            Some(ValueRef::Hash(hash)) => hash.encoding(),
            Some(ValueRef::Zset(set)) => set.encoding(),
            Some(ValueRef::Stream(_)) => "stream",
            _ => "none",
        }
    }

    /// The events since the last call: `lpush k`.
    pub fn events(&mut self) -> Vec<String> {
        self.host.events.take()
    }

    /// The log's commands since the last call.
    pub fn log(&mut self) -> Vec<String> {
        self.log.take()
    }

    /// The replies that blocked clients got since the last call: `2: *2 $1 k $1 v`.
    pub fn delivered(&mut self) -> Vec<String> {
        let delivered = self.host.delivered.take();
        for line in &delivered {
            let client: usize = line[..1].parse().expect("a client's number");
            self.sessions[client].blocked = None;
        }
        delivered
    }

    /// Whether a client waits.
    pub fn is_blocked(&self, client: usize) -> bool {
        self.sessions[client].blocked.is_some()
    }

    /// The reply a waiting client would get at its timeout, and when that is.
    pub fn timeout(&self, client: usize) -> (String, Option<i64>) {
        let blocked = self.sessions[client].blocked.as_ref().expect("it waits");
        let mut out = Writer::new(self.sessions[client].resp3);
        (blocked.block.on_timeout)(&mut out);
        (text(&out), blocked.block.deadline_ms.map(|at| at - self.now_ms))
    }
}
