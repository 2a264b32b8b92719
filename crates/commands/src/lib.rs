//! The command table and its families: what a Redis-compatible server does, without its sockets.
//!
//! A family is one module with a `FAMILY` constant and one line in [`FAMILIES`]; a command is one
//! row in its family's table beside its handler.

pub mod arguments;
pub mod bitfield;
pub mod bitmap;
pub mod categories;
pub mod command;
pub mod context;
pub mod databases;
pub mod elements;
pub mod engine;
pub mod error;
pub mod expire;
pub mod geo;
pub mod hash;
pub mod hash_times;
pub mod help;
pub mod hyperloglog;
pub mod introspect;
pub mod keys;
pub mod lcs;
pub mod limits;
pub mod list;
pub mod log;
pub mod long_double;
pub mod memory;
pub mod object;
pub mod pattern;
pub mod registry;
pub mod scan;
pub mod set;
pub mod sha1;
pub mod sort;
pub mod stream;
pub mod string;
pub mod testing;
mod together;
pub mod transactions;
pub mod widen;
pub mod words;
pub mod zset;

use command::Family;

/// The families of this crate; the binary adds those of others.
pub const FAMILIES: &[Family] = &[
    string::FAMILY,
    list::FAMILY,
    set::FAMILY,
    hash::FAMILY,
    hash_times::FAMILY,
    zset::FAMILY,
    stream::FAMILY,
    geo::FAMILY,
    hyperloglog::FAMILY,
    keys::FAMILY,
    expire::FAMILY,
    databases::FAMILY,
    memory::FAMILY,
    introspect::FAMILY,
    bitmap::FAMILY,
    transactions::FAMILY,
    limits::FAMILY,
];
