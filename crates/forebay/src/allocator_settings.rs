//! jemalloc's settings, read by it before `main`: freed pages go back to the system within a
//! second, by a background thread, so that the resident set follows the data; few arenas, since
//! there are few threads.
#![allow(unsafe_code)]

use std::ffi::c_char;

const TEXT: &std::ffi::CStr =
    c"background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0,metadata_thp:disabled";

/// The name that jemalloc looks for.
// SAFETY: a pointer to a constant C string is what `malloc_conf` must be; nothing writes it.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static MALLOC_CONF: Option<&'static c_char> = Some(first(TEXT));

const fn first(text: &'static std::ffi::CStr) -> &'static c_char {
    // SAFETY: a C string has at least its final zero.
    unsafe { &*text.as_ptr() }
}
