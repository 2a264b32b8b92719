//! Loading the append-only file: at start, in a thread of its own, while clients are told to wait;
//! and again for DEBUG LOADAOF.
//!
//! **Invariant:** nothing expires while a log is replayed, and nothing is logged: the log says
//! itself what went when.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use commands::command::{ADMIN, NO_SCRIPT, PUBSUB, WRITE};
use commands::context::{Host, Script, Session, Tick};
use commands::engine::{BACKGROUND, Turn};
use commands::error::Error;
use commands::registry::Entry;
use keyspace::effects::Freeing;
use keyspace::keys::Keys;
use keyspace::load::OnDuplicate;
use keyspace::random::Random;
use keyspace::raw::shards::ShardSet;
use persist::aof::files::{Files, is_last};
use persist::aof::log::{Attached, Target};
use persist::aof::manifest::Member;
use persist::aof::reader::{Damage, Kind, Outcome, Taker, read};
use persist::disk::{DataFile, Open};
use resp::request::{Limits, Parser, Stop};
use resp::{Args, Requests, Writer};

use super::{Aof, Phase};
use crate::connection::Peer;
use crate::hub::Hub;
use crate::options::index_of;
use crate::persistence::load::{Expired, load_source};
use crate::shared::Shared;
use crate::sys;
use crate::worker::now_ms;

/// What the files begin with that are snapshots.
const RDB_MAGIC: &[u8] = b"REDIS";
/// Commands parsed at a time.
const COMMANDS: usize = 512;

/// Files to be loaded at start.
pub struct Recovery(Files);

/// Reads the manifest, before anything is opened; nothing if the file is off.
pub fn prepare(shared: &Shared) -> Result<Option<Recovery>, String> {
    if !shared.options.is_on(const { index_of("appendonly") }) {
        return Ok(None);
    }
    let files = open_files(shared)?;
    let mut state = shared.aof.state();
    (state.phase, state.wants_rewrite) = (Phase::On, false);
    drop(state);
    Ok(Some(Recovery(files)))
}

/// The files as the options name them.
pub fn open_files(shared: &Shared) -> Result<Files, String> {
    let options = &shared.options;
    let dir = options.text(const { index_of("dir") });
    let folder = options.text(const { index_of("appenddirname") });
    let name = options.text(const { index_of("appendfilename") });
    let disk = Arc::clone(&shared.aof.disk);
    Files::open(disk, Path::new(&dir), &folder, &name).map_err(|error| error.to_string())
}

/// Loads what there is in the background, if there is anything; until that is done clients are
/// answered -LOADING.
pub fn begin(shared: &Arc<Shared>, recovery: Recovery) -> io::Result<()> {
    let total = recovery.0.total_bytes();
    if total == 0 {
        // Nothing to load: the first client need not wait, as with Redis.
        run(shared, recovery);
        return Ok(());
    }
    shared.persistence.begin_loading(total, now_ms());
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("load".into());
    thread.spawn(move || {
        let _registered = sys::register_thread();
        run(&shared, recovery);
        shared.persistence.end_loading();
    })?;
    Ok(())
}

/// Loads what there is and turns the log on; on an error the server ends.
fn run(shared: &Arc<Shared>, recovery: Recovery) {
    let Recovery(mut files) = recovery;
    let started = Instant::now();
    let result = load(shared, shared.threads(), &files).and_then(|loaded| {
        files.remove_leftovers();
        let suffix = if uses_rdb(shared) { "rdb" } else { "aof" };
        let target = files.open_at_start(suffix, || super::rewriting::empty_base(shared));
        Ok((loaded, target.map_err(|error| error.to_string())?))
    });
    match result {
        Ok((loaded, target)) => {
            if loaded {
                let seconds = started.elapsed().as_secs_f64();
                tracing::info!("DB loaded from append only file: {seconds:.3} seconds");
            }
            turn_on(shared, files, target);
        }
        Err(why) => {
            shared.persistence.fail(why);
            shared.stop();
        }
    }
}

fn turn_on(shared: &Shared, files: Files, target: Target) {
    let aof = &shared.aof;
    let (last, total) = (target.len, files.total_bytes());
    aof.log.switch(target);
    shared.core.space.set_logging(true);
    let mut state = aof.state();
    state.other_bytes = total.saturating_sub(last);
    state.base_bytes = total;
    state.files = Some(files);
    state.wants_collection = !shared.options.is_on(const { index_of("aof-disable-auto-gc") });
    drop(state);
    aof.changed.notify_all();
}

/// Whether bases are snapshots.
pub fn uses_rdb(shared: &Shared) -> bool {
    shared.options.is_on(const { index_of("aof-use-rdb-preamble") })
}

/// Attaches the log to the keyspace, turned off.
pub fn attach(shared: &Shared) {
    let attached = Box::new(Attached(Arc::clone(&shared.aof.log)));
    assert!(shared.core.space.attach_log(attached).is_ok(), "attached once");
    shared.core.space.set_logging(false);
}

/// Loads the files in order as the thread of this number; whether there was anything.
fn load(shared: &Arc<Shared>, thread: usize, files: &Files) -> Result<bool, String> {
    let manifest = files.manifest();
    if manifest.is_empty() {
        return Ok(false);
    }
    let disk = files.disk();
    let mut total = 0;
    for member in manifest.live() {
        let len = disk.len(&files.path(member)).map_err(|error| {
            let text = sys::error_text(&error);
            format!("Fatal error: the append log file {} cannot be read: {text}", member.name)
        })?;
        total += len;
    }
    let space = &shared.core.space;
    space.keeps_expired.store(true, Ordering::SeqCst);
    let mut before = 0;
    let result = manifest.live().try_for_each(|member| {
        let started = Instant::now();
        let loaded = load_one(shared, thread, files, member, before)?;
        before += loaded;
        let what = if manifest.base.as_ref() == Some(member) { "base" } else { "incr" };
        let seconds = started.elapsed().as_secs_f64();
        tracing::info!("DB loaded from {what} file {}: {seconds:.3} seconds", member.name);
        Ok(())
    });
    space.keeps_expired.store(false, Ordering::SeqCst);
    result.map(|()| total > 0)
}

/// Loads one file; its bytes.
fn load_one(
    shared: &Arc<Shared>,
    thread: usize,
    files: &Files,
    member: &Member,
    before: u64,
) -> Result<u64, String> {
    let name = &member.name;
    let path = files.path(member);
    let cannot = |error: io::Error| {
        let text = sys::error_text(&error);
        format!("Unrecoverable error reading the append only file {name}: {text}")
    };
    let file = files.disk().open(&path, Open::Read).map_err(cannot)?;
    let mut magic = [0; RDB_MAGIC.len()];
    let is_rdb = file.read_at(&mut magic, 0).map_err(cannot)? == magic.len() && magic == RDB_MAGIC;
    let from = if is_rdb { load_preamble(shared, name, file.as_ref(), before)? } else { 0 };
    let mut replay = Replay::new(shared, thread, before);
    let outcome = read(file.as_ref(), from, false, &mut replay).map_err(cannot)?;
    if replay.failed > 0 {
        tracing::warn!("{} commands of {name} were answered by errors", replay.failed);
    }
    let Some(damage) = &outcome.damage else { return Ok(outcome.size) };
    mend(shared, files, member, &outcome, damage)?;
    Ok(outcome.valid_to)
}

/// Cuts a torn end off, where the options allow it; else says what is wrong.
fn mend(
    shared: &Shared,
    files: &Files,
    member: &Member,
    outcome: &Outcome,
    damage: &Damage,
) -> Result<(), String> {
    let Member { name, .. } = member;
    let Damage { kind, offset, what } = damage;
    let options = &shared.options;
    let tail = outcome.size - outcome.valid_to;
    let is_torn = matches!(kind, Kind::Short | Kind::OpenTransaction);
    let corrupt_max = options.number(const { index_of("aof-load-corrupt-tail-max-size") }) as u64;
    if *kind == Kind::Refused {
        return Err(format!("{what} reading the append only file {name} (at offset {offset})"));
    }
    if !is_torn && (tail > corrupt_max || !is_last(files.manifest(), member)) {
        return Err(format!(
            "Bad file format reading the append only file {name}: make a backup of your AOF file, \
             then use ./redis-check-aof --fix <filename.manifest> (at offset {offset}: {what})"
        ));
    }
    if *kind == Kind::OpenTransaction {
        tracing::warn!("Revert incomplete MULTI/EXEC transaction in AOF file {name}");
    }
    if !is_last(files.manifest(), member) {
        return Err(format!(
            "Fatal error: the truncated file is not the last file ({name} at offset {offset}: \
             {what})"
        ));
    }
    if is_torn && !options.is_on(const { index_of("aof-load-truncated") }) {
        return Err(format!(
            "Unexpected end of file reading the append only file {name}. You can: 1) Make a backup \
             of your AOF file, then use ./redis-check-aof --fix <filename.manifest>. 2) \
             Alternatively you can set the 'aof-load-truncated' configuration option to yes and \
             restart the server. (at offset {offset}: {what})"
        ));
    }
    let valid_to = outcome.valid_to;
    tracing::warn!("!!! Warning: short read while loading the AOF file {name}!!!");
    tracing::warn!("AOF {name}: {what}");
    tracing::warn!("!!! Truncating the AOF {name} at offset {valid_to} !!!");
    let file = files.disk().open(&files.path(member), Open::Update);
    file.and_then(|file| file.truncate(valid_to).and_then(|()| file.sync())).map_err(|error| {
        format!("Error truncating the AOF file {name}: {}", sys::error_text(&error))
    })?;
    tracing::warn!("AOF {name} loaded anyway because aof-load-truncated is enabled");
    Ok(())
}

/// A data file as a stream.
struct Stream<'a> {
    file: &'a dyn DataFile,
    at: u64,
}

impl io::Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Loads the snapshot that a file begins with; where it ends.
fn load_preamble(
    shared: &Shared,
    name: &str,
    file: &dyn DataFile,
    before: u64,
) -> Result<u64, String> {
    tracing::info!("Reading RDB base file on AOF loading...");
    let total = file.len().map_err(|error| sys::error_text(&error))?;
    let stream = Stream { file, at: 0 };
    let result = load_source(shared, stream, total, OnDuplicate::Refuse, Expired::Kept);
    let (_, rest, stream) = result.map_err(|error| {
        format!("Error reading the RDB base file {name}, AOF loading aborted ({error})")
    })?;
    let end = stream.at - rest.len() as u64;
    shared.persistence.progress().bytes.store(before + end, Ordering::Relaxed);
    Ok(end)
}

/// The server around commands that are replayed: a hub and a client of their own, so that any
/// command finds what it asks for. Nothing is counted or published, and what takes long is told.
pub(crate) struct Replaying {
    /// Found by [`crate::hub::Hub::try_of`].
    pub(crate) hub: Hub,
    /// Milliseconds from which a script is long; 0 = never.
    busy_ms: i64,
}

impl Replaying {
    fn new(shared: &Arc<Shared>) -> Replaying {
        let mut hub = Hub::new(Arc::clone(shared), BACKGROUND, 0x0a0f);
        hub.peer = Some(Box::new(Peer::new(Arc::default(), true)));
        let busy_ms = shared.options.number(const { index_of("busy-reply-threshold") });
        Replaying { hub, busy_ms }
    }
}

impl Host for Replaying {
    /// No server of ours logs them; another's file may have them, and must not govern this server.
    fn admit(&mut self, _: &mut Session, entry: &Entry, _: Args<'_>) -> Result<(), Error> {
        let flags = entry.command.flags;
        let governs = flags.has(ADMIN) || flags.has(PUBSUB) && flags.has(NO_SCRIPT);
        if governs && !flags.has(WRITE) {
            return Err(Error::text("ERR not replayed from an append-only file"));
        }
        Ok(())
    }

    fn script_tick(&mut self, script: &Script) -> Tick {
        let ran_ms = now_ms() - script.started_ms;
        script.ran_ms.store(ran_ms, Ordering::Relaxed);
        let is_long = self.busy_ms > 0 && ran_ms >= self.busy_ms;
        if is_long && !script.is_busy.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "Slow script detected: still in execution after {ran_ms} milliseconds, replayed \
                 from the append-only file. Script name is: {}.",
                script.name
            );
        }
        // What is in the file has been written: it is not cut short.
        Tick::GoOn
    }
}

/// Runs commands without clients.
struct Replay<'a> {
    shared: &'a Arc<Shared>,
    thread: usize,
    before: u64,
    session: Session,
    out: Writer,
    random: Random,
    host: Replaying,
    requests: Requests,
    failed: u64,
}

impl<'a> Replay<'a> {
    fn new(shared: &'a Arc<Shared>, thread: usize, before: u64) -> Replay<'a> {
        Replay {
            shared,
            thread,
            before,
            session: Session::new(0),
            out: Writer::new(false),
            random: Random::new(thread as u64 ^ 0x0a0f),
            host: Replaying::new(shared),
            requests: Requests::default(),
            failed: 0,
        }
    }

    fn run(&mut self, bytes: &[u8]) -> Result<(), String> {
        let registry = &self.shared.core.registry;
        let now_ms = now_ms();
        self.host.hub.now_ms = now_ms;
        let mut index = 0;
        while index < self.requests.len() {
            let words = self.requests.command(index, bytes);
            if registry.named(words).is_err() {
                let name = String::from_utf8_lossy(words.word(0)).into_owned();
                return Err(format!("Unknown command '{name}'"));
            }
            let mut turn = Turn {
                core: &self.shared.core,
                thread: self.thread,
                now_ms,
                random: &mut self.random,
                host: &mut self.host,
            };
            let (session, out) = (&mut self.session, &mut self.out);
            index += turn.run_some(session, out, &self.requests, bytes, index);
            if let Some(blocked) = session.blocked.take() {
                // There was nothing to take when it was logged, either.
                turn.abandon(&blocked);
            }
            self.failed += u64::from(self.out.bytes().first() == Some(&b'-'));
            self.out.clear();
        }
        Ok(())
    }
}

impl Taker for Replay<'_> {
    fn commands(&mut self, bytes: &[u8], offset: u64) -> Result<(), (u64, String)> {
        let mut parser = Parser::default();
        let limits = Limits { bulk_bytes_max: u64::MAX, unauthenticated: false };
        let mut used = 0;
        while used < bytes.len() {
            self.requests.clear();
            let rest = &bytes[used..];
            let (taken, stop) = parser.parse(rest, limits, COMMANDS, &mut self.requests);
            if let Stop::Error(error) = stop {
                return Err((used as u64, error.text()));
            }
            if taken == 0 {
                return Err((used as u64, "a command that is too long".into()));
            }
            self.run(rest).map_err(|text| (used as u64, text))?;
            used += taken;
            let loaded = self.before + offset + used as u64;
            self.shared.persistence.progress().bytes.store(loaded, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// DEBUG LOADAOF: empties the keyspace and loads it again. Run by an event loop's thread, with no
/// shard held.
pub fn reload(shared: &Arc<Shared>, thread: usize) -> Result<(), String> {
    let aof: &Aof = &shared.aof;
    let flushed = aof.log.flush();
    flushed.map_err(|error| format!("cannot write: {}", sys::error_text(&error)))?;
    let files = open_files(shared)?;
    let space = &shared.core.space;
    let was_logging = space.is_logging();
    shared.persistence.begin_loading(files.total_bytes(), now_ms());
    space.set_logging(false);
    let held = space.lock(&ShardSet::ALL);
    let mut keys =
        Keys::new(space, held, space.tally(thread), now_ms(), Random::new(thread as u64));
    for db in 0..space.databases() {
        keys.flush(db, Freeing::Here);
    }
    drop(keys);
    let result = load(shared, thread, &files);
    let is_on = aof.phase() == Phase::On;
    if let (true, Some(last)) = (is_on, files.manifest().increments.last()) {
        // It may have been cut.
        let path = files.path(last);
        let opened = files.disk().open(&path, Open::Update).and_then(|file| {
            let len = file.len()?;
            Ok(Target { file, len })
        });
        match opened {
            Ok(target) => drop(aof.log.switch(target)),
            Err(error) => tracing::error!("{}: {}", path.display(), sys::error_text(&error)),
        }
    }
    space.set_logging(was_logging);
    shared.persistence.end_loading();
    result.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Server;

    #[test]
    fn commands_that_ask_for_the_server_are_replayed_without_one() {
        let mut server = Server::new(&[]);
        let mut file = Vec::new();
        let payload = b"\x00\xc0\x01\x0a\x00&x\xe7\xb6\xd1\x01\x11\xfc";
        let restore = [&b"RESTORE"[..], b"k", b"0", payload];
        resp::write_request(&mut file, restore.into_iter());
        resp::write_request(&mut file, [&b"PING"[..]].into_iter());
        let shared = Arc::clone(&server.shared);
        let mut replay = Replay::new(&shared, 0, 0);
        assert_eq!(replay.commands(&file, 0), Ok(()));
        assert_eq!(replay.failed, 0);
        server.check(&[("GET k", "$1 1")]);
    }

    #[test]
    fn no_command_of_another_servers_file_ends_this_one_or_governs_it() {
        let mut server = Server::new(&[]);
        let shared = Arc::clone(&server.shared);
        for entry in shared.core.registry.entries() {
            // With its own number of words, and with some more.
            let least = usize::try_from(entry.command.arity().abs()).expect("small");
            for more in 0..3 {
                let name = entry.full_name.replace('|', " ");
                let mut words: Vec<&[u8]> = name.split(' ').map(str::as_bytes).collect();
                let filler = [b"k".as_slice(), b"1", b"k", b"2", b"k", b"3", b"k", b"4"];
                let count = (least + more).max(words.len());
                words.extend(filler.iter().cycle().take(count - words.len()));
                let mut file = Vec::new();
                resp::write_request(&mut file, words.into_iter());
                let mut replay = Replay::new(&shared, 0, 0);
                // A container by itself is unknown; that it does not panic is what counts.
                let _ = replay.commands(&file, 0);
                assert!(replay.session.blocked.is_none(), "{name}");
            }
        }
        assert!(!shared.is_stopping.load(Ordering::Acquire), "SHUTDOWN is not replayed");
        server.check(&[("FLUSHALL", "+OK"), ("PUBSUB NUMPAT", ":0")]);
    }

    #[test]
    fn what_would_wait_is_not_left_in_line() {
        let mut server = Server::new(&[]);
        let shared = Arc::clone(&server.shared);
        let mut replay = Replay::new(&shared, 0, 0);
        let mut file = Vec::new();
        resp::write_request(&mut file, [&b"BLPOP"[..], b"list", b"0"].into_iter());
        resp::write_request(&mut file, [&b"RPUSH"[..], b"list", b"a"].into_iter());
        assert_eq!(replay.commands(&file, 0), Ok(()));
        server.check(&[("LRANGE list 0 -1", "*1 $1 a")]);
    }
}
