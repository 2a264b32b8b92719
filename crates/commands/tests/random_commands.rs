//! Random commands with random words, all rows of the table: nothing may panic or hang, and each
//! command is answered by exactly one reply of the protocol version in use.
//!
//! Half of the commands follow their usage line, so that they get past their first check; the
//! rest are noise. A failure prints the commands that led to it.

use std::sync::atomic::Ordering;

use forebay_commands::registry::Entry;
use forebay_commands::testing::Client;
use keyspace::random::Random;

const COMMANDS: usize = 20_000;
/// Strings may grow to this many bytes, so that one SETRANGE does not fill the memory.
const STRING_BYTES_MAX: u64 = 1 << 20;

const NUMBERS: [&str; 24] = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "10",
    "-10",
    "100",
    "1000000",
    "4294967295",
    "4294967296",
    "-4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "1.5",
    "-0.0",
    "1e308",
    "1e-308",
    "inf",
    "-inf",
    "nan",
    "0x10",
];

const WORDS: [&str; 20] = [
    "",
    "a",
    "abc",
    "*",
    "[a-",
    "k*",
    "#",
    "#1",
    "(1",
    "[a",
    "+",
    "-",
    "$",
    ">",
    "=",
    "u8",
    "i64",
    "m",
    "w_*->f",
    "\u{ff}\0\r\n",
];

fn pick<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
    from[random.below(from.len())]
}

/// A word for a place that the usage line calls `name`.
fn word(random: &mut Random, name: &str) -> Vec<u8> {
    let is_key = name.ends_with("key") || name.starts_with("key") || name.contains("destination");
    match random.below(20) {
        0 => pick(random, &NUMBERS).into(),
        1 => pick(random, &WORDS).into(),
        2 => (0..random.below(300)).map(|_| random.bits() as u8).collect(),
        3 => vec![b'x'; random.below(10_000)],
        _ if is_key => format!("k{}", random.below(12)).into_bytes(),
        4..10 => random.below(20).to_string().into_bytes(),
        10..14 => format!("m{}", random.below(200)).into_bytes(),
        14..17 => pick(random, &NUMBERS).into(),
        _ => pick(random, &WORDS).into(),
    }
}

/// Words along the usage line: each optional part is there or not, one alternative of each group
/// is taken at random, and now and then a word is wrong.
fn plausible(random: &mut Random, usage: &str, out: &mut Vec<Vec<u8>>) {
    let mut skipping = 0;
    let mut depth = 0;
    for part in usage.split_inclusive([' ', '[', ']', '<', '>', '|']) {
        let (name, end) = match part.char_indices().last() {
            Some((at, end)) if !end.is_alphanumeric() => (&part[..at], end),
            _ => (part, ' '),
        };
        if !name.is_empty() && name != "..." && skipping == 0 {
            let is_token = name.chars().all(|c| !c.is_lowercase());
            let keep = is_token && random.below(30) > 0;
            out.push(if keep { name.into() } else { word(random, name) });
        }
        match end {
            '[' | '<' => {
                depth += 1;
                if skipping == 0 && end == '[' && random.below(3) == 0 {
                    skipping = depth;
                }
            }
            ']' | '>' => {
                if skipping == depth {
                    skipping = 0;
                }
                depth -= 1;
            }
            // The rest of the group is skipped, or what came before it.
            '|' if skipping == depth => skipping = 0,
            '|' if skipping == 0 => skipping = depth,
            _ => {}
        }
    }
}

fn command(random: &mut Random, entries: &[Entry]) -> Vec<Vec<u8>> {
    let entry = &entries[random.below(entries.len())];
    if entry.full_name == "pfselftest" {
        // Takes no words and seconds of time in a build without optimization.
        return command(random, entries);
    }
    let mut words: Vec<Vec<u8>> = entry.full_name.split('|').map(Into::into).collect();
    if random.below(2) == 0 {
        plausible(random, entry.command.usage, &mut words);
        return words;
    }
    for _ in 0..random.below(7) {
        let options: Vec<&str> = entry.command.usage.split([' ', '[', ']', '<', '>']).collect();
        let option = pick(random, &options);
        words.push(if random.below(3) == 0 { option.into() } else { word(random, "key") });
    }
    words
}

/// Reads one reply; what follows it.
fn read_reply(bytes: &[u8], resp3: bool) -> Result<&[u8], String> {
    let line_end = bytes.windows(2).position(|two| two == b"\r\n").ok_or("no line")?;
    let (line, rest) = (&bytes[1..line_end], &bytes[line_end + 2..]);
    let text = std::str::from_utf8(line).map_err(|_| "a header that is no text")?;
    let kind = bytes[0];
    let length = || text.parse::<i64>().map_err(|_| format!("a length of {text}"));
    let many = |rest, count: i64| (0..count).try_fold(rest, |rest, _| read_reply(rest, resp3));
    match kind {
        b'+' | b'-' => Ok(rest),
        b':' => length().map(|_| rest),
        b'$' | b'=' if resp3 || kind == b'$' => match length()? {
            -1 if !resp3 => Ok(rest),
            len => {
                let len = usize::try_from(len).map_err(|_| "a negative length")?;
                let after = rest.get(len..).ok_or("too short a string")?;
                after.strip_prefix(b"\r\n").ok_or_else(|| "a string without its end".into())
            }
        },
        b'*' => match length()? {
            -1 if !resp3 => Ok(rest),
            len => many(rest, len),
        },
        b'~' | b'>' if resp3 => many(rest, length()?),
        b'%' if resp3 => many(rest, length()? * 2),
        b'_' if resp3 && text.is_empty() => Ok(rest),
        b'#' if resp3 && (text == "t" || text == "f") => Ok(rest),
        b',' if resp3 => Ok(rest),
        b'(' if resp3 => Ok(rest),
        other => Err(format!("a reply of kind {:?}", char::from(other))),
    }
}

/// Prints what led to a panic when it is dropped in one.
#[derive(Default)]
struct Trace(Vec<String>);

impl Trace {
    fn add(&mut self, words: &[Vec<u8>]) {
        let words: Vec<String> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        self.0.push(words.join(" "));
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let last = self.0.len().saturating_sub(40);
            eprintln!("the last commands were:\n{}", self.0[last..].join("\n"));
        }
    }
}

fn run(seed: u64, resp3: bool) {
    let mut random = Random::new(seed);
    let mut client = if resp3 { Client::new().resp3() } else { Client::new() };
    client.core.space.settings.proto_max_bulk_len.store(STRING_BYTES_MAX, Ordering::Relaxed);
    client.core.space.settings.notify.store(u32::MAX, Ordering::Relaxed);
    let mut trace = Trace::default();
    let mut answers = 0;
    for _ in 0..COMMANDS {
        // Transactions are kept short: one bad word spoils them whole.
        let ends = client.session.multi.is_some() && random.below(4) == 0;
        let words = match ends {
            true => vec![b"EXEC".to_vec()],
            false => command(&mut random, client.core.registry.entries()),
        };
        trace.add(&words);
        let mut reply = client.reply(&words);
        if client.session.blocked.is_some() {
            assert!(reply.is_empty(), "a blocked client got a reply");
            reply = client.time_out().expect("nobody serves it");
        }
        answers += usize::from(reply[0] != b'-');
        match read_reply(&reply, resp3) {
            Ok(b"") => {}
            Ok(_) => panic!("more than one reply: {}", reply.escape_ascii()),
            Err(error) => panic!("{error}: {}", reply.escape_ascii()),
        }
        client.now_ms += random.below(3) as i64;
    }
    // Else the test would try nothing but error texts.
    assert!(answers > COMMANDS / 4, "only {answers} of {COMMANDS} commands were not refused");
}

#[test]
fn random_commands_in_resp2() {
    run(1, false);
}

#[test]
fn random_commands_in_resp3() {
    run(2, true);
}
