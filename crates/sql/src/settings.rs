//! What can be set of SQL, by options of the server.

use std::path::{Component, Path, PathBuf};
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
pub struct Settings {
    timeout_ms: AtomicU64,
    unit_timeout_ms: AtomicU64,
    folder: RwLock<PathBuf>,
}

static SETTINGS: Settings = Settings {
    timeout_ms: AtomicU64::new(10_000),
    unit_timeout_ms: AtomicU64::new(1_000),
    folder: RwLock::new(PathBuf::new()),
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
        const OUTSIDE: &str = "ERR the path is outside of the folder for database files";
        if path.is_empty() || path == b":memory:" || path == b":memory" {
            return Ok(None);
        }
        let text = std::str::from_utf8(path).map_err(|_| OUTSIDE)?;
        if text.starts_with("file:") || text.contains('\0') {
            return Err(OUTSIDE);
        }
        let folder = self.folder.read().unwrap_or_else(|p| p.into_inner());
        let given = Path::new(text);
        let relative = if given.is_absolute() {
            given.strip_prefix(&*folder).map_err(|_| OUTSIDE)?
        } else {
            given
        };
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        let parts = relative.components().filter(|part| *part != Component::CurDir);
        if parts.clone().count() == 0 || !parts.clone().all(is_plain) {
            return Err(OUTSIDE);
        }
        let mut whole = folder.clone();
        for part in parts {
            whole.push(part);
            // A link could lead anywhere.
            if whole.is_symlink() {
                return Err(OUTSIDE);
            }
        }
        Ok(Some(whole))
    }
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
