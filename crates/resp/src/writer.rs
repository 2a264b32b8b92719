//! Replies: bytes in RESP2 or RESP3, written by one method per kind.
//!
//! What RESP2 lacks is written as RESP2 clients know it: a map as a flat array, a double as a bulk
//! string, null as `$-1` or `*-1`. A long string is not copied: the reply holds a share of it, and
//! the bytes before and after it ([`Writer::pieces`]).

use std::sync::Arc;

use crate::number::write_double;

/// A string at least this long is shared with the reply instead of copied into it.
pub const SHARE_BYTES: usize = 16 * 1024;

/// A growing reply; see the module.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    /// Shared strings, each with the place in `bytes` before which it stands, ascending.
    shared: Vec<(usize, Arc<Vec<u8>>)>,
    resp3: bool,
}

/// A place for the header of an aggregate whose length is not known yet.
#[derive(Debug)]
pub struct Later(usize);

impl Writer {
    /// An empty reply in RESP2, or RESP3.
    pub fn new(resp3: bool) -> Writer {
        Writer { resp3, ..Writer::default() }
    }

    /// Whether RESP3 is written.
    #[inline]
    pub fn is_resp3(&self) -> bool {
        self.resp3
    }

    /// Writes the other version from now on.
    #[inline]
    pub fn set_resp3(&mut self, resp3: bool) {
        self.resp3 = resp3;
    }

    /// The bytes written, without shared strings.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes to send, shared strings included.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.shared.iter().map(|(_, block)| block.len()).sum::<usize>()
    }

    /// Whether nothing was written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether any string is shared instead of copied.
    #[inline]
    pub fn has_shared(&self) -> bool {
        !self.shared.is_empty()
    }

    /// What to send, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces_shared().map(|(piece, _)| piece)
    }

    /// What to send, in order, each piece with the block it shares if it is one.
    pub fn pieces_shared(&self) -> impl Iterator<Item = (&[u8], Option<&Arc<Vec<u8>>>)> {
        let mut from = 0;
        let shared = self.shared.iter().flat_map(move |(at, block)| {
            let before = &self.bytes[from..*at];
            from = *at;
            [(before, None), (block.as_slice(), Some(block))]
        });
        let last = self.shared.last().map_or(0, |(at, _)| *at);
        let rest = (&self.bytes[last..], None);
        shared.chain(std::iter::once(rest)).filter(|(piece, _)| !piece.is_empty())
    }

    /// All of it copied into one block.
    pub fn to_vec(&self) -> Vec<u8> {
        self.pieces().flatten().copied().collect()
    }

    /// Forgets everything, keeps some room.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.shared.clear();
        if self.bytes.capacity() > 1 << 20 {
            self.bytes.shrink_to(64 * 1024);
        }
    }

    /// Forgets what was written after `mark`, which was the length of [`Writer::bytes`] then.
    pub fn truncate(&mut self, mark: usize) {
        self.bytes.truncate(mark);
        self.shared.retain(|(at, _)| *at <= mark);
    }

    /// Takes the bytes and shared strings out.
    pub fn take(&mut self) -> Writer {
        let resp3 = self.resp3;
        std::mem::replace(self, Writer::new(resp3))
    }

    /// Adds another reply, as it is.
    pub fn append(&mut self, other: &Writer) {
        let base = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        let shared = other.shared.iter().map(|(at, block)| (base + at, Arc::clone(block)));
        self.shared.extend(shared);
    }

    /// Adds bytes that are a reply already.
    #[inline]
    pub fn raw(&mut self, reply: &[u8]) {
        self.bytes.extend_from_slice(reply);
    }

    #[inline]
    fn header(&mut self, kind: u8, number: i64) {
        if (0..10).contains(&number) {
            return self.bytes.extend_from_slice(&[kind, b'0' + number as u8, b'\r', b'\n']);
        }
        let mut buffer = itoa::Buffer::new();
        let text = buffer.format(number).as_bytes();
        self.bytes.reserve(text.len() + 3);
        self.bytes.push(kind);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.bytes.reserve(text.len() + 3);
        self.bytes.push(kind);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }

    /// A simple string: one line.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error, its code included (`ERR ...`); line breaks in it become spaces.
    pub fn error(&mut self, text: &str) {
        let start = self.bytes.len() + 1;
        let text = text.trim_end_matches(['\r', '\n']);
        self.line(b'-', text.as_bytes());
        let end = self.bytes.len() - 2;
        for byte in &mut self.bytes[start..end] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
    }

    /// An integer.
    #[inline]
    pub fn int(&mut self, number: i64) {
        self.header(b':', number);
    }

    /// A count.
    #[inline]
    pub fn count(&mut self, number: usize) {
        self.header(b':', number as i64);
    }

    /// A truth value as the integers 1 and 0, in both versions.
    #[inline]
    pub fn flag(&mut self, truth: bool) {
        self.header(b':', i64::from(truth));
    }

    /// A bulk string, copied.
    #[inline]
    pub fn bulk(&mut self, text: &[u8]) {
        self.header(b'$', text.len() as i64);
        self.bytes.reserve(text.len() + 2);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// A bulk string of text.
    pub fn text(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }

    /// A bulk string that is shared if it is long.
    pub fn bulk_shared(&mut self, block: &Arc<Vec<u8>>) {
        if block.len() < SHARE_BYTES {
            return self.bulk(block);
        }
        self.header(b'$', block.len() as i64);
        self.shared.push((self.bytes.len(), Arc::clone(block)));
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// An integer as a bulk string.
    pub fn bulk_int(&mut self, number: i64) {
        let mut buffer = itoa::Buffer::new();
        self.bulk(buffer.format(number).as_bytes());
    }

    /// No value: `$-1`, or `_` in RESP3.
    #[inline]
    pub fn null(&mut self) {
        self.bytes.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// No array: `*-1`, or `_` in RESP3.
    pub fn null_array(&mut self) {
        self.bytes.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// The header of an array of `len` values.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len as i64);
    }

    /// The header of a map of `len` pairs.
    pub fn map(&mut self, len: usize) {
        if self.resp3 { self.header(b'%', len as i64) } else { self.header(b'*', len as i64 * 2) }
    }

    /// The header of a set of `len` values.
    pub fn set(&mut self, len: usize) {
        self.header(if self.resp3 { b'~' } else { b'*' }, len as i64);
    }

    /// The header of a push message of `len` values.
    pub fn push(&mut self, len: usize) {
        self.header(if self.resp3 { b'>' } else { b'*' }, len as i64);
    }

    /// A double; a bulk string in RESP2.
    pub fn double(&mut self, number: f64) {
        if self.resp3 {
            self.bytes.push(b',');
            write_double(&mut self.bytes, number);
            self.bytes.extend_from_slice(b"\r\n");
        } else {
            let mut text = Vec::with_capacity(24);
            write_double(&mut text, number);
            self.bulk(&text);
        }
    }

    /// A truth value; 1 or 0 in RESP2.
    pub fn boolean(&mut self, truth: bool) {
        match (self.resp3, truth) {
            (true, true) => self.bytes.extend_from_slice(b"#t\r\n"),
            (true, false) => self.bytes.extend_from_slice(b"#f\r\n"),
            (false, truth) => self.flag(truth),
        }
    }

    /// A big number, given as digits; a bulk string in RESP2.
    pub fn big_number(&mut self, digits: &str) {
        if self.resp3 { self.line(b'(', digits.as_bytes()) } else { self.text(digits) }
    }

    /// Text in a named form of three letters (`txt`, `mkd`); a bulk string in RESP2.
    pub fn verbatim(&mut self, form: &str, text: &str) {
        debug_assert_eq!(form.len(), 3);
        if !self.resp3 {
            return self.text(text);
        }
        self.header(b'=', text.len() as i64 + 4);
        self.bytes.extend_from_slice(form.as_bytes());
        self.bytes.push(b':');
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Remembers this place for the header of an aggregate whose length comes later. Nothing
    /// shared may be written before the header is: see [`Writer::bulk_shared`].
    pub fn later(&mut self) -> Later {
        Later(self.bytes.len())
    }

    /// Writes an array's header at the remembered place.
    pub fn array_at(&mut self, place: Later, len: usize) {
        self.header_at(place, |writer| writer.array(len));
    }

    /// Writes a map's header at the remembered place.
    pub fn map_at(&mut self, place: Later, len: usize) {
        self.header_at(place, |writer| writer.map(len));
    }

    /// Writes a set's header at the remembered place.
    pub fn set_at(&mut self, place: Later, len: usize) {
        self.header_at(place, |writer| writer.set(len));
    }

    fn header_at(&mut self, place: Later, write: impl FnOnce(&mut Writer)) {
        let end = self.bytes.len();
        write(self);
        let header = self.bytes.len() - end;
        self.bytes[place.0..].rotate_right(header);
        for (at, _) in &mut self.shared {
            if *at >= place.0 {
                *at += header;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(resp3: bool, write: impl FnOnce(&mut Writer)) -> String {
        let mut writer = Writer::new(resp3);
        write(&mut writer);
        String::from_utf8(writer.to_vec()).expect("text")
    }

    #[test]
    fn every_kind_in_both_versions() {
        type Case = (fn(&mut Writer), &'static str, &'static str);
        let cases: [Case; 14] = [
            (|w| w.ok(), "+OK\r\n", "+OK\r\n"),
            (|w| w.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (|w| w.int(-42), ":-42\r\n", ":-42\r\n"),
            (|w| w.bulk(b"hello"), "$5\r\nhello\r\n", "$5\r\nhello\r\n"),
            (|w| w.null(), "$-1\r\n", "_\r\n"),
            (|w| w.null_array(), "*-1\r\n", "_\r\n"),
            (|w| w.map(2), "*4\r\n", "%2\r\n"),
            (|w| w.set(3), "*3\r\n", "~3\r\n"),
            (|w| w.push(3), "*3\r\n", ">3\r\n"),
            (|w| w.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (|w| w.boolean(true), ":1\r\n", "#t\r\n"),
            (|w| w.big_number("123"), "$3\r\n123\r\n", "(123\r\n"),
            (|w| w.verbatim("txt", "hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
            (|w| w.array(12), "*12\r\n", "*12\r\n"),
        ];
        for (write, resp2, resp3) in cases {
            assert_eq!(written(false, write), resp2);
            assert_eq!(written(true, write), resp3);
        }
    }

    #[test]
    fn a_header_can_come_later() {
        let text = written(false, |writer| {
            writer.ok();
            let place = writer.later();
            (0..11).for_each(|number| writer.int(number));
            writer.array_at(place, 11);
            writer.ok();
        });
        assert!(text.starts_with("+OK\r\n*11\r\n:0\r\n:1\r\n"));
        assert!(text.ends_with(":10\r\n+OK\r\n"));
    }

    #[test]
    fn long_strings_are_shared() {
        let block = Arc::new(vec![b'x'; SHARE_BYTES]);
        let mut writer = Writer::new(false);
        writer.ok();
        let place = writer.later();
        writer.bulk_shared(&block);
        writer.bulk_shared(&Arc::new(b"short".to_vec()));
        writer.bulk_shared(&block);
        writer.array_at(place, 3);
        writer.int(7);
        assert_eq!(Arc::strong_count(&block), 3);
        let text = String::from_utf8(writer.to_vec()).expect("text");
        let x = "x".repeat(SHARE_BYTES);
        let want = format!("+OK\r\n*3\r\n$16384\r\n{x}\r\n$5\r\nshort\r\n$16384\r\n{x}\r\n:7\r\n");
        assert!(text == want);
        assert_eq!(writer.len(), want.len());
    }
}
