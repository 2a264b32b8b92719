//! Tokens of an expression, each with its place, in bytes from the start of the decoded text.

use super::expr::Literal;
use crate::tables::date;

/// What is wrong with an expression, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Bytes from the start of the decoded text.
    pub at: usize,
    /// What is wrong.
    pub why: String,
}

impl Wrong {
    /// See the fields.
    pub fn new(at: usize, why: impl Into<String>) -> Wrong {
        Wrong { at, why: why.into() }
    }
}

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    /// A word: an operator, a function, a column, `true`, `null`.
    Word(String),
    /// A value with its own marks.
    Literal(Literal),
    /// `(`
    Open,
    /// `)`
    Close,
    /// `,`
    Comma,
    /// After everything.
    End,
}

/// Longest name of a column, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// Whether a text can be a column's name.
pub fn is_name(text: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_later = |byte: u8| is_first(byte) || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    (1..=NAME_BYTES_MAX).contains(&bytes.len())
        && is_first(bytes[0])
        && bytes.iter().all(|byte| is_later(*byte))
}

/// Cuts a text into tokens; the last one is [`Token::End`].
pub fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Wrong> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.as_bytes().get(at) {
        let (token, len) = match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {
                at += 1;
                continue;
            }
            b'(' => (Token::Open, 1),
            b')' => (Token::Close, 1),
            b',' => (Token::Comma, 1),
            b'\'' => {
                let (text, len) = quoted(text, at)?;
                (Token::Literal(Literal::Text(text)), len)
            }
            b'0'..=b'9' | b'-' | b'.' => number_or_date(text, at)?,
            byte if byte.is_ascii_alphabetic() || *byte == b'_' => word(text, at)?,
            _ => {
                let letter = text[at..].chars().next().unwrap_or(' ');
                return Err(Wrong::new(at, format!("{letter:?} has no meaning here")));
            }
        };
        found.push((at, token));
        at += len;
    }
    found.push((text.len(), Token::End));
    Ok(found)
}

/// A text in quotes that begin at `at`, two of them standing for one; and its length there.
fn quoted(text: &str, at: usize) -> Result<(String, usize), Wrong> {
    let mut value = String::new();
    let mut rest = &text[at + 1..];
    loop {
        let Some(end) = rest.find('\'') else {
            return Err(Wrong::new(at, "this text has no closing quote"));
        };
        value.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('\'') {
            Some(more) => {
                value.push('\'');
                rest = more;
            }
            None => break,
        }
    }
    if value.contains('\0') {
        return Err(Wrong::new(at, "a text has no zero bytes"));
    }
    Ok((value, text.len() - rest.len() - at))
}

fn word(text: &str, at: usize) -> Result<(Token, usize), Wrong> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let len = text.as_bytes()[at..].iter().take_while(|byte| is_part(byte)).count();
    let word = &text[at..at + len];
    if matches!(word, "datetime" | "datetimeoffset") && text[at + len..].starts_with('\'') {
        let (inside, quoted_len) = quoted(text, at + len)?;
        let why = || format!("{inside:?} is no point in time");
        let ms = date::parse(&inside).ok_or_else(|| Wrong::new(at, why()))?;
        return Ok((Token::Literal(Literal::Date(ms)), len + quoted_len));
    }
    if len > NAME_BYTES_MAX {
        return Err(Wrong::new(at, format!("a name has {NAME_BYTES_MAX} letters at most")));
    }
    Ok((Token::Word(word.to_string()), len))
}

/// A number, or a point in time as OData 4 writes it, without quotes.
fn number_or_date(text: &str, at: usize) -> Result<(Token, usize), Wrong> {
    let rest = &text[at..];
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.:".contains(byte);
    let len = rest.bytes().take_while(|byte| is_part(byte)).count();
    let whole = &rest[..len];
    if whole.as_bytes().get(4) == Some(&b'-')
        && let Some(ms) = date::parse(whole)
    {
        return Ok((Token::Literal(Literal::Date(ms)), len));
    }
    let why = || Wrong::new(at, format!("{whole:?} is no number"));
    let digits = whole.strip_suffix(['L', 'l', 'M', 'm', 'F', 'f', 'D', 'd']).unwrap_or(whole);
    if !digits.ends_with(|letter: char| letter.is_ascii_digit()) {
        return Err(why());
    }
    if let Ok(number) = digits.parse::<i64>() {
        return Ok((Token::Literal(Literal::Int(number)), len));
    }
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let number: f64 = digits.parse().map_err(|_| why())?;
    if !number.is_finite() || !is_number {
        return Err(why());
    }
    // Minus zero is zero: the databases do not tell them apart alike.
    Ok((Token::Literal(Literal::Real(number + 0.0)), len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Token {
        tokens(text).expect("a token").swap_remove(0).1
    }

    #[test]
    fn values_are_read() {
        let literal = |text| match only(text) {
            Token::Literal(literal) => literal,
            token => panic!("{text}: {token:?}"),
        };
        assert_eq!(literal("'it''s'"), Literal::Text("it's".into()));
        assert_eq!(literal("''''"), Literal::Text("'".into()));
        assert_eq!(literal("-12"), Literal::Int(-12));
        assert_eq!(literal("12L"), Literal::Int(12));
        assert_eq!(literal("1.5e2"), Literal::Real(150.0));
        assert_eq!(literal("99999999999999999999"), Literal::Real(1e20));
        assert_eq!(literal("datetime'1970-01-02'"), Literal::Date(86_400_000));
        assert_eq!(literal("datetimeoffset'1970-01-02T01:00+01:00'"), Literal::Date(86_400_000));
        assert_eq!(literal("1970-01-02T00:00:00Z"), Literal::Date(86_400_000));
    }

    #[test]
    fn errors_have_places() {
        for (text, at) in [
            ("a eq 'x", 5),
            ("a eq ;", 5),
            ("é", 0),
            ("a eq 1..2", 5),
            ("a eq 1e999", 5),
            ("datetime'yesterday'", 0),
            ("a eq 'x\0'", 5),
            ("a eq -", 5),
            ("a eq 12a", 5),
            ("a eq 0x10", 5),
            ("a eq -inf", 5),
        ] {
            assert_eq!(tokens(text).expect_err(text).at, at, "{text}");
        }
        assert!(tokens(&"a".repeat(NAME_BYTES_MAX + 1)).is_err());
    }
}
