//! Redis's listpack element encoding, byte for byte, over plain slices.
//!
//! ```text
//!  element: | head | data | backlen |
//!
//!  0xxxxxxx                    integer 0..=127
//!  10llllll  data              string of up to 63 bytes
//!  110xxxxx xxxxxxxx           integer of 13 bits, two's complement
//!  1110llll llllllll  data     string of up to 4095 bytes
//!  11110000 l l l l  data      string, length in 32 bits, little-endian
//!  11110001 .. 11110100        integer of 2, 3, 4 or 8 bytes, little-endian
//! ```
//!
//! The backlen holds the bytes of head and data, so that elements can be read from the right:
//! groups of seven bits, the most significant first, all but the first with their top bit set.
//!
//! Everything here is safe code that never reads outside its slice: an offset that is not the start
//! of an element gives nonsense or a panic, never more.
//!
//! **Invariant:** the encoding is canonical: equal strings have equal bytes. What looks like an
//! integer is one, in the shortest form; [`validate`] refuses what is damaged and says what is not
//! canonical.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::mem::MaybeUninit;

use crate::hasher;

/// Longest string an element can hold: the block around it must stay below 4 GiB.
pub const ELEMENT_BYTES_MAX: usize = u32::MAX as usize - 1024;

/// What an element holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element<'a> {
    /// A string that looks exactly as an integer is printed.
    Int(i64),
    /// Any other string.
    Str(&'a [u8]),
}

impl<'a> Element<'a> {
    /// The element that `bytes` are stored as.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Element<'a> {
        canonical_int(bytes).map_or(Element::Str(bytes), Element::Int)
    }

    /// The string: itself, or the integer printed into `buffer`.
    #[inline]
    pub fn text<'b>(self, buffer: &'b mut itoa::Buffer) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Element::Int(number) => buffer.format(number).as_bytes(),
            Element::Str(bytes) => bytes,
        }
    }

    /// A copy of the string.
    pub fn to_vec(self) -> Vec<u8> {
        self.text(&mut itoa::Buffer::new()).to_vec()
    }

    /// Bytes of the string.
    pub fn len(self) -> usize {
        match self {
            Element::Int(number) => decimal_len(number),
            Element::Str(bytes) => bytes.len(),
        }
    }

    /// Whether the string is empty.
    pub fn is_empty(self) -> bool {
        self == Element::Str(b"")
    }

    /// Whether the string is `bytes`.
    #[inline]
    pub fn is(self, bytes: &[u8]) -> bool {
        match self {
            Element::Str(own) => own == bytes,
            Element::Int(number) => canonical_int(bytes) == Some(number),
        }
    }

    /// How the string compares with `bytes`, byte by byte.
    pub fn compare(self, bytes: &[u8]) -> Ordering {
        self.text(&mut itoa::Buffer::new()).cmp(bytes)
    }

    /// The integer, if it is one.
    pub fn int(self) -> Option<i64> {
        match self {
            Element::Int(number) => Some(number),
            Element::Str(_) => None,
        }
    }
}

/// Characters of `number` in decimal.
pub fn decimal_len(number: i64) -> usize {
    let digits = number.unsigned_abs().checked_ilog10().map_or(1, |log| log as usize + 1);
    digits + usize::from(number < 0)
}

/// The integer that is printed exactly as `bytes`: no plus, no leading zero, no "-0".
#[inline]
pub fn canonical_int(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => (),
        _ => return None,
    }
    let mut value = 0u64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // At most 19 digits: below 10^19, which fits in 64 bits.
        value = value * 10 + u64::from(digit);
    }
    match (negative, value) {
        (false, 0..=0x7fff_ffff_ffff_ffff) => Some(value as i64),
        (true, 0..=0x8000_0000_0000_0000) => Some((value as i64).wrapping_neg()),
        _ => None,
    }
}

/// An element ready to be written: head, string data, backlen.
pub struct Encoded<'a> {
    head: [u8; 9],
    head_len: u8,
    data: &'a [u8],
}

impl<'a> Encoded<'a> {
    /// The encoding of the string `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Encoded<'a> {
        Self::element(Element::new(bytes))
    }

    /// The encoding of an element as read from another block, or of an integer.
    #[inline]
    pub fn element(element: Element<'a>) -> Encoded<'a> {
        match element {
            Element::Int(number) => Self::int(number),
            Element::Str(bytes) => Self::str(bytes),
        }
    }

    fn int(number: i64) -> Encoded<'static> {
        let mut head = [0; 9];
        let bytes = number.to_le_bytes();
        let head_len = match number {
            0..=127 => {
                head[0] = bytes[0];
                1
            }
            -4096..=4095 => {
                head[0] = 0xc0 | (bytes[1] & 0x1f);
                head[1] = bytes[0];
                2
            }
            _ => {
                let (first, width) = match number {
                    -0x8000..=0x7fff => (0xf1, 2),
                    -0x80_0000..=0x7f_ffff => (0xf2, 3),
                    -0x8000_0000..=0x7fff_ffff => (0xf3, 4),
                    _ => (0xf4, 8),
                };
                head[0] = first;
                head[1..1 + width].copy_from_slice(&bytes[..width]);
                1 + width as u8
            }
        };
        Encoded { head, head_len, data: b"" }
    }

    #[inline]
    fn str(data: &[u8]) -> Encoded<'_> {
        let mut head = [0; 9];
        let len = data.len();
        assert!(len <= ELEMENT_BYTES_MAX, "an element of {len} bytes");
        let head_len = match len {
            0..64 => {
                head[0] = 0x80 | len as u8;
                1
            }
            64..4096 => {
                head[0] = 0xe0 | (len >> 8) as u8;
                head[1] = len as u8;
                2
            }
            _ => {
                head[0] = 0xf0;
                head[1..5].copy_from_slice(&(len as u32).to_le_bytes());
                5
            }
        };
        Encoded { head, head_len, data }
    }

    /// Bytes of the element in all.
    #[inline]
    pub fn size(&self) -> usize {
        let len = usize::from(self.head_len) + self.data.len();
        len + backlen_size(len)
    }

    /// Writes the element over the whole of `out`, which has [`Encoded::size`] bytes.
    #[inline]
    pub fn write(&self, out: &mut [MaybeUninit<u8>]) {
        let head_len = usize::from(self.head_len);
        let len = head_len + self.data.len();
        out[..head_len].write_copy_of_slice(&self.head[..head_len]);
        out[head_len..len].write_copy_of_slice(self.data);
        let backlen = backlen(len);
        out[len..].write_copy_of_slice(&backlen[..backlen_size(len)]);
    }

    /// Writes the element behind what `out` holds.
    #[inline]
    pub fn append_to(&self, out: &mut Vec<u8>) {
        let head_len = usize::from(self.head_len);
        let len = head_len + self.data.len();
        out.extend_from_slice(&self.head[..head_len]);
        out.extend_from_slice(self.data);
        out.extend_from_slice(&backlen(len)[..backlen_size(len)]);
    }

    /// Whether the element at the start of `bytes` is this one.
    #[inline]
    fn is_at(&self, bytes: &[u8]) -> bool {
        let head_len = usize::from(self.head_len);
        if bytes[0] != self.head[0] {
            return false;
        }
        // Names in a collection often begin alike: the last byte tells them apart more cheaply.
        let end = head_len + self.data.len();
        let last = *self.data.last().unwrap_or(&self.head[head_len - 1]);
        bytes.get(end - 1) == Some(&last)
            && bytes.get(1..head_len) == Some(&self.head[1..head_len])
            && bytes.get(head_len..end) == Some(self.data)
    }
}

/// Bytes of the backlen of an element whose head and data have `len` bytes. The odd bounds are
/// Redis's.
#[inline]
fn backlen_size(len: usize) -> usize {
    match len {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// The backlen for `len` bytes of head and data, in as many bytes as [`backlen_size`] says.
#[inline]
fn backlen(len: usize) -> [u8; 5] {
    let size = backlen_size(len);
    let mut out = [0; 5];
    for (index, byte) in out[..size].iter_mut().enumerate() {
        let group = (len >> (7 * (size - 1 - index))) as u8 & 0x7f;
        *byte = if index == 0 { group } else { group | 0x80 };
    }
    out
}

/// Bytes of head and of data of the element whose first bytes are given.
#[inline]
fn measure(bytes: &[u8]) -> (usize, usize) {
    let first = bytes[0];
    match first {
        0x00..=0x7f => (1, 0),
        0x80..=0xbf => (1, usize::from(first & 0x3f)),
        0xc0..=0xdf => (2, 0),
        0xe0..=0xef => (2, usize::from(first & 0x0f) << 8 | usize::from(bytes[1])),
        0xf0 => {
            let len = [bytes[1], bytes[2], bytes[3], bytes[4]];
            (5, u32::from_le_bytes(len) as usize)
        }
        0xf1 => (3, 0),
        0xf2 => (4, 0),
        0xf3 => (5, 0),
        _ => (9, 0),
    }
}

/// Where the element after the one at `at` starts.
#[inline]
pub fn after(bytes: &[u8], at: usize) -> usize {
    match bytes[at] {
        // Short strings and small integers, whose backlen is one byte.
        first @ 0x80..=0xbf => at + 2 + usize::from(first & 0x3f),
        0x00..=0x7f => at + 2,
        0xc0..=0xdf => at + 3,
        _ => {
            let (head, data) = measure(&bytes[at..]);
            at + head + data + backlen_size(head + data)
        }
    }
}

/// Where the element that ends at `at` starts; `at` > 0.
#[inline]
pub fn before(bytes: &[u8], at: usize) -> usize {
    let mut len = 0;
    let mut size = 0;
    loop {
        let byte = bytes[at - 1 - size];
        len |= usize::from(byte & 0x7f) << (7 * size);
        size += 1;
        if byte & 0x80 == 0 || size == 5 {
            return at - size - len;
        }
    }
}

/// The element at `at`.
#[inline]
pub fn read(bytes: &[u8], at: usize) -> Element<'_> {
    let bytes = &bytes[at..];
    let first = bytes[0];
    match first {
        0x00..=0x7f => Element::Int(i64::from(first)),
        0x80..=0xbf => Element::Str(&bytes[1..1 + usize::from(first & 0x3f)]),
        0xc0..=0xdf => {
            let number = i16::from_le_bytes([bytes[1], first & 0x1f]);
            Element::Int(i64::from(number << 3 >> 3))
        }
        0xe0..=0xf0 => {
            let (head, data) = measure(bytes);
            Element::Str(&bytes[head..head + data])
        }
        _ => {
            let width = measure(bytes).0 - 1;
            let mut number = [0; 8];
            number[8 - width..].copy_from_slice(&bytes[1..1 + width]);
            Element::Int(i64::from_le_bytes(number) >> (64 - 8 * width))
        }
    }
}

/// Where the first element equal to `needle` starts, looking at the element at `from` and then at
/// every `step`-th.
#[inline]
pub fn find(bytes: &[u8], needle: &[u8], from: usize, step: usize) -> Option<usize> {
    let needle = Encoded::new(needle);
    let mut at = from;
    while at < bytes.len() {
        if needle.is_at(&bytes[at..]) {
            return Some(at);
        }
        for _ in 0..step {
            if at >= bytes.len() {
                return None;
            }
            at = after(bytes, at);
        }
    }
    None
}

/// How many elements `bytes` hold.
pub fn count(bytes: &[u8]) -> usize {
    let mut at = 0;
    let mut count = 0;
    while at < bytes.len() {
        at = after(bytes, at);
        count += 1;
    }
    count
}

/// Whether every `step`-th element of canonical bytes, from the first on, is there once only.
pub fn is_distinct(bytes: &[u8], step: usize) -> bool {
    let mut spans = Vec::with_capacity(bytes.len() / (8 * step) + 1);
    let mut at = 0;
    while at < bytes.len() {
        // Equal strings have equal bytes, so only those need be compared, their hashes first.
        let end = after(bytes, at);
        spans.push((hasher::hash(&bytes[at..end]), at, end));
        at = end;
        for _ in 1..step {
            at = if at < bytes.len() { after(bytes, at) } else { at };
        }
    }
    spans.sort_unstable();
    let same_hash = spans.chunk_by(|one, other| one.0 == other.0);
    let mut runs = same_hash.filter(|run| run.len() > 1);
    runs.all(|run| {
        let distinct: HashSet<&[u8]> = run.iter().map(|(_, at, end)| &bytes[*at..*end]).collect();
        distinct.len() == run.len()
    })
}

/// What [`validate`] found in sound bytes.
pub struct Sound {
    /// How many elements there are.
    pub count: usize,
    /// Whether each is encoded as we would encode it.
    pub canonical: bool,
}

/// Checks bytes from outside: whole elements to the end, each backlen in place.
pub fn validate(bytes: &[u8]) -> Option<Sound> {
    let mut at = 0;
    let mut sound = Sound { count: 0, canonical: true };
    while at < bytes.len() {
        let rest = &bytes[at..];
        let head = match rest[0] {
            0xf5..=0xff => return None,
            0xe0..=0xef => 2,
            0xf0 => 5,
            _ => measure(&[rest[0], 0]).0,
        };
        if rest.len() < head {
            return None;
        }
        let (head, data) = measure(rest);
        if data > ELEMENT_BYTES_MAX {
            return None;
        }
        let len = head + data;
        let size = len + backlen_size(len);
        if rest.get(len..size)? != &backlen(len)[..size - len] {
            return None;
        }
        sound.canonical &= match read(rest, 0) {
            Element::Str(text) => Encoded::new(text).is_at(rest),
            number => Encoded::element(number).is_at(rest),
        };
        sound.count += 1;
        at += size;
    }
    Some(sound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(bytes: &[u8]) -> Vec<u8> {
        let encoded = Encoded::new(bytes);
        let mut out = Box::new_uninit_slice(encoded.size());
        encoded.write(&mut out);
        // SAFETY: written from the first to the last byte.
        unsafe { out.assume_init() }.into_vec()
    }

    #[test]
    fn encodes_as_redis_does() {
        let cases: &[(&[u8], &[u8])] = &[
            (b"0", &[0x00, 1]),
            (b"127", &[0x7f, 1]),
            (b"128", &[0xc0, 0x80, 2]),
            (b"-1", &[0xdf, 0xff, 2]),
            (b"-4096", &[0xd0, 0x00, 2]),
            (b"4095", &[0xcf, 0xff, 2]),
            (b"4096", &[0xf1, 0x00, 0x10, 3]),
            (b"-32768", &[0xf1, 0x00, 0x80, 3]),
            (b"32768", &[0xf2, 0x00, 0x80, 0x00, 4]),
            (b"-8388608", &[0xf2, 0x00, 0x00, 0x80, 4]),
            (b"8388608", &[0xf3, 0x00, 0x00, 0x80, 0x00, 5]),
            (b"2147483648", &[0xf4, 0, 0, 0, 0x80, 0, 0, 0, 0, 9]),
            (b"", &[0x80, 1]),
            (b"a", &[0x81, b'a', 2]),
            (b"01", &[0x82, b'0', b'1', 3]),
            (b"-0", &[0x82, b'-', b'0', 3]),
        ];
        for (text, bytes) in cases {
            assert_eq!(encode(text), *bytes, "{:?}", text.escape_ascii().to_string());
        }
        assert_eq!(encode(&[b'x'; 64])[..2], [0xe0, 64]);
        assert_eq!(encode(&[b'x'; 4096])[..5], [0xf0, 0, 0x10, 0, 0]);
        assert_eq!(encode(&[b'x'; 200])[202..], [1, 0x80 | (202 - 128)]);
    }

    #[test]
    fn backlens_read_back_at_every_bound() {
        for data in [0, 126, 127, 16_377, 16_378, 16_379, 2_097_145, 2_097_146, 2_097_147] {
            let bytes = encode(&vec![b'x'; data]);
            assert_eq!(before(&bytes, bytes.len()), 0, "{data}");
            assert_eq!(after(&bytes, 0), bytes.len(), "{data}");
        }
    }

    #[test]
    fn canonical_int_takes_what_is_printed() {
        for number in [0, 1, -1, 10, i64::MAX, i64::MIN, 999_999_999_999_999_999] {
            assert_eq!(canonical_int(number.to_string().as_bytes()), Some(number));
            assert_eq!(decimal_len(number), number.to_string().len());
        }
        for text in ["", "-", "+1", "00", "-0", "1a", " 1", "9223372036854775808", "1.0"] {
            assert_eq!(canonical_int(text.as_bytes()), None, "{text}");
        }
        assert_eq!(canonical_int(b"-9223372036854775809"), None);
        assert_eq!(canonical_int(b"18446744073709551616"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        #[test]
        fn every_integer_reads_back(number in any::<i64>(), shift in 0..64) {
            let number: i64 = number >> shift;
            let text = number.to_string();
            let bytes = encode(text.as_bytes());
            prop_assert_eq!(read(&bytes, 0), Element::Int(number));
            prop_assert_eq!(read(&bytes, 0).to_vec(), text.as_bytes());
            prop_assert!(read(&bytes, 0).is(text.as_bytes()));
            prop_assert!(validate(&bytes).is_some_and(|sound| sound.canonical));
        }

        #[test]
        fn hostile_bytes_are_refused_or_readable(
            bytes in proptest::collection::vec(
                prop_oneof![0u8.., Just(0xf0), Just(2), Just(0x81)], 0..64)
        ) {
            if let Some(sound) = validate(&bytes) {
                let mut at = 0;
                let mut starts = vec![];
                while at < bytes.len() {
                    starts.push(at);
                    read(&bytes, at);
                    at = after(&bytes, at);
                }
                prop_assert_eq!(starts.len(), sound.count);
                while let Some(start) = starts.pop() {
                    prop_assert_eq!(before(&bytes, at), start);
                    at = start;
                }
            }
        }
    }
}
