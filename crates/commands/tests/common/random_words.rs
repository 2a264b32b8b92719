//! Random commands: half of them follow their usage line, so that they get past their first check;
//! the rest are noise.

use forebay_commands::registry::Entry;
use keyspace::random::Random;

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

/// One of these.
pub fn pick<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
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

/// A command, half of them along its usage line.
pub fn command(random: &mut Random, entries: &[Entry]) -> Vec<Vec<u8>> {
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

/// Prints what led to a panic when it is dropped in one.
#[derive(Default)]
pub struct Trace(Vec<String>);

impl Trace {
    /// Notes a command.
    pub fn add(&mut self, words: &[Vec<u8>]) {
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
