//! Taking snapshots: on demand, in the background, by the rules of `save`, at the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use keyspace::settings::Policy;
use persist::rdb::encode::Compression;
use persist::rdb::snapshot::{self, Failed, Snapshot, Sync, Uses};
use persist::rdb::writer::{Header, Options};

use super::{changes, rules};
use crate::admin::info::REDIS_VERSION;
use crate::options::index_of;
use crate::shared::Shared;
use crate::sys;
use crate::worker::now_ms;

/// After a failed snapshot the rules wait so long, in seconds.
const RETRY_SECONDS: i64 = 5;

/// The snapshot's file.
pub fn path(shared: &Shared) -> PathBuf {
    let name = shared.options.text(const { index_of("dbfilename") });
    let dir = shared.options.text(const { index_of("dir") });
    Path::new(&dir).join(name)
}

/// Which of the eviction policy's bits a snapshot has.
pub fn uses(shared: &Shared) -> Uses {
    match shared.core.space.settings.policy() {
        Policy::AllKeysLru | Policy::VolatileLru => Uses::Idle,
        Policy::AllKeysLfu | Policy::VolatileLfu => Uses::Frequency,
        _ => Uses::Untold,
    }
}

/// How files are written.
pub fn options(shared: &Shared) -> Options {
    let is_on = |index| shared.options.is_on(index);
    Options {
        compression: if is_on(const { index_of("rdbcompression") }) {
            Compression::Lzf
        } else {
            Compression::Off
        },
        has_checksum: is_on(const { index_of("rdbchecksum") }),
    }
}

/// Takes a snapshot on this thread, which holds no lock. `Err` says why there is none.
pub fn save(shared: &Shared) -> Result<(), String> {
    let saving = &shared.persistence.saving;
    if saving.is_busy.swap(true, Ordering::AcqRel) {
        return Err("Background save already in progress".into());
    }
    saving.stop.store(false, Ordering::Relaxed);
    take_and_note(shared)
}

/// Takes a snapshot for whoever has set `is_busy`, and gives that back.
fn take_and_note(shared: &Shared) -> Result<(), String> {
    let saving = &shared.persistence.saving;
    let result = take(shared);
    let now_s = now_ms() / 1000;
    saving.last_try_s.store(now_s, Ordering::Relaxed);
    if result.is_ok() {
        saving.last_success_s.store(now_s, Ordering::Relaxed);
        saving.count.fetch_add(1, Ordering::Relaxed);
    }
    saving.is_busy.store(false, Ordering::Release);
    match result {
        Ok(()) => {
            saving.last_failed.store(false, Ordering::Relaxed);
            Ok(())
        }
        Err(Failed::Stopped) => Err("it was told to stop".into()),
        Err(Failed::Busy) => {
            // A rewrite was quicker. What was promised in the background comes after it.
            if saving.in_background.load(Ordering::Acquire) {
                schedule(shared);
            }
            Err("another image of the data is being taken".into())
        }
        Err(Failed::Write(error)) => {
            saving.last_failed.store(true, Ordering::Relaxed);
            Err(sys::error_text(&error))
        }
    }
}

/// `snapshot-buffer-limit`, or what stands for 0.
pub(crate) fn pending_bytes_max(shared: &Shared) -> usize {
    match shared.options.number(const { index_of("snapshot-buffer-limit") }) {
        0 => snapshot::pending_bytes_max(sys::used_memory()),
        bytes => usize::try_from(bytes).unwrap_or(usize::MAX),
    }
}

fn take(shared: &Shared) -> Result<(), Failed> {
    let saving = &shared.persistence.saving;
    let space = &shared.core.space;
    let now_ms = now_ms();
    saving.since_ms.store(now_ms, Ordering::Relaxed);
    saving.keys_done.store(0, Ordering::Relaxed);
    let keys: usize = (0..space.databases()).map(|db| space.key_count(db)).sum();
    saving.keys_total.store(keys as u64, Ordering::Relaxed);
    let snapshot = Snapshot {
        space,
        options: options(shared),
        header: Header {
            redis_version: REDIS_VERSION,
            created_s: now_ms / 1000,
            used_memory: sys::used_memory(),
            ..Header::default()
        },
        now_ms,
        uses: uses(shared),
        libraries: shared.persistence.libraries(),
        key_delay: &|| shared.options.number(const { index_of("rdb-key-save-delay") }),
        pending_bytes_max: pending_bytes_max(shared),
        keys_done: &saving.keys_done,
        stop: &saving.stop,
    };
    let is_often = shared.options.is_on(const { index_of("rdb-save-incremental-fsync") });
    let sync = if is_often { Sync::Often } else { Sync::Once };
    let mut changes = 0;
    let at_instant = || changes = space.total(|tally| &tally.changes);
    snapshot.save(&*shared.aof.disk, &path(shared), sync, at_instant)?;
    shared.persistence.changes_saved.store(changes, Ordering::Relaxed);
    Ok(())
}

/// Why no snapshot was begun in the background.
#[derive(Debug, PartialEq, Eq)]
pub enum NotBegun {
    /// One is being taken.
    InProgress,
    /// Another image of the data is being taken, for another purpose.
    Busy,
    /// The system gives no thread.
    NoThread,
}

/// Begins to take a snapshot in the background.
pub fn begin(shared: &Arc<Shared>) -> Result<(), NotBegun> {
    let saving = &shared.persistence.saving;
    if saving.is_busy.load(Ordering::Acquire) || saving.in_background.swap(true, Ordering::AcqRel) {
        return Err(NotBegun::InProgress);
    }
    if shared.core.space.has_image() {
        saving.in_background.store(false, Ordering::Release);
        return Err(NotBegun::Busy);
    }
    if saving.is_busy.swap(true, Ordering::AcqRel) {
        saving.in_background.store(false, Ordering::Release);
        return Err(NotBegun::InProgress);
    }
    saving.is_scheduled.store(false, Ordering::Relaxed);
    // Before the thread runs: a FLUSHALL right behind BGSAVE tells it to stop already.
    saving.stop.store(false, Ordering::Relaxed);
    let thread = std::thread::Builder::new().name("save".into());
    let own = Arc::clone(shared);
    let spawned = thread.spawn(move || {
        let _registered = sys::register_thread();
        in_background(&own);
    });
    if let Err(error) = spawned {
        tracing::warn!("Can't save in background: {}", sys::error_text(&error));
        saving.is_busy.store(false, Ordering::Release);
        saving.in_background.store(false, Ordering::Release);
        saving.last_failed.store(true, Ordering::Relaxed);
        return Err(NotBegun::NoThread);
    }
    tracing::info!("Background saving started by pid {}", std::process::id());
    Ok(())
}

fn in_background(shared: &Shared) {
    let saving = &shared.persistence.saving;
    let started_ms = now_ms();
    let result = take_and_note(shared);
    let seconds = (now_ms() - started_ms) / 1000;
    saving.last_duration_s.store(seconds, Ordering::Relaxed);
    match result {
        Ok(()) => {
            tracing::info!("DB saved on disk");
            tracing::info!("Background saving terminated with success");
        }
        Err(text) if saving.stop.load(Ordering::Relaxed) => {
            tracing::info!("Background saving ended: {text}");
        }
        Err(text) => {
            let path = path(shared);
            tracing::warn!("Write error saving DB on disk ({}): {text}", path.display());
            tracing::warn!("Background saving error");
        }
    }
    saving.in_background.store(false, Ordering::Release);
}

/// Has a snapshot begun as soon as none is being taken.
pub fn schedule(shared: &Shared) {
    shared.persistence.saving.is_scheduled.store(true, Ordering::Relaxed);
}

/// FLUSHALL is about to run: what is being saved in the background is not wanted any more, and the
/// emptiness is, if there are rules.
pub fn flushing(shared: &Shared) {
    let saving = &shared.persistence.saving;
    if saving.in_background.load(Ordering::Acquire) {
        saving.stop.store(true, Ordering::Relaxed);
        if !rules(shared).is_empty() {
            schedule(shared);
        }
    }
}

/// Ten times a second: begins a snapshot that is scheduled or that a rule of `save` asks for.
pub fn cron(shared: &Arc<Shared>, now_ms: i64) {
    let persistence = &shared.persistence;
    let saving = &persistence.saving;
    let is_busy = saving.in_background.load(Ordering::Relaxed)
        || shared.core.space.has_image()
        || persistence.is_loading()
        || persistence.is_closing.load(Ordering::Relaxed);
    if is_busy {
        return;
    }
    let now_s = now_ms / 1000;
    let may_retry = !saving.last_failed.load(Ordering::Relaxed)
        || now_s - saving.last_try_s.load(Ordering::Relaxed) > RETRY_SECONDS;
    if saving.is_scheduled.load(Ordering::Relaxed) && may_retry {
        let _ = begin(shared);
        return;
    }
    let changes = changes(shared);
    if changes == 0 || !may_retry {
        return;
    }
    let since_s = now_s - saving.last_success_s.load(Ordering::Relaxed);
    let due = |(seconds, count): &(i64, u64)| changes >= *count && since_s > *seconds;
    if let Some((seconds, count)) = rules(shared).into_iter().find(due) {
        tracing::info!("{count} changes in {seconds} seconds. Saving...");
        let _ = begin(shared);
    }
}

/// Tells a snapshot that is being taken in the background to stop, and waits until it has.
pub fn stop(shared: &Shared) {
    let saving = &shared.persistence.saving;
    while saving.in_background.load(Ordering::Acquire) {
        saving.stop.store(true, Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// What SHUTDOWN and SIGTERM do with the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtEnd {
    /// It is saved if `save` has a rule.
    AsConfigured,
    /// It is saved.
    Save,
    /// It is not.
    NoSave,
}

/// How often a last snapshot is taken again because something was still written meanwhile.
const LAST_SAVES_MAX: usize = 5;

/// Brings the data to disk before the server ends. On an error the server goes on, and this may be
/// called again.
pub fn finish(shared: &Shared, what: AtEnd) -> Result<(), String> {
    let persistence = &shared.persistence;
    // A load that has not finished has nothing to save: the file is still there.
    let saves = match what {
        AtEnd::NoSave => false,
        AtEnd::Save => !persistence.is_loading(),
        AtEnd::AsConfigured => !persistence.is_loading() && !rules(shared).is_empty(),
    };
    if persistence.saving.in_background.load(Ordering::Acquire) {
        tracing::info!("There is a child saving an .rdb. Killing it!");
        stop(shared);
    }
    if !saves {
        return Ok(());
    }
    persistence.is_closing.store(true, Ordering::SeqCst);
    tracing::info!("Saving the final RDB snapshot before exiting.");
    for _ in 0..LAST_SAVES_MAX {
        if let Err(text) = save(shared) {
            persistence.is_closing.store(false, Ordering::SeqCst);
            tracing::warn!("Error trying to save the DB, can't exit: {text}");
            return Err(text);
        }
        if changes(shared) == 0 {
            break;
        }
    }
    tracing::info!("DB saved on disk");
    Ok(())
}
