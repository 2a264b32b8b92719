//! A kept answer: its body, ready to be sent, and what has to be known of it; and its form as the
//! value of a key:
//!
//! ```text
//! forebay-page 1 FILL STATUS VERSION FILLED FRESH COST ROWS ETAG NEXT PLAIN GZIP BR ZSTD \n
//! the body as it is, then compressed in three ways, each as long as the last four numbers say
//! ```
//!
//! FILL is a number of its own for each filling, in hexadecimal digits, whose last three bits say
//! which codings have been tried; FILLED is in milliseconds since 1970; FRESH in milliseconds; COST
//! is the time that the database took, in microseconds; NEXT is the query of the next page, or `-`.
//!
//! **Invariant:** bytes that are not exactly of this form are no page.

use std::any::Any;
use std::fmt::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

use bytes::Bytes;

const MARK: &str = "forebay-page 1 ";
/// What a page takes beside its texts when it lies ready to be sent, in bytes: itself, its place
/// among the others, its headers (measured by `bench cache --speed`).
const READY_BYTES: usize = 2500;
/// Longest head, in bytes; what is longer is no page.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// How a body may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Coding {
    /// As it is.
    Plain,
    /// gzip.
    Gzip,
    /// Brotli.
    Br,
    /// Zstandard.
    Zstd,
}

impl Coding {
    /// All, in the order of [`Page::bodies`].
    pub const ALL: [Coding; 4] = [Coding::Plain, Coding::Gzip, Coding::Br, Coding::Zstd];

    /// The codings in the last bits of a filling's number.
    pub const TRIED: u64 = 7;

    /// Its bit there; none for [`Coding::Plain`].
    fn bit(self) -> u8 {
        1 << self as u8 >> 1
    }

    /// The token in HTTP.
    pub fn word(self) -> &'static str {
        ["identity", "gzip", "br", "zstd"][self as usize]
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Page {
    /// The number of its filling, and which codings have been tried since.
    pub fill: u64,
    /// HTTP's status: 200, 404, 410.
    pub status: u16,
    /// The table's version in the snapshot that it was read from.
    pub version: i64,
    /// When the change was made that led to that version; not part of its form as a value.
    pub changed_us: i64,
    /// When it was read.
    pub filled_ms: i64,
    /// How long it is fresh.
    pub fresh_ms: u32,
    /// How long the database took.
    pub cost_us: u32,
    /// Rows in it.
    pub rows: u32,
    /// The entity tag, quotes included; empty = none.
    pub etag: String,
    /// The query of the next page; empty = none.
    pub next: String,
    /// The body by [`Coding`]; one that is not there is empty.
    pub bodies: [Bytes; 4],
    /// A later version that it is right at as well; below `version` if there is none. Not part of
    /// its form as a value: who restores it knows nothing of what was changed meanwhile.
    pub outlived: AtomicI64,
    /// What a door makes of it once, such as headers.
    pub prepared: OnceLock<Box<dyn Any + Send + Sync>>,
    /// The codings that somebody has asked for.
    pub asked: AtomicU8,
}

impl Page {
    /// The newest version that it is known to be right at.
    pub fn right_at(&self) -> i64 {
        self.version.max(self.outlived.load(Ordering::Acquire))
    }

    /// It is right at this version, too, and at all between.
    pub fn outlive(&self, version: i64) {
        self.outlived.fetch_max(version, Ordering::AcqRel);
    }

    /// The body as it is.
    pub fn plain(&self) -> &Bytes {
        &self.bodies[0]
    }

    /// Whether the caller is the first one who wants a body in this coding, which nobody has tried.
    pub fn is_first_to_ask(&self, coding: Coding) -> bool {
        let bit = coding.bit();
        self.fill & u64::from(bit) == 0 && self.asked.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// Nobody has asked for this coding after all.
    pub fn unask(&self, coding: Coding) {
        self.asked.fetch_and(!coding.bit(), Ordering::AcqRel);
    }

    /// The same with a body in one more coding; an empty one says that it was tried.
    pub fn with(&self, coding: Coding, body: Bytes) -> Page {
        let Page { status, version, changed_us, filled_ms, fresh_ms, cost_us, rows, .. } = *self;
        let (etag, next, mut bodies) = (self.etag.clone(), self.next.clone(), self.bodies.clone());
        bodies[coding as usize] = body;
        let fill = self.fill | u64::from(coding.bit());
        Page {
            fill,
            status,
            version,
            changed_us,
            filled_ms,
            fresh_ms,
            cost_us,
            rows,
            etag,
            next,
            bodies,
            outlived: self.right_at().into(),
            ..Page::default()
        }
    }

    /// Whether both are of one query, whatever codings there are.
    pub fn is_of_filling(&self, other: &Page) -> bool {
        self.fill | Coding::TRIED == other.fill | Coding::TRIED
    }

    /// The first bytes of its key's value, as far as they tell it from all other pages.
    pub fn start(&self) -> [u8; MARK.len() + 16] {
        let mut start = [0; MARK.len() + 16];
        start[..MARK.len()].copy_from_slice(MARK.as_bytes());
        for (place, byte) in start[MARK.len()..].iter_mut().enumerate() {
            *byte = b"0123456789abcdef"[(self.fill >> (60 - 4 * place) & 15) as usize];
        }
        start
    }

    /// Bytes that it takes, with what a door makes of it.
    pub fn bytes(&self) -> usize {
        let texts = self.etag.len() + self.next.len();
        self.bodies.iter().map(Bytes::len).sum::<usize>() + texts + READY_BYTES
    }

    /// Its form as a key's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut head = String::with_capacity(160);
        let Page { fill, status, version, filled_ms, fresh_ms, cost_us, rows, etag, next, .. } =
            self;
        let or_dash = |text: &'_ str| if text.is_empty() { "-".to_string() } else { text.into() };
        let _ = write!(
            head,
            "{MARK}{fill:016x} {status} {version} {filled_ms} {fresh_ms} {cost_us} {rows} {} {}",
            or_dash(etag),
            or_dash(next)
        );
        for body in &self.bodies {
            let _ = write!(head, " {}", body.len());
        }
        head.push('\n');
        let mut out = head.into_bytes();
        self.bodies.iter().for_each(|body| out.extend_from_slice(body));
        out
    }

    /// Reads a key's value.
    pub fn decode(value: &[u8]) -> Option<Page> {
        let end = value.iter().take(HEAD_BYTES_MAX).position(|byte| *byte == b'\n')?;
        let head = std::str::from_utf8(&value[..end]).ok()?.strip_prefix(MARK)?;
        let words: Vec<&str> = head.split(' ').collect();
        let [fill, status, version, filled_ms, fresh_ms, cost_us, rows, etag, next, lens @ ..] =
            &words[..]
        else {
            return None;
        };
        let text = |word: &str| if word == "-" { String::new() } else { word.to_string() };
        let mut rest = Bytes::copy_from_slice(&value[end + 1..]);
        let mut bodies = [const { Bytes::new() }; 4];
        if lens.len() != bodies.len() || fill.len() != 16 {
            return None;
        }
        for (body, len) in bodies.iter_mut().zip(lens) {
            let len: usize = len.parse().ok()?;
            *body = (len <= rest.len()).then(|| rest.split_to(len))?;
        }
        rest.is_empty().then_some(())?;
        Some(Page {
            fill: u64::from_str_radix(fill, 16).ok()?,
            status: status.parse().ok().filter(|status| (200..600).contains(status))?,
            version: version.parse().ok()?,
            changed_us: 0,
            filled_ms: filled_ms.parse().ok()?,
            fresh_ms: fresh_ms.parse().ok()?,
            cost_us: cost_us.parse().ok()?,
            rows: rows.parse().ok()?,
            etag: text(etag),
            next: text(next),
            bodies,
            ..Page::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page() -> Page {
        let bodies = ["[1,\n2]", "gz", "", "z"].map(|text| Bytes::from_static(text.as_bytes()));
        Page {
            fill: 0xab,
            status: 200,
            version: 7,
            filled_ms: 1_700_000_000_000,
            fresh_ms: 60_000,
            cost_us: 12,
            rows: 2,
            etag: "\"x\"".into(),
            bodies,
            ..Page::default()
        }
    }

    #[test]
    fn pages_go_to_values_and_back() {
        let value = page().encode();
        assert!(value.starts_with(&page().start()));
        let back = Page::decode(&value).expect("a page");
        assert_eq!(format!("{back:?}"), format!("{:?}", page()));
        for len in 0..value.len() {
            assert!(Page::decode(&value[..len]).is_none(), "{len}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_take_it_down(at in 0usize..200, byte in any::<u8>(), more in any::<Vec<u8>>()) {
            let mut value = page().encode();
            let place = at % value.len();
            value[place] = byte;
            let _ = Page::decode(&value);
            let _ = Page::decode(&more);
        }
    }
}
