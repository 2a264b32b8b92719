//! LZF, the compression of strings in RDB files: fast, and poor.
//!
//! ```text
//!  000lllll            l + 1 literal bytes follow                                1..=32
//!  lllooooo oooooooo   copy l + 2 bytes from o + 1 back                          3..=8
//!  111ooooo llllllll oooooooo   copy l + 9 bytes from o + 1 back                 9..=264
//! ```
//!
//! The format is Marc Lehmann's libLZF. A copy may overlap its own output, which makes runs.
//!
//! **Invariant:** what [`compress`](Compressor::compress) writes, [`decompress`] gives back.

/// Furthest that a copy reaches back.
const OFFSET_MAX: usize = 1 << 13;
/// Longest copy.
const COPY_MAX: usize = 264;
/// Longest run of literals.
const LITERALS_MAX: usize = 32;
/// Bits of the table of places.
const TABLE_BITS: u32 = 14;
/// No compressed byte makes more than this many.
pub const RATIO_MAX: usize = COPY_MAX / 3 + 1;

/// The table of places where three bytes were last seen; made once, used for many strings.
pub struct Compressor {
    /// A place plus `base`; what is below `base` belongs to an earlier string.
    places: Vec<u32>,
    base: u32,
}

impl Default for Compressor {
    fn default() -> Self {
        Compressor { places: vec![0; 1 << TABLE_BITS], base: 1 }
    }
}

fn slot(bytes: &[u8]) -> usize {
    let three = u32::from(bytes[0]) | u32::from(bytes[1]) << 8 | u32::from(bytes[2]) << 16;
    (three.wrapping_mul(0x9e37_79b1) >> (32 - TABLE_BITS)) as usize
}

impl Compressor {
    /// Appends the compressed form of `input` to `out` if that is shorter by at least four bytes
    /// (Redis's rule); else `out` is left as it was, and the answer is false.
    pub fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let Some(room) = input.len().checked_sub(4) else { return false };
        if input.len() >= (u32::MAX - self.base) as usize {
            self.places.fill(0);
            self.base = 1;
            if input.len() >= (u32::MAX - 1) as usize {
                return false;
            }
        }
        let is_shorter = self.fill(input, out, start + room);
        self.base += input.len() as u32;
        if !is_shorter {
            out.truncate(start);
        }
        is_shorter
    }

    fn fill(&mut self, input: &[u8], out: &mut Vec<u8>, end: usize) -> bool {
        let mut at = 0;
        let mut literals = 0;
        while at + 2 < input.len() {
            let place = &mut self.places[slot(&input[at..at + 3])];
            let before = std::mem::replace(place, self.base + at as u32);
            let back = (self.base + at as u32).wrapping_sub(before) as usize;
            let seen = before >= self.base
                && back <= OFFSET_MAX
                && input[at - back..at - back + 3] == input[at..at + 3];
            if !seen {
                at += 1;
                continue;
            }
            write_literals(&input[literals..at], out);
            let len = same(input, at - back, at);
            write_copy(back - 1, len, out);
            if out.len() > end {
                return false;
            }
            // The places inside a copy are left out but for its last two.
            let next = at + len;
            for inner in next.saturating_sub(2).max(at + 1)..next {
                if inner + 2 < input.len() {
                    self.places[slot(&input[inner..inner + 3])] = self.base + inner as u32;
                }
            }
            at = next;
            literals = next;
        }
        write_literals(&input[literals..], out);
        out.len() <= end
    }
}

/// How many bytes from `at` on are those from `before` on.
fn same(input: &[u8], before: usize, at: usize) -> usize {
    let most = COPY_MAX.min(input.len() - at);
    let pairs = input[at..at + most].iter().zip(&input[before..]);
    pairs.take_while(|(one, other)| one == other).count()
}

fn write_literals(bytes: &[u8], out: &mut Vec<u8>) {
    for run in bytes.chunks(LITERALS_MAX) {
        out.push((run.len() - 1) as u8);
        out.extend_from_slice(run);
    }
}

fn write_copy(offset: usize, len: usize, out: &mut Vec<u8>) {
    let (high, low) = ((offset >> 8) as u8, offset as u8);
    match len - 2 {
        short @ 1..=6 => out.extend_from_slice(&[(short as u8) << 5 | high, low]),
        long => out.extend_from_slice(&[7 << 5 | high, (long - 7) as u8, low]),
    }
}

/// Appends what `input` was made of to `out`: exactly `len` bytes, or `None` with `out` in any
/// state. Allocates only what `input` can make.
pub fn decompress(input: &[u8], len: usize, out: &mut Vec<u8>) -> Option<()> {
    if len > input.len().saturating_mul(RATIO_MAX) {
        return None;
    }
    let start = out.len();
    let end = start + len;
    out.reserve(len);
    let mut input = input;
    while let Some((control, rest)) = input.split_first() {
        input = rest;
        let control = usize::from(*control);
        if control < LITERALS_MAX {
            let (literals, rest) = input.split_at_checked(control + 1)?;
            if end - out.len() < literals.len() {
                return None;
            }
            out.extend_from_slice(literals);
            input = rest;
            continue;
        }
        let mut copy = (control >> 5) + 2;
        if copy == 9 {
            let (more, rest) = input.split_first()?;
            copy += usize::from(*more);
            input = rest;
        }
        let (low, rest) = input.split_first()?;
        input = rest;
        let back = ((control & 0x1f) << 8 | usize::from(*low)) + 1;
        if back > out.len() - start || copy > end - out.len() {
            return None;
        }
        repeat(out, back, copy);
    }
    (out.len() == end).then_some(())
}

/// Appends `copy` bytes from `back` before the end, which may reach into themselves.
fn repeat(out: &mut Vec<u8>, back: usize, copy: usize) {
    let from = out.len() - back;
    let mut left = copy;
    while left > 0 {
        // Each round doubles what there is to copy from.
        let step = left.min(out.len() - from);
        out.extend_from_within(from..from + step);
        left -= step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_format_is_liblzf() {
        // Three literals, then a copy of 9 + 11 bytes from 3 back.
        let mut out = Vec::new();
        assert!(Compressor::default().compress(b"abcabcabcabcabcabcabcab", &mut out));
        assert_eq!(out, [2, b'a', b'b', b'c', 0xe0, 11, 2]);
        // A run, as Redis 7.0 writes it: one literal of its own before the copy begins.
        let mut back = Vec::new();
        assert_eq!(decompress(&[1, b'a', b'a', 0xe0, 19, 0], 30, &mut back), Some(()));
        assert_eq!(back, [b'a'; 30]);
    }

    #[test]
    fn a_table_serves_many_strings() {
        let mut compressor = Compressor::default();
        for round in 0..100u8 {
            let input: Vec<u8> = (0..500u32).map(|n| (n % 50) as u8 ^ round).collect();
            let (mut out, mut back) = (Vec::new(), Vec::new());
            assert!(compressor.compress(&input, &mut out));
            assert!(out.len() < 100, "{}", out.len());
            assert_eq!(decompress(&out, input.len(), &mut back), Some(()));
            assert_eq!(back, input);
        }
    }

    #[test]
    fn a_table_starts_anew_before_its_places_run_over() {
        let mut compressor = Compressor { base: u32::MAX - 40, ..Compressor::default() };
        for _ in 0..3 {
            let (mut out, mut back) = (Vec::new(), Vec::new());
            assert!(compressor.compress(&[b'x'; 30], &mut out));
            assert_eq!(decompress(&out, 30, &mut back), Some(()));
            assert_eq!(back, [b'x'; 30]);
        }
    }

    #[test]
    fn lies_about_length_allocate_nothing() {
        let mut out = Vec::new();
        assert_eq!(decompress(&[0, b'a'], usize::MAX, &mut out), None);
        assert_eq!(out.capacity(), 0);
    }

    proptest! {
        #[test]
        fn gives_back_what_was_compressed(
            words in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 0..12), 1..12),
            order in proptest::collection::vec(any::<prop::sample::Index>(), 0..300)
        ) {
            let input: Vec<u8> =
                order.iter().flat_map(|index| index.get(&words).iter().copied()).collect();
            let (mut out, mut back) = (vec![7], vec![8]);
            if Compressor::default().compress(&input, &mut out) {
                prop_assert!(out.len() - 1 + 4 <= input.len());
                prop_assert_eq!(decompress(&out[1..], input.len(), &mut back), Some(()));
                prop_assert_eq!(&back[1..], &input[..]);
            } else {
                prop_assert_eq!(out, [7]);
            }
        }

        #[test]
        fn anything_is_decompressed_or_refused(
            input in proptest::collection::vec(any::<u8>(), 0..200), len in 0usize..20_000
        ) {
            let mut out = Vec::new();
            if decompress(&input, len, &mut out).is_some() {
                prop_assert_eq!(out.len(), len);
            }
        }
    }
}
