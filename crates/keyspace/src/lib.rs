//! The lock-sharded keyspace: tables, entries, data types, expiry, eviction, memory accounting.

pub mod hasher;
pub mod random;
pub mod raw;
pub mod types;
