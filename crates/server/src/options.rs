//! The option table: every option of `forebay serve`, of its configuration file and of CONFIG.
//!
//! Names and formats are those of redis.conf. A value is kept as the text that CONFIG GET shows
//! and, for those that are numbers in effect, as a number that the hot path can read.

use std::sync::RwLock;
use std::sync::atomic::{AtomicI64, Ordering};

/// What an option's value may be.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// `yes` or `no`.
    Bool,
    /// A whole number within bounds.
    Int(i64, i64),
    /// A size in bytes, with an optional unit (`kb`, `mb`, `gb` = powers of 1024; `k`, `m`, `g` of
    /// 1000), within bounds.
    Bytes(i64, i64),
    /// As `Bytes`, or percents such as `5%`: their number is negative.
    Percent(i64, i64),
    /// A number in octal, up to a bound.
    Octal(i64),
    /// One of these words.
    Enum(&'static [&'static str]),
    /// Any text.
    Text,
    /// A text that logs do not show.
    Secret,
    /// Words that this function checks and writes in their canonical form; it is given the present
    /// value as well.
    Words(fn(&str, &[&str]) -> Result<String, String>),
}

/// Whether and when an option may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At any time.
    Always,
    /// At start only.
    Start,
    /// At start, and by CONFIG SET where `enable-protected-configs` allows it.
    Protected,
    /// At any time; known from redis.conf, without effect here.
    NoEffect,
}

/// One option.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name in redis.conf.
    pub name: &'static str,
    /// Older names of it.
    pub aliases: &'static [&'static str],
    /// What it may be.
    pub kind: Kind,
    /// Its value unless set.
    pub default: &'static str,
    /// When it may be set.
    pub when: When,
    /// The heading under which `--help` shows it.
    pub section: &'static str,
    /// What it does, in one sentence.
    pub doc: &'static str,
}

/// The place of an option in the table; use it in constants.
///
/// # Panics
/// At compile time, if there is no such option.
pub const fn index_of(name: &str) -> usize {
    let mut index = 0;
    while index < crate::option_table::TABLE.len() {
        if same(crate::option_table::TABLE[index].name.as_bytes(), name.as_bytes()) {
            return index;
        }
        index += 1;
    }
    panic!("no such option")
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut index = 0;
    while index < a.len() {
        if a[index] != b[index] {
            return false;
        }
        index += 1;
    }
    true
}

impl Row {
    /// Whether this is its name or one of its older names, in any case.
    pub fn is_called(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
            || self.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
    }

    /// Whether it is several words, each on its own.
    pub fn is_words(&self) -> bool {
        matches!(self.kind, Kind::Words(_))
    }
}

/// An option's value: as CONFIG GET shows it, and as a number where it is one in effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Value {
    /// As CONFIG GET shows it.
    pub text: String,
    /// An integer, bytes, 1 or 0 for yes and no, the place of a word of an enum.
    pub number: i64,
}

/// The values; see the module.
pub struct Options {
    texts: RwLock<Vec<String>>,
    numbers: Box<[AtomicI64]>,
}

impl Default for Options {
    fn default() -> Self {
        let table = crate::option_table::TABLE;
        let options = Options {
            texts: RwLock::new(vec![String::new(); table.len()]),
            numbers: table.iter().map(|_| AtomicI64::new(0)).collect(),
        };
        for index in 0..table.len() {
            options.put(index, Options::default_value(index));
        }
        options
    }
}

impl Options {
    /// The value that an option has unless it is set.
    pub fn default_value(index: usize) -> Value {
        let row = &crate::option_table::TABLE[index];
        let words: Vec<&str> = row.default.split(' ').filter(|word| !word.is_empty()).collect();
        parse(row, "", &words).expect("defaults are valid")
    }

    /// Puts a value in place.
    pub fn put(&self, index: usize, value: Value) {
        self.numbers[index].store(value.number, Ordering::Relaxed);
        let mut texts = self.texts.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        texts[index] = value.text;
    }

    /// The present value.
    pub fn value(&self, index: usize) -> Value {
        Value { text: self.text(index), number: self.number(index) }
    }

    /// The option's row, by name in any case.
    pub fn row(name: &str) -> Option<(usize, &'static Row)> {
        let mut rows = crate::option_table::TABLE.iter().enumerate();
        rows.find(|(_, row)| row.is_called(name))
    }

    /// Checks words for the option at `index`. `Err` is what is wrong, for a person.
    pub fn parse(&self, index: usize, words: &[&str]) -> Result<Value, String> {
        parse(&crate::option_table::TABLE[index], &self.text(index), words)
    }

    /// Checks and sets an option from its words. `Err` is what is wrong, for a person.
    pub fn set(&self, name: &str, words: &[&str]) -> Result<(), String> {
        let Some((index, _)) = Options::row(name) else {
            return Err(format!("Unknown option '{name}'"));
        };
        let value = self.parse(index, words)?;
        self.put(index, value);
        Ok(())
    }

    /// The text of the option at `index` ([`index_of`]).
    pub fn text(&self, index: usize) -> String {
        let texts = self.texts.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        texts[index].clone()
    }

    /// The number of the option at `index`: an integer, bytes, 1 or 0 for yes and no, the place of
    /// a word of an enum.
    #[inline]
    pub fn number(&self, index: usize) -> i64 {
        self.numbers[index].load(Ordering::Relaxed)
    }

    /// Whether the option at `index` says yes.
    #[inline]
    pub fn is_on(&self, index: usize) -> bool {
        self.number(index) != 0
    }
}

fn parse(row: &Row, current: &str, words: &[&str]) -> Result<Value, String> {
    let one = || match words {
        [word] => Ok(*word),
        _ => Err("wrong number of arguments".to_string()),
    };
    let bounds = |number: i64, low: i64, high: i64| {
        if number < low || number > high {
            return Err(format!("argument must be between {low} and {high} inclusive"));
        }
        Ok(Value { text: number.to_string(), number })
    };
    let text = |text: String| Ok(Value { text, number: 0 });
    match row.kind {
        Kind::Bool => match one()?.to_ascii_lowercase().as_str() {
            "yes" => Ok(Value { text: "yes".into(), number: 1 }),
            "no" => Ok(Value { text: "no".into(), number: 0 }),
            _ => Err("argument must be 'yes' or 'no'".into()),
        },
        Kind::Int(low, high) => {
            let number =
                one()?.parse().map_err(|_| "argument couldn't be parsed into an integer")?;
            bounds(number, low, high)
        }
        Kind::Octal(high) => {
            let number = i64::from_str_radix(one()?, 8)
                .map_err(|_| "argument couldn't be parsed as an octal number")?;
            if !(0..=high).contains(&number) {
                return Err(format!("argument must be between 0 and {high:o} inclusive"));
            }
            Ok(Value { text: format!("{number:o}"), number })
        }
        Kind::Bytes(low, high) => {
            bounds(bytes(one()?).ok_or("argument must be a memory value")?, low, high)
        }
        Kind::Percent(low, high) => percent_or_bytes(one()?, low, high, bounds),
        Kind::Enum(names) => {
            let word = one()?;
            let place = names.iter().position(|name| name.eq_ignore_ascii_case(word));
            let place = place.ok_or_else(|| {
                format!("argument(s) must be one of the following: {}", names.join(", "))
            })?;
            Ok(Value { text: names[place].into(), number: place as i64 })
        }
        Kind::Text | Kind::Secret => text(words.join(" ")),
        Kind::Words(check) => text(check(current, words)?),
    }
}

fn percent_or_bytes(
    word: &str,
    low: i64,
    high: i64,
    bounds: impl Fn(i64, i64, i64) -> Result<Value, String>,
) -> Result<Value, String> {
    const WRONG: &str = "argument must be a memory or percent value";
    match word.strip_suffix('%') {
        Some(digits) => match digits.parse::<i64>() {
            Ok(percent @ 0..=100) => Ok(Value { text: word.into(), number: -percent }),
            _ => Err(WRONG.into()),
        },
        None => bounds(bytes(word).ok_or(WRONG)?, low, high),
    }
}

/// Reads a size such as `100mb`; negative ones (percents of other servers) are not sizes.
pub fn bytes(text: &str) -> Option<i64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: i64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_valid_and_reads_back() {
        let options = Options::default();
        for (index, row) in crate::option_table::TABLE.iter().enumerate() {
            let text = options.text(index);
            let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
            let again = options.parse(index, &words);
            assert_eq!(again, Ok(options.value(index)), "{}", row.name);
            assert!(row.doc.ends_with('.') && !row.doc.contains('\n'), "{}", row.name);
            let (found, _) = Options::row(row.name).expect("it is in the table");
            assert_eq!(found, index, "{} is there twice", row.name);
        }
    }

    #[test]
    fn values_are_checked() {
        let options = Options::default();
        let good = [
            ("appendonly", "YES", "yes"),
            ("slave-priority", "7", "7"),
            ("hash-max-ziplist-value", "1k", "1000"),
            ("maxmemory-clients", "5%", "5%"),
            ("unixsocketperm", "700", "700"),
            ("MAXMEMORY-POLICY", "allkeys-LRU", "allkeys-lru"),
        ];
        for (name, word, text) in good {
            options.set(name, &[word]).expect(name);
            let (index, _) = Options::row(name).expect(name);
            assert_eq!(options.text(index), text);
        }
        let wrong = [
            ("appendonly", "maybe", "argument must be 'yes' or 'no'"),
            ("port", "65536", "argument must be between 0 and 65535 inclusive"),
            ("port", "x", "argument couldn't be parsed into an integer"),
            ("maxmemory", "1x", "argument must be a memory value"),
            ("unixsocketperm", "8", "argument couldn't be parsed as an octal number"),
            (
                "supervised",
                "me",
                "argument(s) must be one of the following: upstart, systemd, auto, no",
            ),
            ("cluster-enabled", "yes", "cluster mode is not there yet"),
        ];
        for (name, word, error) in wrong {
            assert_eq!(options.set(name, &[word]), Err(error.to_string()), "{name} {word}");
        }
    }

    #[test]
    fn sizes_have_units() {
        let cases = [("1", 1), ("1kb", 1024), ("2M", 2_000_000), ("3gb", 3 << 30)];
        for (text, number) in cases {
            assert_eq!(bytes(text), Some(number));
        }
        for text in ["", "kb", "1x", "-1", "99999999999gb"] {
            assert_eq!(bytes(text), None);
        }
    }
}
