//! The time that SQL sees: a file layer that is SQLite's own but for the clock.
//!
//! **Invariant:** within one command the time stands still, and whether it was asked for is known:
//! a command that asked is logged with the time it saw.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::sync::OnceLock;

use rusqlite::ffi;

/// The name under which the file layer is registered.
pub const NAME: &std::ffi::CStr = c"forebay";

/// SQLite counts milliseconds from noon of 24 November 4714 before our era; this many to 1970.
const JULIAN_MS: i64 = 210_866_760_000_000;

thread_local! {
    static NOW_MS: Cell<i64> = const { Cell::new(0) };
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

/// Sets the time that this thread's SQL sees, in milliseconds since 1970, and forgets whether it
/// was asked for.
pub fn freeze(now_ms: i64) {
    NOW_MS.set(now_ms);
    ASKED.set(false);
}

/// Whether SQL has asked for the time since it was set.
pub fn was_asked() -> bool {
    ASKED.get()
}

/// The time that SQL sees.
pub fn now_ms() -> i64 {
    NOW_MS.get()
}

extern "C" fn current_ms(_: *mut ffi::sqlite3_vfs, to: *mut ffi::sqlite3_int64) -> c_int {
    ASKED.set(true);
    // SAFETY: SQLite gives a valid place.
    unsafe { *to = JULIAN_MS + NOW_MS.get() };
    ffi::SQLITE_OK
}

extern "C" fn current_days(_: *mut ffi::sqlite3_vfs, to: *mut f64) -> c_int {
    ASKED.set(true);
    // SAFETY: SQLite gives a valid place.
    unsafe { *to = (JULIAN_MS + NOW_MS.get()) as f64 / 86_400_000.0 };
    ffi::SQLITE_OK
}

/// Registers the file layer, once.
///
/// # Errors
/// If SQLite has none of its own or refuses this one.
pub fn register() -> Result<(), String> {
    static DONE: OnceLock<Result<(), String>> = OnceLock::new();
    let register = || {
        // Where somebody has used SQLite before, its memory is the system's: it works as well, but
        // is not in `used_memory`.
        if let Err(code) = super::memory::install() {
            tracing::warn!("SQLite keeps its own allocator: {code}");
        }
        // SAFETY: the system's own file layer lives for ever; its copy is leaked, so that it does,
        // too, and is complete before it is registered.
        unsafe {
            let own = ffi::sqlite3_vfs_find(ptr::null());
            if own.is_null() {
                return Err("SQLite knows no file layer".to_string());
            }
            let copy = Box::leak(Box::new(ptr::read(own)));
            copy.zName = NAME.as_ptr();
            copy.pNext = ptr::null_mut();
            copy.xCurrentTime = Some(current_days);
            copy.xCurrentTimeInt64 = Some(current_ms);
            match ffi::sqlite3_vfs_register(copy, 0) {
                ffi::SQLITE_OK => Ok(()),
                code => Err(format!("SQLite refuses the file layer: {code}")),
            }
        }
    };
    DONE.get_or_init(register).clone()
}
