//! Data on disk: the RDB codec, the append-only file, recovery. The only crate that opens data
//! files; it knows keys and values, and nothing of clients.

pub mod aof;
pub mod disk;
pub mod journal;
pub mod rdb;
