//! What can be set of SQL, by options of the server.

use std::path::{Component, Path, PathBuf};
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::Limits;

/// See the module.
pub struct Settings {
    timeout_ms: AtomicU64,
    unit_timeout_ms: AtomicU64,
    busy_wait_ms: AtomicU64,
    idle_ms: AtomicU64,
    transaction_ms: AtomicU64,
    sessions_max: AtomicU64,
    rows_max: AtomicU64,
    bytes_max: AtomicU64,
    live_bytes_max: AtomicU64,
    database_bytes_max: AtomicU64,
    memory_max: AtomicU64,
    folder: RwLock<PathBuf>,
    attach_folder: RwLock<PathBuf>,
}

static SETTINGS: Settings = Settings {
    timeout_ms: AtomicU64::new(10_000),
    unit_timeout_ms: AtomicU64::new(1_000),
    busy_wait_ms: AtomicU64::new(100),
    idle_ms: AtomicU64::new(5_000),
    transaction_ms: AtomicU64::new(60_000),
    sessions_max: AtomicU64::new(64),
    rows_max: AtomicU64::new(10_000_000),
    bytes_max: AtomicU64::new(512 << 20),
    live_bytes_max: AtomicU64::new(256 << 20),
    database_bytes_max: AtomicU64::new(0),
    memory_max: AtomicU64::new(1 << 30),
    folder: RwLock::new(PathBuf::new()),
    attach_folder: RwLock::new(PathBuf::new()),
};

/// The settings of this process.
pub fn settings() -> &'static Settings {
    &SETTINGS
}

impl Settings {
    /// Milliseconds that one command may run on its database's thread.
    pub fn timeout_ms(&self) -> u64 {
        self.timeout_ms.load(Ordering::Relaxed)
    }

    /// Milliseconds that one command may run inside a transaction with keys.
    pub fn unit_timeout_ms(&self) -> u64 {
        self.unit_timeout_ms.load(Ordering::Relaxed)
    }

    /// Milliseconds that a transaction with keys waits for a database that others use.
    pub fn busy_wait_ms(&self) -> u64 {
        self.busy_wait_ms.load(Ordering::Relaxed)
    }

    /// Milliseconds that an open transaction or cursor may wait for its client's next command.
    pub fn idle_ms(&self) -> u64 {
        self.idle_ms.load(Ordering::Relaxed)
    }

    /// Milliseconds that a transaction may be open.
    pub fn transaction_ms(&self) -> u64 {
        self.transaction_ms.load(Ordering::Relaxed)
    }

    /// Transactions and cursors that may be open at once.
    pub fn sessions_max(&self) -> u64 {
        self.sessions_max.load(Ordering::Relaxed)
    }

    /// Sets the times of waiting: see the methods of these names.
    pub fn set_waits_ms(&self, busy: u64, idle: u64, transaction: u64) {
        self.busy_wait_ms.store(busy, Ordering::Relaxed);
        self.idle_ms.store(idle, Ordering::Relaxed);
        self.transaction_ms.store(transaction, Ordering::Relaxed);
    }

    /// Sets how many transactions and cursors may be open at once.
    pub fn set_sessions_max(&self, count: u64) {
        self.sessions_max.store(count, Ordering::Relaxed);
    }

    /// What one command and one database may take; for how long depends on the place.
    pub fn limits(&self) -> Limits {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Limits {
            timeout_ms: 0,
            rows: load(&self.rows_max),
            bytes: load(&self.bytes_max),
            memory: load(&self.memory_max),
            size: load(&self.database_bytes_max),
        }
    }

    /// Bytes of live keys that a statement may read.
    pub fn live_bytes_max(&self) -> usize {
        self.live_bytes_max.load(Ordering::Relaxed) as usize
    }

    /// Sets the rows and bytes that a command may answer, and the bytes of keys that it may read.
    pub fn set_bounds(&self, rows: u64, bytes: u64, live_bytes: u64) {
        self.rows_max.store(rows, Ordering::Relaxed);
        self.bytes_max.store(bytes, Ordering::Relaxed);
        self.live_bytes_max.store(live_bytes, Ordering::Relaxed);
    }

    /// Sets the bytes that a database may have, and SQLite may take for a command; 0 for any.
    pub fn set_memory(&self, database_bytes: u64, command_bytes: u64) {
        self.database_bytes_max.store(database_bytes, Ordering::Relaxed);
        self.memory_max.store(command_bytes, Ordering::Relaxed);
    }

    /// Sets the folder, below that of database files, that files may be attached and loaded from.
    pub fn set_attach_folder(&self, folder: &str) {
        let mut known = self.attach_folder.write().unwrap_or_else(|p| p.into_inner());
        *known = PathBuf::from(folder);
    }

    /// Sets both times.
    pub fn set_timeouts_ms(&self, alone: u64, in_unit: u64) {
        self.timeout_ms.store(alone, Ordering::Relaxed);
        self.unit_timeout_ms.store(in_unit, Ordering::Relaxed);
    }

    /// Sets the folder that database files may be in; empty: the working folder.
    pub fn set_folder(&self, folder: &Path) {
        *self.folder.write().unwrap_or_else(|p| p.into_inner()) = folder.to_path_buf();
    }

    /// The file that a path given by a client means: inside the folder, with no way out of it.
    /// `None` for a database in memory.
    ///
    /// # Errors
    /// In words, if it leads elsewhere.
    pub fn file(&self, path: &[u8]) -> Result<Option<PathBuf>, &'static str> {
        if path.is_empty() || path == b":memory:" || path == b":memory" {
            return Ok(None);
        }
        let folder = self.folder.read().unwrap_or_else(|p| p.into_inner());
        inside(&folder, path).map(Some)
    }

    /// How [`Settings::file`] is told of a file: below the folder, so that both may move.
    pub fn name_of(&self, file: &Path) -> String {
        let folder = self.folder.read().unwrap_or_else(|p| p.into_inner());
        file.strip_prefix(&*folder).unwrap_or(file).to_string_lossy().into_owned()
    }

    /// The file that a client means to read: inside the folder for that.
    ///
    /// # Errors
    /// In words, if it leads elsewhere.
    pub fn file_to_read(&self, path: &[u8]) -> Result<PathBuf, &'static str> {
        let folder = self.folder.read().unwrap_or_else(|p| p.into_inner());
        let below = self.attach_folder.read().unwrap_or_else(|p| p.into_inner());
        inside(&folder.join(&*below), path)
    }
}

/// The file below a folder that a path means.
fn inside(folder: &Path, path: &[u8]) -> Result<PathBuf, &'static str> {
    const OUTSIDE: &str = "ERR the path is outside of the folder for database files";
    let text = std::str::from_utf8(path).map_err(|_| OUTSIDE)?;
    if text.starts_with("file:") || text.contains('\0') {
        return Err(OUTSIDE);
    }
    let given = Path::new(text);
    let relative =
        if given.is_absolute() { given.strip_prefix(folder).map_err(|_| OUTSIDE)? } else { given };
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let parts = relative.components().filter(|part| *part != Component::CurDir);
    if parts.clone().count() == 0 || !parts.clone().all(is_plain) {
        return Err(OUTSIDE);
    }
    let mut whole = folder.to_path_buf();
    for part in parts {
        whole.push(part);
        // A link could lead anywhere.
        if whole.is_symlink() {
            return Err(OUTSIDE);
        }
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stay_in_their_folder() {
        for bad in ["../x", "/etc/passwd", "a/../../x", "file:x?vfs=unix", "..", ".", "a\0b"] {
            assert!(settings().file(bad.as_bytes()).is_err(), "{bad}");
        }
        assert_eq!(settings().file(b"a/b.db"), Ok(Some(PathBuf::from("a/b.db"))));
        assert_eq!(settings().file(b":memory:"), Ok(None));
    }
}
