//! The lock-sharded keyspace: tables, entries, data types, expiry, eviction, memory accounting.

pub mod access;
pub mod commit;
pub mod due;
pub mod effects;
pub mod evict;
mod fields;
pub mod hasher;
pub mod image;
pub mod keys;
pub mod keyspace;
pub mod load;
pub mod observe;
pub mod random;
pub mod raw;
pub mod settings;
pub mod types;
mod undo;
pub mod value;
pub mod waiting;
mod whole;
