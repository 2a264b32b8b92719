//! The keyspace's unsafe floor: hash table, thin pointers, entries, locks.
//!
//! **Invariant:** no other module of this crate has unsafe code, and nothing outside `raw` can
//! break what holds here: every public function is safe to call with any argument.
#![allow(unsafe_code)]

pub mod compact;
pub mod entry;
pub mod listpack;
pub mod lock;
pub mod node;
pub mod packed;
pub mod ranked;
mod run;
pub mod scored;
mod segment;
pub mod shards;
pub mod table;
pub mod thin;
mod tree;
