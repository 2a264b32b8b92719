//! DEBUG DIGEST: a digest of all data that is equal on two servers whose data is equal, a Redis and
//! a Forebay among them.
//!
//! ```text
//!  add(d, x) = d ^ SHA1(x)          order does not matter: sets, whole databases
//!  mix(d, x) = SHA1(add(d, x))      it does: lists, a field and its value
//! ```
//!
//! What is added and mixed, and in which order, is Redis's (`debug.c`, 7.0).

use commands::sha1;
use keyspace::raw::entry::Entry;
use keyspace::types::stream::StreamId;
use keyspace::value::{Kind, ValueRef};

/// A digest.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; 20]);

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        let other = sha1::digest(bytes);
        self.0.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
    }

    fn mix(&mut self, bytes: &[u8]) {
        self.add(bytes);
        self.0 = sha1::digest(&self.0);
    }

    /// Forty hexadecimal digits.
    pub fn hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Adds an entry of a database; the order of entries does not matter.
    pub fn entry(&mut self, entry: &Entry) {
        let mut digest = Digest::default();
        digest.mix(entry.key());
        digest.value(entry);
        self.add(&digest.0);
    }

    /// Begins a database that has keys.
    pub fn database(&mut self, db: usize) {
        self.mix(&(db as u32).to_be_bytes());
    }

    /// Mixes an entry's value and time to live in.
    pub fn value(&mut self, entry: &Entry) {
        let kind: u32 = match entry.kind() {
            Kind::String => 0,
            Kind::List => 1,
            Kind::Set => 2,
            Kind::Zset => 3,
            Kind::Hash => 4,
            // Modules, in Redis.
            Kind::Foreign(_) => 5,
            Kind::Stream => 6,
        };
        self.mix(&kind.to_be_bytes());
        self.contents(entry.value());
        if entry.expire_at().is_some() {
            self.add(b"!!expire!!");
        }
    }

    fn contents(&mut self, value: ValueRef<'_>) {
        match value {
            ValueRef::Number(number) => self.mix(number.to_string().as_bytes()),
            ValueRef::Bytes(bytes) => self.mix(bytes),
            ValueRef::Shared(bytes) => self.mix(bytes),
            ValueRef::List(list) => list.iter().for_each(|element| self.mix(&element.to_vec())),
            ValueRef::Set(set) => set.iter().for_each(|member| self.add(&member.to_vec())),
            ValueRef::Hash(hash) => hash.iter().for_each(|(field, value)| {
                let mut pair = Digest::default();
                pair.mix(&field.to_vec());
                pair.mix(&value.to_vec());
                if hash.expire_at(&field.to_vec()).flatten().is_some() {
                    pair.add(b"!!hexpire!!");
                }
                self.add(&pair.0);
            }),
            ValueRef::Zset(zset) => zset.iter().for_each(|(member, score)| {
                let mut pair = Digest::default();
                pair.mix(&member.to_vec());
                pair.mix(seventeen_digits(score).as_bytes());
                self.add(&pair.0);
            }),
            ValueRef::Stream(stream) => {
                for entry in stream.range(StreamId::MIN, StreamId::MAX) {
                    self.mix(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
                    for (field, value) in entry.fields() {
                        self.mix(&field.to_vec());
                        self.mix(&value.to_vec());
                    }
                }
            }
            ValueRef::Foreign(value) => match value.image() {
                Ok(image) => self.mix(&image),
                Err(text) => self.mix(text.as_bytes()),
            },
        }
    }
}

/// A number as C prints it with `%.17g`.
fn seventeen_digits(number: f64) -> String {
    const DIGITS: i32 = 17;
    if !number.is_finite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{number:.16e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if (-4..DIGITS).contains(&power) {
        return trim(&format!("{number:.*}", (DIGITS - 1 - power).max(0) as usize));
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(digits), power.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_c_does() {
        let cases = [
            (0.0, "0"),
            (-2.0, "-2"),
            (0.1, "0.10000000000000001"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.5e300, "1.5000000000000001e+300"),
            (5e-324, "4.9406564584124654e-324"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, text) in cases {
            assert_eq!(seventeen_digits(number), text);
        }
    }
}
