//! The data types, one file each. A type is pure: no clock, no I/O, randomness passed in.
//!
//! Each is one thin word ([`crate::raw::compact`]) that holds either a packed block (small) or a
//! boxed structure (large), so that an entry of the keyspace needs eight bytes for any value.

pub mod foreign;
pub mod geo;
pub mod hash;
pub mod hyperloglog;
pub mod intset;
pub mod list;
pub mod nodes;
pub mod set;
pub mod stream;
pub mod zset;

use crate::raw::table::{Item, Table};

/// Bits of a table's cursor that are always zero: a client's cursor goes without them, so that
/// it stays small enough for clients that keep it in a signed or floating number.
const CURSOR_SHIFT: u32 = 20;

/// A sample of fewer than one item in this many is drawn one by one, others in one pass over all.
const SPARSE: usize = 4;

/// One step of SSCAN or HSCAN over a table; 0 is the start, and the end.
fn scan<T: Item>(table: &Table<T>, cursor: u64, count: usize, visit: impl FnMut(&T)) -> u64 {
    let cursor = cursor.unbounded_shl(CURSOR_SHIFT);
    table.scan(cursor, count, visit).map_or(0, |next| next >> CURSOR_SHIFT)
}
