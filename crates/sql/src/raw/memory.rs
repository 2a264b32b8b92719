//! SQLite's memory from the program's own allocator, so that it is in `used_memory`; bounded for
//! one command where that is asked for.
//!
//! ```text
//! | size: 8 bytes | what SQLite gets ... |
//! ```

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;

use rusqlite::ffi;

const HEAD: usize = 8;

thread_local! {
    /// Bytes that SQLite may still take on this thread.
    static LEFT: Cell<i64> = const { Cell::new(i64::MAX) };
    static WAS_SHORT: Cell<bool> = const { Cell::new(false) };
}

/// Lets SQLite take so many bytes on this thread, beyond what it gives back meanwhile; 0 for any.
pub fn allow(bytes: u64) {
    let left = if bytes == 0 { i64::MAX } else { i64::try_from(bytes).unwrap_or(i64::MAX) };
    LEFT.set(left);
    WAS_SHORT.set(false);
}

/// Lets SQLite take what it wants.
pub fn lift() {
    LEFT.set(i64::MAX);
}

/// Whether SQLite was refused memory since the last [`allow`].
pub fn was_short() -> bool {
    WAS_SHORT.get()
}

/// Counts bytes that are taken, or given back if below zero; false if they are too many.
fn count(bytes: i64) -> bool {
    let left = LEFT.get();
    if left == i64::MAX {
        return true;
    }
    let left = left - bytes;
    if left < 0 {
        WAS_SHORT.set(true);
        return false;
    }
    // What is given back never reads as no bound at all.
    LEFT.set(left.min(i64::MAX - 1));
    true
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.checked_add(HEAD)?, HEAD).ok()
}

unsafe extern "C" fn take(bytes: c_int) -> *mut c_void {
    let Some(layout) = usize::try_from(bytes).ok().and_then(layout) else {
        return ptr::null_mut();
    };
    if !count(i64::from(bytes)) {
        return ptr::null_mut();
    }
    // SAFETY: never empty; the head is inside and aligned.
    unsafe {
        let block = alloc(layout);
        if block.is_null() {
            return ptr::null_mut();
        }
        block.cast::<usize>().write(bytes as usize);
        block.add(HEAD).cast()
    }
}

unsafe extern "C" fn size(block: *mut c_void) -> c_int {
    if block.is_null() {
        return 0;
    }
    // SAFETY: SQLite gives back what `take` or `resize` gave it.
    unsafe { block.cast::<u8>().sub(HEAD).cast::<usize>().read() as c_int }
}

unsafe extern "C" fn give(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    // SAFETY: as in `size`; the layout is the one it was made with.
    unsafe {
        count(-i64::from(size(block)));
        if let Some(layout) = layout(size(block) as usize) {
            dealloc(block.cast::<u8>().sub(HEAD), layout);
        }
    }
}

unsafe extern "C" fn resize(block: *mut c_void, bytes: c_int) -> *mut c_void {
    let new = usize::try_from(bytes).ok();
    // SAFETY: as in `give`; the new size is not zero, as it has a head.
    unsafe {
        let old = layout(size(block) as usize);
        let (Some(new), Some(old)) = (new.filter(|bytes| layout(*bytes).is_some()), old) else {
            return ptr::null_mut();
        };
        if !count(i64::from(bytes) - i64::from(size(block))) {
            return ptr::null_mut();
        }
        let moved = realloc(block.cast::<u8>().sub(HEAD), old, new + HEAD);
        if moved.is_null() {
            return ptr::null_mut();
        }
        moved.cast::<usize>().write(new);
        moved.add(HEAD).cast()
    }
}

unsafe extern "C" fn round(bytes: c_int) -> c_int {
    bytes.saturating_add(7) & !7
}

unsafe extern "C" fn begin(_: *mut c_void) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn end(_: *mut c_void) {}

/// Gives SQLite this allocator. To be called before SQLite is used at all.
///
/// # Errors
/// SQLite's code, if it has begun already.
pub fn install() -> Result<(), i32> {
    let methods = ffi::sqlite3_mem_methods {
        xMalloc: Some(take),
        xFree: Some(give),
        xRealloc: Some(resize),
        xSize: Some(size),
        xRoundup: Some(round),
        xInit: Some(begin),
        xShutdown: Some(end),
        pAppData: ptr::null_mut(),
    };
    // SAFETY: SQLite copies the table.
    let code = unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MALLOC, &raw const methods) };
    if code == ffi::SQLITE_OK { Ok(()) } else { Err(code) }
}
