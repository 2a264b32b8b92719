//! Loading: at start in the background, and DEBUG RELOAD.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use keyspace::keyspace::Tally;
use keyspace::load::OnDuplicate;
use persist::rdb::check::check;
use persist::rdb::load::{self, Loading, Progress, Summary};
use persist::rdb::reader::{CHECKSUM, Checksum};
use persist::rdb::{Error, Why};

use super::{LOADERS, save};
use crate::options::index_of;
use crate::shared::Shared;
use crate::sys;
use crate::worker::now_ms;

/// Damages of a file that are told one by one, at most.
const DAMAGES_TOLD: usize = 20;

/// Loads what is on disk in the background; until that is done clients are answered -LOADING. A
/// file that is not sound ends the server.
pub fn begin(shared: &Arc<Shared>) -> io::Result<()> {
    let path = save::path(shared);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            let text = sys::error_text(&error);
            return Err(io::Error::other(format!(
                "Fatal error loading the DB, check server logs. Exiting. ({}: {text})",
                path.display()
            )));
        }
    };
    let total = file.metadata()?.len();
    set_loading(shared, total);
    let own = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("load".into());
    thread.spawn(move || {
        let _registered = sys::register_thread();
        let started = Instant::now();
        let result = load_file(&own, file, total, OnDuplicate::Refuse);
        match result {
            Ok(_) => {
                let seconds = started.elapsed().as_secs_f64();
                tracing::info!("DB loaded from disk: {seconds:.3} seconds");
            }
            Err(error) => give_up(&own, &error),
        }
        own.persistence.is_loading.store(false, Ordering::Release);
    })?;
    Ok(())
}

fn set_loading(shared: &Shared, total: u64) {
    let persistence = &shared.persistence;
    persistence.loading_bytes.store(total, Ordering::Relaxed);
    persistence.loading_since_ms.store(now_ms(), Ordering::Relaxed);
    persistence.progress.bytes.store(0, Ordering::Relaxed);
    persistence.progress.keys.store(0, Ordering::Relaxed);
    persistence.is_loading.store(true, Ordering::Release);
}

/// Says why the file could not be loaded, in Redis's words and in ours, and ends the server.
fn give_up(shared: &Shared, error: &Error) {
    if shared.is_stopping.load(Ordering::Acquire) {
        return;
    }
    match &error.why {
        Why::Short(_) => {
            tracing::error!("Short read or OOM loading DB. Unrecoverable error, aborting now.");
        }
        Why::Refused(text) => tracing::error!("{text}"),
        _ => {}
    }
    let what = if error.reading == CHECKSUM { "RDB CRC error: " } else { "" };
    let path = save::path(shared);
    tracing::error!("Internal error in RDB reading: {what}{}: {error}", path.display());
    tell_damages(&path);
    tracing::error!("Terminating server after rdb file reading failure.");
    tracing::error!("forebay check rdb tells more, and with --fix saves what is sound");
    shared.persistence.fail("Fatal error loading the DB, check server logs. Exiting.".into());
    shared.stop();
}

/// Says what a look through the whole file finds, as Redis does by its own checker.
fn tell_damages(path: &Path) {
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let Ok((total, file)) = opened else { return };
    let report = check(io::BufReader::new(file), total, now_ms());
    for damage in report.damages.iter().take(DAMAGES_TOLD) {
        let key = damage.key.as_ref().map_or_else(String::new, |(key, _)| {
            format!(" in key '{}' of database {}", key.escape_ascii(), damage.db)
        });
        tracing::error!("RDB check: {}{key}", damage.error);
    }
    let (keys, bad) = (report.keys, report.damages.len());
    tracing::error!("RDB check: {keys} keys are sound, {bad} places are not");
}

/// Loads a file into the keyspace on the threads that may be used for that.
fn load_file(
    shared: &Shared,
    file: File,
    total: u64,
    duplicate: OnDuplicate,
) -> Result<Summary, Error> {
    let (summary, ..) = load_source(shared, file, total, duplicate, Expired::LeftOut)?;
    Ok(summary)
}

/// What becomes of keys past their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expired {
    /// They are left out.
    LeftOut,
    /// They are loaded: what follows may count on them.
    Kept,
}

/// Loads what `source` begins with; what follows it in the source, and the source.
pub fn load_source<R: io::Read + Send>(
    shared: &Shared,
    source: R,
    total: u64,
    duplicate: OnDuplicate,
    expired: Expired,
) -> Result<(Summary, Vec<u8>, R), Error> {
    let space = &shared.core.space;
    let threads = shared.threads().clamp(1, LOADERS);
    let tallies: Vec<&Tally> =
        (0..threads).map(|index| space.tally(shared.threads() + index)).collect();
    let is_checked = shared.options.is_on(const { index_of("rdbchecksum") })
        && !shared.persistence.skips_checksums.load(Ordering::Relaxed);
    let progress: &Progress = &shared.persistence.progress;
    let loading = Loading {
        space,
        tallies: &tallies,
        now_ms: now_ms(),
        skips_expired: expired == Expired::LeftOut,
        duplicate,
        checksum: if is_checked { Checksum::Verify } else { Checksum::Ignore },
        libraries: shared.persistence.libraries(),
        progress,
        key_delay: &|| shared.options.number(const { index_of("key-load-delay") }),
    };
    let (summary, rest, source) = load::load(source, Some(total), &loading)?;
    tell(&summary);
    shared.persistence.loaded[0].store(summary.keys, Ordering::Relaxed);
    shared.persistence.loaded[1].store(summary.expired, Ordering::Relaxed);
    Ok((summary, rest, source))
}

fn tell(summary: &Summary) {
    let text = |name| summary.aux(name).map(String::from_utf8_lossy);
    let number = |name| text(name).and_then(|text| text.parse::<i64>().ok());
    if let Some(version) = text("redis-ver") {
        tracing::info!("Loading RDB produced by version {version}");
    }
    if let Some(created_s) = number("ctime") {
        tracing::info!("RDB age {} seconds", (now_ms() / 1000 - created_s).max(0));
    }
    if let Some(bytes) = number("used-mem") {
        let megabytes = bytes as f64 / f64::from(1 << 20);
        tracing::info!("RDB memory usage when created {megabytes:.2} Mb");
    }
    for key in &summary.empty_keys {
        tracing::info!("Loading RDB, skipping empty key: {}", key.escape_ascii());
    }
    if summary.empty > 0 {
        tracing::info!("Done loading RDB, empty keys skipped: {}.", summary.empty);
    }
    let (keys, expired) = (summary.keys, summary.expired);
    tracing::info!("Done loading RDB, keys loaded: {keys}, keys expired: {expired}.");
}

/// Loads the snapshot's file into the keyspace as it is (DEBUG RELOAD): on this thread, which holds
/// no lock. `Err` is for a person.
pub fn reload(shared: &Shared, duplicate: OnDuplicate) -> Result<(), String> {
    let path = save::path(shared);
    let open = || {
        let file = File::open(&path)?;
        let total = file.metadata()?.len();
        io::Result::Ok((file, total))
    };
    let (file, total) = open().map_err(|error| sys::error_text(&error))?;
    set_loading(shared, total);
    let result = load_file(shared, file, total, duplicate);
    shared.persistence.is_loading.store(false, Ordering::Release);
    result.map(|_| ()).map_err(|error| error.to_string())
}
