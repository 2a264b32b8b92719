//! The id of a stream's entry: a time in milliseconds and a number within it.

use std::fmt;

/// An entry's id; ordered by time, then by number.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds since 1970, or whatever the client gave instead.
    pub ms: u64,
    /// Tells entries of one millisecond apart.
    pub seq: u64,
}

impl StreamId {
    /// 0-0: before every entry; never an entry's own.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The last id there can be.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// An id of its two numbers.
    pub const fn new(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    /// The id after this one, if this is not the last.
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => self.ms.checked_add(1).map(|ms| StreamId { ms, seq: 0 }),
        }
    }

    /// The id before this one, if this is not the first.
    pub fn previous(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => self.ms.checked_sub(1).map(|ms| StreamId { ms, seq: u64::MAX }),
        }
    }

    /// The 16 bytes that files hold: both numbers, the most significant byte first.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.ms.to_be_bytes());
        bytes[8..].copy_from_slice(&self.seq.to_be_bytes());
        bytes
    }

    /// The inverse of [`StreamId::to_bytes`].
    pub fn from_bytes(bytes: [u8; 16]) -> StreamId {
        let both = u128::from_be_bytes(bytes);
        StreamId { ms: (both >> 64) as u64, seq: both as u64 }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_and_bytes() {
        let id = StreamId::new(5, u64::MAX);
        assert_eq!(id.next(), Some(StreamId::new(6, 0)));
        assert_eq!(StreamId::new(6, 0).previous(), Some(id));
        assert_eq!((StreamId::MAX.next(), StreamId::MIN.previous()), (None, None));
        assert_eq!(StreamId::from_bytes(id.to_bytes()), id);
        assert_eq!(id.to_bytes()[..9], [0, 0, 0, 0, 0, 0, 0, 5, 255]);
        assert_eq!(id.to_string(), "5-18446744073709551615");
    }
}
