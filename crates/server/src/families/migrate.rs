//! MIGRATE: keys move to another server, over a connection that is kept for the next time.
//!
//! It works on the thread of its client and holds the keys' locks until the other server has
//! answered or the time is up, so nobody sees a key here and there at once, or in neither place.
//! A key leaves only after its own RESTORE was confirmed.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use commands::command::{
    Command, DANGEROUS, Family, Find, Group, KeySpec, MOVABLE_KEYS, RW_TAKE, WRITE,
};
use commands::context::Context;
use commands::error::Error;
use commands::words::{integer, is};
use keyspace::effects::class;
use persist::rdb::dump;
use persist::rdb::encode::Compression;
use resp::Args;
use resp::reply::{Limits, Value, parse};

use crate::hub::Hub;

/// A connection that nobody used for so long is closed, in milliseconds.
const IDLE_MS: i64 = 10_000;
/// Connections kept at most.
const KEPT_MAX: usize = 64;
/// The waiting time where the command gives none.
const TIMEOUT_MS: i64 = 1000;

const KEY: Find = Find::Unless { at: 3, keyword: "KEYS", from: 6, others: OTHERS };
const KEYS: Find = Find::Rest { keyword: "KEYS", from: 6, others: OTHERS };
const OTHERS: &[(&str, usize)] = &[("AUTH", 1), ("AUTH2", 2)];

/// The family.
pub const FAMILY: Family = Family {
    group: Group::Generic,
    commands: &[Command {
        name: "MIGRATE",
        run: migrate,
        flags: WRITE.with(DANGEROUS).with(MOVABLE_KEYS),
        keys: &[KeySpec { find: KEY, flags: RW_TAKE }, KeySpec { find: KEYS, flags: RW_TAKE }],
        usage: "host port <key | \"\"> destination-db timeout [COPY] [REPLACE] [AUTH password | \
                AUTH2 username password] [KEYS key [key ...]]",
        summary: "Moves keys to another server.",
        complexity: "O(N), N = bytes and elements",
        since: "2.6.0",
        tips: &["nondeterministic_output"],
        ..Command::DEFAULT
    }],
};

/// A connection to another server.
struct Target {
    name: Vec<u8>,
    stream: TcpStream,
    /// The database selected there, if any is known.
    db: Option<i64>,
    used_ms: i64,
}

/// The connections that no MIGRATE is using.
#[derive(Default)]
pub struct Targets(Mutex<Vec<Target>>);

impl Targets {
    /// How many are kept.
    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Closes those that were not used for ten seconds.
    pub fn tidy(&self, now_ms: i64) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|target| now_ms - target.used_ms <= IDLE_MS);
    }

    fn take(&self, name: &[u8]) -> Option<Target> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|target| target.name == name)?;
        Some(kept.swap_remove(at))
    }

    fn keep(&self, target: Target) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.push(target);
        }
    }
}

/// What the command's words ask for.
#[derive(Default)]
struct Wish<'a> {
    copies: bool,
    replaces: bool,
    /// AUTH's words after the name.
    auth: Vec<&'a [u8]>,
    keys: Vec<&'a [u8]>,
    db: i64,
    timeout: Duration,
}

fn wish(args: Args<'_>) -> Result<Wish<'_>, Error> {
    let mut wish = Wish { keys: vec![args.word(3)], ..Wish::default() };
    let mut at = 6;
    while at < args.len() {
        let (word, left) = (args.word(at), args.len() - at - 1);
        if is(word, "COPY") {
            wish.copies = true;
        } else if is(word, "REPLACE") {
            wish.replaces = true;
        } else if is(word, "AUTH") && left >= 1 {
            wish.auth = vec![args.word(at + 1)];
            at += 1;
        } else if is(word, "AUTH2") && left >= 2 {
            wish.auth = vec![args.word(at + 1), args.word(at + 2)];
            at += 2;
        } else if is(word, "KEYS") {
            if !args.word(3).is_empty() {
                return Err(Error::text(
                    "ERR When using MIGRATE KEYS option, the key argument must be set to the \
                     empty string",
                ));
            }
            wish.keys = (at + 1..args.len()).map(|index| args.word(index)).collect();
            break;
        } else {
            return Err(Error::SYNTAX);
        }
        at += 1;
    }
    let timeout = integer(args.word(5))?;
    wish.db = integer(args.word(4))?;
    let timeout = if timeout <= 0 { TIMEOUT_MS } else { timeout };
    wish.timeout = Duration::from_millis(timeout as u64);
    Ok(wish)
}

fn migrate(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let mut wish = wish(args)?;
    wish.keys.retain(|key| cx.keys.use_key(key));
    if wish.keys.is_empty() {
        cx.out.simple("NOKEY");
        return Ok(());
    }
    let name = [args.word(1), b":", args.word(2)].concat();
    let shared = std::sync::Arc::clone(&Hub::of(cx.host).shared);
    let mut kept = shared.migrate_targets.take(&name);
    loop {
        let was_kept = kept.is_some();
        let mut target = match kept.take() {
            Some(target) => target,
            None => connect(args, name.clone(), wish.timeout)
                .map_err(|_| Error::text("IOERR error or timeout connecting to the client"))?,
        };
        let mut moved = Vec::new();
        let result = send(cx, &mut target, &wish, &mut moved);
        if !wish.copies {
            remove(cx, &moved);
        }
        match result {
            Ok(refused) => {
                target.used_ms = cx.keys.now_ms();
                shared.migrate_targets.keep(target);
                return match refused {
                    None => {
                        cx.out.ok();
                        Ok(())
                    }
                    Some(text) => {
                        Err(Error::new(format!("ERR Target instance replied with error: {text}")))
                    }
                };
            }
            // The other server may have closed what was kept: once more, anew.
            Err((_, error)) if was_kept && moved.is_empty() && !is_timeout(&error) => {}
            Err((doing, _)) => {
                return Err(Error::new(format!(
                    "IOERR error or timeout {doing} to target instance"
                )));
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

fn connect(args: Args<'_>, name: Vec<u8>, timeout: Duration) -> io::Result<Target> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let host = std::str::from_utf8(args.word(1)).map_err(|_| invalid())?;
    let port = integer(args.word(2)).ok().and_then(|port| u16::try_from(port).ok());
    let mut last = invalid();
    for address in (host, port.ok_or_else(invalid)?).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(Target { name, stream, db: None, used_ms: 0 });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sends the keys and reads the answers; `moved` gets the keys that are there now. `Ok(Some)` is
/// the first error that the other server replied.
fn send<'a>(
    cx: &mut Context<'_>,
    target: &mut Target,
    wish: &Wish<'a>,
    moved: &mut Vec<&'a [u8]>,
) -> Result<Option<String>, (&'static str, io::Error)> {
    let now_ms = cx.keys.now_ms();
    let mut request = Vec::new();
    // What each answer is about: a key, or what comes before.
    let mut asked: Vec<Option<&[u8]>> = Vec::new();
    if !wish.auth.is_empty() {
        write_words(&mut request, &[&[&b"AUTH"[..]], &wish.auth[..]].concat());
        asked.push(None);
    }
    if target.db != Some(wish.db) {
        write_words(&mut request, &[b"SELECT", wish.db.to_string().as_bytes()]);
        asked.push(None);
    }
    for &key in &wish.keys {
        let ttl = cx.keys.expire_at(key).flatten().map_or(0, |at| (at - now_ms).max(1));
        let Some(value) = cx.keys.peek(key) else { continue };
        let payload = dump::dump(value, Compression::Lzf);
        let ttl = ttl.to_string();
        let mut words = vec![&b"RESTORE"[..], key, ttl.as_bytes(), &payload];
        if wish.replaces {
            words.push(b"REPLACE");
        }
        write_words(&mut request, &words);
        asked.push(Some(key));
    }
    let stream = &mut target.stream;
    let waits = stream.set_read_timeout(Some(wish.timeout));
    let writing = |error| ("writing", error);
    waits.and_then(|()| stream.set_write_timeout(Some(wish.timeout))).map_err(writing)?;
    stream.write_all(&request).map_err(writing)?;
    let (mut input, mut refused, mut is_let_in) = (Vec::new(), None, true);
    for about in asked {
        let reply = read_reply(stream, &mut input).map_err(|error| ("reading", error))?;
        match (about, reply) {
            (_, Value::Error(text)) => {
                refused = refused.or(Some(String::from_utf8_lossy(&text).into_owned()));
                // What follows a refused AUTH or SELECT is not where it was meant to be.
                is_let_in &= about.is_some();
            }
            (Some(key), _) if is_let_in => moved.push(key),
            _ => {}
        }
    }
    target.db = refused.is_none().then_some(wish.db);
    Ok(refused)
}

fn write_words(request: &mut Vec<u8>, words: &[&[u8]]) {
    request.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
}

/// The next reply; `input` keeps what came behind it.
fn read_reply(stream: &mut TcpStream, input: &mut Vec<u8>) -> io::Result<Value> {
    let mut buffer = [0; 4096];
    loop {
        match parse(input, &Limits::default()) {
            Ok(Some((value, bytes))) => {
                input.drain(..bytes);
                return Ok(value);
            }
            Ok(None) => {}
            Err(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => input.extend_from_slice(&buffer[..bytes]),
        }
    }
}

/// Takes out what is at the other server now; that is what the log gets to know.
fn remove(cx: &mut Context<'_>, moved: &[&[u8]]) {
    let mut words = vec![&b"DEL"[..]];
    for &key in moved {
        if cx.keys.remove(key) {
            cx.keys.notify(class::GENERIC, "del", key);
            words.push(key);
        }
    }
    if words.len() > 1 {
        cx.keys.rewrite(&words);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use crate::testing::Server;

    /// Another server that gives these answers to whoever comes, one connection after another.
    fn target(answers: &'static [&'static str]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("somebody comes");
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        port
    }

    #[test]
    fn only_what_was_confirmed_leaves() {
        let mut server = Server::new(&[]);
        server.check(&[("SET a 1", "+OK"), ("SET b 2", "+OK"), ("SET c 3", "+OK")]);
        let port = target(&["+OK\r\n+OK\r\n-BUSYKEY x\r\n+OK\r\n", "-ERR DB\r\n+OK\r\n"]);
        let line = format!("MIGRATE 127.0.0.1 {port} \"\" 9 2000 KEYS a none b c");
        let said = "-ERR Target instance replied with error: BUSYKEY x";
        assert_eq!(server.run(&line), said);
        server.check(&[("EXISTS a", ":0"), ("EXISTS b", ":1"), ("EXISTS c", ":0")]);
        assert_eq!(server.shared.migrate_targets.count(), 1);
        // What was kept has been closed there: it connects anew, and SELECT fails.
        let line = format!("MIGRATE 127.0.0.1 {port} b 9 2000 REPLACE");
        assert_eq!(server.run(&line), "-ERR Target instance replied with error: ERR DB");
        server.check(&[("EXISTS b", ":1")]);
        server.shared.migrate_targets.tidy(i64::MAX);
        assert_eq!(server.shared.migrate_targets.count(), 0);
    }

    #[test]
    fn wrong_words_are_refused() {
        let keys = "-ERR When using MIGRATE KEYS option, the key argument must be set to the \
                    empty string";
        Server::new(&[]).check(&[
            ("MIGRATE 127.0.0.1 1 k 0 10", "+NOKEY"),
            ("SET k v", "+OK"),
            ("MIGRATE 127.0.0.1 1 k 0 10 KEYS k", keys),
            ("MIGRATE 127.0.0.1 1 k 0 10 AUTH", "-ERR syntax error"),
            ("MIGRATE 127.0.0.1 1 k 0 10 AUTH2 a", "-ERR syntax error"),
            ("MIGRATE 127.0.0.1 1 k x 10", "-ERR value is not an integer or out of range"),
            ("MIGRATE 127.0.0.1 1 k 0 10", "-IOERR error or timeout connecting to the client"),
            ("MIGRATE h p k 0 1 AUTH KEYS", "-IOERR error or timeout connecting to the client"),
            ("EXISTS k", ":1"),
            ("COMMAND GETKEYS MIGRATE h p \"\" 0 1 COPY KEYS a b", "*2 $1 a $1 b"),
            ("COMMAND GETKEYS MIGRATE h p k 0 1 AUTH KEYS", "*1 $1 k"),
        ]);
    }
}
