//! Replies as a client reads them: RESP2 and RESP3, from a buffer that grows as bytes arrive.
//!
//! Two forms share one grammar:
//!
//! * [`Scanner`] finds where replies end and of which kind they are, and builds nothing. A load
//!   generator counts with it. It resumes where it stopped, however the network cut the bytes.
//! * [`Value`] is a reply as a tree, for clients that show or inspect it; [`parse`] builds one.
//!
//! ```text
//! |1 <key> <value>      an attribute: belongs to the reply that follows it, is not itself a reply
//! *2                    a reply of kind Array ...
//!   $3 foo              ... with two children
//!   :7
//! >3 ...                a push: arrives between replies, answers no request
//! ```
//!
//! **Invariant:** no input makes this module panic, overflow the stack or allocate more than a
//! small multiple of the bytes received: lengths that a peer announces are checked against
//! [`Limits`] and never allocated ahead of their bytes.
//!
//! **Invariant:** the scanner and the tree agree: where [`parse`] returns a value of n bytes,
//! a scanner returns a reply of n bytes.
//!
//! Streamed aggregates and strings (`*?`, `$?`) are an error here: no server of this family
//! sends them.

use std::fmt;

/// What a peer may announce before it is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How deep aggregates may nest in a [`Value`].
    pub depth_max: usize,
    /// The longest bulk string, in bytes.
    pub bulk_bytes_max: usize,
    /// The longest line (simple string, error, number, header), in bytes.
    pub line_bytes_max: usize,
    /// The most elements of one reply, those of nested aggregates included.
    pub elements_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            depth_max: 128,
            bulk_bytes_max: 512 << 20,
            line_bytes_max: 1 << 20,
            elements_max: 1 << 26,
        }
    }
}

/// Why bytes are not a reply. The connection they came from cannot be used any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A reply began with a byte that starts no type.
    UnknownType(u8),
    /// A line ended with a bare line feed, or a bulk string without carriage return, line feed.
    MissingLineEnd,
    /// A number, boolean, double or null was not written as one.
    InvalidNumber,
    /// A length was not a number, or was negative where that means nothing.
    InvalidLength,
    /// A verbatim string had no three-letter format and colon.
    InvalidVerbatim,
    /// A line was longer than [`Limits::line_bytes_max`].
    LineTooLong,
    /// A bulk string was longer than [`Limits::bulk_bytes_max`].
    BulkTooLong,
    /// A reply had more than [`Limits::elements_max`] elements.
    TooManyElements,
    /// A reply nested deeper than [`Limits::depth_max`].
    TooDeep,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnknownType(byte) => {
                write!(f, "reply begins with '{}', which is no type", byte.escape_ascii())
            }
            Error::MissingLineEnd => f.write_str("reply is not ended by CR LF"),
            Error::InvalidNumber => f.write_str("reply holds an invalid number"),
            Error::InvalidLength => f.write_str("reply holds an invalid length"),
            Error::InvalidVerbatim => f.write_str("verbatim string without its format"),
            Error::LineTooLong => f.write_str("reply line is too long"),
            Error::BulkTooLong => f.write_str("bulk string is too long"),
            Error::TooManyElements => f.write_str("reply has too many elements"),
            Error::TooDeep => f.write_str("reply is nested too deeply"),
        }
    }
}

impl std::error::Error for Error {}

/// What type a reply is of. RESP2's null bulk string and null array are [`Kind::Null`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `+`
    Simple,
    /// `-`
    Error,
    /// `:`
    Integer,
    /// `$`
    Bulk,
    /// `_`, `$-1`, `*-1`
    Null,
    /// `#`
    Boolean,
    /// `,`
    Double,
    /// `(`
    BigNumber,
    /// `!`
    BulkError,
    /// `=`
    Verbatim,
    /// `*`
    Array,
    /// `~`
    Set,
    /// `%`
    Map,
    /// `>`
    Push,
}

impl Kind {
    /// Whether the reply says that the request failed.
    pub fn is_error(self) -> bool {
        matches!(self, Kind::Error | Kind::BulkError)
    }
}

/// One complete reply in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its type; the type of the value where attributes precede it.
    pub kind: Kind,
    /// Its length, attributes included: the next reply begins there.
    pub bytes: usize,
}

/// What a buffer held: see [`Scanner::scan`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Complete replies, those that are errors included, pushes not.
    pub replies: usize,
    /// How many of them were errors.
    pub errors: usize,
    /// Push messages, which answer no request.
    pub pushes: usize,
    /// How many bytes all of them took.
    pub bytes: usize,
}

/// Finds the ends of replies in a growing buffer.
///
/// The caller keeps the bytes and drops those of a reply when it was returned. When
/// [`next`](Scanner::next) returned `None`, the following call has to see the same bytes again
/// with more behind them; the part already scanned is not scanned twice.
#[derive(Clone, Debug)]
pub struct Scanner {
    limits: Limits,
    /// How far into the incomplete reply all elements are complete.
    offset: usize,
    /// Elements still missing; 0 between replies.
    missing: usize,
    /// Elements seen in this reply, against [`Limits::elements_max`].
    elements: usize,
    /// Elements still missing that belong to an attribute in front of the reply.
    attribute: usize,
    /// Type of the reply, once its first byte after any attribute was seen.
    kind: Option<Kind>,
}

impl Default for Scanner {
    fn default() -> Self {
        Scanner::new(Limits::default())
    }
}

impl Scanner {
    /// A scanner at the beginning of a stream.
    pub fn new(limits: Limits) -> Self {
        Scanner { limits, offset: 0, missing: 0, elements: 0, attribute: 0, kind: None }
    }

    /// The first reply of `buffer` if it is complete.
    ///
    /// After an error the scanner is of no more use.
    #[inline]
    pub fn next(&mut self, buffer: &[u8]) -> Result<Option<Reply>, Error> {
        if self.missing == 0 {
            // Most replies are one element and whole: they need no state.
            match element(buffer, &self.limits)? {
                None => return Ok(None),
                Some(Element { bytes, kind: Some(kind), children: 0 }) => {
                    return Ok(Some(Reply { kind, bytes }));
                }
                Some(_) => self.missing = 1,
            }
        }
        self.resume(buffer)
    }

    /// All complete replies of `buffer`, counted. Drop [`Scan::bytes`] of it before the next call.
    pub fn scan(&mut self, buffer: &[u8]) -> Result<Scan, Error> {
        let mut scan = Scan::default();
        while let Some(reply) = self.next(&buffer[scan.bytes..])? {
            scan.bytes += reply.bytes;
            match reply.kind {
                Kind::Push => scan.pushes += 1,
                kind => {
                    scan.replies += 1;
                    scan.errors += usize::from(kind.is_error());
                }
            }
        }
        Ok(scan)
    }

    fn resume(&mut self, buffer: &[u8]) -> Result<Option<Reply>, Error> {
        while self.missing > 0 {
            let rest = buffer.get(self.offset..).unwrap_or_default();
            let Some(Element { bytes, kind, children }) = element(rest, &self.limits)? else {
                return Ok(None);
            };
            self.offset += bytes;
            self.elements = self.elements.saturating_add(children);
            if self.elements > self.limits.elements_max {
                return Err(Error::TooManyElements);
            }
            // The sum of what is missing cannot exceed `elements_max`, so it does not overflow.
            self.missing += children;
            if self.attribute > 0 {
                self.attribute += children;
            }
            match kind {
                // An attribute is followed by what it belongs to: one more element, already
                // counted as the one that it itself was.
                None if self.kind.is_none() && self.attribute == 0 => self.attribute = children,
                None => {}
                Some(kind) => {
                    self.missing -= 1;
                    if self.attribute > 0 {
                        self.attribute -= 1;
                    } else if self.kind.is_none() {
                        self.kind = Some(kind);
                    }
                }
            }
        }
        let reply = Reply { kind: self.kind.unwrap_or(Kind::Null), bytes: self.offset };
        *self = Scanner::new(self.limits);
        Ok(Some(reply))
    }
}

/// A reply as a tree.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing: RESP3's null, RESP2's null bulk string or null array.
    Null,
    /// A short text such as `OK`.
    Simple(Vec<u8>),
    /// An error's text, whether it came as a line or as a bulk string.
    Error(Vec<u8>),
    /// A whole number.
    Integer(i64),
    /// Any bytes.
    Bulk(Vec<u8>),
    /// True or false.
    Boolean(bool),
    /// A number with fraction; infinities and not-a-number included.
    Double(f64),
    /// A whole number of any size, as decimal digits.
    BigNumber(Vec<u8>),
    /// A text with three letters that tell its format, such as `txt`.
    Verbatim([u8; 3], Vec<u8>),
    /// Values in order.
    Array(Vec<Value>),
    /// Values without order.
    Set(Vec<Value>),
    /// Keys with their values, in the order sent.
    Map(Vec<(Value, Value)>),
    /// A message that answers no request; its first value is its kind.
    Push(Vec<Value>),
    /// A value with attributes in front.
    Attributed(Vec<(Value, Value)>, Box<Value>),
}

impl Value {
    /// Whether the value, attributes aside, is an error.
    pub fn is_error(&self) -> bool {
        match self {
            Value::Error(_) => true,
            Value::Attributed(_, value) => value.is_error(),
            _ => false,
        }
    }

    /// The bytes of a string of any type (also an error's text).
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Simple(bytes) | Value::Error(bytes) | Value::Bulk(bytes) => Some(bytes),
            Value::BigNumber(bytes) | Value::Verbatim(_, bytes) => Some(bytes),
            Value::Attributed(_, value) => value.as_bytes(),
            _ => None,
        }
    }

    /// The number of an integer, or of a string that is one.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Value::Integer(number) => Some(*number),
            Value::Attributed(_, value) => value.as_integer(),
            _ => std::str::from_utf8(self.as_bytes()?).ok()?.parse().ok(),
        }
    }

    /// The elements of an array, set or push.
    pub fn as_elements(&self) -> Option<&[Value]> {
        match self {
            Value::Array(elements) | Value::Set(elements) | Value::Push(elements) => Some(elements),
            Value::Attributed(_, value) => value.as_elements(),
            _ => None,
        }
    }
}

/// The first reply of `buffer` as a tree, and how many bytes it took; `None` where it is not yet
/// complete.
///
/// It begins anew at each call: for replies that arrive in many pieces let a [`Scanner`] tell when
/// one is complete, and parse then.
pub fn parse(buffer: &[u8], limits: &Limits) -> Result<Option<(Value, usize)>, Error> {
    let mut elements_left = limits.elements_max;
    value(buffer, limits, limits.depth_max, &mut elements_left)
}

fn value(
    buffer: &[u8],
    limits: &Limits,
    depth_left: usize,
    elements_left: &mut usize,
) -> Result<Option<(Value, usize)>, Error> {
    let Some(Element { bytes, kind, children }) = element(buffer, limits)? else {
        return Ok(None);
    };
    let is_aggregate =
        matches!(kind, None | Some(Kind::Array | Kind::Set | Kind::Map | Kind::Push));
    if !is_aggregate {
        let kind = kind.unwrap_or(Kind::Null);
        return leaf(kind, &buffer[..bytes]).map(|leaf| Some((leaf, bytes)));
    }
    let depth_left = depth_left.checked_sub(1).ok_or(Error::TooDeep)?;
    *elements_left = elements_left.checked_sub(children).ok_or(Error::TooManyElements)?;
    let mut at = bytes;
    let mut next = |wanted: usize| -> Result<Option<Vec<Value>>, Error> {
        // No element is shorter than three bytes, so an absurd count reserves little.
        let mut values = Vec::with_capacity(wanted.min((buffer.len() - at) / 3));
        for _ in 0..wanted {
            let Some((child, length)) = value(&buffer[at..], limits, depth_left, elements_left)?
            else {
                return Ok(None);
            };
            at += length;
            values.push(child);
        }
        Ok(Some(values))
    };
    let Some(values) = next(children)? else { return Ok(None) };
    let built = match kind {
        Some(Kind::Array) => Value::Array(values),
        Some(Kind::Set) => Value::Set(values),
        Some(Kind::Push) => Value::Push(values),
        Some(_) => Value::Map(pairs(values)),
        None => {
            let Some(owner) = next(1)?.and_then(|mut one| one.pop()) else { return Ok(None) };
            Value::Attributed(pairs(values), Box::new(owner))
        }
    };
    Ok(Some((built, at)))
}

fn pairs(values: Vec<Value>) -> Vec<(Value, Value)> {
    let mut pairs = Vec::with_capacity(values.len() / 2);
    let mut values = values.into_iter();
    while let (Some(key), Some(value)) = (values.next(), values.next()) {
        pairs.push((key, value));
    }
    pairs
}

/// The value of a complete element that has no children. `frame` is all of its bytes.
fn leaf(kind: Kind, frame: &[u8]) -> Result<Value, Error> {
    // `element` has checked that the frame has a type byte and ends by CR LF.
    let line = &frame[1..frame.len() - 2];
    let payload = || {
        let header = memchr::memchr(b'\n', frame).map_or(frame.len(), |end| end + 1);
        frame.get(header..frame.len() - 2).unwrap_or_default()
    };
    let text = || std::str::from_utf8(line).map_err(|_| Error::InvalidNumber);
    Ok(match kind {
        Kind::Simple => Value::Simple(line.to_vec()),
        Kind::Error => Value::Error(line.to_vec()),
        Kind::BulkError => Value::Error(payload().to_vec()),
        Kind::Bulk => Value::Bulk(payload().to_vec()),
        Kind::Integer => Value::Integer(text()?.parse().map_err(|_| Error::InvalidNumber)?),
        Kind::Double => Value::Double(double(text()?)?),
        Kind::BigNumber => {
            let digits = line.strip_prefix(b"-").unwrap_or(line);
            if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
                return Err(Error::InvalidNumber);
            }
            Value::BigNumber(line.to_vec())
        }
        Kind::Boolean => match line {
            b"t" => Value::Boolean(true),
            b"f" => Value::Boolean(false),
            _ => return Err(Error::InvalidNumber),
        },
        Kind::Verbatim => match payload() {
            [a, b, c, b':', text @ ..] => Value::Verbatim([*a, *b, *c], text.to_vec()),
            _ => return Err(Error::InvalidVerbatim),
        },
        Kind::Null | Kind::Array | Kind::Set | Kind::Map | Kind::Push => Value::Null,
    })
}

fn double(text: &str) -> Result<f64, Error> {
    match text {
        "inf" | "+inf" => Ok(f64::INFINITY),
        "-inf" => Ok(f64::NEG_INFINITY),
        "nan" | "-nan" => Ok(f64::NAN),
        // Rust also reads words such as "infinity", which the protocol does not know.
        _ if text.bytes().any(|byte| byte.is_ascii_alphabetic() && !b"eE".contains(&byte)) => {
            Err(Error::InvalidNumber)
        }
        _ => text.parse().map_err(|_| Error::InvalidNumber),
    }
}

/// One element's own bytes: a leaf whole, an aggregate's header.
struct Element {
    bytes: usize,
    /// `None` for an attribute, which is not a value.
    kind: Option<Kind>,
    /// How many elements follow that belong to it.
    children: usize,
}

#[inline]
fn element(buffer: &[u8], limits: &Limits) -> Result<Option<Element>, Error> {
    let Some(&first) = buffer.first() else { return Ok(None) };
    let (kind, form) = match first {
        b'+' => (Some(Kind::Simple), Form::Line),
        b'$' => (Some(Kind::Bulk), Form::Bulk),
        b':' => (Some(Kind::Integer), Form::Line),
        b'-' => (Some(Kind::Error), Form::Line),
        b'*' => (Some(Kind::Array), Form::Aggregate(1)),
        b'_' => (Some(Kind::Null), Form::Line),
        b'%' => (Some(Kind::Map), Form::Aggregate(2)),
        b'~' => (Some(Kind::Set), Form::Aggregate(1)),
        b'>' => (Some(Kind::Push), Form::Aggregate(1)),
        b'|' => (None, Form::Aggregate(2)),
        b'#' => (Some(Kind::Boolean), Form::Line),
        b',' => (Some(Kind::Double), Form::Line),
        b'(' => (Some(Kind::BigNumber), Form::Line),
        b'!' => (Some(Kind::BulkError), Form::Bulk),
        b'=' => (Some(Kind::Verbatim), Form::Bulk),
        other => return Err(Error::UnknownType(other)),
    };
    let Some(line_end) = line_end(buffer, limits)? else { return Ok(None) };
    let line = &buffer[1..line_end - 2];
    match form {
        Form::Line if kind == Some(Kind::Null) && !line.is_empty() => Err(Error::InvalidNumber),
        Form::Line => Ok(Some(Element { bytes: line_end, kind, children: 0 })),
        Form::Bulk => match length(line)? {
            None if first == b'$' => {
                Ok(Some(Element { bytes: line_end, kind: Some(Kind::Null), children: 0 }))
            }
            None => Err(Error::InvalidLength),
            Some(length) if length > limits.bulk_bytes_max => Err(Error::BulkTooLong),
            Some(length) => {
                let Some(bytes) = line_end.checked_add(length).and_then(|end| end.checked_add(2))
                else {
                    return Err(Error::BulkTooLong);
                };
                match buffer.get(bytes - 2..bytes) {
                    None => Ok(None),
                    Some(b"\r\n") => Ok(Some(Element { bytes, kind, children: 0 })),
                    Some(_) => Err(Error::MissingLineEnd),
                }
            }
        },
        Form::Aggregate(values_each) => match length(line)? {
            None if first == b'*' => {
                Ok(Some(Element { bytes: line_end, kind: Some(Kind::Null), children: 0 }))
            }
            None => Err(Error::InvalidLength),
            Some(length) => match length.checked_mul(values_each) {
                Some(children) if children <= limits.elements_max => {
                    Ok(Some(Element { bytes: line_end, kind, children }))
                }
                _ => Err(Error::TooManyElements),
            },
        },
    }
}

/// How the bytes of an element are laid out.
enum Form {
    Line,
    Bulk,
    /// A header, and so many values for each counted item.
    Aggregate(usize),
}

/// Where the first line ends, its CR LF included.
#[inline]
fn line_end(buffer: &[u8], limits: &Limits) -> Result<Option<usize>, Error> {
    // Headers and small answers are a few bytes: a plain loop beats the call to memchr.
    let near = &buffer[..buffer.len().min(16)];
    let end = match near.iter().position(|&byte| byte == b'\n') {
        Some(end) => end,
        None if buffer.len() <= 16 => return Ok(None),
        None => {
            let window = &buffer[16..buffer.len().min(limits.line_bytes_max.max(16))];
            match memchr::memchr(b'\n', window) {
                Some(end) => end + 16,
                None if buffer.len() >= limits.line_bytes_max => return Err(Error::LineTooLong),
                None => return Ok(None),
            }
        }
    };
    if end < 2 || buffer[end - 1] != b'\r' {
        return Err(Error::MissingLineEnd);
    }
    Ok(Some(end + 1))
}

/// A length in a header; `None` stands for -1.
#[inline]
fn length(digits: &[u8]) -> Result<Option<usize>, Error> {
    if digits == b"-1" {
        return Ok(None);
    }
    // 18 digits cannot overflow 64 bits.
    if digits.is_empty() || digits.len() > 18 {
        return Err(Error::InvalidLength);
    }
    let mut length = 0_u64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return Err(Error::InvalidLength);
        }
        length = length * 10 + u64::from(digit - b'0');
    }
    usize::try_from(length).map(Some).map_err(|_| Error::InvalidLength)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tree(bytes: &[u8]) -> Value {
        let (value, length) = parse(bytes, &Limits::default()).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        value
    }

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    #[test]
    fn reads_every_type() {
        assert_eq!(tree(b"+OK\r\n"), Value::Simple("OK".into()));
        assert_eq!(tree(b"-ERR no\r\n"), Value::Error("ERR no".into()));
        assert_eq!(tree(b":-7\r\n"), Value::Integer(-7));
        assert_eq!(tree(b"$3\r\na\r\n\r\n"), bulk("a\r\n"));
        assert_eq!(tree(b"$0\r\n\r\n"), bulk(""));
        assert_eq!(tree(b"$-1\r\n"), Value::Null);
        assert_eq!(tree(b"*-1\r\n"), Value::Null);
        assert_eq!(tree(b"_\r\n"), Value::Null);
        assert_eq!(tree(b"#t\r\n"), Value::Boolean(true));
        assert_eq!(tree(b",1.5e3\r\n"), Value::Double(1500.0));
        assert_eq!(tree(b",-inf\r\n"), Value::Double(f64::NEG_INFINITY));
        assert_eq!(tree(b"(-123456789012345678901\r\n").as_bytes().unwrap().len(), 22);
        assert_eq!(tree(b"!5\r\nERR x\r\n"), Value::Error("ERR x".into()));
        assert_eq!(tree(b"=7\r\ntxt:abc\r\n"), Value::Verbatim(*b"txt", "abc".into()));
        assert_eq!(
            tree(b"*2\r\n:1\r\n*0\r\n"),
            Value::Array(vec![Value::Integer(1), Value::Array(vec![])])
        );
        assert_eq!(tree(b"~1\r\n$1\r\na\r\n"), Value::Set(vec![bulk("a")]));
        assert_eq!(
            tree(b"%1\r\n$1\r\na\r\n:1\r\n"),
            Value::Map(vec![(bulk("a"), Value::Integer(1))])
        );
        assert_eq!(tree(b">1\r\n$1\r\na\r\n"), Value::Push(vec![bulk("a")]));
        let attributed = tree(b"|1\r\n+ttl\r\n:9\r\n*1\r\n$1\r\na\r\n");
        assert_eq!(attributed.as_elements().unwrap(), [bulk("a")]);
    }

    #[test]
    fn refuses_what_is_no_reply() {
        let limits =
            Limits { depth_max: 2, bulk_bytes_max: 8, line_bytes_max: 64, elements_max: 10 };
        let long_line = [b"+".as_slice(), &[b'a'; 100]].concat();
        for (bytes, error) in [
            (b"OK\r\n".as_slice(), Error::UnknownType(b'O')),
            (b"+OK\n", Error::MissingLineEnd),
            (b"\n", Error::UnknownType(b'\n')),
            (b"$1\r\nabc", Error::MissingLineEnd),
            (b"$9\r\n", Error::BulkTooLong),
            (b"$99999999999999999999\r\n", Error::InvalidLength),
            (b"$-2\r\n", Error::InvalidLength),
            (b"%-1\r\n", Error::InvalidLength),
            (b"*?\r\n", Error::InvalidLength),
            (b"*11\r\n", Error::TooManyElements),
            (b"%999999999999999999\r\n", Error::TooManyElements),
            (b"*1\r\n*1\r\n*1\r\n:1\r\n", Error::TooDeep),
            (b"*9\r\n*9\r\n", Error::TooManyElements),
            (b":x\r\n", Error::InvalidNumber),
            (b",infinity\r\n", Error::InvalidNumber),
            (b"(1.5\r\n", Error::InvalidNumber),
            (b"#y\r\n", Error::InvalidNumber),
            (b"=2\r\nab\r\n", Error::InvalidVerbatim),
            (&long_line, Error::LineTooLong),
        ] {
            assert_eq!(parse(bytes, &limits), Err(error), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn scanner_counts_replies_errors_and_pushes() {
        let mut scanner = Scanner::default();
        let bytes = b"+OK\r\n-ERR\r\n>2\r\n+a\r\n+b\r\n*2\r\n-ERR inside\r\n%1\r\n+k\r\n+v\r\n:1";
        let scan = scanner.scan(bytes).unwrap();
        assert_eq!(scan, Scan { replies: 3, errors: 1, pushes: 1, bytes: bytes.len() - 2 });
    }

    #[test]
    fn attribute_gives_its_place_to_the_reply_behind_it() {
        let mut scanner = Scanner::default();
        let bytes = b"|1\r\n+k\r\n*1\r\n+v\r\n-ERR\r\n";
        let reply = scanner.next(bytes).unwrap().unwrap();
        assert_eq!(reply, Reply { kind: Kind::Error, bytes: bytes.len() });
        let empty = scanner.next(b"|0\r\n:1\r\n").unwrap().unwrap();
        assert_eq!(empty, Reply { kind: Kind::Integer, bytes: 8 });
    }

    #[test]
    fn nesting_costs_the_scanner_no_stack() {
        let mut bytes = b"*1\r\n".repeat(1_000_000);
        bytes.extend_from_slice(b":1\r\n");
        let reply = Scanner::default().next(&bytes).unwrap().unwrap();
        assert_eq!(reply, Reply { kind: Kind::Array, bytes: bytes.len() });
        assert_eq!(parse(&bytes, &Limits::default()), Err(Error::TooDeep));
    }

    /// Writes a value as a server would, to read it back.
    fn write(value: &Value, out: &mut Vec<u8>) {
        let mut line = |text: String| out.extend_from_slice(text.as_bytes());
        match value {
            Value::Null => line("_\r\n".into()),
            Value::Integer(number) => line(format!(":{number}\r\n")),
            Value::Boolean(flag) => line(format!("#{}\r\n", if *flag { 't' } else { 'f' })),
            Value::Double(number) => line(format!(",{number:e}\r\n")),
            Value::Simple(text) | Value::BigNumber(text) => {
                let first = if matches!(value, Value::Simple(_)) { b'+' } else { b'(' };
                out.push(first);
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
            Value::Bulk(bytes) | Value::Error(bytes) => {
                let first = if matches!(value, Value::Bulk(_)) { '$' } else { '!' };
                line(format!("{first}{}\r\n", bytes.len()));
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Value::Verbatim(format, text) => {
                line(format!("={}\r\n", text.len() + 4));
                out.extend_from_slice(format);
                out.push(b':');
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
            Value::Array(values) | Value::Set(values) | Value::Push(values) => {
                let first = match value {
                    Value::Array(_) => '*',
                    Value::Set(_) => '~',
                    _ => '>',
                };
                line(format!("{first}{}\r\n", values.len()));
                values.iter().for_each(|value| write(value, out));
            }
            Value::Map(pairs) | Value::Attributed(pairs, _) => {
                let first = if matches!(value, Value::Map(_)) { '%' } else { '|' };
                line(format!("{first}{}\r\n", pairs.len()));
                for (key, value) in pairs {
                    write(key, out);
                    write(value, out);
                }
                if let Value::Attributed(_, value) = value {
                    write(value, out);
                }
            }
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::Integer),
            any::<bool>().prop_map(Value::Boolean),
            (-1e300..1e300).prop_map(Value::Double),
            "[a-zA-Z ]{0,40}".prop_map(|text| Value::Simple(text.into())),
            "-?[0-9]{1,40}".prop_map(|text| Value::BigNumber(text.into())),
            proptest::collection::vec(any::<u8>(), 0..60).prop_map(Value::Bulk),
            proptest::collection::vec(any::<u8>(), 0..20).prop_map(Value::Error),
            "[a-z]{0,9}".prop_map(|text| Value::Verbatim(*b"txt", text.into())),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            let values = proptest::collection::vec(inner.clone(), 0..6);
            let pairs = proptest::collection::vec((inner.clone(), inner.clone()), 0..4);
            prop_oneof![
                values.clone().prop_map(Value::Array),
                values.clone().prop_map(Value::Set),
                values.prop_map(Value::Push),
                pairs.clone().prop_map(Value::Map),
                (pairs, inner).prop_map(|(pairs, value)| Value::Attributed(pairs, value.into())),
            ]
        })
    }

    /// Bytes that look like the protocol, so that the deep paths are reached.
    fn protocol_soup() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            "[-+:$*_%~>|#,(!=]",
            "-?[0-9]{1,3}",
            Just("\r\n".to_owned()),
            "[a-z:?]{0,4}",
        ];
        proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat().into_bytes())
    }

    proptest! {
        #[test]
        fn tree_and_scanner_read_back_what_was_written(value in any_value()) {
            let mut bytes = Vec::new();
            write(&value, &mut bytes);
            prop_assert_eq!(parse(&bytes, &Limits::default()), Ok(Some((value, bytes.len()))));
            let reply = Scanner::default().next(&bytes).unwrap().unwrap();
            prop_assert_eq!(reply.bytes, bytes.len());
        }

        #[test]
        fn a_scanner_fed_byte_by_byte_finds_the_same_replies(
            values in proptest::collection::vec(any_value(), 1..4),
        ) {
            let mut bytes = Vec::new();
            values.iter().for_each(|value| write(value, &mut bytes));
            let whole = Scanner::default().scan(&bytes).unwrap();
            let mut scanner = Scanner::default();
            let mut by_byte = Scan::default();
            for end in 0..=bytes.len() {
                let scan = scanner.scan(&bytes[by_byte.bytes..end]).unwrap();
                by_byte.replies += scan.replies;
                by_byte.errors += scan.errors;
                by_byte.pushes += scan.pushes;
                by_byte.bytes += scan.bytes;
            }
            prop_assert_eq!(by_byte, whole);
            prop_assert_eq!(whole.bytes, bytes.len());
        }

        #[test]
        fn any_bytes_give_an_answer(
            bytes in prop_oneof![proptest::collection::vec(any::<u8>(), 0..200), protocol_soup()],
        ) {
            let limits = Limits { depth_max: 4, ..Limits::default() };
            let scanned = Scanner::new(limits).next(&bytes);
            if let Ok(Some((_, length))) = parse(&bytes, &limits) {
                prop_assert_eq!(scanned.unwrap().unwrap().bytes, length);
            }
        }
    }
}
