//! The unsafe floor of the crate: SQLite's statements, read and bound without copies.
//!
//! **Invariant:** no other module of this crate has unsafe code, and nothing outside can break what
//! holds here: every public function is safe to call with any argument.
#![allow(unsafe_code)]

pub mod clock;
pub mod live;
pub mod memory;
pub mod picture;
pub mod statement;
