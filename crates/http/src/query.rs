//! The query of an address: names and values, percent-encoded.

/// The value of the first `name` in a query.
pub fn value(query: Option<&str>, name: &str) -> Option<String> {
    let pairs = query?.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.into_iter().find(|(key, _)| decode(key) == name).map(|(_, value)| decode(value))
}

/// The largest number that a query may hold.
pub const NUMBER_MAX: i64 = 1 << 53;

/// A whole number above 0, or `default` if there is none of that name; else what is wrong.
pub fn number(query: Option<&str>, name: &str, default: i64) -> Result<i64, String> {
    let Some(text) = value(query, name) else { return Ok(default) };
    let number: Option<i64> = text.parse().ok().filter(|number| (1..=NUMBER_MAX).contains(number));
    number.ok_or_else(|| format!("{name} is a whole number from 1 to {NUMBER_MAX}"))
}

/// Text with `%20` and `+` resolved; what is no text becomes the replacement character.
pub fn decode(text: &str) -> String {
    if !text.contains(['%', '+']) {
        return text.to_string();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match (byte, digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(decoded)) => {
                bytes.push(decoded);
                rest = &after[2..];
                continue;
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_and_decoded() {
        let query = Some("from=2026-01-01T00%3A00%3A00%2B01:00&tz=Europe%2fRome&a+b=c+d&x&to=%zz");
        assert_eq!(value(query, "from").as_deref(), Some("2026-01-01T00:00:00+01:00"));
        assert_eq!(value(query, "tz").as_deref(), Some("Europe/Rome"));
        assert_eq!(value(query, "a b").as_deref(), Some("c d"));
        assert_eq!(value(query, "x").as_deref(), Some(""));
        assert_eq!(value(query, "to").as_deref(), Some("%zz"));
        assert_eq!((value(query, "y"), value(None, "x")), (None, None));
    }

    #[test]
    fn numbers_are_whole_and_bounded() {
        assert_eq!(number(Some("limit=7"), "limit", 1), Ok(7));
        assert_eq!(number(None, "limit", 1), Ok(1));
        for text in ["limit=0", "limit=-1", "limit=x", "limit=", "limit=9007199254740993"] {
            assert!(number(Some(text), "limit", 1).is_err(), "{text}");
        }
    }
}
