//! Messages of Protocol Buffers, field by field (protobuf.dev, "Encoding"): as much as dtm's
//! service needs. Numbers, texts, bytes, messages within messages; groups are refused.
//!
//! ```text
//!   field    tag (varint: number << 3 | wire type), then
//!   type 0   varint: 7 bits a byte, least first, the highest bit = more follow
//!   type 1   8 bytes      type 5   4 bytes
//!   type 2   length (varint), so many bytes
//! ```
//!
//! **Invariant:** whatever the bytes are, reading ends, and never goes beyond them.

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number, of whatever width.
    Number(u64),
    /// A text, bytes, or a message.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The number; for a signed one, its two's complement.
    ///
    /// # Errors
    /// It is none.
    pub fn number(self) -> Result<u64, Malformed> {
        match self {
            Value::Number(number) => Ok(number),
            Value::Bytes(_) => Err(Malformed),
        }
    }

    /// The bytes.
    ///
    /// # Errors
    /// It is a number.
    pub fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Number(_) => Err(Malformed),
        }
    }

    /// The text.
    ///
    /// # Errors
    /// It is none.
    pub fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    /// One pair of a map of texts; what is left out is "".
    ///
    /// # Errors
    /// It is none.
    pub fn pair(self) -> Result<(&'a str, &'a str), Malformed> {
        let (mut name, mut value) = ("", "");
        for field in Fields(self.bytes()?) {
            match field? {
                (1, text) => name = text.text()?,
                (2, text) => value = text.text()?,
                _ => {}
            }
        }
        Ok((name, value))
    }
}

/// The fields of a message, in the order in which they were written.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for (place, &byte) in self.0.iter().take(10).enumerate() {
            let bits = u64::from(byte & 0x7f);
            if place == 9 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << (7 * place);
            if byte < 0x80 {
                self.0 = &self.0[place + 1..];
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], Malformed> {
        let count = usize::try_from(count).map_err(|_| Malformed)?;
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn fixed(&mut self, count: usize) -> Result<u64, Malformed> {
        let mut wide = [0; 8];
        wide[..count].copy_from_slice(self.take(count as u64)?);
        Ok(u64::from_le_bytes(wide))
    }

    fn field(&mut self) -> Result<(u64, Value<'a>), Malformed> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Number(self.fixed(8)?),
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Number(self.fixed(4)?),
            _ => return Err(Malformed),
        };
        match tag >> 3 {
            0 => Err(Malformed),
            number => Ok((number, value)),
        }
    }
}

impl<'a> Iterator for Fields<'a> {
    /// The field's number and what it holds; after an error there is nothing more.
    type Item = Result<(u64, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// A message that is being written.
#[derive(Debug, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Adds bytes, a text or a message; nothing if it is empty, as it is the default.
    pub fn bytes(&mut self, field: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.message(field, bytes);
        }
    }

    /// Adds a message, even an empty one.
    pub fn message(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Adds a number; nothing if it is 0.
    pub fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.varint(field << 3);
            self.varint(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_specification() {
        let all = |bytes| Fields(bytes).collect::<Result<Vec<_>, _>>();
        assert_eq!(all(&[0x08, 0x96, 0x01]), Ok(vec![(1, Value::Number(150))]));
        assert_eq!(all(b"\x12\x07testing"), Ok(vec![(2, Value::Bytes(b"testing"))]));
        let inner = all(&[0x1a, 0x03, 0x08, 0x96, 0x01]).unwrap()[0].1.bytes().unwrap();
        assert_eq!(all(inner), Ok(vec![(1, Value::Number(150))]));
        let minus_two = [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(all(&minus_two).unwrap()[0].1.number().unwrap() as i64, -2);
        assert_eq!(all(&[0x0d, 1, 0, 0, 0]), Ok(vec![(1, Value::Number(1))]));
        assert_eq!(Value::Bytes(b"\x0a\x01a\x12\x01b").pair(), Ok(("a", "b")));
    }

    #[test]
    fn what_is_no_message() {
        for bytes in [
            &b"\x0b"[..],
            b"\x08",
            b"\x08\x80",
            b"\x12\x02a",
            b"\x09\x01",
            b"\x02\x00",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert!(Fields(bytes).any(|field| field.is_err()), "{bytes:?}");
        }
        assert_eq!(Value::Bytes(b"\xff").text(), Err(Malformed));
        assert_eq!(Value::Number(1).bytes(), Err(Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_come_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Fields(&bytes).count() <= bytes.len());
        }

        #[test]
        fn what_is_written_is_read(
            fields in proptest::collection::vec(
                (1u64..1 << 29, any::<u64>(), any::<Vec<u8>>()), 0..9
            )
        ) {
            let mut message = Message::default();
            let mut wanted = Vec::new();
            for (field, number, bytes) in &fields {
                message.number(*field, *number);
                message.message(*field, bytes);
                if *number != 0 {
                    wanted.push((*field, Value::Number(*number)));
                }
                wanted.push((*field, Value::Bytes(bytes)));
            }
            let read: Vec<_> = Fields(&message.0).map(Result::unwrap).collect();
            prop_assert_eq!(read, wanted);
        }
    }
}
