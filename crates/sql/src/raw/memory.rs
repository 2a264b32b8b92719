//! SQLite's memory from the program's own allocator, so that it is in `used_memory`.
//!
//! ```text
//! | size: 8 bytes | what SQLite gets ... |
//! ```

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::ffi::{c_int, c_void};
use std::ptr;

use rusqlite::ffi;

const HEAD: usize = 8;

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.checked_add(HEAD)?, HEAD).ok()
}

unsafe extern "C" fn take(bytes: c_int) -> *mut c_void {
    let Some(layout) = usize::try_from(bytes).ok().and_then(layout) else {
        return ptr::null_mut();
    };
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
