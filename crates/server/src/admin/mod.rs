//! The commands about the server itself: one file per family, all rows joined in [`FAMILIES`].

pub mod access;
pub mod config;
pub mod debug;
pub mod digest;
pub mod info;
pub mod latency;
pub mod memory;
pub mod misc;
pub mod save;
pub mod slowlog;

use commands::command::Family;

/// The families of this folder.
pub const FAMILIES: &[Family] = &[
    config::FAMILY,
    info::FAMILY,
    slowlog::FAMILY,
    latency::FAMILY,
    memory::FAMILY,
    misc::FAMILY,
    save::FAMILY,
    access::FAMILY,
    debug::FAMILY,
];
