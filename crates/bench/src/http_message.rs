//! HTTP/1.1 for the load generator: requests made from templates, answers found and checked.
//!
//! A request is bytes with places for numbers, so that making one is a copy and a few digits:
//!
//! ```text
//! POST /v1/events HTTP/1.1 ... content-length: 31 ... {"id":"000012345678","to":"{id}"}
//!                                                            ^ {seq}             ^ {id}
//! ```
//!
//! `{seq}` is another number in each request, `{id}` a random one of the request; both have twelve
//! digits, so that the length of a body is always the same.
//!
//! **Invariant:** an answer is found by RFC 9112's rules alone: content-length, chunks, or the end
//! of the connection; however it comes in pieces, it is the same answer.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use memchr::memmem;

use crate::client::{Client, Error, Protocol, Socket};
use crate::random::Random;
use crate::target::Target;
use crate::traffic::{Traffic, Verdict};

/// How many digits a number in a request has.
const DIGITS: usize = 12;
/// A head that is longer is no answer.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// A body that is longer is not read.
const BODY_BYTES_MAX: usize = 1 << 30;

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// GET, POST, ...
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Name and value of headers, beside host, length and connection.
    pub headers: Vec<(String, String)>,
    /// The body; none is not the same as an empty one.
    pub body: Option<Vec<u8>>,
    /// Whether the connection is kept for the next request.
    pub is_kept: bool,
}

/// What has to come back.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Statuses, each a range.
    pub statuses: Vec<(u16, u16)>,
    /// What the body has to contain.
    pub text: Option<Vec<u8>>,
    /// What the body has to be.
    pub body: Option<Vec<u8>>,
}

impl Wanted {
    /// Reads `200,202` or `2xx,404`.
    pub fn statuses(list: &str) -> Result<Vec<(u16, u16)>, String> {
        let range = |word: &str| {
            let word = word.trim().to_ascii_lowercase();
            let (first, last) = (word.replace('x', "0"), word.replace('x', "9"));
            let number = |text: String| text.parse().ok().filter(|n| (100..=599).contains(n));
            number(first).zip(number(last)).ok_or_else(|| format!("{word:?} is no status"))
        };
        list.split(',').map(range).collect()
    }
}

/// A request with places for numbers.
#[derive(Clone, Debug)]
struct Template {
    bytes: Vec<u8>,
    patches: Vec<Patch>,
    is_head: bool,
}

/// Where a number goes.
#[derive(Clone, Copy, Debug)]
enum Patch {
    Sequence(usize),
    Id(usize),
}

/// Replaces `{seq}` and `{id}` by digits, and tells where.
fn fill_in(text: &[u8], at: usize, patches: &mut Vec<Patch>) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        let place = at + out.len();
        if let Some(after) = rest.strip_prefix(b"{seq}") {
            patches.push(Patch::Sequence(place));
            out.extend_from_slice(&[b'0'; DIGITS]);
            rest = after;
        } else if let Some(after) = rest.strip_prefix(b"{id}") {
            patches.push(Patch::Id(place));
            out.extend_from_slice(&[b'0'; DIGITS]);
            rest = after;
        } else {
            out.push(*byte);
            rest = after;
        }
    }
    out
}

fn template(ask: &Ask, host: &str) -> Template {
    let mut head = format!("{} {} HTTP/1.1\r\nhost: {host}\r\n", ask.method, ask.path);
    if !ask.is_kept {
        head.push_str("connection: close\r\n");
    }
    for (name, value) in &ask.headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    let mut patches = Vec::new();
    let mut bytes = fill_in(head.as_bytes(), 0, &mut patches);
    if let Some(body) = &ask.body {
        let length = fill_in(body, 0, &mut Vec::new()).len();
        bytes.extend_from_slice(format!("content-length: {length}\r\n\r\n").as_bytes());
        let body = fill_in(body, bytes.len(), &mut patches);
        bytes.extend_from_slice(&body);
    } else {
        bytes.extend_from_slice(b"\r\n");
    }
    Template { bytes, patches, is_head: ask.method == "HEAD" }
}

/// Requests of a run, and what has to come back.
#[derive(Debug)]
pub struct HttpTraffic {
    templates: Vec<Template>,
    /// How often each comes, added up; none = one after the other by chance, all alike.
    weights: Vec<f64>,
    wanted: Wanted,
    ids: u64,
    next: AtomicU64,
    statuses: Vec<AtomicU64>,
}

impl HttpTraffic {
    /// Requests to a host, chosen by chance: the n-th as often as 1 / n to the power of `skew`.
    pub fn new(asks: &[Ask], host: &str, skew: f64, ids: u64, wanted: Wanted) -> Self {
        assert!(!asks.is_empty(), "a run has at least one request");
        let mut sum = 0.0;
        let mut weigh = |rank: usize| {
            sum += (rank as f64).powf(-skew);
            sum
        };
        // Numbers go on where those of an earlier run ended, as long as it made less than a
        // million requests per second.
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        HttpTraffic {
            templates: asks.iter().map(|ask| template(ask, host)).collect(),
            weights: (1..=asks.len()).map(&mut weigh).collect(),
            wanted,
            ids: ids.max(1),
            next: AtomicU64::new(seconds % 1_000_000 * 1_000_000),
            statuses: (0..600).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// How many answers had which status.
    pub fn statuses(&self) -> Vec<(usize, u64)> {
        let counts = self.statuses.iter().map(|count| count.load(Ordering::Relaxed));
        counts.enumerate().filter(|(_, count)| *count > 0).collect()
    }

    fn choose(&self, random: &mut Random) -> usize {
        let Some(&all) = self.weights.get(1).and(self.weights.last()) else { return 0 };
        let at = random.below(1 << 53) as f64 / (1_u64 << 53) as f64 * all;
        self.weights.partition_point(|weight| *weight <= at).min(self.weights.len() - 1)
    }

    /// What a whole answer is.
    fn judge(&self, buffer: &[u8], head: Head, bytes: usize, body: &[u8]) -> Verdict {
        if let Some(count) = self.statuses.get(usize::from(head.status)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let is_wanted = |range: &(u16, u16)| (range.0..=range.1).contains(&head.status);
        let shown = || {
            let line = buffer[..head.bytes].split(|byte| *byte == b'\r').next().unwrap_or_default();
            let body = &body[..body.len().min(160)];
            format!("{} {}", line.escape_ascii(), String::from_utf8_lossy(body))
        };
        if !self.wanted.statuses.iter().any(is_wanted) {
            return Verdict::Bad(bytes, format!("got {}", shown()));
        }
        if self.wanted.body.as_ref().is_some_and(|wanted| wanted != body) {
            return Verdict::Bad(bytes, format!("got another body: {}", shown()));
        }
        match &self.wanted.text {
            Some(text) if memmem::find(body, text).is_none() => {
                let text = String::from_utf8_lossy(text);
                Verdict::Bad(bytes, format!("got {}, expected {text:?} in the body", shown()))
            }
            _ => Verdict::Good(bytes),
        }
    }
}

/// What a request was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    is_head: bool,
}

/// How far an answer has been read.
#[derive(Debug, Default)]
pub struct Reader {
    head: Option<Head>,
    /// No end of the head before here.
    searched: usize,
    /// The end of the last whole chunk, from the buffer's beginning.
    chunk_at: usize,
    /// Chunks put together.
    joined: Vec<u8>,
    /// Whether the answer before this is the connection's last.
    is_last: bool,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    status: u16,
    bytes: usize,
    body: Body,
    is_last: bool,
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Body {
    Length(usize),
    Chunks,
    UntilEnd,
}

fn read_head(text: &[u8], is_head: bool) -> Result<Head, String> {
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    let line = lines.next().unwrap_or_default();
    let words = std::str::from_utf8(line).ok().and_then(|line| line.split_once(' '));
    let version = words.map_or("", |(version, _)| version);
    let status = words.and_then(|(_, rest)| rest.get(..3)?.parse().ok());
    let status: u16 = match (version, status) {
        ("HTTP/1.1" | "HTTP/1.0", Some(status)) => status,
        _ => return Err(format!("no HTTP: {}", line[..line.len().min(80)].escape_ascii())),
    };
    let mut head =
        Head { status, bytes: text.len(), body: Body::UntilEnd, is_last: version == "HTTP/1.0" };
    for line in lines {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") && head.body != Body::Chunks {
            let length = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
            let length = length.filter(|length| *length <= BODY_BYTES_MAX);
            head.body = Body::Length(length.ok_or("the content-length cannot be")?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            head.body = Body::Chunks;
        } else if name.eq_ignore_ascii_case(b"connection") {
            head.is_last = match value.to_ascii_lowercase().as_slice() {
                b"close" => true,
                b"keep-alive" => false,
                _ => head.is_last,
            };
        }
    }
    if is_head || matches!(status, 100..=199 | 204 | 304) {
        head.body = Body::Length(0);
    }
    Ok(head)
}

impl Reader {
    /// The answer's length once it is all there, and its body.
    fn read(&mut self, buffer: &[u8], is_head: bool) -> Result<Option<(Head, usize)>, String> {
        let head = match self.head {
            Some(head) => head,
            None => {
                let from = self.searched.saturating_sub(3).min(buffer.len());
                let Some(end) = memmem::find(&buffer[from..], b"\r\n\r\n") else {
                    self.searched = buffer.len();
                    return match buffer.len() > HEAD_BYTES_MAX {
                        true => Err("the head does not end".into()),
                        false => Ok(None),
                    };
                };
                let head = read_head(&buffer[..from + end + 4], is_head)?;
                self.chunk_at = head.bytes;
                *self.head.insert(head)
            }
        };
        match head.body {
            Body::Length(length) if buffer.len() < head.bytes + length => Ok(None),
            Body::Length(length) => Ok(Some((head, head.bytes + length))),
            Body::Chunks => Ok(self.read_chunks(buffer)?.map(|bytes| (head, bytes))),
            Body::UntilEnd => Ok(None),
        }
    }

    /// Goes from chunk to chunk; the end of the answer if it is there.
    fn read_chunks(&mut self, buffer: &[u8]) -> Result<Option<usize>, String> {
        loop {
            let rest = &buffer[self.chunk_at..];
            let Some(line) = memmem::find(rest, b"\r\n") else { return Ok(None) };
            let digits = rest[..line].split(|byte| *byte == b';').next().unwrap_or_default();
            let size = std::str::from_utf8(digits.trim_ascii()).ok();
            let size = size.and_then(|size| usize::from_str_radix(size, 16).ok());
            let size = size.filter(|size| *size <= BODY_BYTES_MAX).ok_or("no chunk")?;
            if size == 0 {
                // Trailers end as a head does, and are mostly none.
                let end = memmem::find(&rest[line..], b"\r\n\r\n");
                return Ok(end.map(|end| self.chunk_at + line + end + 4));
            }
            let data = line + 2;
            if rest.len() < data + size + 2 {
                return Ok(None);
            }
            if !rest[data + size..].starts_with(b"\r\n") {
                return Err("a chunk is longer than it says".into());
            }
            self.joined.extend_from_slice(&rest[data..data + size]);
            self.chunk_at += data + size + 2;
        }
    }
}

impl Traffic for HttpTraffic {
    type Sent = Sent;
    type Reader = Reader;
    const RENEWS: bool = true;

    fn connect(&self, target: &Target, timeout: Duration) -> Result<Socket, Error> {
        // Without a login nothing is said on the connection.
        Client::connect(target, Protocol::Resp2, timeout).map(Client::into_socket)
    }

    #[inline]
    fn append_request(&self, random: &mut Random, out: &mut Vec<u8>) -> Sent {
        let template = &self.templates[self.choose(random)];
        let start = out.len();
        out.extend_from_slice(&template.bytes);
        let mut id = None;
        for patch in &template.patches {
            let (number, at) = match *patch {
                Patch::Sequence(at) => (self.next.fetch_add(1, Ordering::Relaxed), at),
                Patch::Id(at) => (*id.get_or_insert_with(|| random.below(self.ids)), at),
            };
            let mut left = number;
            for digit in out[start + at..start + at + DIGITS].iter_mut().rev() {
                *digit = b'0' + (left % 10) as u8;
                left /= 10;
            }
        }
        Sent { is_head: template.is_head }
    }

    fn check(&self, sent: Sent, buffer: &[u8], reader: &mut Reader) -> Verdict {
        let (head, bytes) = match reader.read(buffer, sent.is_head) {
            Ok(Some(found)) => found,
            Ok(None) => return Verdict::Incomplete,
            Err(why) => {
                *reader = Reader { is_last: true, ..Reader::default() };
                return Verdict::Bad(buffer.len(), why);
            }
        };
        let read = std::mem::take(reader);
        if matches!(head.status, 100..=199) {
            return Verdict::Push(bytes);
        }
        reader.is_last = head.is_last;
        let body = match head.body {
            Body::Chunks => &read.joined,
            _ => &buffer[head.bytes..bytes],
        };
        self.judge(buffer, head, bytes, body)
    }

    fn cut_off(&self, _: Sent, buffer: &[u8], reader: &mut Reader) -> Verdict {
        match reader.head {
            Some(head) if head.body == Body::UntilEnd => {
                self.judge(buffer, head, buffer.len(), &buffer[head.bytes..])
            }
            _ => Verdict::Bad(buffer.len(), "the connection was closed before the end".into()),
        }
    }

    fn is_last(reader: &Reader) -> bool {
        reader.is_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(ask: &Ask, text: Option<&str>) -> HttpTraffic {
        let statuses = Wanted::statuses("2xx,404").unwrap();
        let text = text.map(|text| text.into());
        let wanted = Wanted { statuses, text, body: None };
        HttpTraffic::new(std::slice::from_ref(ask), "h:1", 0.0, 1000, wanted)
    }

    fn get() -> Ask {
        Ask { method: "GET".into(), path: "/".into(), is_kept: true, ..Ask::default() }
    }

    #[test]
    fn a_request_has_its_numbers_and_its_length() {
        let ask = Ask {
            method: "POST".into(),
            path: "/a/{id}".into(),
            headers: vec![("idempotency-key".into(), "\"{seq}\"".into())],
            body: Some(b"{\"x\":\"{id}\"}".to_vec()),
            is_kept: false,
        };
        let mut out = Vec::new();
        let traffic = traffic(&ask, None);
        traffic.append_request(&mut Random::new(1), &mut out);
        let first = String::from_utf8(out.clone()).unwrap();
        let id = &first["POST /a/".len()..][..DIGITS];
        assert!(id.parse::<u64>().unwrap() < 1000);
        let body = format!("{{\"x\":\"{id}\"}}");
        let end = format!("content-length: {}\r\n\r\n{body}", body.len());
        assert!(first.ends_with(&end), "{first}");
        assert!(first.contains("\r\nconnection: close\r\n"));
        out.clear();
        traffic.append_request(&mut Random::new(1), &mut out);
        assert_ne!(first.as_bytes(), out, "{{seq}} is another number each time");
    }

    #[test]
    fn answers_in_all_forms_and_in_pieces() {
        for (answer, rest, is_good, is_last) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "HTTP", true, false),
            (
                "HTTP/1.1 200 OK\r\ncontent-length:5\r\nConnection: Close\r\n\r\nhello",
                "",
                true,
                true,
            ),
            ("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", "", true, true),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                 2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
                "HTTP/1.1",
                true,
                false,
            ),
            ("HTTP/1.1 404 \r\ncontent-length: 5\r\n\r\nhello", "", true, false),
            ("HTTP/1.1 500 No\r\ncontent-length: 5\r\n\r\nhello", "", false, false),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbye", "", false, false),
            ("HTTP/1.1 204 No Content\r\n\r\n", "", false, false),
        ] {
            let traffic = traffic(&get(), Some("hello"));
            let mut reader = Reader::default();
            for end in 0..answer.len() {
                let part = &answer.as_bytes()[..end];
                let verdict = traffic.check(Sent::default(), part, &mut reader);
                assert_eq!(verdict, Verdict::Incomplete, "{answer:?} at {end}");
            }
            let whole = format!("{answer}{rest}");
            let verdict = traffic.check(Sent::default(), whole.as_bytes(), &mut reader);
            match verdict {
                Verdict::Good(bytes) => assert!(is_good && bytes == answer.len(), "{answer}"),
                Verdict::Bad(bytes, why) => {
                    assert!(!is_good && bytes == answer.len(), "{answer}: {why}");
                }
                other => panic!("{answer}: {other:?}"),
            }
            assert_eq!(HttpTraffic::is_last(&reader), is_last, "{answer}");
        }
    }

    #[test]
    fn what_is_no_answer_is_bad() {
        for text in [
            "+OK\r\n\r\n",
            "HTTP/1.1 abc\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc\r\n",
        ] {
            let verdict = traffic(&get(), None).check(
                Sent::default(),
                text.as_bytes(),
                &mut Reader::default(),
            );
            assert!(matches!(verdict, Verdict::Bad(..)), "{text:?}: {verdict:?}");
        }
    }

    #[test]
    fn a_body_may_end_with_the_connection() {
        let traffic = traffic(&get(), Some("whole"));
        let answer = b"HTTP/1.1 200 OK\r\n\r\nthe whole";
        let mut reader = Reader::default();
        assert_eq!(traffic.check(Sent::default(), answer, &mut reader), Verdict::Incomplete);
        let verdict = traffic.cut_off(Sent::default(), answer, &mut reader);
        assert_eq!(verdict, Verdict::Good(answer.len()));
        let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nthe";
        let mut reader = Reader::default();
        assert_eq!(traffic.check(Sent::default(), cut, &mut reader), Verdict::Incomplete);
        assert!(matches!(traffic.cut_off(Sent::default(), cut, &mut reader), Verdict::Bad(..)));
    }

    #[test]
    fn skew_prefers_the_first() {
        let statuses = Wanted::statuses("200").unwrap();
        let asks = vec![get(); 10];
        let traffic = |skew| {
            let wanted = Wanted { statuses: statuses.clone(), text: None, body: None };
            HttpTraffic::new(&asks, "h", skew, 1, wanted)
        };
        let mut random = Random::new(3);
        let mut share =
            |traffic: HttpTraffic| (0..10_000).filter(|_| traffic.choose(&mut random) == 0).count();
        assert!((850..1150).contains(&share(traffic(0.0))));
        // 1 / (1 + 1/2 + ... + 1/10) of them.
        assert!((3200..3630).contains(&share(traffic(1.0))));
    }

    #[test]
    fn statuses_are_read() {
        assert_eq!(Wanted::statuses("2xx, 404"), Ok(vec![(200, 299), (404, 404)]));
        for list in ["", "abc", "2x", "99", "600", "200,,"] {
            assert!(Wanted::statuses(list).is_err(), "{list}");
        }
    }
}
