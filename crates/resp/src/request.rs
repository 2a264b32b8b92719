//! Requests: RESP arrays of bulk strings, and inline commands, parsed in place.
//!
//! A parsed command is a run of [`Word`]s, each an offset and a length in the bytes that came in:
//! nothing is copied. Two kinds of words cannot lie there and are blocks of their own: a quoted
//! inline word, and a bulk string of 32 KiB or more that has not all arrived, which is read from
//! the socket straight into its final place.
//!
//! **Invariant:** a [`Parser`] never looks at a byte twice, except for the one line or bulk string
//! that was incomplete: a command of a million words costs time in proportion to its length however
//! it arrives.
//! **Invariant:** no input makes it panic or reserve more than the limits allow.

use std::sync::Arc;

/// A bulk string at least this long that has not all arrived gets a block of its own.
pub const BIG_BYTES: usize = 32 * 1024;
/// The longest inline command or length line, in bytes (Redis: `PROTO_INLINE_MAX_SIZE`).
pub const INLINE_BYTES_MAX: usize = 64 * 1024;
const IN_BLOCK: u32 = u32::MAX;

/// One word of a command: offset and length in the input, or the number of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    at: u32,
    len: u32,
}

/// The words of one command.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    input: &'a [u8],
    words: &'a [Word],
    blocks: &'a [Arc<Vec<u8>>],
}

impl<'a> Args<'a> {
    /// Number of words, the command's name included.
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// The word at `index`; the name is word 0.
    ///
    /// # Panics
    /// If there are not that many.
    #[inline]
    pub fn word(&self, index: usize) -> &'a [u8] {
        let word = self.words[index];
        if word.at == IN_BLOCK {
            return &self.blocks[word.len as usize];
        }
        &self.input[word.at as usize..(word.at + word.len) as usize]
    }

    /// The word at `index`, if there is one.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        (index < self.len()).then(|| self.word(index))
    }

    /// The block that the word at `index` lies in, when it has one of its own: it can be kept
    /// without a copy.
    pub fn block(&self, index: usize) -> Option<&'a Arc<Vec<u8>>> {
        let word = self.words.get(index)?;
        if word.at == IN_BLOCK { Some(&self.blocks[word.len as usize]) } else { None }
    }

    /// The words from `first` on.
    pub fn from(&self, first: usize) -> Args<'a> {
        Args { words: &self.words[first.min(self.words.len())..], ..*self }
    }

    /// All words in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + use<'a> {
        let args = *self;
        (0..args.len()).map(move |index| args.word(index))
    }

    /// A copy that outlives the input.
    pub fn to_owned(&self) -> OwnedArgs {
        let mut owned = OwnedArgs::default();
        for (index, word) in self.words.iter().enumerate() {
            if word.at == IN_BLOCK {
                let block = Arc::clone(&self.blocks[word.len as usize]);
                owned.words.push(Word { at: IN_BLOCK, len: owned.blocks.len() as u32 });
                owned.blocks.push(block);
            } else {
                owned.push(self.word(index));
            }
        }
        owned
    }
}

/// A command that owns its words: queued by MULTI, waiting in BLPOP, made by the server itself.
#[derive(Debug, Clone, Default)]
pub struct OwnedArgs {
    input: Vec<u8>,
    words: Vec<Word>,
    blocks: Vec<Arc<Vec<u8>>>,
}

impl OwnedArgs {
    /// A command of these words.
    pub fn new<W: AsRef<[u8]>>(words: impl IntoIterator<Item = W>) -> OwnedArgs {
        let mut owned = OwnedArgs::default();
        words.into_iter().for_each(|word| owned.push(word.as_ref()));
        owned
    }

    /// Forgets all words, keeps the room.
    pub fn clear(&mut self) {
        self.input.clear();
        self.words.clear();
        self.blocks.clear();
        if self.input.capacity() > 1 << 20 {
            self.input.shrink_to(64 * 1024);
        }
    }

    /// Adds a word.
    pub fn push(&mut self, word: &[u8]) {
        if self.input.len() + word.len() >= IN_BLOCK as usize {
            // Beyond what offsets of 32 bits reach.
            self.words.push(Word { at: IN_BLOCK, len: self.blocks.len() as u32 });
            return self.blocks.push(Arc::new(word.to_vec()));
        }
        let at = self.input.len() as u32;
        self.input.extend_from_slice(word);
        self.words.push(Word { at, len: word.len() as u32 });
    }

    /// The words, to be read.
    pub fn args(&self) -> Args<'_> {
        Args { input: &self.input, words: &self.words, blocks: &self.blocks }
    }

    /// Bytes held, for limits on what clients may queue.
    pub fn bytes(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(|block| block.len()).sum();
        self.input.len() + self.words.len() * size_of::<Word>() + blocks
    }
}

/// The commands that one call of [`Parser::parse`] found; reused from call to call.
#[derive(Default)]
pub struct Requests {
    words: Vec<Word>,
    ends: Vec<u32>,
    blocks: Vec<Arc<Vec<u8>>>,
}

impl Requests {
    /// Number of whole commands.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The command at `index`; `input` is what was parsed.
    #[inline]
    pub fn command<'a>(&'a self, index: usize, input: &'a [u8]) -> Args<'a> {
        let first = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        let words = &self.words[first..self.ends[index] as usize];
        Args { input, words, blocks: &self.blocks }
    }

    /// Forgets the commands, keeps the room.
    pub fn clear(&mut self) {
        self.words.clear();
        self.ends.clear();
        self.blocks.clear();
        // One absurd command must not hold its words' room for ever.
        self.words.shrink_to(16 * 1024);
    }
}

/// What is wrong with a request; the connection is closed after the reply that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolError {
    /// The count after `*` is not a number or too large.
    MultibulkLength,
    /// A client that has not authenticated sends more than ten words.
    UnauthenticatedMultibulk,
    /// The length after `$` is not a number or too large.
    BulkLength,
    /// A client that has not authenticated sends a word of more than 16 KiB.
    UnauthenticatedBulk,
    /// Something else than `$` where a bulk string must begin.
    ExpectedDollar(u8),
    /// A count line without an end.
    MultibulkLineTooLong,
    /// A length line without an end.
    BulkLineTooLong,
    /// An inline command without an end.
    InlineTooLong,
    /// Quotes that do not close.
    UnbalancedQuotes,
}

impl ProtocolError {
    /// The text that the client gets, without the leading `-ERR `.
    pub fn text(self) -> String {
        let text = match self {
            Self::MultibulkLength => "invalid multibulk length",
            Self::UnauthenticatedMultibulk => "unauthenticated multibulk length",
            Self::BulkLength => "invalid bulk length",
            Self::UnauthenticatedBulk => "unauthenticated bulk length",
            Self::ExpectedDollar(got) => {
                let got = match got {
                    b'\r' | b'\n' => ' ',
                    got if got.is_ascii_graphic() || got == b' ' => got as char,
                    _ => '?',
                };
                return format!("Protocol error: expected '$', got '{got}'");
            }
            Self::MultibulkLineTooLong => "too big mbulk count string",
            Self::BulkLineTooLong => "too big bulk count string",
            Self::InlineTooLong => "too big inline request",
            Self::UnbalancedQuotes => "unbalanced quotes in request",
        };
        format!("Protocol error: {text}")
    }
}

/// What a client may send.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// `proto-max-bulk-len`, in bytes.
    pub bulk_bytes_max: u64,
    /// Whether the client has still to authenticate: it may send little until then.
    pub unauthenticated: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { bulk_bytes_max: 512 << 20, unauthenticated: false }
    }
}

/// Why [`Parser::parse`] stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The input is used up (but for an unfinished command).
    Input,
    /// As many commands as were asked for are there; more input may be left.
    Commands,
    /// The rest of the input makes no sense.
    Error(ProtocolError),
}

/// Parses one connection's stream. Holds what is known of an unfinished command, whose bytes
/// start at the beginning of the next input.
#[derive(Debug, Default)]
pub struct Parser {
    /// Words of the unfinished command found so far, relative to its first byte.
    words: Vec<Word>,
    blocks: Vec<Arc<Vec<u8>>>,
    /// Words still to come; 0 when between commands.
    words_left: usize,
    /// Length of the bulk string whose header has been read.
    bulk: Option<usize>,
    /// Where to go on, relative to the unfinished command's first byte.
    at: usize,
    /// The bulk string that is being read into its own block, and its final length.
    big: Option<(Vec<u8>, usize)>,
    /// How many bytes at the end of the last input went into a block.
    moved: usize,
}

enum Step {
    Command,
    Nothing,
    More,
}

impl Parser {
    /// Finds up to `commands_max` commands in `input` and adds them to `out`. Returns how many
    /// bytes belong to whole commands and why it stopped. The caller keeps the rest, except for the
    /// last [`Parser::moved`] bytes, and gives it again in front of what comes next.
    pub fn parse(
        &mut self,
        input: &[u8],
        limits: Limits,
        commands_max: usize,
        out: &mut Requests,
    ) -> (usize, Stop) {
        let mut start = 0;
        self.moved = 0;
        loop {
            if out.len() >= commands_max {
                return (start, Stop::Commands);
            }
            let first_word = out.words.len();
            self.resume(out, start);
            let mut at = start + std::mem::take(&mut self.at);
            match self.step(input, &mut at, limits, out) {
                Ok(Step::Command) => {
                    out.ends.push(out.words.len() as u32);
                    start = at;
                }
                Ok(Step::Nothing) => start = at,
                Ok(Step::More) => {
                    self.suspend(out, first_word, start, at);
                    return (start, Stop::Input);
                }
                Err(error) => {
                    out.words.truncate(first_word);
                    return (start, Stop::Error(error));
                }
            }
        }
    }

    /// Puts the words of the unfinished command, which begins at `start`, back into `out`.
    fn resume(&mut self, out: &mut Requests, start: usize) {
        for word in self.words.drain(..) {
            let moved = if word.at == IN_BLOCK {
                Word { len: word.len + out.blocks.len() as u32, ..word }
            } else {
                Word { at: word.at + start as u32, ..word }
            };
            out.words.push(moved);
        }
        out.blocks.append(&mut self.blocks);
    }

    /// Takes the words of an unfinished command out of `out`.
    fn suspend(&mut self, out: &mut Requests, first_word: usize, start: usize, at: usize) {
        for word in out.words.drain(first_word..) {
            if word.at == IN_BLOCK {
                let block = Arc::clone(&out.blocks[word.len as usize]);
                self.words.push(Word { at: IN_BLOCK, len: self.blocks.len() as u32 });
                self.blocks.push(block);
            } else {
                self.words.push(Word { at: word.at - start as u32, ..word });
            }
        }
        self.at = at - start;
    }

    #[inline]
    fn step(
        &mut self,
        input: &[u8],
        at: &mut usize,
        limits: Limits,
        out: &mut Requests,
    ) -> Result<Step, ProtocolError> {
        if self.words_left == 0 {
            let Some(first) = input.get(*at) else { return Ok(Step::More) };
            if *first != b'*' {
                return inline(input, at, out);
            }
            let (count, next) = match number_line(input, *at + 1) {
                Line::Number(count, next) => (count, next),
                Line::More => return Ok(Step::More),
                Line::TooLong => return Err(ProtocolError::MultibulkLineTooLong),
                Line::Bad => return Err(ProtocolError::MultibulkLength),
            };
            if count > i64::from(i32::MAX) {
                return Err(ProtocolError::MultibulkLength);
            }
            if count > 10 && limits.unauthenticated {
                return Err(ProtocolError::UnauthenticatedMultibulk);
            }
            *at = next;
            if count <= 0 {
                return Ok(Step::Nothing);
            }
            self.words_left = count as usize;
        }
        while self.words_left > 0 {
            if !self.bulk(input, at, limits, out)? {
                return Ok(Step::More);
            }
            self.words_left -= 1;
        }
        Ok(Step::Command)
    }

    /// Reads one bulk string; false when it has not all arrived.
    #[inline]
    fn bulk(
        &mut self,
        input: &[u8],
        at: &mut usize,
        limits: Limits,
        out: &mut Requests,
    ) -> Result<bool, ProtocolError> {
        if let Some((block, len)) = &self.big {
            if block.len() < *len || input.len() < *at + 2 {
                return Ok(false);
            }
            *at += 2;
            let (block, _) = self.big.take().expect("just looked at");
            out.words.push(Word { at: IN_BLOCK, len: out.blocks.len() as u32 });
            out.blocks.push(Arc::new(block));
            return Ok(true);
        }
        let len = match self.bulk {
            Some(len) => len,
            None => {
                let Some(first) = input.get(*at) else { return Ok(false) };
                if *first != b'$' {
                    return Err(ProtocolError::ExpectedDollar(*first));
                }
                let (len, next) = match number_line(input, *at + 1) {
                    Line::Number(len, next) => (len, next),
                    Line::More => return Ok(false),
                    Line::TooLong => return Err(ProtocolError::BulkLineTooLong),
                    Line::Bad => return Err(ProtocolError::BulkLength),
                };
                if len < 0 || len as u64 > limits.bulk_bytes_max {
                    return Err(ProtocolError::BulkLength);
                }
                if len > 16384 && limits.unauthenticated {
                    return Err(ProtocolError::UnauthenticatedBulk);
                }
                *at = next;
                len as usize
            }
        };
        if input.len() < *at + len + 2 {
            self.bulk = Some(len);
            if len >= BIG_BYTES {
                self.start_big(input, *at, len);
            }
            return Ok(false);
        }
        self.bulk = None;
        out.words.push(Word { at: *at as u32, len: len as u32 });
        *at += len + 2;
        Ok(true)
    }

    /// Moves what has arrived of a big bulk string into a block of its own.
    fn start_big(&mut self, input: &[u8], at: usize, len: usize) {
        let arrived = &input[at..input.len().min(at + len)];
        let mut block = Vec::with_capacity(len);
        block.extend_from_slice(arrived);
        self.moved = arrived.len();
        self.bulk = None;
        self.big = Some((block, len));
    }

    /// The block that the next bytes of the stream belong into, and how many it still takes. While
    /// it takes some, the caller reads there instead of into the input.
    pub fn block_to_fill(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        let (block, len) = self.big.as_mut()?;
        let missing = *len - block.len();
        (missing > 0).then_some((block, missing))
    }

    /// How many bytes at the end of what was last parsed the parser has taken over.
    #[inline]
    pub fn moved(&self) -> usize {
        self.moved
    }

    /// Bytes held for an unfinished command outside the input.
    pub fn held_bytes(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(|block| block.len()).sum();
        let big = self.big.as_ref().map_or(0, |(block, _)| block.len());
        blocks + big + self.words.capacity() * size_of::<Word>()
    }

    /// Whether a command has begun and not ended.
    pub fn is_inside(&self) -> bool {
        self.words_left > 0
    }
}

enum Line {
    Number(i64, usize),
    More,
    TooLong,
    Bad,
}

/// Reads a number that ends in CR LF, and where the next line starts.
#[inline]
fn number_line(input: &[u8], at: usize) -> Line {
    // Nearly all have one or two digits.
    if let Some(&[one, two, three, _]) = input.get(at..at + 4).and_then(|four| four.first_chunk())
        && one.is_ascii_digit()
    {
        let number = i64::from(one - b'0');
        if two == b'\r' {
            return Line::Number(number, at + 3);
        }
        if two.is_ascii_digit() && three == b'\r' {
            return Line::Number(number * 10 + i64::from(two - b'0'), at + 4);
        }
    }
    let mut number: i64 = 0;
    let mut index = at;
    while let Some(byte) = input.get(index) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 || index - at > 9 {
            break;
        }
        number = number * 10 + i64::from(digit);
        index += 1;
    }
    if index > at && index - at <= 9 && input.get(index) == Some(&b'\r') {
        return if input.len() > index + 1 { Line::Number(number, index + 2) } else { Line::More };
    }
    let rest = &input[at.min(input.len())..];
    match memchr::memchr(b'\r', rest) {
        None if rest.len() > INLINE_BYTES_MAX => Line::TooLong,
        None => Line::More,
        Some(end) if at + end + 1 >= input.len() => Line::More,
        Some(end) => match crate::number::integer(&rest[..end]) {
            Some(number) => Line::Number(number, at + end + 2),
            None => Line::Bad,
        },
    }
}

fn inline(input: &[u8], at: &mut usize, out: &mut Requests) -> Result<Step, ProtocolError> {
    let rest = &input[*at..];
    let Some(end) = memchr::memchr(b'\n', rest) else {
        let too_long = rest.len() > INLINE_BYTES_MAX;
        return if too_long { Err(ProtocolError::InlineTooLong) } else { Ok(Step::More) };
    };
    let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
    let words = split_line(line).ok_or(ProtocolError::UnbalancedQuotes)?;
    *at += end + 1;
    if words.is_empty() {
        return Ok(Step::Nothing);
    }
    for word in words {
        out.words.push(Word { at: IN_BLOCK, len: out.blocks.len() as u32 });
        out.blocks.push(Arc::new(word));
    }
    Ok(Step::Command)
}

/// Splits a line into words as Redis's `sdssplitargs`: double quotes with escapes (`\n`, `\xff`),
/// single quotes with `\'`; `None` when quotes do not close or something follows one directly.
pub fn split_line(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        let blank = rest.iter().take_while(|byte| is_space(**byte)).count();
        rest = &rest[blank..];
        if rest.is_empty() {
            return Some(words);
        }
        let mut word = Vec::new();
        while let Some(first) = rest.first() {
            match first {
                b'"' => rest = double_quoted(&rest[1..], &mut word)?,
                b'\'' => rest = single_quoted(&rest[1..], &mut word)?,
                byte if is_space(*byte) || *byte == 0 => break,
                byte => {
                    word.push(*byte);
                    rest = &rest[1..];
                    continue;
                }
            }
            // A closing quote must end the word.
            if rest.first().is_some_and(|byte| !is_space(*byte)) {
                return None;
            }
            break;
        }
        words.push(word);
        if rest.first() == Some(&0) {
            return Some(words);
        }
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let hex = |byte: &u8| (*byte as char).to_digit(16).map(|digit| digit as u8);
        rest = match rest {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', b'x', high, low, more @ ..] if hex(high).is_some() && hex(low).is_some() => {
                word.push(hex(high)? << 4 | hex(low)?);
                more
            }
            [b'\\', escaped, more @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                more
            }
            [byte, more @ ..] => {
                word.push(*byte);
                more
            }
            [] => return None,
        };
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [b'\'', rest @ ..] => return Some(rest),
            [b'\\', b'\'', more @ ..] => {
                word.push(b'\'');
                more
            }
            [byte, more @ ..] => {
                word.push(*byte);
                more
            }
            [] => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds `stream` in pieces of `piece` bytes, as a connection would.
    fn feed(
        stream: &[u8],
        piece: usize,
        limits: Limits,
    ) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
        let mut parser = Parser::default();
        let mut kept: Vec<u8> = Vec::new();
        let mut commands = Vec::new();
        for chunk in stream.chunks(piece) {
            let mut chunk = chunk;
            if let Some((block, missing)) = parser.block_to_fill() {
                let taken = missing.min(chunk.len());
                block.extend_from_slice(&chunk[..taken]);
                chunk = &chunk[taken..];
            }
            kept.extend_from_slice(chunk);
            loop {
                let mut out = Requests::default();
                let (used, stop) = parser.parse(&kept, limits, 3, &mut out);
                for index in 0..out.len() {
                    commands.push(out.command(index, &kept).iter().map(<[u8]>::to_vec).collect());
                }
                kept.truncate(kept.len() - parser.moved());
                kept.drain(..used);
                match stop {
                    Stop::Commands => continue,
                    Stop::Input => break,
                    Stop::Error(error) => return (commands, Some(error)),
                }
            }
            // What a block has taken over must not stay in the input.
            if parser.big.is_some() {
                assert!(kept.len() < piece + 200, "{}", kept.len());
            }
        }
        (commands, None)
    }

    fn encode(words: &[Vec<u8>]) -> Vec<u8> {
        let mut out = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            out.extend(format!("${}\r\n", word.len()).bytes());
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
        out
    }

    fn words(list: &[&str]) -> Vec<Vec<u8>> {
        list.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn pieces_of_any_size_give_the_same_commands() {
        let big = vec![b'x'; BIG_BYTES * 3 + 5];
        let mut commands = vec![words(&["SET", "k", "v"]), words(&["PING"]), words(&["GET", ""])];
        commands.push(vec![b"SET".to_vec(), b"big".to_vec(), big.clone(), b"EX".to_vec(), big]);
        commands.push(words(&["INCR", "k"]));
        let stream: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
        for piece in [1usize, 2, 7, 1000, 33_000, 100_000, stream.len()] {
            let (got, error) = feed(&stream, piece, Limits::default());
            assert!(got == commands && error.is_none(), "pieces of {piece}");
        }
    }

    #[test]
    fn inline_commands_are_split_as_redis_splits_them() {
        let stream = b"SET  key \"a\\x41\\n b\" 'it\\'s'\r\n\r\nPING\n";
        for piece in [1, 5, 100] {
            let (got, error) = feed(stream, piece, Limits::default());
            assert_eq!(got, [words(&["SET", "key", "aA\n b", "it's"]), words(&["PING"])]);
            assert_eq!(error, None);
        }
    }

    #[test]
    fn nonsense_is_named_as_redis_names_it() {
        let cases: [(&[u8], &str); 8] = [
            (b"*x\r\n", "invalid multibulk length"),
            (b"*99999999999\r\n", "invalid multibulk length"),
            (b"*1\r\nfoo\r\n", "expected '$', got 'f'"),
            (b"*1\r\n$-5\r\n", "invalid bulk length"),
            (b"*1\r\n$2000000000\r\n", "invalid bulk length"),
            (b"*1\r\n$abc\r\n", "invalid bulk length"),
            (b"SET \"abc\r\n", "unbalanced quotes in request"),
            (b"SET 'a'b\r\n", "unbalanced quotes in request"),
        ];
        for (stream, text) in cases {
            let (_, error) = feed(stream, 100, Limits::default());
            assert_eq!(error.expect("an error").text(), format!("Protocol error: {text}"));
        }
        let long = vec![b'a'; INLINE_BYTES_MAX + 2];
        assert_eq!(feed(&long, 70_000, Limits::default()).1, Some(ProtocolError::InlineTooLong));
        let long = [b"*".to_vec(), vec![b'1'; INLINE_BYTES_MAX + 2]].concat();
        let error = feed(&long, 70_000, Limits::default()).1;
        assert_eq!(error, Some(ProtocolError::MultibulkLineTooLong));
    }

    #[test]
    fn who_has_not_authenticated_may_send_little() {
        let limits = Limits { unauthenticated: true, ..Limits::default() };
        let error = feed(b"*11\r\n", 100, limits).1;
        assert_eq!(error, Some(ProtocolError::UnauthenticatedMultibulk));
        let error = feed(b"*1\r\n$16385\r\n", 100, limits).1;
        assert_eq!(error, Some(ProtocolError::UnauthenticatedBulk));
    }

    #[test]
    fn empty_arrays_are_skipped() {
        let (got, _) = feed(b"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n", 3, Limits::default());
        assert_eq!(got, [words(&["PING"])]);
    }

    proptest! {
        #[test]
        fn whatever_is_sent_is_found(
            commands in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 1..20),
            piece in 1usize..200,
        ) {
            let stream: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
            let (got, error) = feed(&stream, piece, Limits::default());
            prop_assert_eq!(got, commands);
            prop_assert_eq!(error, None);
        }

        #[test]
        fn no_input_makes_it_panic(
            stream in prop::collection::vec(any::<u8>(), 0..300),
            piece in 1usize..50,
        ) {
            feed(&stream, piece, Limits::default());
        }

        #[test]
        fn almost_valid_input_makes_no_panic(
            stream in prop::collection::vec(
                prop::sample::select(b"*$0123456789-\r\n\"'ab ".to_vec()),
                0..300,
            ),
            piece in 1usize..50,
        ) {
            feed(&stream, piece, Limits::default());
        }
    }
}
