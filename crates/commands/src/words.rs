//! Reading a command's words: numbers, timeouts, options.

use resp::{Args, number};

use crate::error::Error;

/// An integer, with Redis's error text.
#[inline]
pub fn integer(word: &[u8]) -> Result<i64, Error> {
    number::integer(word).ok_or(Error::NOT_AN_INTEGER)
}

/// An integer that can be negated: a count whose sign gives a direction.
pub fn signed_count(word: &[u8]) -> Result<i64, Error> {
    match integer(word)? {
        i64::MIN => Err(Error::text(
            "ERR value is out of range, value must between \
             -9223372036854775807 and 9223372036854775807",
        )),
        count => Ok(count),
    }
}

/// A floating-point number.
pub fn float(word: &[u8]) -> Result<f64, Error> {
    number::double(word).ok_or(Error::NOT_A_FLOAT)
}

/// A count that must not be negative, with its own error text.
pub fn count(word: &[u8], error: &Error) -> Result<usize, Error> {
    let number = number::integer(word).ok_or_else(|| error.clone())?;
    usize::try_from(number).map_err(|_| error.clone())
}

/// The number of keys that follow (ZUNION, LMPOP, ...): at least one, and that many words there.
pub fn key_count(args: Args<'_>, at: usize) -> Result<usize, Error> {
    const ERROR: Error = Error::text("ERR numkeys should be greater than 0");
    let keys = count(args.word(at), &ERROR)?;
    match keys {
        0 => Err(ERROR),
        keys if keys > args.len() - at - 1 => Err(Error::SYNTAX),
        keys => Ok(keys),
    }
}

/// A blocking command's timeout in seconds (fractions allowed), as milliseconds; 0 = for ever.
pub fn timeout_ms(word: &[u8]) -> Result<i64, Error> {
    let seconds = number::double(word).ok_or(Error::BAD_TIMEOUT)?;
    if seconds < 0.0 {
        return Err(Error::NEGATIVE_TIMEOUT);
    }
    let ms = (seconds * 1000.0).ceil();
    if ms >= i64::MAX as f64 / 2.0 {
        return Err(Error::text("ERR timeout is out of range"));
    }
    Ok(ms as i64)
}

/// Whether a word is this option, in either case.
#[inline]
pub fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

/// The cursor of a SCAN command.
pub fn cursor(word: &[u8]) -> Result<u64, Error> {
    let text = std::str::from_utf8(word).ok();
    let digits = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|text| text.parse().ok()).ok_or(Error::text("ERR invalid cursor"))
}

/// COUNT, MATCH and the like of the SCAN family.
pub struct ScanOptions<'a> {
    /// About how many to visit.
    pub count: usize,
    /// The pattern, unless it is `*`.
    pub pattern: Option<&'a [u8]>,
    /// TYPE, for SCAN itself.
    pub kind: Option<&'a [u8]>,
    /// NOVALUES, for HSCAN, and NOSCORES, for ZSCAN.
    pub only_names: bool,
}

/// What a command of the SCAN family goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Scanned {
    Keys,
    Set,
    Hash,
    Zset,
}

/// Reads the options of SCAN, HSCAN, SSCAN and ZSCAN from the word at `at` on.
pub fn scan_options<'a>(
    args: Args<'a>,
    at: usize,
    scanned: Scanned,
) -> Result<ScanOptions<'a>, Error> {
    const NO_VALUES: Error = Error::text("ERR NOVALUES option can only be used in HSCAN");
    const NO_SCORES: Error = Error::text("ERR NOSCORES option can only be used in ZSCAN");
    let mut options = ScanOptions { count: 10, pattern: None, kind: None, only_names: false };
    let mut at = at;
    while at < args.len() {
        let (word, value) = (args.word(at), args.get(at + 1));
        match value {
            Some(value) if is(word, "COUNT") => {
                options.count = match integer(value)? {
                    ..1 => return Err(Error::SYNTAX),
                    count => count as usize,
                };
            }
            Some(value) if is(word, "MATCH") => {
                options.pattern = Some(value).filter(|pattern| *pattern != b"*");
            }
            Some(value) if is(word, "TYPE") && scanned == Scanned::Keys => {
                options.kind = Some(value);
            }
            _ if is(word, "NOVALUES") && scanned != Scanned::Hash => return Err(NO_VALUES),
            _ if is(word, "NOSCORES") && scanned != Scanned::Zset => return Err(NO_SCORES),
            _ if is(word, "NOVALUES") || is(word, "NOSCORES") => {
                options.only_names = true;
                at += 1;
                continue;
            }
            _ => return Err(Error::SYNTAX),
        }
        at += 2;
    }
    Ok(options)
}

/// A time to live as EX, PX, EXAT or PXAT give it, in milliseconds since 1970. `command` is the
/// running command's name, for the error text.
pub fn expire_at_ms(word: &[u8], unit: Unit, now_ms: i64, command: &str) -> Result<i64, Error> {
    let number = integer(word)?;
    let invalid = || Error::invalid_expire(command);
    if number <= 0 {
        return Err(invalid());
    }
    let ms = match unit {
        Unit::Seconds | Unit::AtSeconds => number.checked_mul(1000).ok_or_else(invalid)?,
        Unit::Milliseconds | Unit::AtMilliseconds => number,
    };
    match unit {
        Unit::Seconds | Unit::Milliseconds => ms.checked_add(now_ms).ok_or_else(invalid),
        Unit::AtSeconds | Unit::AtMilliseconds => Ok(ms),
    }
}

/// How a time to live is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// EX: seconds from now.
    Seconds,
    /// PX: milliseconds from now.
    Milliseconds,
    /// EXAT: seconds since 1970.
    AtSeconds,
    /// PXAT: milliseconds since 1970.
    AtMilliseconds,
}

impl Unit {
    /// The unit that this option names.
    pub fn of(word: &[u8]) -> Option<Unit> {
        let units = [
            ("EX", Unit::Seconds),
            ("PX", Unit::Milliseconds),
            ("EXAT", Unit::AtSeconds),
            ("PXAT", Unit::AtMilliseconds),
        ];
        units.into_iter().find(|(name, _)| is(word, name)).map(|(_, unit)| unit)
    }
}
