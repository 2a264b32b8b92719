//! How far the loading of files has come: commands are refused meanwhile (`-LOADING`), INFO and the
//! log tell.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// See the module.
#[derive(Debug, Default)]
pub struct Loading {
    is_on: AtomicBool,
    /// Bytes of all files to load.
    pub total_bytes: AtomicU64,
    /// Bytes of them that have been loaded.
    pub loaded_bytes: AtomicU64,
    /// When it began, in milliseconds since 1970.
    pub started_ms: AtomicI64,
    /// Why the server must end: its data cannot be loaded.
    fatal: OnceLock<String>,
}

impl Loading {
    /// Whether files are being loaded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Says that loading begins.
    pub fn begin(&self, total_bytes: u64, now_ms: i64) {
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
        self.loaded_bytes.store(0, Ordering::Relaxed);
        self.started_ms.store(now_ms, Ordering::Relaxed);
        self.is_on.store(true, Ordering::SeqCst);
    }

    /// Says that all is loaded.
    pub fn end(&self) {
        self.is_on.store(false, Ordering::SeqCst);
    }

    /// Says why the server cannot go on.
    pub fn fail(&self, why: String) {
        let _ = self.fatal.set(why);
    }

    /// Why the server could not go on.
    pub fn failure(&self) -> Option<&str> {
        self.fatal.get().map(String::as_str)
    }
}
