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
    /// One of these words.
    Enum(&'static [&'static str]),
    /// Any text.
    Text,
    /// Words that this function checks and writes in their canonical form.
    Words(fn(&[&str]) -> Result<String, String>),
}

/// Whether and when an option may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At any time.
    Always,
    /// At start only.
    Start,
    /// At any time; known from redis.conf, without effect here.
    NoEffect,
}

/// One option.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name in redis.conf.
    pub name: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// Its value unless set.
    pub default: &'static str,
    /// When it may be set.
    pub when: When,
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
        for (index, row) in table.iter().enumerate() {
            let words: Vec<&str> = row.default.split(' ').filter(|word| !word.is_empty()).collect();
            let (text, number) = parse(row, &words).expect("defaults are valid");
            options.put(index, text, number);
        }
        options
    }
}

impl Options {
    fn put(&self, index: usize, text: String, number: i64) {
        self.numbers[index].store(number, Ordering::Relaxed);
        let mut texts = self.texts.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        texts[index] = text;
    }

    /// The option's row, by name in any case.
    pub fn row(name: &str) -> Option<(usize, &'static Row)> {
        let mut rows = crate::option_table::TABLE.iter().enumerate();
        rows.find(|(_, row)| row.name.eq_ignore_ascii_case(name))
    }

    /// Checks and sets an option from its words. `Err` is what is wrong, for a person.
    pub fn set(&self, name: &str, words: &[&str]) -> Result<(), String> {
        let Some((index, row)) = Options::row(name) else {
            return Err(format!("Unknown option '{name}'"));
        };
        let (text, number) = parse(row, words)?;
        self.put(index, text, number);
        Ok(())
    }

    /// Whether these words could be set.
    pub fn check(name: &str, words: &[&str]) -> Result<(), String> {
        let (_, row) = Options::row(name).ok_or_else(|| format!("Unknown option '{name}'"))?;
        parse(row, words).map(|_| ())
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

fn parse(row: &Row, words: &[&str]) -> Result<(String, i64), String> {
    let one = || match words {
        [word] => Ok(*word),
        _ => Err("wrong number of arguments".to_string()),
    };
    let bounds = |number: i64, low: i64, high: i64| {
        if number < low || number > high {
            return Err(format!("argument must be between {low} and {high} inclusive"));
        }
        Ok(number)
    };
    match row.kind {
        Kind::Bool => match one()?.to_ascii_lowercase().as_str() {
            "yes" => Ok(("yes".into(), 1)),
            "no" => Ok(("no".into(), 0)),
            _ => Err("argument must be 'yes' or 'no'".into()),
        },
        Kind::Int(low, high) => {
            let number =
                one()?.parse().map_err(|_| "argument couldn't be parsed into an integer")?;
            Ok((bounds(number, low, high)?.to_string(), number))
        }
        Kind::Bytes(low, high) => {
            let number = bytes(one()?).ok_or("argument must be a memory value")?;
            Ok((bounds(number, low, high)?.to_string(), number))
        }
        Kind::Enum(names) => {
            let word = one()?;
            let place = names.iter().position(|name| name.eq_ignore_ascii_case(word));
            let place = place.ok_or_else(|| {
                format!("argument(s) must be one of the following: {}", names.join(", "))
            })?;
            Ok((names[place].into(), place as i64))
        }
        Kind::Text => Ok((words.join(" "), 0)),
        Kind::Words(check) => Ok((check(words)?, 0)),
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
            Options::check(row.name, &words)
                .unwrap_or_else(|error| panic!("{}: {error}", row.name));
            assert!(row.doc.ends_with('.'), "{}", row.name);
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
