//! The command table and its families: what a Redis-compatible server does, without its sockets.
//!
//! A family is one module with a `FAMILY` constant and one line in [`FAMILIES`]; a command is one
//! row in its family's table beside its handler.

pub mod basics;
pub mod command;
pub mod context;
pub mod elements;
pub mod engine;
pub mod error;
pub mod geo;
pub mod hash;
pub mod hyperloglog;
pub mod list;
pub mod long_double;
pub mod pattern;
pub mod registry;
pub mod set;
pub mod string;
pub mod testing;
pub mod transactions;
pub mod words;
pub mod zset;

use command::Family;

/// The families of this crate; the binary adds those of others.
pub const FAMILIES: &[Family] = &[
    basics::FAMILY,
    string::FAMILY,
    list::FAMILY,
    set::FAMILY,
    hash::FAMILY,
    zset::FAMILY,
    geo::FAMILY,
    hyperloglog::FAMILY,
    transactions::FAMILY,
];
