//! The append-only file: manifest, reading, the log that writes it, rewriting, checking.

pub mod base;
pub mod check;
pub mod files;
pub mod log;
pub mod manifest;
pub mod reader;
pub mod rewrite;
