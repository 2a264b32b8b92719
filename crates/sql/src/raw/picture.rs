//! A database in memory as the bytes of a file, copied once and read by several connections.
//!
//! **Invariant:** the bytes stay where they are, unchanged, until the last connection that reads
//! them is closed or reads others: each keeps a share.

use std::cell::RefCell;
use std::ffi::{c_uint, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use rusqlite::ffi;

use crate::error::SqlError;
use crate::raw::statement::Handle;

/// The bytes: SQLite's own allocation.
pub struct Picture {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: nobody writes the bytes after they were made; they are freed once, by the last owner.
unsafe impl Send for Picture {}
// SAFETY: as above: only read.
unsafe impl Sync for Picture {}

impl Drop for Picture {
    fn drop(&mut self) {
        // SAFETY: SQLite's own allocation, which nobody reads any more.
        unsafe { ffi::sqlite3_free(self.start.as_ptr().cast::<c_void>()) };
    }
}

impl Picture {
    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.len
    }
}

/// The picture that a connection reads, if it does.
pub type Shown = RefCell<Option<Arc<Picture>>>;

impl Handle {
    /// Copies what is committed, or was changed by this connection.
    ///
    /// # Errors
    /// If there is no memory for it, or nothing to copy.
    pub fn picture(&self) -> Result<Picture, SqlError> {
        let mut len = 0;
        // SAFETY: the connection is open, `main` is there, the place is valid.
        let start = unsafe {
            ffi::sqlite3_serialize(self.raw(), c"main".as_ptr(), &raw mut len, 0).cast::<u8>()
        };
        let out_of_memory = || SqlError::new(ffi::SQLITE_NOMEM, "out of memory".into());
        let start = NonNull::new(start).ok_or_else(out_of_memory)?;
        Ok(Picture { start, len: usize::try_from(len).unwrap_or(0) })
    }

    /// Reads a picture from now on. Statements prepared before must be gone.
    ///
    /// # Errors
    /// SQLite's.
    pub fn show(&self, picture: &Arc<Picture>) -> Result<(), SqlError> {
        let (start, len) = (picture.start.as_ptr(), picture.len as i64);
        let flags = ffi::SQLITE_DESERIALIZE_READONLY as c_uint;
        // SAFETY: the connection is open; the bytes are as many as it is told, are not written
        // since they are shown as read-only, and are kept by the share that is taken below.
        let code = crate::guard::as_owner(|| unsafe {
            ffi::sqlite3_deserialize(self.raw(), c"main".as_ptr(), start, len, len, flags)
        });
        if code == ffi::SQLITE_OK {
            self.shown().replace(Some(Arc::clone(picture)));
            return Ok(());
        }
        // Whether it reads the new or the old is not known: neither may go.
        std::mem::forget(Arc::clone(picture));
        std::mem::forget(self.shown().take());
        Err(self.error(code))
    }

    /// A number that is another one after each commit.
    pub fn data_version(&self) -> u32 {
        let mut version: c_uint = 0;
        // SAFETY: the connection is open; SQLite writes an unsigned number for this question.
        unsafe {
            let (to, what) = ((&raw mut version).cast(), ffi::SQLITE_FCNTL_DATA_VERSION);
            ffi::sqlite3_file_control(self.raw(), c"main".as_ptr(), what, to);
        }
        version
    }
}
