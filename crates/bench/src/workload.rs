//! What is sent and what has to come back: the table of tests, requests made from it, and the
//! check of every reply.
//!
//! Keys hold a random number of twelve digits below the keyspace (`-r`), as redis-benchmark's do.
//! A value is made from the number of its key, so that a reply can be checked for being *this*
//! key's value and not just a value:
//!
//! ```text
//! -d 3   key 000000012345 -> "345"            the last digits
//! -d 16  key 000000012345 -> "000000012345xxxx"
//! ```
//!
//! Sets, hashes and sorted sets are filled with the whole keyspace before they are measured, so
//! that the load does not change while it runs and the reply of a write is known: nothing was
//! added. Lists grow by pushes, and their length is checked afterwards.
//!
//! **Invariant:** a test touches only keys that begin with `fbench:`, and removes them afterwards.

use std::time::Duration;

use resp::reply::{Kind, Scanner};

use crate::client::{self, Client, Error, Protocol, Socket};
use crate::random::Random;
use crate::target::Target;
use crate::traffic::{Traffic, Verdict};

/// How many digits a number in a key has.
pub const DIGITS: usize = 12;

/// How many elements a list is given before it is popped from, at most.
const POP_ELEMENTS_MAX: u64 = 2_000_000;

/// One word of a request.
#[derive(Clone, Copy, Debug)]
pub enum Word {
    /// These bytes.
    Text(&'static str),
    /// This text and a fresh random number.
    Key(&'static str),
    /// A fresh random number between these texts.
    Between(&'static str, &'static str),
    /// The fresh number alone.
    Number,
    /// The value that belongs to the last number drawn.
    Value,
}

/// What a reply has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Exactly these bytes.
    Exactly(&'static str),
    /// The value that belongs to the number in the key.
    Value,
    /// Anything whole that begins with these bytes.
    Begins(&'static str),
    /// These bytes, the digits of the number in the request, and these.
    Number(&'static str, &'static str),
    /// An integer of at least this.
    IntegerFrom(i64),
    /// A string of the value's length; nothing, once the list ran empty, which is counted.
    Popped,
    /// A string; nothing, once the set ran empty, which is counted.
    PoppedMember,
    /// Two values, or none once the sorted set ran empty, which is counted.
    PoppedPair,
    /// An array of so many elements.
    Elements(usize),
    /// A string of any content.
    String,
}

/// What the server has to hold before the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Whatever it holds.
    Nothing,
    /// A value at each key of the keyspace.
    Values,
    /// Nothing at the counters' keys.
    NoCounters,
    /// No list.
    NoList,
    /// A list of at least as many elements as will be asked for.
    List(u64),
    /// A list with one element for each request.
    ListToPop,
    /// A set, hash or sorted set with all members of the keyspace: command, key, form of a member.
    Members(Members),
}

/// How a collection is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// `SADD`
    Set,
    /// `HSET`, each field with its value
    Hash,
    /// `ZADD`, each with its number as score
    SortedSet,
}

/// What the server has to hold after the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Nothing that could be told.
    Nothing,
    /// Counters whose sum is the number of requests.
    CounterSum,
    /// A list as long as there were requests.
    ListLength,
    /// As many members as the keyspace has: by this command.
    Cardinality(&'static str),
}

/// One row of the table of tests.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// What `-t` calls it.
    pub name: &'static str,
    /// The request.
    pub words: &'static [Word],
    /// Its reply.
    pub expect: Expect,
    /// What is made ready.
    pub before: Before,
    /// What is checked at the end.
    pub after: After,
}

use Word::{Between, Key, Number, Text, Value};

const LIST: &str = "fbench:list";
const SET: &str = "fbench:set";
const HASH: &str = "fbench:hash";
const SORTED_SET: &str = "fbench:zset";
const STREAM: &str = "fbench:stream";
const KEY: &str = "fbench:k:";
const COUNTER: &str = "fbench:c:";
const MEMBER: &str = "element:";

#[rustfmt::skip]
const MSET_10: &[Word] = &[
    Text("MSET"),
    Key(KEY), Value, Key(KEY), Value, Key(KEY), Value, Key(KEY), Value, Key(KEY), Value,
    Key(KEY), Value, Key(KEY), Value, Key(KEY), Value, Key(KEY), Value, Key(KEY), Value,
];

#[rustfmt::skip]
const MGET_10: &[Word] = &[
    Text("MGET"),
    Key(KEY), Key(KEY), Key(KEY), Key(KEY), Key(KEY),
    Key(KEY), Key(KEY), Key(KEY), Key(KEY), Key(KEY),
];

/// Every test, in the order in which they run.
pub const TESTS: &[Test] = &[
    Test {
        name: "ping",
        words: &[Text("PING")],
        expect: Expect::Exactly("+PONG\r\n"),
        before: Before::Nothing,
        after: After::Nothing,
    },
    Test {
        name: "set",
        words: &[Text("SET"), Key(KEY), Value],
        expect: Expect::Exactly("+OK\r\n"),
        before: Before::Values,
        after: After::Nothing,
    },
    Test {
        name: "get",
        words: &[Text("GET"), Key(KEY)],
        expect: Expect::Value,
        before: Before::Values,
        after: After::Nothing,
    },
    Test {
        name: "incr",
        words: &[Text("INCR"), Key(COUNTER)],
        expect: Expect::IntegerFrom(1),
        before: Before::NoCounters,
        after: After::CounterSum,
    },
    Test {
        name: "lpush",
        words: &[Text("LPUSH"), Text(LIST), Value],
        expect: Expect::IntegerFrom(1),
        before: Before::NoList,
        after: After::ListLength,
    },
    Test {
        name: "rpush",
        words: &[Text("RPUSH"), Text(LIST), Value],
        expect: Expect::IntegerFrom(1),
        before: Before::NoList,
        after: After::ListLength,
    },
    Test {
        name: "lpop",
        words: &[Text("LPOP"), Text(LIST)],
        expect: Expect::Popped,
        before: Before::ListToPop,
        after: After::Nothing,
    },
    Test {
        name: "rpop",
        words: &[Text("RPOP"), Text(LIST)],
        expect: Expect::Popped,
        before: Before::ListToPop,
        after: After::Nothing,
    },
    Test {
        name: "sadd",
        words: &[Text("SADD"), Text(SET), Key(MEMBER)],
        expect: Expect::Exactly(":0\r\n"),
        before: Before::Members(Members::Set),
        after: After::Cardinality("SCARD"),
    },
    Test {
        name: "sismember",
        words: &[Text("SISMEMBER"), Text(SET), Key(MEMBER)],
        expect: Expect::Exactly(":1\r\n"),
        before: Before::Members(Members::Set),
        after: After::Nothing,
    },
    Test {
        name: "spop",
        words: &[Text("SPOP"), Text(SET)],
        expect: Expect::PoppedMember,
        before: Before::Members(Members::Set),
        after: After::Nothing,
    },
    Test {
        name: "hset",
        words: &[Text("HSET"), Text(HASH), Key(MEMBER), Value],
        expect: Expect::Exactly(":0\r\n"),
        before: Before::Members(Members::Hash),
        after: After::Cardinality("HLEN"),
    },
    Test {
        name: "hget",
        words: &[Text("HGET"), Text(HASH), Key(MEMBER)],
        expect: Expect::Value,
        before: Before::Members(Members::Hash),
        after: After::Nothing,
    },
    Test {
        name: "zadd",
        words: &[Text("ZADD"), Text(SORTED_SET), Number, Key(MEMBER)],
        expect: Expect::Exactly(":0\r\n"),
        before: Before::Members(Members::SortedSet),
        after: After::Cardinality("ZCARD"),
    },
    Test {
        name: "zscore",
        words: &[Text("ZSCORE"), Text(SORTED_SET), Key(MEMBER)],
        expect: Expect::String,
        before: Before::Members(Members::SortedSet),
        after: After::Nothing,
    },
    Test {
        name: "zpopmin",
        words: &[Text("ZPOPMIN"), Text(SORTED_SET)],
        expect: Expect::PoppedPair,
        before: Before::Members(Members::SortedSet),
        after: After::Nothing,
    },
    Test {
        name: "lrange_100",
        words: &[Text("LRANGE"), Text(LIST), Text("0"), Text("99")],
        expect: Expect::Elements(100),
        before: Before::List(600),
        after: After::Nothing,
    },
    Test {
        name: "lrange_300",
        words: &[Text("LRANGE"), Text(LIST), Text("0"), Text("299")],
        expect: Expect::Elements(300),
        before: Before::List(600),
        after: After::Nothing,
    },
    Test {
        name: "lrange_600",
        words: &[Text("LRANGE"), Text(LIST), Text("0"), Text("599")],
        expect: Expect::Elements(600),
        before: Before::List(600),
        after: After::Nothing,
    },
    Test {
        name: "mset",
        words: MSET_10,
        expect: Expect::Exactly("+OK\r\n"),
        before: Before::Values,
        after: After::Nothing,
    },
    Test {
        name: "mget",
        words: MGET_10,
        expect: Expect::Elements(10),
        before: Before::Values,
        after: After::Nothing,
    },
    Test {
        name: "xadd",
        words: &[Text("XADD"), Text(STREAM), Text("*"), Text("field"), Value],
        expect: Expect::String,
        before: Before::Nothing,
        after: After::Nothing,
    },
];

/// The test of a name, in whatever case.
pub fn test_named(name: &str) -> Option<&'static Test> {
    TESTS.iter().find(|test| test.name.eq_ignore_ascii_case(name))
}

/// A request with places for its numbers.
#[derive(Clone, Debug)]
struct Template {
    bytes: Vec<u8>,
    patches: Vec<Patch>,
    expect: Expect,
}

/// A place in a request that differs from one request to the next.
#[derive(Clone, Copy, Debug)]
enum Patch {
    /// A fresh number.
    Draw(usize),
    /// The last number's final digits: so many of them.
    Repeat(usize, usize),
}

/// The requests of a run and the checks of their replies; several kinds are mixed evenly.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The protocol that connections speak.
    pub protocol: Protocol,
    templates: Vec<Template>,
    keyspace: u64,
    data_bytes: usize,
    /// `$16\r\n`, in front of each value.
    value_header: Vec<u8>,
    /// What follows the digits of a value, and its line end.
    value_tail: Vec<u8>,
}

/// What is remembered of a request to check its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    kind: u8,
    number: u64,
}

impl Workload {
    /// A workload of `tests`, each as often as the others.
    pub fn new(tests: &[&Test], keyspace: u64, data_bytes: usize) -> Self {
        assert!(!tests.is_empty(), "a workload has at least one test");
        assert!(tests.len() <= usize::from(u8::MAX), "a request's kind is one byte");
        let digits = data_bytes.min(DIGITS);
        let mut value_tail = vec![b'x'; data_bytes - digits];
        value_tail.extend_from_slice(b"\r\n");
        Workload {
            protocol: Protocol::Resp2,
            templates: tests.iter().map(|test| template(test, data_bytes)).collect(),
            keyspace: keyspace.max(1),
            data_bytes,
            value_header: format!("${data_bytes}\r\n").into_bytes(),
            value_tail,
        }
    }

    /// The same in this protocol.
    pub fn speaking(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Requests of the same length for a server that answers `+OK` once for each `*`.
    pub fn for_null_server(mut self) -> Self {
        for template in &mut self.templates {
            template.expect = Expect::Exactly("+OK\r\n");
            for byte in template.bytes.iter_mut().skip(1).filter(|byte| **byte == b'*') {
                *byte = b'+';
            }
        }
        self
    }

    /// The length of the reply if it is the number's value.
    #[inline]
    fn value_at_start(&self, number: u64, buffer: &[u8]) -> Option<usize> {
        let rest = buffer.strip_prefix(self.value_header.as_slice())?;
        let digits = self.data_bytes.min(DIGITS);
        let mut wanted = [0; DIGITS];
        write_digits(number, &mut wanted[..digits]);
        let rest = rest.strip_prefix(&wanted[..digits])?;
        let rest = rest.strip_prefix(self.value_tail.as_slice())?;
        Some(buffer.len() - rest.len())
    }

    fn check_any(
        &self,
        expect: Expect,
        sent: Sent,
        buffer: &[u8],
        scanner: &mut Scanner,
    ) -> Verdict {
        let reply = match scanner.next(buffer) {
            Ok(None) => return Verdict::Incomplete,
            Ok(Some(reply)) => reply,
            Err(error) => return Verdict::Bad(buffer.len(), format!("protocol error: {error}")),
        };
        let text = &buffer[..reply.bytes];
        if reply.kind == Kind::Push {
            return Verdict::Push(reply.bytes);
        }
        let value_bytes = self.value_header.len() + self.data_bytes + 2;
        let good = match expect {
            Expect::Exactly(_) | Expect::Value | Expect::Number(..) => false,
            Expect::Begins(wanted) => text.starts_with(wanted.as_bytes()),
            Expect::IntegerFrom(least) => integer(text).is_some_and(|number| number >= least),
            Expect::Popped if reply.kind == Kind::Null => return Verdict::Empty(reply.bytes),
            Expect::Popped => text.starts_with(&self.value_header) && text.len() == value_bytes,
            Expect::PoppedMember if reply.kind == Kind::Null => {
                return Verdict::Empty(reply.bytes);
            }
            Expect::PoppedMember => reply.kind == Kind::Bulk,
            Expect::PoppedPair if text == b"*0\r\n" => return Verdict::Empty(reply.bytes),
            Expect::PoppedPair => text.starts_with(b"*2\r\n"),
            Expect::Elements(count) => text.starts_with(format!("*{count}\r\n").as_bytes()),
            Expect::String => matches!(reply.kind, Kind::Bulk | Kind::Double),
        };
        if good {
            return Verdict::Good(reply.bytes);
        }
        let text = text.strip_suffix(b"\r\n").unwrap_or(text);
        let shown = text[..text.len().min(120)].escape_ascii().to_string().replace("\\'", "'");
        let why = match expect {
            _ if reply.kind.is_error() => format!("error reply {shown}"),
            Expect::Exactly(wanted) => {
                format!("got {shown}, expected {}", wanted.trim_end())
            }
            Expect::Value | Expect::Number(..) => {
                format!("got {shown}, expected the value of key {}", sent.number)
            }
            other => format!("got {shown}, expected {other:?}"),
        };
        Verdict::Bad(reply.bytes, why)
    }
}

impl Traffic for Workload {
    type Sent = Sent;
    type Reader = Scanner;

    fn connect(&self, target: &Target, timeout: Duration) -> Result<Socket, Error> {
        Client::connect(target, self.protocol, timeout).map(Client::into_socket)
    }

    #[inline]
    fn append_request(&self, random: &mut Random, out: &mut Vec<u8>) -> Sent {
        let kind = match self.templates.len() {
            1 => 0,
            kinds => random.below(kinds as u64) as usize,
        };
        let template = &self.templates[kind];
        let start = out.len();
        out.extend_from_slice(&template.bytes);
        let request = &mut out[start..];
        let mut number = 0;
        for patch in &template.patches {
            match *patch {
                Patch::Draw(at) => {
                    number = random.below(self.keyspace);
                    write_digits(number, &mut request[at..at + DIGITS]);
                }
                Patch::Repeat(at, digits) => write_digits(number, &mut request[at..at + digits]),
            }
        }
        Sent { kind: kind as u8, number }
    }

    #[inline]
    fn check(&self, sent: Sent, buffer: &[u8], scanner: &mut Scanner) -> Verdict {
        let expect = self.templates[usize::from(sent.kind)].expect;
        match expect {
            Expect::Exactly(text) if buffer.starts_with(text.as_bytes()) => {
                return Verdict::Good(text.len());
            }
            Expect::Value => {
                if let Some(bytes) = self.value_at_start(sent.number, buffer) {
                    return Verdict::Good(bytes);
                }
            }
            Expect::Number(before, after) => {
                if let Some(bytes) = number_at_start(sent.number, before, after, buffer) {
                    return Verdict::Good(bytes);
                }
            }
            _ => {}
        }
        self.check_any(expect, sent, buffer, scanner)
    }
}

/// The length of the reply if it has the number between these texts.
#[inline]
fn number_at_start(number: u64, before: &str, after: &str, buffer: &[u8]) -> Option<usize> {
    let mut wanted = [0; DIGITS];
    write_digits(number, &mut wanted);
    let rest = buffer.strip_prefix(before.as_bytes())?.strip_prefix(&wanted)?;
    Some(buffer.len() - rest.strip_prefix(after.as_bytes())?.len())
}

fn integer(reply: &[u8]) -> Option<i64> {
    let digits = reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Writes the last digits of `number`, as many as there is room for.
#[inline]
fn write_digits(mut number: u64, room: &mut [u8]) {
    for digit in room.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn template(test: &Test, data_bytes: usize) -> Template {
    let mut bytes = format!("*{}\r\n", test.words.len()).into_bytes();
    let mut patches = Vec::new();
    for word in test.words {
        let (text, length) = match word {
            Text(text) => (*text, text.len()),
            Key(text) => (*text, text.len() + DIGITS),
            Between(before, after) => (*before, before.len() + DIGITS + after.len()),
            Number => ("", DIGITS),
            Value => ("", data_bytes),
        };
        bytes.extend_from_slice(format!("${length}\r\n{text}").as_bytes());
        match word {
            Text(_) => {}
            Key(_) | Number | Between(..) => {
                patches.push(Patch::Draw(bytes.len()));
                bytes.extend_from_slice(&[b'0'; DIGITS]);
                if let Between(_, after) = word {
                    bytes.extend_from_slice(after.as_bytes());
                }
            }
            Value => {
                let digits = data_bytes.min(DIGITS);
                patches.push(Patch::Repeat(bytes.len(), digits));
                bytes.extend_from_slice(&b"0".repeat(digits));
                bytes.extend_from_slice(&b"x".repeat(data_bytes - digits));
            }
        }
        bytes.extend_from_slice(b"\r\n");
    }
    Template { bytes, patches, expect: test.expect }
}

/// The value that belongs to a key's number.
fn value_of(number: u64, data_bytes: usize) -> Vec<u8> {
    let mut value = vec![b'x'; data_bytes];
    write_digits(number, &mut value[..data_bytes.min(DIGITS)]);
    value
}

fn numbered(text: &str, number: u64) -> Vec<u8> {
    format!("{text}{number:0DIGITS$}").into_bytes()
}

/// Brings a server to where the test begins. `requests` is how many there will be, if known.
pub fn prepare(
    client: &mut Client,
    test: &Test,
    keyspace: u64,
    data_bytes: usize,
    requests: Option<u64>,
) -> Result<(), Error> {
    match test.before {
        Before::Nothing => Ok(()),
        Before::NoList => client.command(&["DEL", LIST]).map(drop),
        Before::NoCounters => in_batches(client, keyspace, |number, out| {
            client::append_command(out, &[b"DEL".as_slice(), &numbered(COUNTER, number)]);
        }),
        Before::Values => in_batches(client, keyspace, |number, out| {
            let value = value_of(number, data_bytes);
            client::append_command(out, &[b"SET".as_slice(), &numbered(KEY, number), &value]);
        }),
        Before::List(count) => fill_list(client, count, data_bytes),
        Before::ListToPop => {
            let count = requests.unwrap_or(POP_ELEMENTS_MAX).min(POP_ELEMENTS_MAX);
            fill_list(client, count, data_bytes)
        }
        Before::Members(members) => in_batches(client, keyspace, |number, out| {
            let member = numbered(MEMBER, number);
            let score = number.to_string();
            let value = value_of(number, data_bytes);
            let words: &[&[u8]] = match members {
                Members::Set => &[b"SADD", SET.as_bytes(), &member],
                Members::Hash => &[b"HSET", HASH.as_bytes(), &member, &value],
                Members::SortedSet => &[b"ZADD", SORTED_SET.as_bytes(), score.as_bytes(), &member],
            };
            client::append_command(out, words);
        }),
    }
}

fn fill_list(client: &mut Client, count: u64, data_bytes: usize) -> Result<(), Error> {
    const AT_ONCE: u64 = 100;
    client.command(&["DEL", LIST])?;
    let value = value_of(0, data_bytes);
    in_batches(client, count.div_ceil(AT_ONCE), |index, out| {
        let elements = AT_ONCE.min(count - index * AT_ONCE) as usize;
        let mut words: Vec<&[u8]> = vec![b"RPUSH", LIST.as_bytes()];
        words.resize(2 + elements, &value);
        client::append_command(out, &words);
    })
}

/// Sends one command for each number below `count`, a few hundred at a time.
fn in_batches(
    client: &mut Client,
    count: u64,
    mut append: impl FnMut(u64, &mut Vec<u8>),
) -> Result<(), Error> {
    const COMMANDS_MAX: usize = 500;
    const BYTES_MAX: usize = 1 << 20;
    let mut out = Vec::new();
    let mut pending = 0;
    for number in 0..count {
        append(number, &mut out);
        pending += 1;
        if pending == COMMANDS_MAX || out.len() > BYTES_MAX || number + 1 == count {
            client.batch(&out, pending)?;
            out.clear();
            pending = 0;
        }
    }
    Ok(())
}

/// Checks what a test left behind; the answer is how many things were checked, or what was wrong.
pub fn verify_after(
    client: &mut Client,
    test: &Test,
    keyspace: u64,
    requests: u64,
) -> Result<Result<(), String>, Error> {
    let (what, found, wanted) = match test.after {
        After::Nothing => return Ok(Ok(())),
        After::ListLength => {
            ("LLEN", client.command(&["LLEN", LIST])?.as_integer().unwrap_or(-1), requests)
        }
        After::Cardinality(command) => {
            let key = match command {
                "SCARD" => SET,
                "HLEN" => HASH,
                _ => SORTED_SET,
            };
            (command, client.command(&[command, key])?.as_integer().unwrap_or(-1), keyspace)
        }
        After::CounterSum => ("sum of counters", counter_sum(client, keyspace)?, requests),
    };
    if u64::try_from(found) == Ok(wanted) {
        return Ok(Ok(()));
    }
    Ok(Err(format!("{what} is {found} after the run, expected {wanted}")))
}

fn counter_sum(client: &mut Client, keyspace: u64) -> Result<i64, Error> {
    const AT_ONCE: u64 = 500;
    let mut sum = 0;
    for first in (0..keyspace).step_by(AT_ONCE as usize) {
        let mut words = vec![b"MGET".to_vec()];
        words.extend((first..keyspace.min(first + AT_ONCE)).map(|n| numbered(COUNTER, n)));
        let counters = client.command(&words)?;
        let counters = counters.as_elements().ok_or_else(|| Error::new("MGET gave no array"))?;
        sum += counters.iter().filter_map(|counter| counter.as_integer()).sum::<i64>();
    }
    Ok(sum)
}

/// Removes the keys that a test may have left. DEL and not UNLINK: freeing in the background
/// would be charged to the next measurement.
pub fn clean_up(client: &mut Client, tests: &[&Test], keyspace: u64) -> Result<(), Error> {
    client.command(&["DEL", LIST, SET, HASH, SORTED_SET, STREAM])?;
    let uses = |text| {
        tests.iter().any(|test| test.words.iter().any(|w| matches!(w, Key(k) if *k == text)))
    };
    for text in [KEY, COUNTER] {
        if uses(text) {
            in_batches(client, keyspace, |number, out| {
                client::append_command(out, &[b"DEL".as_slice(), &numbered(text, number)]);
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use resp::reply::{Limits, Value as Tree};

    use super::*;

    fn check(name: &str, data_bytes: usize, reply: &str) -> Verdict {
        let test = test_named(name).unwrap();
        let workload = Workload::new(&[test], 1_000_000, data_bytes);
        let sent = Sent { kind: 0, number: 12_345 };
        workload.check(sent, reply.as_bytes(), &mut Scanner::default())
    }

    #[test]
    fn requests_are_well_formed_and_their_value_is_their_keys() {
        for data_bytes in [0, 1, 3, 12, 100] {
            for test in TESTS {
                let workload = Workload::new(&[test], 1_000_000, data_bytes);
                let mut out = Vec::new();
                let sent = workload.append_request(&mut Random::new(7), &mut out);
                let request = resp::reply::parse(&out, &Limits::default()).unwrap().unwrap();
                assert_eq!(request.1, out.len(), "{}", test.name);
                let words = request.0;
                assert_eq!(words.as_elements().unwrap().len(), test.words.len());
                if test.name == "set" {
                    let value = Tree::Bulk(value_of(sent.number, data_bytes));
                    assert_eq!(words.as_elements().unwrap()[2], value);
                }
            }
        }
    }

    #[test]
    fn names_are_unique() {
        for (index, test) in TESTS.iter().enumerate() {
            let first = TESTS.iter().position(|other| other.name == test.name);
            assert_eq!(first, Some(index));
        }
    }

    #[test]
    fn only_the_right_value_is_good() {
        assert_eq!(check("get", 3, "$3\r\n345\r\n+next"), Verdict::Good(9));
        assert_eq!(check("get", 16, "$16\r\n000000012345xxxx\r\n"), Verdict::Good(23));
        assert!(matches!(check("get", 3, "$3\r\n346\r\n"), Verdict::Bad(9, _)));
        assert!(matches!(check("get", 3, "$4\r\n3455\r\n"), Verdict::Bad(10, _)));
        assert!(matches!(check("get", 3, "$-1\r\n"), Verdict::Bad(5, _)));
        assert_eq!(check("get", 3, "$3\r\n34"), Verdict::Incomplete);
    }

    #[test]
    fn errors_are_failures_whatever_is_expected() {
        for test in TESTS {
            let Verdict::Bad(bytes, why) = check(test.name, 3, "-OOM no memory\r\n") else {
                panic!("{} let an error pass", test.name);
            };
            assert_eq!(bytes, 16);
            assert!(why.contains("OOM"), "{why}");
        }
    }

    #[test]
    fn replies_of_the_other_tests() {
        assert_eq!(check("incr", 3, ":7\r\n"), Verdict::Good(4));
        assert!(matches!(check("incr", 3, ":0\r\n"), Verdict::Bad(4, _)));
        assert_eq!(check("lpop", 3, "$3\r\nabc\r\n"), Verdict::Good(9));
        assert_eq!(check("lpop", 3, "$-1\r\n"), Verdict::Empty(5));
        assert_eq!(check("zpopmin", 3, "*0\r\n"), Verdict::Empty(4));
        assert_eq!(check("sadd", 3, ":0\r\n"), Verdict::Good(4));
        assert!(matches!(check("sadd", 3, ":1\r\n"), Verdict::Bad(4, _)));
        assert_eq!(check("set", 3, ">1\r\n+x\r\n"), Verdict::Push(8));
        assert!(matches!(check("set", 3, "?\r\n"), Verdict::Bad(3, _)));
    }
}
