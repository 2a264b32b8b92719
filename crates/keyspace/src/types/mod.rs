//! The data types, one file each. A type is pure: no clock, no I/O, randomness passed in.
//!
//! Each is one thin word ([`crate::raw::compact`]) that holds either a packed block (small) or a
//! boxed structure (large), so that an entry of the keyspace needs eight bytes for any value.

pub mod geo;
pub mod hash;
pub mod hyperloglog;
pub mod intset;
pub mod list;
pub mod set;
pub mod zset;
