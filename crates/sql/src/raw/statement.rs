//! A prepared statement over SQLite's own interface: bound from borrowed bytes, read in place.
//!
//! **Invariant:** a statement keeps its connection's handle alive by [`Shared`], so that it is
//! always finalized before the connection is closed. A statement and its connection are used by one
//! thread at a time: both are `!Sync`, and move between threads together.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rusqlite::ffi;

use crate::error::SqlError;
use crate::raw::live::LiveTables;
use crate::raw::picture::Shown;

/// An open connection. What it shows goes after it.
pub struct Handle(rusqlite::Connection, Shown, LiveTables);

/// A share of an open connection, as it and its statements hold it: closed when the last is gone.
/// Shares stay inside this crate's `Connection`, so they move between threads together.
pub struct Shared(Arc<Handle>);

// SAFETY: the connection is opened without its own mutex. All shares of it are parts of one
// `Connection` (or lie on the stack of a method of it), which is used by one thread at a time.
unsafe impl Send for Shared {}

impl Shared {
    pub(crate) fn share(&self) -> Shared {
        Shared(Arc::clone(&self.0))
    }
}

impl std::ops::Deref for Shared {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.0
    }
}

impl Handle {
    /// Takes a connection in.
    #[allow(clippy::new_ret_no_self, clippy::arc_with_non_send_sync)]
    pub fn new(connection: rusqlite::Connection, live: LiveTables) -> Shared {
        Shared(Arc::new(Handle(connection, Shown::default(), live)))
    }

    /// Whether a table of this name is one over live keys.
    pub fn is_live(&self, table: &str) -> bool {
        self.2.has(table)
    }

    /// The connection by its own library.
    pub fn connection(&self) -> &rusqlite::Connection {
        &self.0
    }

    pub(super) fn shown(&self) -> &Shown {
        &self.1
    }

    pub(super) fn raw(&self) -> *mut ffi::sqlite3 {
        // SAFETY: the handle is only used while `self` lives, and never closed through it.
        unsafe { self.0.handle() }
    }

    /// Rows inserted, changed or deleted since the connection was opened, those by triggers and
    /// foreign keys included.
    pub fn total_changes(&self) -> i64 {
        // SAFETY: the connection is open.
        unsafe { ffi::sqlite3_total_changes64(self.raw()) }
    }

    /// Rows that the last statement changed by itself.
    pub fn changes(&self) -> i64 {
        // SAFETY: the connection is open.
        unsafe { ffi::sqlite3_changes64(self.raw()) }
    }

    /// The rowid of the last insertion.
    pub fn last_rowid(&self) -> i64 {
        // SAFETY: the connection is open.
        unsafe { ffi::sqlite3_last_insert_rowid(self.raw()) }
    }

    /// Whether no transaction is open.
    pub fn is_autocommit(&self) -> bool {
        // SAFETY: the connection is open.
        unsafe { ffi::sqlite3_get_autocommit(self.raw()) != 0 }
    }

    fn status(&self, what: c_int) -> i64 {
        let (mut now, mut peak) = (0, 0);
        // SAFETY: the connection is open; both places are valid.
        unsafe { ffi::sqlite3_db_status(self.raw(), what, &raw mut now, &raw mut peak, 0) };
        i64::from(now)
    }

    /// Bytes of pages, schema and statements that the connection holds.
    pub fn memory(&self) -> usize {
        let parts = [
            ffi::SQLITE_DBSTATUS_CACHE_USED,
            ffi::SQLITE_DBSTATUS_SCHEMA_USED,
            ffi::SQLITE_DBSTATUS_STMT_USED,
        ];
        parts.into_iter().map(|what| self.status(what).max(0) as usize).sum()
    }

    /// Whether foreign keys are broken that only the end of the transaction would complain about.
    pub fn has_broken_keys(&self) -> bool {
        self.status(ffi::SQLITE_DBSTATUS_DEFERRED_FKS) > 0
    }

    /// The whole database as the bytes of a database file.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn serialize(&self) -> Result<Vec<u8>, SqlError> {
        let mut len = 0;
        // SAFETY: the connection is open, `main` is there, the place is valid. What comes back is
        // `len` bytes of SQLite's own allocation, which is copied and given back.
        unsafe {
            let start = ffi::sqlite3_serialize(self.raw(), c"main".as_ptr(), &raw mut len, 0);
            if start.is_null() {
                if len == 0 {
                    return Ok(Vec::new());
                }
                return Err(SqlError::new(ffi::SQLITE_NOMEM, "out of memory".into()));
            }
            let bytes = std::slice::from_raw_parts(start, len as usize).to_vec();
            ffi::sqlite3_free(start.cast::<c_void>());
            Ok(bytes)
        }
    }

    /// Becomes a copy of another database.
    ///
    /// # Errors
    /// SQLite's.
    pub fn copy_from(&self, source: &rusqlite::Connection) -> Result<(), SqlError> {
        // SAFETY: both connections are open and used by nobody else meanwhile.
        let code = unsafe {
            let (from, to) = (source.handle(), self.raw());
            let backup = ffi::sqlite3_backup_init(to, c"main".as_ptr(), from, c"main".as_ptr());
            if backup.is_null() {
                return Err(self.error(ffi::sqlite3_errcode(to)));
            }
            ffi::sqlite3_backup_step(backup, -1);
            ffi::sqlite3_backup_finish(backup)
        };
        if code == ffi::SQLITE_OK { Ok(()) } else { Err(self.error(code)) }
    }

    /// Has the database refuse to become larger than so many bytes; 0 for any size.
    pub fn limit_size(&self, bytes_max: u64) {
        let pages = |text: &str| {
            self.connection().query_row(text, [], |row| row.get::<_, i64>(0)).unwrap_or(0)
        };
        let page = pages("PRAGMA page_size").max(512) as u64;
        let most = if bytes_max == 0 { u64::from(u32::MAX) - 1 } else { bytes_max.div_ceil(page) };
        crate::guard::as_owner(|| pages(&format!("PRAGMA max_page_count={most}")));
    }

    /// Sets the longest value or row that may come up, in bytes.
    pub fn limit_length(&self, bytes_max: usize) {
        let bytes = c_int::try_from(bytes_max).unwrap_or(c_int::MAX);
        // SAFETY: the connection is open.
        unsafe { ffi::sqlite3_limit(self.raw(), ffi::SQLITE_LIMIT_LENGTH, bytes) };
    }

    pub(super) fn error(&self, code: c_int) -> SqlError {
        // SAFETY: the connection is open; the message lives until the next call on it.
        let (extended, message) = unsafe {
            let message = ffi::sqlite3_errmsg(self.raw());
            let text = CStr::from_ptr(message).to_string_lossy().into_owned();
            (ffi::sqlite3_extended_errcode(self.raw()), text)
        };
        if extended & 0xff == code & 0xff {
            SqlError::new(extended, message)
        } else {
            // SAFETY: a static text for every code.
            let text = unsafe { CStr::from_ptr(ffi::sqlite3_errstr(code)) };
            SqlError::new(code, text.to_string_lossy().into_owned())
        }
    }
}

/// A value in a row, borrowed until the next step.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub enum Cell<'a> {
    Null,
    Int(i64),
    Real(f64),
    Text(&'a [u8]),
    Blob(&'a [u8]),
}

/// A prepared statement; see the module.
pub struct Statement {
    raw: NonNull<ffi::sqlite3_stmt>,
    handle: Shared,
    parameters: usize,
    is_read_only: bool,
    /// Parameters that may have a value.
    bound: usize,
    /// Some of them are bytes of somebody else.
    borrows: bool,
    /// Used by one thread at a time.
    _here: PhantomData<*mut ()>,
}

// SAFETY: as for `Shared`.
unsafe impl Send for Statement {}

/// A statement that runs: at its end it is reset and lets go of what was bound by reference.
/// Numbers stay bound until the next run.
struct Run<'s>(&'s mut Statement);

impl Drop for Run<'_> {
    fn drop(&mut self) {
        // SAFETY: prepared. The code that reset returns is that of the last step, which was seen.
        unsafe {
            ffi::sqlite3_reset(self.0.raw.as_ptr());
            if self.0.borrows {
                ffi::sqlite3_clear_bindings(self.0.raw.as_ptr());
                (self.0.borrows, self.0.bound) = (false, 0);
            }
        }
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        // SAFETY: prepared and not finalized; the connection is open as `handle` is held.
        unsafe { ffi::sqlite3_finalize(self.raw.as_ptr()) };
    }
}

impl Statement {
    /// Prepares the first statement of a text; `None` if there is only space and comments. Also
    /// returns how many bytes of the text it took.
    ///
    /// # Errors
    /// SQLite's.
    pub fn prepare(
        handle: &Shared,
        text: &[u8],
        keep: bool,
    ) -> Result<(Option<Statement>, usize), SqlError> {
        let Ok(len) = c_int::try_from(text.len()) else {
            return Err(SqlError::new(ffi::SQLITE_TOOBIG, "query string is too large".into()));
        };
        let (mut raw, mut tail) = (ptr::null_mut(), ptr::null::<c_char>());
        let flags = if keep { ffi::SQLITE_PREPARE_PERSISTENT } else { 0 };
        let start = text.as_ptr().cast::<c_char>();
        // SAFETY: the text has `len` bytes; both places are valid; the connection is open.
        let code = unsafe {
            let (to, end) = (&raw mut raw, &raw mut tail);
            ffi::sqlite3_prepare_v3(handle.raw(), start, len, flags as _, to, end)
        };
        if code != ffi::SQLITE_OK {
            return Err(handle.error(code));
        }
        let used = if tail.is_null() { text.len() } else { tail as usize - start as usize };
        let Some(raw) = NonNull::new(raw) else { return Ok((None, used)) };
        // SAFETY: just prepared.
        let (parameters, is_read_only) = unsafe {
            (
                ffi::sqlite3_bind_parameter_count(raw.as_ptr()) as usize,
                ffi::sqlite3_stmt_readonly(raw.as_ptr()) != 0,
            )
        };
        let handle = handle.share();
        let (bound, borrows) = (0, false);
        let statement =
            Statement { raw, handle, parameters, is_read_only, bound, borrows, _here: PhantomData };
        Ok((Some(statement), used.min(text.len())))
    }

    /// Whether it changes nothing in the database.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Whether it is an EXPLAIN.
    pub fn is_explain(&self) -> bool {
        // SAFETY: prepared.
        unsafe { ffi::sqlite3_stmt_isexplain(self.raw.as_ptr()) != 0 }
    }

    /// The highest number among its parameters.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// A parameter's name with its first character (`?5`, `:name`), from 1 on.
    pub fn parameter_name(&self, index: usize) -> Option<&[u8]> {
        // SAFETY: any index may be asked; the name lives as long as the statement.
        unsafe {
            let name = ffi::sqlite3_bind_parameter_name(self.raw.as_ptr(), index as c_int);
            (!name.is_null()).then(|| CStr::from_ptr(name).to_bytes())
        }
    }

    /// Columns of a row; 0 if it gives none.
    pub fn columns(&self) -> usize {
        // SAFETY: prepared. A changed schema may have changed it.
        unsafe { ffi::sqlite3_column_count(self.raw.as_ptr()) as usize }
    }

    /// A column's name.
    pub fn column_name(&self, index: usize) -> &[u8] {
        // SAFETY: any index may be asked; the name lives until the statement is prepared anew.
        unsafe {
            let name = ffi::sqlite3_column_name(self.raw.as_ptr(), index as c_int);
            if name.is_null() { b"" } else { CStr::from_ptr(name).to_bytes() }
        }
    }

    /// The type that a column was declared with, if it is one of a table.
    pub fn declared_type(&self, index: usize) -> Option<&[u8]> {
        // SAFETY: as for `column_name`.
        unsafe {
            let name = ffi::sqlite3_column_decltype(self.raw.as_ptr(), index as c_int);
            (!name.is_null()).then(|| CStr::from_ptr(name).to_bytes())
        }
    }

    /// Its text.
    pub fn text(&self) -> &[u8] {
        // SAFETY: the text lives as long as the statement.
        unsafe {
            let text = ffi::sqlite3_sql(self.raw.as_ptr());
            if text.is_null() { b"" } else { CStr::from_ptr(text).to_bytes() }
        }
    }

    /// Steps of SQLite's machine that it has run, since the last reset of this count.
    pub fn steps(&self) -> i64 {
        let what = ffi::SQLITE_STMTSTATUS_VM_STEP;
        // SAFETY: prepared.
        unsafe { i64::from(ffi::sqlite3_stmt_status(self.raw.as_ptr(), what, 0)) }
    }

    /// Runs it with these values, from parameter 1 on; each row goes to `row`, which says whether
    /// to go on. Parameters without a value are NULL.
    ///
    /// # Errors
    /// SQLite's; those of `row`.
    pub fn run<'b, E: From<SqlError>>(
        &mut self,
        values: impl Iterator<Item = Cell<'b>>,
        mut row: impl FnMut(&Statement) -> Result<bool, E>,
    ) -> Result<(), E> {
        let run = Run(self);
        let mut count = 0;
        for value in values {
            count += 1;
            run.0.bound = run.0.bound.max(count);
            run.0.borrows |= matches!(value, Cell::Text(_) | Cell::Blob(_));
            run.0.bind(count, value)?;
        }
        // What another run has left.
        for index in count + 1..=run.0.bound {
            run.0.bind(index, Cell::Null)?;
        }
        run.0.bound = count;
        while run.0.step()? && row(run.0)? {}
        Ok(())
    }

    fn bind(&mut self, index: usize, value: Cell<'_>) -> Result<(), SqlError> {
        let (raw, index) = (self.raw.as_ptr(), index as c_int);
        // SAFETY: prepared and reset. Bytes are bound by reference: `run` clears the bindings
        // before the borrow ends. An empty slice's pointer is not null, so it is no NULL.
        let code = unsafe {
            match value {
                Cell::Null => ffi::sqlite3_bind_null(raw, index),
                Cell::Int(number) => ffi::sqlite3_bind_int64(raw, index, number),
                Cell::Real(number) => ffi::sqlite3_bind_double(raw, index, number),
                Cell::Text(bytes) => {
                    let (start, len) = (bytes.as_ptr().cast::<c_char>(), bytes.len() as u64);
                    let utf8 = ffi::SQLITE_UTF8 as u8;
                    ffi::sqlite3_bind_text64(raw, index, start, len, ffi::SQLITE_STATIC(), utf8)
                }
                Cell::Blob(bytes) => {
                    let (start, len) = (bytes.as_ptr().cast::<c_void>(), bytes.len() as u64);
                    ffi::sqlite3_bind_blob64(raw, index, start, len, ffi::SQLITE_STATIC())
                }
            }
        };
        if code == ffi::SQLITE_OK { Ok(()) } else { Err(self.handle.error(code)) }
    }

    fn step(&mut self) -> Result<bool, SqlError> {
        // SAFETY: prepared; what is bound is still borrowed.
        match unsafe { ffi::sqlite3_step(self.raw.as_ptr()) } {
            ffi::SQLITE_ROW => Ok(true),
            ffi::SQLITE_DONE => Ok(false),
            code => Err(self.handle.error(code)),
        }
    }

    /// A value of the current row.
    pub fn cell(&self, column: usize) -> Cell<'_> {
        let (raw, column) = (self.raw.as_ptr(), column as c_int);
        // SAFETY: any column may be asked. The bytes live until the next step, for which `self`
        // must be borrowed mutably; the pointer is asked before the length, as SQLite wants it.
        unsafe {
            let bytes = |start: *const u8| {
                let len = ffi::sqlite3_column_bytes(raw, column) as usize;
                if start.is_null() { &[] } else { std::slice::from_raw_parts(start, len) }
            };
            match ffi::sqlite3_column_type(raw, column) {
                ffi::SQLITE_INTEGER => Cell::Int(ffi::sqlite3_column_int64(raw, column)),
                ffi::SQLITE_FLOAT => Cell::Real(ffi::sqlite3_column_double(raw, column)),
                ffi::SQLITE_TEXT => Cell::Text(bytes(ffi::sqlite3_column_text(raw, column))),
                ffi::SQLITE_BLOB => {
                    Cell::Blob(bytes(ffi::sqlite3_column_blob(raw, column).cast::<u8>()))
                }
                _ => Cell::Null,
            }
        }
    }
}
