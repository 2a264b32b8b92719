//! Reads the primitives of the RDB format from a slice: lengths, strings, doubles.
//!
//! ```text
//!  00llllll                     length 0..=63
//!  01llllll llllllll            length, 14 bits
//!  10000000 + 4 bytes           length, big-endian
//!  10000001 + 8 bytes           length, big-endian
//!  11000000, 1, 2               a string that is an integer of 1, 2, 4 bytes, little-endian
//!  11000011 length length ..    a string compressed by LZF: compressed and full length
//! ```
//!
//! **Invariant:** nothing is read outside the slice; what does not fit gives [`Why::Short`] with a
//! lower bound of the bytes that are missing, and the cursor stays usable.

use super::error::{Error, Why};
use super::lzf;

/// Longest string that is taken, in bytes: what Redis's `proto-max-bulk-len` could ever allow.
const STRING_BYTES_MAX: u64 = 1 << 40;

/// A place in a slice of a file; see the module.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the slice begins in the file.
    base: u64,
    /// What is being read, for errors.
    pub reading: &'static str,
}

/// A length, or what is told in its place.
enum Length {
    Plain(u64),
    /// Bytes of an integer.
    Int(usize),
    Lzf,
}

/// A string as it lies in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text<'a> {
    /// An integer, which stands for its decimal form.
    Int(i64),
    /// Bytes.
    Raw(&'a [u8]),
    /// Compressed bytes.
    Lzf {
        /// Bytes of the string.
        len: usize,
        /// Its compressed form.
        packed: &'a [u8],
    },
}

/// Where strings that do not lie in the file as they are come to lie: kept from one to the next.
#[derive(Default)]
pub struct Scratch {
    bytes: Vec<u8>,
    number: itoa::Buffer,
}

impl<'a> Cursor<'a> {
    /// Reads `bytes`, which begin at `base` of their file.
    pub fn new(bytes: &'a [u8], base: u64) -> Cursor<'a> {
        Cursor { bytes, at: 0, base, reading: "the payload" }
    }

    /// The same slice, of whose reading errors say this.
    pub fn reading(&mut self, what: &'static str) -> &mut Self {
        self.reading = what;
        self
    }

    /// Bytes read so far.
    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Bytes left.
    #[inline]
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The place in the file.
    pub fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// An error at this place.
    pub fn error(&self, why: Why) -> Error {
        Error { offset: self.offset(), reading: self.reading, why }
    }

    /// An error at this place: the bytes cannot be right.
    #[cold]
    pub fn damaged(&self, text: &'static str) -> Error {
        self.error(Why::Damaged(text))
    }

    #[cold]
    fn short(&self, wanted: u64) -> Error {
        self.error(Why::Short(wanted.saturating_sub(self.left() as u64)))
    }

    /// The next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        if len > self.left() {
            return Err(self.short(len as u64));
        }
        let bytes = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(bytes)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// The next byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, Error> {
        Ok(self.take(1)?[0])
    }

    /// The next byte, which is not read yet.
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    fn length_or_encoding(&mut self) -> Result<Length, Error> {
        let first = self.byte()?;
        Ok(match first {
            0x00..=0x3f => Length::Plain(u64::from(first)),
            0x40..=0x7f => Length::Plain(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            0x80 => Length::Plain(u64::from(u32::from_be_bytes(self.array()?))),
            0x81 => Length::Plain(u64::from_be_bytes(self.array()?)),
            0xc0 => Length::Int(1),
            0xc1 => Length::Int(2),
            0xc2 => Length::Int(4),
            0xc3 => Length::Lzf,
            _ => return Err(self.damaged("no such encoding of a length")),
        })
    }

    /// A length.
    #[inline]
    pub fn length(&mut self) -> Result<u64, Error> {
        match self.length_or_encoding()? {
            Length::Plain(length) => Ok(length),
            _ => Err(self.damaged("a string's encoding where a length was expected")),
        }
    }

    /// How many elements follow, each of which takes at least `bytes_min` bytes.
    #[inline]
    pub fn count(&mut self, bytes_min: u64) -> Result<usize, Error> {
        let count = self.length()?;
        let wanted = count.checked_mul(bytes_min).filter(|bytes| *bytes < 1 << 48);
        let Some(wanted) = wanted else {
            return Err(self.damaged("more elements than any file can hold"));
        };
        if wanted > self.left() as u64 {
            return Err(self.short(wanted));
        }
        Ok(count as usize)
    }

    /// A string.
    #[inline]
    pub fn text(&mut self) -> Result<Text<'a>, Error> {
        match self.length_or_encoding()? {
            Length::Plain(length) => Ok(Text::Raw(self.long(length)?)),
            Length::Int(1) => Ok(Text::Int(i64::from(i8::from_le_bytes(self.array()?)))),
            Length::Int(2) => Ok(Text::Int(i64::from(i16::from_le_bytes(self.array()?)))),
            Length::Int(_) => Ok(Text::Int(i64::from(i32::from_le_bytes(self.array()?)))),
            Length::Lzf => {
                let packed = self.length()?;
                let len = self.length()?;
                if len > packed.saturating_mul(lzf::RATIO_MAX as u64) || len == 0 {
                    return Err(self.damaged("a compressed string whose length cannot be"));
                }
                Ok(Text::Lzf { len: len as usize, packed: self.long(packed)? })
            }
        }
    }

    fn long(&mut self, length: u64) -> Result<&'a [u8], Error> {
        if length > self.left() as u64 {
            if length > STRING_BYTES_MAX {
                return Err(self.damaged("a string longer than any can be"));
            }
            return Err(self.short(length));
        }
        self.take(length as usize)
    }

    /// A string's bytes, where need be in `scratch`.
    #[inline]
    pub fn string<'s>(&mut self, scratch: &'s mut Scratch) -> Result<&'s [u8], Error>
    where
        'a: 's,
    {
        let text = self.text()?;
        self.unpack(text, scratch)
    }

    /// The bytes of a string that was just read.
    #[inline]
    pub fn unpack<'s>(&self, text: Text<'a>, scratch: &'s mut Scratch) -> Result<&'s [u8], Error>
    where
        'a: 's,
    {
        match text {
            Text::Raw(bytes) => Ok(bytes),
            Text::Int(number) => Ok(scratch.number.format(number).as_bytes()),
            Text::Lzf { len, packed } => {
                scratch.bytes.clear();
                lzf::decompress(packed, len, &mut scratch.bytes)
                    .ok_or_else(|| self.damaged("a compressed string that does not unpack"))?;
                Ok(&scratch.bytes)
            }
        }
    }

    /// A double as text: its length in a byte, or one of three marks.
    pub fn text_double(&mut self) -> Result<f64, Error> {
        let len = match self.byte()? {
            255 => return Ok(f64::NEG_INFINITY),
            254 => return Ok(f64::INFINITY),
            253 => return Ok(f64::NAN),
            len => usize::from(len),
        };
        let text = self.take(len)?;
        let number = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
        number.ok_or_else(|| self.damaged("a score that is no number"))
    }

    /// A double in binary.
    #[inline]
    pub fn double(&mut self) -> Result<f64, Error> {
        Ok(f64::from_le_bytes(self.array()?))
    }

    /// A time in milliseconds.
    #[inline]
    pub fn milliseconds(&mut self) -> Result<i64, Error> {
        Ok(i64::from_le_bytes(self.array()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_five_forms() {
        let cases: [(&[u8], u64); 5] = [
            (&[0x3f], 63),
            (&[0x41, 0x02], 0x102),
            (&[0x80, 0, 1, 0, 0], 65_536),
            (&[0x81, 0, 0, 0, 1, 0, 0, 0, 0], 1 << 32),
            (&[0x00], 0),
        ];
        for (bytes, length) in cases {
            let mut cursor = Cursor::new(bytes, 0);
            assert_eq!(cursor.length(), Ok(length));
            assert_eq!(cursor.left(), 0);
            for cut in 0..bytes.len() {
                let error = Cursor::new(&bytes[..cut], 0).length();
                assert!(error.is_err_and(|error| error.is_short()));
            }
        }
        let error = Cursor::new(&[0xc0, 1], 7).length().expect_err("a string's encoding");
        assert_eq!((error.offset, error.is_short()), (8, false));
    }

    #[test]
    fn strings_have_three_forms() {
        let mut scratch = Scratch::default();
        let cases: [(&[u8], &[u8]); 5] = [
            (b"\x03abc", b"abc"),
            (&[0xc0, 0xff], b"-1"),
            (&[0xc1, 0x00, 0x01], b"256"),
            (&[0xc2, 0, 0, 0, 0x80], b"-2147483648"),
            (&[0xc3, 6, 20, 1, b'a', b'a', 0xe0, 9, 0], b"aaaaaaaaaaaaaaaaaaaa"),
        ];
        for (bytes, text) in cases {
            let read = Cursor::new(bytes, 0).string(&mut scratch).map(<[u8]>::to_vec);
            assert_eq!(read.as_deref(), Ok(text));
        }
        let short_by_one = [0xc3, 6, 21, 1, b'a', b'a', 0xe0, 9, 0];
        assert!(Cursor::new(&short_by_one, 0).string(&mut scratch).is_err());
    }

    #[test]
    fn counts_are_held_against_what_is_left() {
        let mut cursor = Cursor::new(&[0x80, 0xff, 0xff, 0xff, 0xff, 1, 2, 3], 0);
        assert!(cursor.count(1).is_err_and(|error| error.is_short()));
        let mut cursor = Cursor::new(&[0x81, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 1], 0);
        assert!(cursor.count(1).is_err_and(|error| !error.is_short()));
    }
}
