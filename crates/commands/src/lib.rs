//! The command table and its families: what a Redis-compatible server does, without its sockets.
//!
//! A family is one module with a `FAMILY` constant and one line in [`FAMILIES`]; a command is one
//! row in its family's table beside its handler.

pub mod arguments;
pub mod basics;
pub mod bitfield;
pub mod bitmap;
pub mod categories;
pub mod command;
pub mod context;
pub mod databases;
pub mod engine;
pub mod error;
pub mod expire;
pub mod help;
pub mod introspect;
pub mod keys;
pub mod memory;
pub mod object;
pub mod pattern;
pub mod registry;
pub mod scan;
pub mod sort;
pub mod string;
pub mod testing;
pub mod transactions;
pub mod words;

use command::Family;

/// The families of this crate; the binary adds those of others.
pub const FAMILIES: &[Family] = &[
    keys::FAMILY,
    expire::FAMILY,
    databases::FAMILY,
    memory::FAMILY,
    introspect::FAMILY,
    basics::FAMILY,
    string::FAMILY,
    bitmap::FAMILY,
    transactions::FAMILY,
];
