//! `forebay import` and `forebay export`: data from an RDB file or a live server into a file or a
//! live server.
//!
//! ```text
//!  file   -- entries --> value -- RESTORE, pipelined --> server
//!  server -- SCAN, then DUMP and PTTL, pipelined --> payload --> file, or RESTORE
//! ```
//!
//! A live server goes on meanwhile: keys that change while they are copied arrive as they were at
//! some moment of it. Libraries of functions go along.

use std::fs::File;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bench::client::{Client, Protocol, append_command};
use bench::target::Target;
use indicatif::{ProgressBar, ProgressStyle};
use keyspace::value::Value as Data;
use persist::rdb::cursor::{Cursor, Scratch};
use persist::rdb::decode::Limits;
use persist::rdb::dump;
use persist::rdb::encode::Compression;
use persist::rdb::file::{self, NewFile};
use persist::rdb::reader::{Checksum, Item, Note, Reader, Use};
use persist::rdb::writer::{Header, Options};
use resp::reply::Value;
use server::admin::info::REDIS_VERSION;
use server::worker::now_ms;

/// Keys that are asked for or sent at once.
const BATCH_KEYS: usize = 256;
/// Bytes of requests that are sent at once, but for one large value.
const BATCH_BYTES: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(60);
/// The server that is meant if none is named.
const LOCAL: &str = "127.0.0.1:6379";

/// From where to where. A server is `[user:password@]host:port` or the path of its socket as
/// unix:PATH; anything else is a file.
#[derive(clap::Args)]
pub struct TransferArgs {
    /// The RDB file, or the other server: `redis://[user:password@]host:port`
    place: String,
    /// The server that is filled (import) or read (export)
    #[arg(long, default_value = LOCAL)]
    server: String,
    /// Overwrite keys that are there already
    #[arg(long)]
    replace: bool,
}

type Outcome = Result<u64, String>;

/// Runs `forebay import`.
pub fn import(args: &TransferArgs) -> ExitCode {
    report("import", copy(&args.place, &as_server(&args.server), args.replace))
}

/// Runs `forebay export`.
pub fn export(args: &TransferArgs) -> ExitCode {
    report("export", copy(&as_server(&args.server), &args.place, args.replace))
}

fn as_server(text: &str) -> String {
    if text.contains("://") { text.into() } else { format!("redis://{text}") }
}

fn report(name: &str, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(keys) => {
            println!("{keys} keys");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("forebay {name}: {text}");
            ExitCode::FAILURE
        }
    }
}

fn connect(text: &str) -> Option<Result<Client, String>> {
    let address = text.strip_prefix("redis://")?;
    let target: Result<Target, String> = format!("server={address}").parse();
    Some(target.and_then(|target| {
        Client::connect(&target, Protocol::Resp2, TIMEOUT)
            .map_err(|error| format!("{}: {error}", target.address))
    }))
}

/// One key on its way.
struct Key {
    db: usize,
    key: Vec<u8>,
    expire_at: Option<i64>,
    last_use: Use,
    value: Carried,
}

/// A value as its source has it.
enum Carried {
    Payload(Vec<u8>),
    Value(Data),
}

/// Where keys go.
enum Sink {
    File(Box<NewFile>),
    Server(Box<Filling>),
}

struct Filling {
    client: Client,
    replace: bool,
    db: usize,
    requests: Vec<u8>,
    count: usize,
}

impl Sink {
    fn open(text: &str, replace: bool) -> Result<Sink, String> {
        if let Some(client) = connect(text) {
            let client = client?;
            let filling = Filling { client, replace, db: 0, requests: Vec::new(), count: 0 };
            return Ok(Sink::Server(Box::new(filling)));
        }
        let header = Header {
            redis_version: REDIS_VERSION,
            created_s: now_ms() / 1000,
            ..Header::default()
        };
        let file = NewFile::create(Path::new(text), Options::default(), &header);
        file.map(|file| Sink::File(Box::new(file))).map_err(|error| format!("{text}: {error}"))
    }

    fn key(&mut self, key: Key) -> Result<(), String> {
        match self {
            Sink::Server(filling) => filling.key(key),
            Sink::File(file) => {
                let Some(writer) = &mut file.writer else { return Ok(()) };
                let value = match key.value {
                    Carried::Value(value) => value,
                    Carried::Payload(payload) => {
                        dump::restore(&payload, Limits::default(), Checksum::Verify)
                            .map_err(|why| format!("key {}: {why:?}", key.key.escape_ascii()))?
                    }
                };
                let (at, last_use) = (key.expire_at, key.last_use);
                let written = writer.entry(key.db, &key.key, value.as_ref(), at, last_use);
                written.map_err(|error| error.to_string())
            }
        }
    }

    fn function(&mut self, source: &[u8]) -> Result<(), String> {
        match self {
            Sink::Server(filling) => {
                let words = [b"FUNCTION".as_slice(), b"LOAD", b"REPLACE", source];
                filling.client.command(&words).map(|_| ()).map_err(|error| error.to_string())
            }
            Sink::File(file) => match &mut file.writer {
                Some(writer) => writer.function(source).map_err(|error| error.to_string()),
                None => Ok(()),
            },
        }
    }

    fn finish(self) -> Result<(), String> {
        match self {
            Sink::Server(mut filling) => filling.flush(),
            Sink::File(file) => file.finish().map_err(|error| error.to_string()),
        }
    }
}

impl Filling {
    fn key(&mut self, key: Key) -> Result<(), String> {
        if key.db != self.db {
            append_command(&mut self.requests, &["SELECT", &key.db.to_string()]);
            (self.db, self.count) = (key.db, self.count + 1);
        }
        let payload = match key.value {
            Carried::Payload(payload) => payload,
            Carried::Value(value) => dump::dump(value.as_ref(), Compression::Lzf),
        };
        let at = key.expire_at.unwrap_or(0).to_string();
        let mut words = vec![b"RESTORE".as_slice(), &key.key, at.as_bytes(), &payload, b"ABSTTL"];
        words.extend(self.replace.then_some(b"REPLACE".as_slice()));
        append_command(&mut self.requests, &words);
        self.count += 1;
        if self.count >= BATCH_KEYS || self.requests.len() >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        let sent = self.client.batch(&self.requests, self.count);
        self.requests.clear();
        self.count = 0;
        sent.map_err(|error| error.to_string())
    }
}

fn bar(total: u64, style: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style.progress_chars("━━╌"));
    }
    bar
}

fn copy(from: &str, to: &str, replace: bool) -> Outcome {
    let source = connect(from).transpose()?;
    match source {
        Some(client) => from_server(client, Sink::open(to, replace)?),
        None => {
            let (file, total) =
                file::open(Path::new(from)).map_err(|error| format!("{from}: {error}"))?;
            from_file(file, total, Sink::open(to, replace)?)
                .map_err(|text| format!("{from}: {text}"))
        }
    }
}

fn from_file(file: File, total: u64, mut sink: Sink) -> Outcome {
    let error = |error: persist::rdb::Error| error.to_string();
    let reader = Reader::new(file, Some(total), Checksum::Verify, Limits::default());
    let mut reader = reader.map_err(error)?;
    let bar = bar(total, "{bar:28.cyan/blue} {bytes}/{total_bytes} {eta_precise} {msg}");
    let (mut keys, now) = (0, now_ms());
    while let Some(item) = reader.next().map_err(error)? {
        match item {
            Item::Note(Note::Function(source)) => sink.function(&source)?,
            Item::Note(_) => {}
            Item::Entry(entry) => {
                let is_gone = entry.expire_at.is_some_and(|at| at <= now);
                let Some(value) = entry.value.filter(|_| !is_gone) else { continue };
                let value = Carried::Value(value);
                let (db, key, expire_at) = (entry.db, entry.key, entry.expire_at);
                sink.key(Key { db, key, expire_at, last_use: entry.last_use, value })?;
                keys += 1;
                bar.set_position(reader.offset());
            }
        }
    }
    sink.finish()?;
    bar.finish_and_clear();
    Ok(keys)
}

/// The databases that have keys, with their number.
fn databases(client: &mut Client) -> Result<Vec<(usize, u64)>, String> {
    let info = client.command(&["INFO", "keyspace"]).map_err(|error| error.to_string())?;
    let Value::Bulk(text) = info else { return Err("INFO gave no text".into()) };
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(text
        .lines()
        .filter_map(|line| {
            let (db, rest) = line.strip_prefix("db")?.split_once(":keys=")?;
            let keys = rest.split(',').next()?;
            Some((db.parse().ok()?, keys.parse().ok()?))
        })
        .collect())
}

fn from_server(mut client: Client, mut sink: Sink) -> Outcome {
    let databases = databases(&mut client)?;
    copy_functions(&mut client, &mut sink)?;
    let total = databases.iter().map(|(_, keys)| keys).sum();
    let bar = bar(total, "{bar:28.cyan/blue} {pos}/{len} keys {eta_precise} {msg}");
    let mut keys = 0;
    for (db, _) in databases {
        let text = |error: bench::client::Error| error.to_string();
        client.command(&["SELECT", &db.to_string()]).map_err(text)?;
        let mut cursor = b"0".to_vec();
        loop {
            let words = [b"SCAN".as_slice(), &cursor, b"COUNT", b"256"];
            let (next, found) = scanned(client.command(&words).map_err(text)?)?;
            keys += copy_keys(&mut client, &mut sink, db, &found)?;
            bar.set_position(keys);
            if next == b"0" {
                break;
            }
            cursor = next;
        }
    }
    sink.finish()?;
    bar.finish_and_clear();
    Ok(keys)
}

fn scanned(reply: Value) -> Result<(Vec<u8>, Vec<Vec<u8>>), String> {
    let wrong = || "SCAN gave something else than a cursor and keys".to_string();
    let Value::Array(parts) = reply else { return Err(wrong()) };
    let Ok([Value::Bulk(next), Value::Array(keys)]) = <[Value; 2]>::try_from(parts) else {
        return Err(wrong());
    };
    let keys = keys.into_iter().map(|key| match key {
        Value::Bulk(key) => Ok(key),
        _ => Err(wrong()),
    });
    Ok((next, keys.collect::<Result<_, _>>()?))
}

fn copy_keys(
    client: &mut Client,
    sink: &mut Sink,
    db: usize,
    keys: &[Vec<u8>],
) -> Result<u64, String> {
    let mut requests = Vec::new();
    for key in keys {
        append_command(&mut requests, &[b"DUMP".as_slice(), key]);
        append_command(&mut requests, &[b"PTTL".as_slice(), key]);
    }
    client.send(&requests).map_err(|error| error.to_string())?;
    let mut copied = 0;
    for key in keys {
        let (payload, ttl) = (client.read_reply(), client.read_reply());
        let payload = payload.map_err(|error| error.to_string())?;
        let ttl = ttl.map_err(|error| error.to_string())?;
        // A key that has gone since SCAN saw it has neither.
        let (Value::Bulk(payload), Value::Integer(ttl @ (-1 | 0..))) = (payload, ttl) else {
            continue;
        };
        let expire_at = (ttl >= 0).then(|| now_ms() + ttl.max(1));
        let value = Carried::Payload(payload);
        sink.key(Key { db, key: key.clone(), expire_at, last_use: Use::Unknown, value })?;
        copied += 1;
    }
    Ok(copied)
}

/// Copies libraries of functions, where the server has such.
fn copy_functions(client: &mut Client, sink: &mut Sink) -> Result<(), String> {
    let Ok(Value::Bulk(payload)) = client.command(&["FUNCTION", "DUMP"]) else { return Ok(()) };
    let opened = dump::opened(&payload, Checksum::Verify);
    let (_, content) = opened.ok_or("FUNCTION DUMP gave a damaged payload")?;
    let mut cursor = Cursor::new(content, 0);
    let mut scratch = Scratch::default();
    while cursor.left() > 0 {
        // The opcode of a library; nothing else is in there.
        cursor.reading("a library").byte().map_err(|error| error.to_string())?;
        let source = cursor.string(&mut scratch).map_err(|error| error.to_string())?;
        sink.function(source)?;
    }
    Ok(())
}
