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

use std::collections::HashSet;

use crate::random::Random;
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

/// Visits `count` random items of `len`, none twice, in no special order; all if there are fewer.
/// Few of many are drawn one by one, if `draw` can give a random item and its address; else one
/// pass over `all` chooses.
fn sample<I>(
    len: usize,
    count: usize,
    random: &mut Random,
    draw: impl Fn(&mut Random) -> Option<(*const u8, I)>,
    all: impl Iterator<Item = I>,
    mut visit: impl FnMut(I),
) {
    let mut drawn = HashSet::new();
    while count < len / SPARSE && drawn.len() < count {
        let Some((address, item)) = draw(random) else { break };
        if drawn.insert(address) {
            visit(item);
        }
    }
    let mut wanted = if drawn.is_empty() { count.min(len) } else { 0 };
    for (index, item) in all.enumerate() {
        if wanted == 0 {
            return;
        }
        // Selection sampling (Knuth, TAOCP 3.4.2, algorithm S): exact in one pass.
        if random.below(len - index) < wanted {
            visit(item);
            wanted -= 1;
        }
    }
}
