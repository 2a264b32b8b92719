//! What is kept on disk: when snapshots are taken and how they fare, and loading at start.
//!
//! ```text
//!  start:  LOADING --(loaded)--> SERVING        clients are answered -LOADING meanwhile
//!                  --(bad file)--> the server ends with Redis's words in its log
//!  save:   IDLE --(SAVE, BGSAVE, a rule of `save`, SHUTDOWN)--> SAVING --> IDLE
//! ```
//!
//! One snapshot is taken at a time. It is taken by a thread that is not needed for anything else,
//! while all event loops go on; SAVE and SHUTDOWN make their own client wait for it.
//!
//! **Invariant:** a snapshot that fails leaves the old file as it was, and while
//! `stop-writes-on-bgsave-error` is on and `save` has a rule, writes are refused until one
//! succeeds.

pub mod load;
pub mod save;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use persist::rdb::load::Progress;
use persist::rdb::{Libraries, NoLibraries};

use crate::options::index_of;
use crate::shared::Shared;

/// Threads that load a file at start, at most; each has a tally of its own.
pub const LOADERS: usize = 4;

/// What is known of loading and saving.
#[derive(Default)]
pub struct Persistence {
    /// A file is being loaded: only commands that may run meanwhile are let in.
    is_loading: AtomicBool,
    /// When that began, in milliseconds since 1970.
    loading_since_ms: AtomicI64,
    /// Bytes of the file being loaded.
    loading_bytes: AtomicU64,
    /// How far it has come.
    progress: Progress,
    /// Keys that the last load brought, and left out as expired.
    loaded: [AtomicU64; 2],
    /// RESTORE and loading do not look at checksums (DEBUG SET-SKIP-CHECKSUM-VALIDATION).
    pub skips_checksums: AtomicBool,
    /// Changes counted when the last snapshot was taken that succeeded.
    changes_saved: AtomicU64,
    /// The server is ending: writes are refused, so that the last snapshot has everything.
    pub is_closing: AtomicBool,
    saving: Saving,
    /// Functions, if the binary has scripts.
    libraries: OnceLock<Box<dyn Libraries>>,
    /// Why the server had to end, if it had to.
    failure: Mutex<Option<String>>,
}

/// What is known of snapshots.
struct Saving {
    /// A snapshot is being taken by a thread in the background.
    in_background: AtomicBool,
    /// A snapshot is being taken.
    is_busy: AtomicBool,
    /// BGSAVE SCHEDULE waits for another image to be finished.
    is_scheduled: AtomicBool,
    since_ms: AtomicI64,
    last_success_s: AtomicI64,
    last_try_s: AtomicI64,
    last_duration_s: AtomicI64,
    last_failed: AtomicBool,
    count: AtomicU64,
    keys_done: AtomicU64,
    keys_total: AtomicU64,
    stop: AtomicBool,
}

impl Default for Saving {
    fn default() -> Self {
        Saving {
            in_background: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
            is_scheduled: AtomicBool::new(false),
            since_ms: AtomicI64::new(0),
            last_success_s: AtomicI64::new(0),
            last_try_s: AtomicI64::new(0),
            last_duration_s: AtomicI64::new(-1),
            last_failed: AtomicBool::new(false),
            count: AtomicU64::new(0),
            keys_done: AtomicU64::new(0),
            keys_total: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }
}

impl Persistence {
    /// The state of a server that starts now: as Redis has it, the start counts as a save.
    pub fn new(now_ms: i64) -> Persistence {
        let persistence = Persistence::default();
        persistence.saving.last_success_s.store(now_ms / 1000, Ordering::Relaxed);
        persistence
    }

    /// Whether a file is being loaded.
    #[inline]
    pub fn is_loading(&self) -> bool {
        self.is_loading.load(Ordering::Acquire)
    }

    /// Whether a snapshot is being taken, or is about to be.
    pub fn is_saving(&self) -> bool {
        let saving = &self.saving;
        saving.is_busy.load(Ordering::Acquire) || saving.in_background.load(Ordering::Acquire)
    }

    /// Says that so many bytes are being loaded from now on.
    pub fn begin_loading(&self, bytes: u64, now_ms: i64) {
        self.loading_bytes.store(bytes, Ordering::Relaxed);
        self.loading_since_ms.store(now_ms, Ordering::Relaxed);
        self.progress.bytes.store(0, Ordering::Relaxed);
        self.progress.keys.store(0, Ordering::Relaxed);
        self.is_loading.store(true, Ordering::Release);
    }

    /// Where loading tells how far it has come.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Says that all is loaded.
    pub fn end_loading(&self) {
        self.is_loading.store(false, Ordering::Release);
    }

    /// Whether writes may have to be refused.
    #[inline]
    pub fn may_refuse(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed) || self.saving.last_failed.load(Ordering::Relaxed)
    }

    /// Hands over who keeps libraries of functions, once.
    pub fn set_libraries(&self, libraries: Box<dyn Libraries>) -> Result<(), Box<dyn Libraries>> {
        self.libraries.set(libraries)
    }

    /// Who keeps libraries of functions.
    pub fn libraries(&self) -> &dyn Libraries {
        self.libraries.get().map_or(&NoLibraries, |libraries| &**libraries)
    }

    /// When the last snapshot was taken that succeeded, in seconds since 1970.
    pub fn last_save_s(&self) -> i64 {
        self.saving.last_success_s.load(Ordering::Relaxed)
    }

    /// Whether the server ends because of this; the first reason is kept.
    pub fn fail(&self, text: String) {
        let mut failure = self.failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        failure.get_or_insert(text);
    }

    /// Why the server had to end, if it had to.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

/// Changes since the last snapshot that succeeded.
pub fn changes(shared: &Shared) -> u64 {
    let total = shared.core.space.total(|tally| &tally.changes);
    total.saturating_sub(shared.persistence.changes_saved.load(Ordering::Relaxed))
}

/// The rules of `save`: seconds and changes.
pub fn rules(shared: &Shared) -> Vec<(i64, u64)> {
    let text = shared.options.text(const { index_of("save") });
    let numbers: Vec<i64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
    numbers.chunks_exact(2).map(|pair| (pair[0], pair[1].max(0) as u64)).collect()
}

/// Why a write is refused, if it is: the last snapshot failed.
pub fn write_refusal(shared: &Shared) -> Option<&'static str> {
    if !shared.persistence.saving.last_failed.load(Ordering::Relaxed)
        || !shared.options.is_on(const { index_of("stop-writes-on-bgsave-error") })
        || rules(shared).is_empty()
    {
        return None;
    }
    Some(
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist \
         to disk. Commands that may modify the data set are disabled, because this instance is \
         configured to report errors during writes if RDB snapshotting fails \
         (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the \
         RDB error.",
    )
}

/// INFO's fields about loading and snapshots, in Redis's order: the part before the append-only
/// file's.
pub fn fields(shared: &Shared, now_ms: i64, mut field: impl FnMut(&str, String)) {
    let persistence = &shared.persistence;
    let saving = &persistence.saving;
    let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed).to_string();
    let signed = |cell: &AtomicI64| cell.load(Ordering::Relaxed);
    let flag = |cell: &AtomicBool| i32::from(cell.load(Ordering::Relaxed)).to_string();
    let is_saving = saving.in_background.load(Ordering::Relaxed);
    field("loading", flag(&persistence.is_loading));
    for name in ["async_loading", "current_cow_peak", "current_cow_size", "current_cow_size_age"] {
        field(name, "0".into());
    }
    let (done, total) = (
        saving.keys_done.load(Ordering::Relaxed) as f64,
        saving.keys_total.load(Ordering::Relaxed).max(1) as f64,
    );
    let percent = if is_saving { (done * 100.0 / total).min(100.0) } else { 0.0 };
    field("current_fork_perc", format!("{percent:.2}"));
    let while_saving = |cell: &AtomicU64| if is_saving { get(cell) } else { "0".to_string() };
    field("current_save_keys_processed", while_saving(&saving.keys_done));
    field("current_save_keys_total", while_saving(&saving.keys_total));
    field("rdb_changes_since_last_save", changes(shared).to_string());
    field("rdb_bgsave_in_progress", i32::from(is_saving).to_string());
    field("rdb_last_save_time", signed(&saving.last_success_s).to_string());
    let failed = saving.last_failed.load(Ordering::Relaxed);
    field("rdb_last_bgsave_status", if failed { "err" } else { "ok" }.into());
    field("rdb_last_bgsave_time_sec", signed(&saving.last_duration_s).to_string());
    let current = if is_saving { (now_ms - signed(&saving.since_ms)).max(0) / 1000 } else { -1 };
    field("rdb_current_bgsave_time_sec", current.to_string());
    field("rdb_saves", get(&saving.count));
    field("rdb_last_cow_size", "0".into());
    field("rdb_last_load_keys_expired", get(&persistence.loaded[1]));
    field("rdb_last_load_keys_loaded", get(&persistence.loaded[0]));
}

/// INFO's fields about a load that goes on; none otherwise.
pub fn loading_fields(shared: &Shared, now_ms: i64, mut field: impl FnMut(&str, String)) {
    let persistence = &shared.persistence;
    if !persistence.is_loading() {
        return;
    }
    let since_ms = persistence.loading_since_ms.load(Ordering::Relaxed);
    let total = persistence.loading_bytes.load(Ordering::Relaxed);
    let done = persistence.progress.bytes.load(Ordering::Relaxed);
    let seconds = (now_ms - since_ms).max(0) as f64 / 1000.0;
    let eta =
        if done == 0 { 1.0 } else { seconds * total.saturating_sub(done) as f64 / done as f64 };
    field("loading_start_time", (since_ms / 1000).to_string());
    field("loading_total_bytes", total.to_string());
    field("loading_rdb_used_mem", "0".into());
    field("loading_loaded_bytes", done.to_string());
    field("loading_loaded_perc", format!("{:.2}", done as f64 * 100.0 / total.max(1) as f64));
    field("loading_eta_seconds", (eta as u64).to_string());
}
