//! What the families of collections share: elements in replies, random counts, SCAN's replies.

use keyspace::raw::packed::Element;
use resp::Writer;

use crate::error::Error;
use crate::pattern::matches;
use crate::words::{ScanOptions, signed_count};

/// Writes an element as a bulk string.
#[inline]
pub fn write(out: &mut Writer, element: Element<'_>) {
    match element {
        Element::Str(bytes) => out.bulk(bytes),
        Element::Int(number) => out.bulk_int(number),
    }
}

/// How many random elements SRANDMEMBER and its kin are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draw {
    /// A count of at least 0: none twice, all if there are fewer.
    Distinct(usize),
    /// A negative count: so many, each drawn from all.
    Repeated(usize),
}

/// More drawings than this are refused: nothing but memory would bound the reply.
const REPEATED_MAX: u64 = 1 << 24;

impl Draw {
    /// Reads the count.
    pub fn of(word: &[u8]) -> Result<Draw, Error> {
        match signed_count(word)? {
            count @ 0.. => Ok(Draw::Distinct(count as usize)),
            count if count.unsigned_abs() > REPEATED_MAX => {
                Err(Error::text("ERR value is out of range"))
            }
            count => Ok(Draw::Repeated(count.unsigned_abs() as usize)),
        }
    }
}

/// The reply of SSCAN and HSCAN while it is put together: the cursor comes before the elements, but
/// is known after them.
pub struct ScanReply<'o> {
    items: Writer,
    len: usize,
    pattern: Option<&'o [u8]>,
}

impl<'o> ScanReply<'o> {
    /// An empty reply for elements that match the pattern, if there is one.
    pub fn new(options: &ScanOptions<'o>, resp3: bool) -> ScanReply<'o> {
        ScanReply { items: Writer::new(resp3), len: 0, pattern: options.pattern }
    }

    /// Adds an element and what belongs to it, if the element itself matches.
    pub fn add<'e>(&mut self, element: Element<'e>, more: Option<Element<'e>>) {
        let mut text = itoa::Buffer::new();
        if self.pattern.is_some_and(|pattern| !matches(pattern, element.text(&mut text))) {
            return;
        }
        for element in [Some(element), more].into_iter().flatten() {
            write(&mut self.items, element);
            self.len += 1;
        }
    }

    /// Writes the whole reply.
    pub fn finish(self, out: &mut Writer, cursor: u64) {
        out.array(2);
        out.text(itoa::Buffer::new().format(cursor));
        out.array(self.len);
        out.append(&self.items);
    }
}

/// The reply of a SCAN form whose key is not there.
pub fn empty_scan(out: &mut Writer) {
    out.array(2);
    out.text("0");
    out.array(0);
}
