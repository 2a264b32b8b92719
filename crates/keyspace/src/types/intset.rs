//! A sorted array of integers in a packed block: what a small set of integers is.
//!
//! ```text
//!   | mark | integer | integer | ...    ascending, 2, 4 or 8 bytes each, little-endian
//! ```
//!
//! Width and growth are Redis's intset: all integers have the width that the widest one ever
//! needed. The mark says the width; no listpack element starts with such a byte, so a set tells an
//! intset from a listpack by the block's first byte and needs no field for that.
//!
//! **Invariant:** strictly ascending; the bytes after the mark are a multiple of the width.

use crate::raw::packed::{Malformed, Packed};

/// The marks of 2, 4 and 8 bytes.
const MARKS: [u8; 3] = [0xfc, 0xfd, 0xfe];

/// The integers of a block, to be read.
#[derive(Clone, Copy)]
pub struct Ints<'a> {
    bytes: &'a [u8],
    width: usize,
}

/// A block for integers.
pub fn new() -> Packed {
    let mut packed = Packed::new();
    packed.splice_bytes(0, 0, &MARKS[..1]);
    packed
}

impl<'a> Ints<'a> {
    /// The integers of `packed`, if it is a block for integers.
    #[inline]
    pub fn of(packed: &'a Packed) -> Option<Ints<'a>> {
        let (mark, bytes) = packed.bytes().split_first()?;
        let width = match mark {
            0xfc => 2,
            0xfd => 4,
            0xfe => 8,
            _ => return None,
        };
        Some(Ints { bytes, width })
    }

    /// How many there are.
    #[inline]
    pub fn len(self) -> usize {
        self.bytes.len() / self.width
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// The integer with this index, in ascending order.
    #[inline]
    pub fn get(self, index: usize) -> Option<i64> {
        self.bytes.get(index * self.width..(index + 1) * self.width).map(read)
    }

    /// The index of `number`, or the one it would get.
    #[inline]
    pub fn find(self, number: i64) -> Result<usize, usize> {
        let mut low = 0;
        let mut high = self.len();
        while low < high {
            let middle = (low + high) / 2;
            let other = read(&self.bytes[middle * self.width..(middle + 1) * self.width]);
            match other.cmp(&number) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Whether `number` is there.
    #[inline]
    pub fn contains(self, number: i64) -> bool {
        self.find(number).is_ok()
    }

    /// All of them, ascending.
    #[inline]
    pub fn iter(self) -> impl DoubleEndedIterator<Item = i64> + use<'a> {
        self.bytes.chunks_exact(self.width).map(read)
    }

    /// Redis's own form: width and count in four bytes each, then the integers.
    pub fn to_redis(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + self.bytes.len());
        out.extend_from_slice(&(self.width as u32).to_le_bytes());
        out.extend_from_slice(&(self.len() as u32).to_le_bytes());
        out.extend_from_slice(self.bytes);
        out
    }
}

/// The block of an intset in Redis's own form, from anywhere: every byte is checked.
pub fn from_redis(intset: &[u8]) -> Result<Packed, Malformed> {
    let (head, bytes) = intset.split_first_chunk::<8>().ok_or(Malformed)?;
    let [width, 0, 0, 0, a, b, c, d] = *head else {
        return Err(Malformed);
    };
    let mark = mark(usize::from(width)).ok_or(Malformed)?;
    let width = usize::from(width);
    if (u32::from_le_bytes([a, b, c, d]) as usize).checked_mul(width) != Some(bytes.len()) {
        return Err(Malformed);
    }
    if !(Ints { bytes, width }).iter().is_sorted_by(|one, next| one < next) {
        return Err(Malformed);
    }
    let mut packed = Packed::new();
    packed.splice_bytes(0, 0, &[mark]);
    packed.splice_bytes(1, 0, bytes);
    Ok(packed)
}

/// Adds `number` to a block for integers; returns false if it was there.
pub fn insert(packed: &mut Packed, number: i64) -> bool {
    let Some(ints) = Ints::of(packed) else {
        return false;
    };
    let wanted = width(number);
    if wanted > ints.width {
        widen(packed, wanted, number);
        return true;
    }
    let width = ints.width;
    let Err(index) = ints.find(number) else {
        return false;
    };
    packed.splice_bytes(1 + index * width, 0, &number.to_le_bytes()[..width]);
    true
}

/// Takes `number` out of a block for integers; returns false if it was not there.
pub fn remove(packed: &mut Packed, number: i64) -> bool {
    let Some(ints) = Ints::of(packed) else {
        return false;
    };
    let width = ints.width;
    let Ok(index) = ints.find(number) else {
        return false;
    };
    packed.splice_bytes(1 + index * width, width, &[]);
    true
}

/// Rewrites the block with `wanted` bytes an integer and adds `number`, which is beyond all others.
fn widen(packed: &mut Packed, wanted: usize, number: i64) {
    let Some(ints) = Ints::of(packed) else {
        return;
    };
    let mut bytes = Vec::with_capacity(1 + (ints.len() + 1) * wanted);
    bytes.extend(mark(wanted));
    let mut push = |number: i64| bytes.extend_from_slice(&number.to_le_bytes()[..wanted]);
    if number < 0 {
        push(number);
    }
    ints.iter().for_each(&mut push);
    if number > 0 {
        push(number);
    }
    packed.splice_bytes(0, packed.bytes().len(), &bytes);
}

fn mark(width: usize) -> Option<u8> {
    [2, 4, 8].iter().position(|other| *other == width).map(|index| MARKS[index])
}

/// Bytes that `number` needs.
#[inline]
fn width(number: i64) -> usize {
    if i16::try_from(number).is_ok() {
        2
    } else if i32::try_from(number).is_ok() {
        4
    } else {
        8
    }
}

#[inline]
fn read(bytes: &[u8]) -> i64 {
    match *bytes {
        [a, b] => i64::from(i16::from_le_bytes([a, b])),
        [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => unreachable!("a width of 2, 4 or 8"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn number() -> impl Strategy<Value = i64> {
        prop_oneof![
            4 => -20i64..20,
            1 => any::<i16>().prop_map(i64::from),
            1 => any::<i32>().prop_map(i64::from),
            1 => any::<i64>(),
            1 => prop::sample::select(vec![
                32_767, 32_768, -32_768, -32_769, 2_147_483_647, 2_147_483_648, -2_147_483_648,
                -2_147_483_649, i64::MIN, i64::MAX,
            ]),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        #[test]
        fn holds_what_a_btree_set_holds(
            steps in proptest::collection::vec((any::<bool>(), number()), 0..80)
        ) {
            let mut packed = new();
            let mut model = BTreeSet::new();
            for (add, number) in steps {
                if add {
                    prop_assert_eq!(insert(&mut packed, number), model.insert(number));
                } else {
                    prop_assert_eq!(remove(&mut packed, number), model.remove(&number));
                }
                let ints = Ints::of(&packed).expect("marked");
                prop_assert_eq!(ints.contains(number), add);
                prop_assert_eq!(ints.len(), model.len());
                prop_assert!(ints.iter().eq(model.iter().copied()));
            }
            let ints = Ints::of(&packed).expect("marked");
            let again = from_redis(&ints.to_redis()).expect("our own");
            prop_assert_eq!(again.bytes(), packed.bytes());
        }

        #[test]
        fn hostile_intsets_are_refused_or_sorted(
            bytes in proptest::collection::vec(
                prop_oneof![any::<u8>(), Just(0), Just(2), Just(4), Just(8)], 0..40)
        ) {
            if let Ok(packed) = from_redis(&bytes) {
                let numbers: Vec<i64> = Ints::of(&packed).expect("marked").iter().collect();
                prop_assert!(numbers.is_sorted_by(|one, next| one < next));
            }
        }
    }
}
