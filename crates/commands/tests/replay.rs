//! The commit log says exactly what happened: random commands are run with a log attached, the log
//! is replayed into an empty keyspace, and both must hold the same keys, values and times to live.
//!
//! Every row of the table is tried, in several databases, in transactions and by blocked clients;
//! keys expire meanwhile, by lookup and by the clock.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use forebay_commands::FAMILIES;
use forebay_commands::command::{Command, Family, Group};
use forebay_commands::context::{Context, Host, Session};
use forebay_commands::engine::{Core, Turn};
use forebay_commands::error::Error;
use forebay_commands::registry::Registry;
use keyspace::commit::{CommitLog, LogBatch};
use keyspace::keys::Keys;
use keyspace::keyspace::Keyspace;
use keyspace::random::Random;
use keyspace::raw::listpack::Element;
use keyspace::raw::shards::ShardSet;
use keyspace::value::ValueRef;
use resp::request::{Limits, Parser};
use resp::{Args, OwnedArgs, Requests, Writer};

use common::random_words::{Trace, command};

const COMMANDS: usize = 6_000;
const SEEDS: u64 = 12;
const DATABASES: usize = 4;
const STRING_BYTES_MAX: u64 = 1 << 16;

/// The log: all records, the database selected in front of each batch.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<(Vec<u8>, Option<usize>)>>);

impl CommitLog for Log {
    fn append(&self, batch: LogBatch<'_>) -> u64 {
        let mut log = self.0.lock().expect("no test panics while it logs");
        if log.1 != Some(batch.first_db) {
            let db = batch.first_db.to_string();
            resp::write_request(&mut log.0, [&b"SELECT"[..], db.as_bytes()].into_iter());
        }
        log.1 = Some(batch.last_db);
        log.0.extend_from_slice(batch.bytes);
        log.0.len() as u64
    }
}

struct NoServer;

/// SELECT is the server's; it stands in logs.
const SELECT: Family = Family {
    group: Group::Connection,
    commands: &[Command { name: "SELECT", run: select, usage: "index", ..Command::DEFAULT }],
};

fn select(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let text = String::from_utf8_lossy(args.word(1)).into_owned();
    let db = text.parse().ok().filter(|db| *db < DATABASES);
    cx.session.db = db.ok_or(Error::text("ERR DB index is out of range"))?;
    cx.out.ok();
    Ok(())
}

impl Host for NoServer {}

struct Server {
    core: Core,
    sessions: Vec<Session>,
    random: Random,
    now_ms: i64,
}

impl Server {
    fn new() -> Server {
        let space = Keyspace::new(DATABASES, 1);
        space.settings.proto_max_bulk_len.store(STRING_BYTES_MAX, Ordering::Relaxed);
        Server {
            core: Core { space, registry: Registry::new(&[FAMILIES, &[SELECT]].concat()) },
            sessions: (0..3).map(Session::new).collect(),
            random: Random::new(5),
            now_ms: 1_700_000_000_000,
        }
    }

    fn with_turn<T>(&mut self, act: impl FnOnce(&mut Turn<'_>, &mut [Session]) -> T) -> T {
        let mut turn = Turn {
            core: &self.core,
            thread: 0,
            now_ms: self.now_ms,
            random: &mut self.random,
            host: &mut NoServer,
        };
        act(&mut turn, &mut self.sessions)
    }

    fn run(&mut self, client: usize, words: &[Vec<u8>]) -> Vec<u8> {
        let args = OwnedArgs::new(words);
        let mut out = Writer::new(false);
        self.with_turn(|turn, sessions| turn.run(&mut sessions[client], &mut out, args.args()));
        out.to_vec()
    }

    /// Ends the waits of clients that nobody has served.
    fn tidy(&mut self, client: usize) {
        self.with_turn(|turn, sessions| {
            let session = &mut sessions[client];
            if turn.end_wait(session).is_none()
                && let Some(blocked) = session.blocked.take()
            {
                turn.leave_lines(&blocked);
            }
        });
    }

    fn expire(&mut self) {
        self.with_turn(|turn, sessions| {
            turn.expire_due(&mut sessions[0], &mut Writer::new(false), 1000)
        });
    }

    /// Everything there is, in an order that does not depend on how it came there.
    fn contents(&self) -> BTreeMap<(usize, Vec<u8>), (String, Option<i64>)> {
        let space = &self.core.space;
        let held = space.lock(&ShardSet::ALL);
        let mut keys = Keys::new(space, held, space.tally(0), self.now_ms, Random::new(1));
        let mut all = BTreeMap::new();
        for db in 0..DATABASES {
            keys.select(db);
            keys.for_each(|entry| {
                let value = shown(entry.value());
                all.insert((db, entry.key().to_vec()), (value, entry.expire_at()));
            });
        }
        all
    }
}

fn shown(value: ValueRef<'_>) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    match value {
        ValueRef::Number(number) => number.to_string(),
        ValueRef::Bytes(bytes) => text(bytes),
        ValueRef::Shared(bytes) => text(bytes),
        ValueRef::List(list) => {
            list.iter().map(|one| text(&one.to_vec())).collect::<Vec<_>>().join(" ")
        }
        ValueRef::Set(set) => {
            let mut members: Vec<String> = set.iter().map(|one| text(&one.to_vec())).collect();
            members.sort();
            format!("set {}", members.join(" "))
        }
        ValueRef::Hash(hash) => {
            let pair = |(name, value): (Element<'_>, Element<'_>)| {
                let at = hash.expire_at(&name.to_vec()).flatten();
                format!("{}={} {at:?}", shown_element(name), shown_element(value))
            };
            let mut pairs: Vec<String> = hash.iter().map(pair).collect();
            pairs.sort();
            format!("hash {}", pairs.join(" "))
        }
        ValueRef::Zset(zset) => {
            let pair = |(a, score): (_, f64)| format!("{}={:x}", shown_element(a), score.to_bits());
            format!("zset {}", zset.iter().map(pair).collect::<Vec<_>>().join(" "))
        }
        ValueRef::Foreign(value) => format!("foreign {}", value.type_name()),
        ValueRef::Stream(_) => {
            let mut out = Vec::new();
            persist::aof::base::write_commands(&mut out, b"", value, None);
            text(&out)
        }
    }
}

fn shown_element(element: Element<'_>) -> String {
    element.to_vec().escape_ascii().to_string()
}

/// Replays a log into an empty keyspace, as a start of the server does.
fn replay(log: &[u8], now_ms: i64) -> Server {
    let mut server = Server::new();
    server.now_ms = now_ms;
    server.core.space.keeps_expired.store(true, Ordering::Relaxed);
    let mut requests = Requests::default();
    let limits = Limits { bulk_bytes_max: u64::MAX, unauthenticated: false };
    let (used, _) = Parser::default().parse(log, limits, usize::MAX, &mut requests);
    assert_eq!(used, log.len(), "the log is whole requests");
    let mut index = 0;
    while index < requests.len() {
        let mut out = Writer::new(false);
        let ran = server.with_turn(|turn, sessions| {
            turn.run_some(&mut sessions[0], &mut out, &requests, log, index)
        });
        let reply = out.to_vec();
        if reply.first() == Some(&b'-') {
            let words = requests.command(index, log);
            let words: Vec<String> = words.iter().map(|w| w.escape_ascii().to_string()).collect();
            panic!("{}: {}", words.join(" "), reply.escape_ascii());
        }
        index += ran;
    }
    server.core.space.keeps_expired.store(false, Ordering::Relaxed);
    server
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let mut server = Server::new();
    let log = Log::default();
    assert!(server.core.space.attach_log(Box::new(log.clone())).is_ok());
    let mut trace = Trace::default();
    for _ in 0..COMMANDS {
        let client = random.below(server.sessions.len());
        if server.sessions[client].blocked.is_some() && random.below(3) > 0 {
            server.tidy(client);
        }
        if server.sessions[client].blocked.is_some() {
            continue;
        }
        let ends = server.sessions[client].multi.is_some() && random.below(4) == 0;
        let words = match (ends, random.below(20)) {
            (true, _) => vec![b"EXEC".to_vec()],
            // Times to live that end within the run.
            (_, 0 | 1) => {
                let key = format!("k{}", random.below(12)).into_bytes();
                vec![b"PEXPIRE".to_vec(), key, random.below(300).to_string().into_bytes()]
            }
            (_, 2) => vec![b"SELECT".to_vec(), random.below(2).to_string().into_bytes()],
            _ => command(&mut random, server.core.registry.entries()),
        };
        trace.add(&words);
        server.run(client, &words);
        server.now_ms += random.below(3) as i64;
        if random.below(10) == 0 {
            server.expire();
        }
    }
    server.expire();
    let bytes = log.0.lock().expect("nobody logs any more").0.clone();
    assert!(bytes.len() > COMMANDS, "there is something to replay");
    let mut again = replay(&bytes, server.now_ms);
    again.expire();
    let (want, got) = (server.contents(), again.contents());
    let keys: std::collections::BTreeSet<_> = want.keys().chain(got.keys()).cloned().collect();
    for key in keys {
        let name = key.1.escape_ascii().to_string();
        if want.get(&key) != got.get(&key) {
            let lines = mentions(&bytes, &key.1);
            panic!(
                "seed {seed}, database {}, key {name}:\n{:?}\nafter the replay:\n{:?}\n{lines}",
                key.0,
                want.get(&key),
                got.get(&key)
            );
        }
    }
}

/// The last records that name a key.
fn mentions(log: &[u8], key: &[u8]) -> String {
    let lines = forebay_commands::testing::request_lines(log);
    let key = String::from_utf8_lossy(key).into_owned();
    let named = lines.iter().filter(|line| line.split(' ').any(|word| word == key));
    let named: Vec<&String> = named.collect();
    let last = named.len().saturating_sub(12);
    named[last..].iter().map(|line| line.escape_debug().to_string() + "\n").collect()
}

#[test]
fn the_log_says_what_happened() {
    (1..=SEEDS).for_each(run);
}
