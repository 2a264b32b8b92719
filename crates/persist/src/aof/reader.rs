//! Reads the commands of an append-only file, and says where and how it is damaged.
//!
//! ```text
//! #TS:1628217470\r\n                            a note: when what follows was written
//! *3\r\n $3\r\n SET\r\n $1\r\n k\r\n $1\r\n v\r\n      a command, as a client sends it
//! *1\r\n $5\r\n MULTI\r\n ... *1\r\n $4\r\n EXEC\r\n   a transaction: whole or not at all
//! ```
//!
//! **Invariant:** a length that the file does not back is damage, found before any memory is taken
//! for it: what is held is at most one command, which is part of the file, and one chunk.

use std::io;
use std::ops::ControlFlow;

use crate::disk::DataFile;

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;
/// Digits of a number, at most.
const DIGITS: usize = 19;

/// What stands at the beginning of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A whole command.
    Command {
        /// Its bytes.
        len: usize,
        /// Its first word.
        name: &'a [u8],
        /// Its lines.
        lines: u64,
    },
    /// A whole note, without `#` and the line's end.
    Note {
        /// Its bytes.
        len: usize,
        /// The text.
        text: &'a [u8],
    },
    /// The beginning of either; at least so many bytes are missing.
    Short(usize),
    /// Neither.
    Bad {
        /// How far that is from the beginning, in bytes.
        at: usize,
        /// Whole lines before it.
        lines: u64,
        /// What is wrong.
        what: String,
    },
}

/// Looks at the beginning of `bytes`.
pub fn step(bytes: &[u8]) -> Step<'_> {
    match bytes.first() {
        None => Step::Short(1),
        Some(b'#') => match bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) => Step::Note { len: end + 1, text: bytes[1..end].trim_ascii_end() },
            None if bytes.len() > 1024 => bad(0, 0, "a note without an end"),
            None => Step::Short(1),
        },
        Some(b'*') => command(bytes),
        Some(other) => bad(0, 0, &format!("expected '*' or '#', got {}", shown(*other))),
    }
}

fn bad(at: usize, lines: u64, what: &str) -> Step<'static> {
    Step::Bad { at, lines, what: what.to_string() }
}

fn shown(byte: u8) -> String {
    format!("'{}'", byte.escape_ascii())
}

fn command(bytes: &[u8]) -> Step<'_> {
    let (count, mut at) = match header(bytes, 0, b'*') {
        Ok(header) => header,
        Err(problem) => return problem.step(0),
    };
    if count == 0 {
        return bad(0, 0, "a command without words");
    }
    let mut lines = 1;
    let mut name: &[u8] = b"";
    for index in 0..count {
        let (len, start) = match header(bytes, at, b'$') {
            Ok(header) => header,
            Err(problem) => return problem.step(lines),
        };
        let Some(end) = usize::try_from(len).ok().and_then(|len| start.checked_add(len)) else {
            return bad(at, lines, "a length that no file can have");
        };
        if bytes.len() < end.saturating_add(2) {
            return Step::Short(end.saturating_add(2) - bytes.len());
        }
        if &bytes[end..end + 2] != b"\r\n" {
            let (one, two) = (bytes[end], bytes[end + 1]);
            let what = format!("expected \\r\\n, got {one:02x}{two:02x}");
            return bad(end, lines + 1, &what);
        }
        if index == 0 {
            name = &bytes[start..end];
        }
        at = end + 2;
        lines += 2;
    }
    Step::Command { len: at, name, lines }
}

enum Problem {
    Short,
    Bad(usize, String),
}

impl Problem {
    fn step(self, lines: u64) -> Step<'static> {
        match self {
            Problem::Short => Step::Short(1),
            Problem::Bad(at, what) => Step::Bad { at, lines, what },
        }
    }
}

/// Reads `*12\r\n` or `$12\r\n` at a place: the number, and where its line ends.
fn header(bytes: &[u8], at: usize, prefix: u8) -> Result<(u64, usize), Problem> {
    let Some(first) = bytes.get(at) else { return Err(Problem::Short) };
    if *first != prefix {
        let what = format!("expected prefix '{}', got {}", prefix as char, shown(*first));
        return Err(Problem::Bad(at, what));
    }
    let mut number = 0u64;
    let mut next = at + 1;
    loop {
        match bytes.get(next) {
            None => return Err(Problem::Short),
            Some(digit @ b'0'..=b'9') if next - at <= DIGITS => {
                number = number.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
                next += 1;
            }
            Some(b'\r') if next > at + 1 => break,
            Some(other) => {
                let what = format!("expected a number, got {}", shown(*other));
                return Err(Problem::Bad(next, what));
            }
        }
    }
    match bytes.get(next + 1) {
        None => Err(Problem::Short),
        Some(b'\n') => Ok((number, next + 2)),
        Some(other) => Err(Problem::Bad(next + 1, format!("expected \\n, got {}", shown(*other)))),
    }
}

/// Takes what a file has.
pub trait Taker {
    /// Whole commands, one after the other, from this offset in the file on. `Err` is damage: how
    /// far from the beginning, and what is wrong.
    fn commands(&mut self, bytes: &[u8], offset: u64) -> Result<(), (u64, String)>;

    /// A note; reading stops before it on a break.
    fn note(&mut self, text: &[u8], offset: u64) -> ControlFlow<()> {
        let _ = (text, offset);
        ControlFlow::Continue(())
    }
}

/// How a file is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// It ends inside a command.
    Short,
    /// It ends inside a transaction.
    OpenTransaction,
    /// Something that is no command.
    Format,
    /// The taker refused a command.
    Refused,
}

/// Damage, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// How.
    pub kind: Kind,
    /// Where it is, in bytes from the file's start.
    pub offset: u64,
    /// What it is.
    pub what: String,
}

/// What reading came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The file's bytes.
    pub size: u64,
    /// Up to here all is whole: commands, and transactions with their EXEC.
    pub valid_to: u64,
    /// The line, from 1, at which reading ended.
    pub line: u64,
    /// Commands read.
    pub commands: u64,
    /// Why it ended before the file's end.
    pub damage: Option<Damage>,
    /// The taker stopped it before a note at this offset.
    pub stopped_at: Option<u64>,
}

struct Reading<'a> {
    file: &'a dyn DataFile,
    buffer: Vec<u8>,
    /// Where the buffer begins in the file.
    base: u64,
    /// What of the buffer has been looked at.
    at: usize,
    /// Where the run of commands not yet taken begins in the buffer.
    run: usize,
    in_multi: bool,
    is_strict: bool,
    outcome: Outcome,
}

/// Reads a file from `from` on. `is_strict`: MULTI and EXEC out of place are damage, too.
pub fn read(
    file: &dyn DataFile,
    from: u64,
    is_strict: bool,
    taker: &mut dyn Taker,
) -> io::Result<Outcome> {
    let size = file.len()?;
    let outcome =
        Outcome { size, valid_to: from, line: 1, commands: 0, damage: None, stopped_at: None };
    let buffer = Vec::new();
    let mut reading =
        Reading { file, buffer, base: from, at: 0, run: 0, in_multi: false, is_strict, outcome };
    while reading.advance(taker)? {}
    let mut outcome = reading.outcome;
    if outcome.damage.is_none() && reading.in_multi && outcome.stopped_at.is_none() {
        let what = "the file ends before the EXEC of a MULTI".to_string();
        outcome.damage = Some(Damage { kind: Kind::OpenTransaction, offset: size, what });
    }
    Ok(outcome)
}

impl Reading<'_> {
    fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    fn damage(&mut self, kind: Kind, offset: u64, what: String) {
        self.outcome.damage.get_or_insert(Damage { kind, offset, what });
    }

    /// Hands the run of commands over; false if it was refused.
    fn hand_over(&mut self, taker: &mut dyn Taker) -> bool {
        let run = std::mem::replace(&mut self.run, self.at);
        if run == self.at {
            return true;
        }
        let offset = self.base + run as u64;
        let Err((at, what)) = taker.commands(&self.buffer[run..self.at], offset) else {
            return true;
        };
        self.outcome.valid_to = self.outcome.valid_to.min(offset + at);
        self.damage(Kind::Refused, offset + at, what);
        false
    }

    /// Looks at one thing; false at the end.
    fn advance(&mut self, taker: &mut dyn Taker) -> io::Result<bool> {
        match step(&self.buffer[self.at..]) {
            Step::Command { len, name, lines } => {
                let is_multi = name.eq_ignore_ascii_case(b"MULTI");
                let is_exec = name.eq_ignore_ascii_case(b"EXEC");
                let is_stray = is_multi && self.in_multi || is_exec && !self.in_multi;
                if is_stray && self.is_strict {
                    let word = if is_multi { "MULTI" } else { "EXEC" };
                    self.damage(Kind::Format, self.offset(), format!("unexpected {word}"));
                    self.hand_over(taker);
                    return Ok(false);
                }
                self.in_multi = is_multi || self.in_multi && !is_exec;
                self.at += len;
                self.outcome.line += lines;
                self.outcome.commands += 1;
                if !self.in_multi {
                    self.outcome.valid_to = self.offset();
                }
            }
            Step::Note { len, text } => {
                let text = text.to_vec();
                if !self.hand_over(taker) {
                    return Ok(false);
                }
                if taker.note(&text, self.offset()).is_break() {
                    self.outcome.stopped_at = Some(self.offset());
                    return Ok(false);
                }
                self.at += len;
                self.run = self.at;
                self.outcome.line += 1;
                if !self.in_multi {
                    self.outcome.valid_to = self.offset();
                }
            }
            Step::Short(missing) => return self.refill(missing, taker),
            Step::Bad { at, lines, what } => {
                let offset = self.offset() + at as u64;
                self.outcome.line += lines;
                if self.hand_over(taker) {
                    self.damage(Kind::Format, offset, what);
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads on behind what is left of the buffer; false at the end.
    fn refill(&mut self, missing: usize, taker: &mut dyn Taker) -> io::Result<bool> {
        if !self.hand_over(taker) {
            return Ok(false);
        }
        self.buffer.drain(..self.at);
        self.base += self.at as u64;
        (self.at, self.run) = (0, 0);
        let kept = self.buffer.len();
        let left = self.outcome.size.saturating_sub(self.base + kept as u64);
        if missing as u64 > left || left == 0 {
            if kept > 0 {
                let what = format!("the file ends inside a command that begins at {}", self.base);
                self.damage(Kind::Short, self.outcome.size, what);
            }
            return Ok(false);
        }
        // A command longer than the buffer makes it grow by halves, so that it is not looked at
        // over and over.
        let more = CHUNK.max(missing).max(kept / 2).min(left as usize);
        self.buffer.resize(kept + more, 0);
        let mut done = kept;
        while done < self.buffer.len() {
            match self.file.read_at(&mut self.buffer[done..], self.base + done as u64) {
                Ok(0) => {
                    // Somebody has cut the file meanwhile.
                    self.outcome.size = self.base + done as u64;
                    break;
                }
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.buffer.truncate(done);
        Ok(true)
    }
}

/// The time that a note tells, in seconds since 1970: `TS:1628217470`.
pub fn note_seconds(text: &[u8]) -> Option<Result<i64, ()>> {
    let digits = text.strip_prefix(b"TS:")?;
    Some(std::str::from_utf8(digits).ok().and_then(|it| it.parse().ok()).ok_or(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Bytes(Vec<u8>);

    impl DataFile for Bytes {
        fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
            let rest = self.0.get(at as usize..).unwrap_or_default();
            // Short reads happen.
            let count = rest.len().min(buffer.len()).min(7000);
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }
        fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
        fn truncate(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn len(&self) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }
    }

    #[derive(Default)]
    struct Gather(Vec<u8>, Vec<Vec<u8>>);

    impl Taker for Gather {
        fn commands(&mut self, bytes: &[u8], _: u64) -> Result<(), (u64, String)> {
            self.0.extend_from_slice(bytes);
            Ok(())
        }
        fn note(&mut self, text: &[u8], _: u64) -> ControlFlow<()> {
            self.1.push(text.to_vec());
            ControlFlow::Continue(())
        }
    }

    fn request(words: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        resp::write_request(&mut out, words.iter().copied());
        out
    }

    fn run(bytes: &[u8]) -> (Outcome, Gather) {
        let mut gather = Gather::default();
        let outcome = read(&Bytes(bytes.to_vec()), 0, true, &mut gather).expect("it is in memory");
        (outcome, gather)
    }

    #[test]
    fn every_prefix_is_whole_up_to_a_command() {
        let parts = [
            request(&[b"SET", b"k", b"v"]),
            b"#TS:12\r\n".to_vec(),
            request(&[b"MULTI"]),
            request(&[b"INCR", b"a"]),
            request(&[b"EXEC"]),
            request(&[b"SET", b"long", &[b'x'; 300]]),
        ];
        let whole: Vec<u8> = parts.concat();
        // Ends that are good: after each part, but not inside the transaction.
        let ends: Vec<usize> = (0..=parts.len())
            .filter(|count| !matches!(count, 3 | 4))
            .map(|count| parts[..count].concat().len())
            .collect();
        for len in 0..=whole.len() {
            let (outcome, _) = run(&whole[..len]);
            let good = ends.iter().rev().find(|end| **end <= len).expect("0 is one");
            assert_eq!(outcome.valid_to, *good as u64, "{len}");
            assert_eq!(outcome.damage.is_none(), ends.contains(&len), "{len}");
        }
    }

    #[test]
    fn damage_is_placed() {
        let good = request(&[b"SET", b"k", b"v"]);
        let cases: [(&[u8], u64, u64); 6] = [
            (b"!!!", 27, 8),
            (b"*1\r\n#3\r\nfoo\r\n", 31, 9),
            (b"*1\r\n$3\r\nfooXX", 38, 10),
            (b"*0\r\n", 27, 8),
            (b"*1x\r\n", 29, 8),
            (b"*1\r\n$4\r\nEXEC\r\n", 27, 8),
        ];
        for (tail, offset, line) in cases {
            let (outcome, gather) = run(&[&good[..], tail].concat());
            let damage = outcome.damage.expect("there is damage");
            assert_eq!((damage.kind, damage.offset), (Kind::Format, offset), "{tail:?}");
            assert_eq!((outcome.valid_to, outcome.line), (27, line), "{tail:?}");
            assert_eq!(gather.0, good);
        }
    }

    #[test]
    fn lengths_that_lie_take_no_memory() {
        for lie in ["*1\r\n$9999999999999\r\nx", "*99999999999999\r\n$1\r\nx\r\n", "*1\r\n$5\r\nab"]
        {
            let (outcome, _) = run(lie.as_bytes());
            assert_eq!(outcome.damage.map(|it| it.kind), Some(Kind::Short), "{lie}");
        }
    }

    #[test]
    fn large_commands_cross_chunks() {
        let large = vec![b'z'; 3 * CHUNK + 17];
        let whole = [request(&[b"SET", b"k", &large]), request(&[b"DEL", b"k"])].concat();
        let (outcome, gather) = run(&whole);
        assert_eq!((outcome.commands, outcome.damage), (2, None));
        assert_eq!(gather.0, whole);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(bytes in proptest::collection::vec(
            prop_oneof![
                Just(b'*'), Just(b'$'), Just(b'#'), Just(b'\r'), Just(b'\n'),
                Just(b'1'), Just(b'2'), Just(b'9'), any::<u8>(),
            ],
            0..200,
        )) {
            let (outcome, gather) = run(&bytes);
            prop_assert!(outcome.valid_to <= bytes.len() as u64);
            prop_assert!(gather.0.len() <= bytes.len());
            prop_assert!(outcome.damage.is_some() || outcome.valid_to == bytes.len() as u64);
        }
    }
}
