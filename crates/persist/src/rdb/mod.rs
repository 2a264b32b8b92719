//! The RDB file format: a snapshot of all keys, and one key's value for DUMP and RESTORE.
//!
//! ```text
//!  "REDIS0010" | AUX name value | ...          a header: nine bytes of magic and version
//!              | FUNCTION2 source | ...        libraries of functions
//!              | SELECTDB db | RESIZEDB keys volatile
//!              | [EXPIRETIME_MS t] [IDLE s | FREQ n] type key value | ...
//!              | EOF | CRC-64, little-endian   0 = not computed
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `format` | numbers of opcodes and types, versions |
//! | `cursor`, `error` | reading a slice: lengths, strings, and what went wrong where |
//! | `lzf` | the compression of long strings |
//! | `encode` | a value to bytes |
//! | `decode`, `stream_form`, `ziplist` | bytes to a value, every byte checked |
//! | `skip` | where a value ends, without building it |
//! | `writer`, `reader` | whole files |
//! | `snapshot` | the keyspace at one instant to a file |
//! | `load` | a whole file into a keyspace, on several threads |
//! | `dump` | one value with a footer |
//! | `check` | what is wrong with a file, and what of it is sound |
//!
//! The format's source is Redis's `rdb.h` and `rdb.c` (7.0 and later), and Valkey's for version 80.
//!
//! **Invariant:** nothing here panics, hangs, or allocates more than a small multiple of the bytes
//! that are really there, whatever those bytes are.

pub mod check;
pub mod cursor;
pub mod decode;
pub mod dump;
pub mod encode;
pub mod error;
pub mod file;
pub mod format;
mod hash_times;
pub mod load;
pub mod lzf;
pub mod reader;
pub mod skip;
pub mod snapshot;
mod stream_form;
pub mod writer;
mod ziplist;

pub use error::{Error, Why};

/// The libraries of functions as files carry them: what the script engine gives and takes.
pub trait Libraries: Send + Sync {
    /// Every library's source text, its `#!` line included.
    fn sources(&self) -> Vec<Vec<u8>>;
    /// Loads a library in the place of one of the same name; says why it cannot.
    fn load(&self, source: &[u8]) -> Result<(), String>;
}

/// No libraries: none are written, and those of a file are dropped.
pub struct NoLibraries;

impl Libraries for NoLibraries {
    fn sources(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn load(&self, _: &[u8]) -> Result<(), String> {
        Ok(())
    }
}
