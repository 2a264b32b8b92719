//! The thread that turns the append-only file on and off, rewrites it and removes old files.
//!
//! **Invariant:** the log goes over to the new increment at the very instant of the image: the base
//! and that increment together are the data set, whatever happens after.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use keyspace::image::ImageSink;
use keyspace::raw::shards::ShardSet;
use persist::aof::files::{Files, FilesError, Since};
use persist::aof::rewrite::{Base, Gatherer, OneWay, Pace, write_image};
use persist::rdb::snapshot::{Failed, Snapshot};
use persist::rdb::writer::{Header, Writer};

use super::{Phase, State, recovery};
use crate::admin::info::REDIS_VERSION;
use crate::options::index_of;
use crate::persistence::save;
use crate::shared::Shared;
use crate::sys;
use crate::worker::now_ms;

/// Bytes handed over early that may wait for the file.
const EARLY_BYTES_MAX: usize = 64 << 20;
/// How often the thread looks for what is due by itself.
const LOOK: Duration = Duration::from_millis(100);
/// From so many failures on, rewriting by itself waits.
const FAILURES: u32 = 3;

/// What to do next.
enum Job {
    TurnOff,
    Rewrite,
    Collect,
    Nothing,
}

/// The thread.
pub fn run(shared: &Arc<Shared>) {
    let _registered = sys::register_thread();
    let aof = &shared.aof;
    while !aof.is_stopping.load(Ordering::SeqCst) {
        match next_job(shared) {
            Job::TurnOff => turn_off(shared),
            Job::Rewrite => rewrite(shared),
            Job::Collect => collect(shared),
            Job::Nothing => {
                let waited = aof.changed.wait_timeout(aof.state(), LOOK);
                drop(waited.unwrap_or_else(|poisoned| poisoned.into_inner()));
            }
        }
    }
}

fn next_job(shared: &Shared) -> Job {
    let aof = &shared.aof;
    if shared.persistence.is_loading() {
        return Job::Nothing;
    }
    let has_image = shared.core.space.has_image() || shared.persistence.is_saving();
    let mut state = aof.state();
    let wants_on = aof.wants_on.load(Ordering::SeqCst);
    if !wants_on && state.phase != Phase::Off {
        return Job::TurnOff;
    }
    if state.wants_collection {
        return Job::Collect;
    }
    if wants_on && state.phase != Phase::On && !state.wants_rewrite {
        // Turned on, and the first rewrite has failed: again.
        state.wants_rewrite = true;
    }
    state.wants_rewrite |= wants_on && grows_too_much(shared, &mut state);
    state.is_scheduled = state.wants_rewrite && has_image;
    if !state.wants_rewrite || has_image {
        return Job::Nothing;
    }
    // Under the lock under which it may be asked for and turned off: what is asked for from here on
    // is another one, and turning off from here on cancels this one.
    (state.wants_rewrite, state.is_scheduled) = (false, false);
    state.started = Some(Instant::now());
    aof.cancel.store(aof.is_stopping.load(Ordering::SeqCst), Ordering::SeqCst);
    Job::Rewrite
}

/// Whether the file has grown as much as the options say.
fn grows_too_much(shared: &Shared, state: &mut State) -> bool {
    let options = &shared.options;
    let percentage = options.number(const { index_of("auto-aof-rewrite-percentage") }) as u64;
    let min = options.number(const { index_of("auto-aof-rewrite-min-size") }) as u64;
    let size = state.other_bytes + shared.aof.log.file_bytes();
    if state.phase != Phase::On || percentage == 0 || size <= min {
        return false;
    }
    let growth = (size * 100 / state.base_bytes.max(1)).saturating_sub(100);
    if growth < percentage || state.next_try.is_some_and(|at| at > Instant::now()) {
        return false;
    }
    let failures = state.rewrites.failures_in_a_row;
    if failures >= FAILURES && state.next_try.is_none() {
        // As Redis: a minute after the third failure, then twice as long each time, up to an hour.
        let minutes = (1u64 << (failures - FAILURES).min(6)).min(60);
        state.next_try = Some(Instant::now() + Duration::from_secs(60 * minutes));
        tracing::warn!(
            "Background AOF rewrite has repeatedly failed and triggered the limit, will retry in \
             {minutes} minutes"
        );
        return false;
    }
    state.next_try = None;
    tracing::info!("Starting automatic rewriting of AOF on {growth}% growth");
    true
}

fn turn_off(shared: &Shared) {
    let aof = &shared.aof;
    let held = shared.core.space.lock(&ShardSet::ALL);
    shared.core.space.set_logging(false);
    drop(held);
    if let Err(error) = aof.log.close() {
        tracing::warn!("the end of the append-only file is lost: {}", sys::error_text(&error));
    }
    let mut state = aof.state();
    // What was asked for before has gone with turning it off; what came after stays.
    state.phase = Phase::Off;
    state.files = None;
}

fn collect(shared: &Shared) {
    let aof = &shared.aof;
    let mut state = aof.state();
    state.wants_collection = false;
    let Some(mut files) = state.files.take() else { return };
    drop(state);
    let result = files.remove_history();
    aof.state().files = Some(files);
    if let Err(error) = result {
        tracing::warn!("old files of the append-only file are left: {error}");
    }
}

/// One rewrite, from its beginning to its end.
fn rewrite(shared: &Shared) {
    let aof = &shared.aof;
    let mut state = aof.state();
    // Looked at once: turned on from here on, it wants a rewrite of its own.
    let since = match (aof.is_on(), state.phase) {
        (false, _) => Since::Nowhere,
        (true, Phase::On) => Since::Increment,
        (true, _) => Since::Unnumbered,
    };
    let is_first = since == Since::Unnumbered;
    if is_first {
        state.phase = Phase::Waiting;
    }
    let files = state.files.take();
    drop(state);
    let started = Instant::now();
    let holds = shared.options.is_on(const { index_of("no-appendfsync-on-rewrite") });
    aof.log.holds_syncs.store(holds, Ordering::Relaxed);
    tracing::info!("Background append only file rewriting started");
    let mut files = match files.map_or_else(|| recovery::open_files(shared), Ok) {
        Ok(files) => files,
        Err(error) => return finish(shared, started, Err(error)),
    };
    let result = write(shared, &mut files, since);
    if let (Err(_), true) = (&result, is_first) {
        files.drop_temp_increment();
    }
    aof.state().files = Some(files);
    finish(shared, started, result);
}

fn finish(shared: &Shared, started: Instant, result: Result<Written, String>) {
    let aof = &shared.aof;
    aof.log.holds_syncs.store(false, Ordering::Relaxed);
    let mut state = aof.state();
    state.started = None;
    state.rewrites.last_seconds = started.elapsed().as_secs() as i64;
    state.rewrites.last_ok = result.is_ok();
    match result {
        Ok(written) => {
            if state.phase == Phase::Waiting {
                state.phase = Phase::On;
            }
            state.rewrites.done += 1;
            state.rewrites.failures_in_a_row = 0;
            state.next_try = None;
            state.other_bytes = written.base_bytes;
            state.base_bytes = written.base_bytes + aof.log.file_bytes();
            let keeps = shared.options.is_on(const { index_of("aof-disable-auto-gc") });
            state.wants_collection = !keeps;
            drop(state);
            if let Some(position) = written.position {
                aof.log.replaced(position);
            }
            tracing::info!("Background AOF rewrite finished successfully");
        }
        Err(why) => {
            state.rewrites.failures_in_a_row += 1;
            let is_first = state.phase == Phase::Waiting;
            if is_first {
                state.phase = Phase::Off;
            }
            drop(state);
            tracing::warn!("Background AOF rewrite terminated with error: {why}");
            if is_first {
                turn_off(shared);
                // Once more, but not at once: the disk may be full.
                std::thread::sleep(LOOK);
            }
        }
    }
}

/// What a rewrite has come to.
struct Written {
    base_bytes: u64,
    /// Where in the log the image was taken.
    position: Option<u64>,
}

struct Patience<'a>(&'a Shared);

impl Pace for Patience<'_> {
    fn delay_us(&self) -> u64 {
        self.0.options.number(const { index_of("rdb-key-save-delay") }).max(0) as u64
    }

    fn is_cancelled(&self) -> bool {
        self.0.aof.cancel.load(Ordering::Relaxed)
    }
}

fn write(shared: &Shared, files: &mut Files, since: Since) -> Result<Written, String> {
    let aof = &shared.aof;
    let text = |error: FilesError| error.to_string();
    // Without a log the files are rewritten all the same, as in Redis.
    let target = match since {
        Since::Nowhere => None,
        Since::Unnumbered => Some(files.begin_temp_increment().map_err(text)?),
        Since::Increment => Some(files.begin_increment().map_err(text)?),
    };
    files.make_folder().map_err(text)?;
    let is_rdb = recovery::uses_rdb(shared);
    let temp = files.temp_path(&format!("temp-rewriteaof-bg-{}.aof", std::process::id()));
    let mut position = None;
    let at_instant = || {
        if let Some(target) = target {
            position = Some(aof.log.switch(target));
            shared.core.space.set_logging(true);
        }
    };
    let out = OneWay::create(files.disk(), &temp).map_err(|error| sys::error_text(&error));
    let written = out.and_then(|out| {
        if is_rdb {
            write_rdb(shared, out, at_instant)
        } else {
            write_commands(shared, out, at_instant)
        }
    });
    let base_bytes = match written {
        Ok(bytes) => bytes,
        Err(why) => {
            let _ = files.disk().remove(&temp);
            if aof.cancel.load(Ordering::Relaxed) {
                tracing::info!("Killing running AOF rewrite child: {}", std::process::id());
            }
            return Err(why);
        }
    };
    tracing::info!("Successfully created the temporary AOF base file {}", temp.display());
    let suffix = if is_rdb { "rdb" } else { "aof" };
    files.finish_rewrite(&temp, suffix, since).map_err(text)?;
    Ok(Written { base_bytes, position })
}

/// Writes the base as a snapshot; its bytes.
fn write_rdb(shared: &Shared, out: OneWay, at_instant: impl FnOnce()) -> Result<u64, String> {
    let done = AtomicU64::new(0);
    let now_ms = now_ms();
    let snapshot = Snapshot {
        space: &shared.core.space,
        options: save::options(shared),
        header: header(now_ms),
        now_ms,
        uses: save::uses(shared),
        libraries: shared.persistence.libraries(),
        key_delay: &|| shared.options.number(const { index_of("rdb-key-save-delay") }),
        pending_bytes_max: save::pending_bytes_max(shared),
        keys_done: &done,
        stop: &shared.aof.cancel,
    };
    let out = snapshot.write(out, at_instant).map_err(|failed| match failed {
        Failed::Write(error) => sys::error_text(&error),
        other => other.to_string(),
    })?;
    out.finish().map_err(|error| sys::error_text(&error))
}

fn header(now_ms: i64) -> Header<'static> {
    Header {
        redis_version: REDIS_VERSION,
        created_s: now_ms / 1000,
        used_memory: sys::used_memory(),
        is_aof_base: true,
        ..Header::default()
    }
}

/// Writes the base as commands; its bytes.
fn write_commands(shared: &Shared, out: OneWay, at_instant: impl FnOnce()) -> Result<u64, String> {
    let io = |error: std::io::Error| sys::error_text(&error);
    let mut base = Base::commands(out, &head(shared)).map_err(io)?;
    let gatherer = Arc::new(Gatherer::new(EARLY_BYTES_MAX));
    let sink = Arc::clone(&gatherer) as Arc<dyn ImageSink>;
    let begun = shared.core.space.begin_image(sink, at_instant);
    begun.map_err(|_| "another snapshot is being taken".to_string())?;
    write_image(&shared.core.space, &gatherer, &mut base, &Patience(shared)).map_err(io)?;
    base.finish().map_err(io)
}

/// What stands before a base of commands: when it was written, and the functions.
fn head(shared: &Shared) -> Vec<u8> {
    let mut head = Vec::new();
    if shared.options.is_on(const { index_of("aof-timestamp-enabled") }) {
        head.extend_from_slice(format!("#TS:{}\r\n", now_ms() / 1000).as_bytes());
    }
    for source in shared.persistence.libraries().sources() {
        resp::write_request(&mut head, [&b"FUNCTION"[..], b"LOAD", &source].into_iter());
    }
    head
}

/// The base of a data set without keys.
pub fn empty_base(shared: &Shared) -> Vec<u8> {
    if !recovery::uses_rdb(shared) {
        return head(shared);
    }
    let writer = Writer::new(Vec::new(), save::options(shared), &header(now_ms()));
    writer.and_then(Writer::finish).expect("memory takes what is written")
}
