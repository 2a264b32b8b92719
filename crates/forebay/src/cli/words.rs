//! A line as words: by blanks, with quotes as redis-cli understands them.
//!
//! In double quotes `\n \r \t \b \a \xHH` stand for bytes and `\` takes the meaning from any other
//! character; in single quotes only `\'` is special. A closing quote ends its word.

/// The words of a line; `None` where a quote is not closed or is followed by more of a word.
pub fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let (word, after) = first_word(rest)?;
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Some(words)
}

fn first_word(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    let mut at = 0;
    while let Some(&byte) = line.get(at) {
        match byte {
            b'"' | b'\'' => {
                let length = quoted(&line[at + 1..], byte, &mut word)?;
                at += 1 + length;
                let ends = line.get(at).is_none_or(u8::is_ascii_whitespace);
                return ends.then_some((word, &line[at..]));
            }
            _ if byte.is_ascii_whitespace() => break,
            _ => word.push(byte),
        }
        at += 1;
    }
    Some((word, &line[at..]))
}

/// Appends what stands in quotes; the length up to and with the closing quote.
fn quoted(text: &[u8], quote: u8, word: &mut Vec<u8>) -> Option<usize> {
    let mut at = 0;
    loop {
        let byte = *text.get(at)?;
        at += 1;
        match byte {
            _ if byte == quote => return Some(at),
            b'\\' if quote == b'"' => {
                let escaped = *text.get(at)?;
                at += 1;
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    b'x' => match hex(text.get(at..at + 2)) {
                        Some(byte) => {
                            at += 2;
                            byte
                        }
                        None => b'x',
                    },
                    other => other,
                });
            }
            b'\\' if text.get(at) == Some(&b'\'') => {
                word.push(b'\'');
                at += 1;
            }
            _ => word.push(byte),
        }
    }
}

fn hex(digits: Option<&[u8]>) -> Option<u8> {
    let digits = std::str::from_utf8(digits?).ok()?;
    // from_str_radix would take a sign.
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex { u8::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let text = |word: Vec<u8>| String::from_utf8_lossy(&word).into_owned();
        split(line.as_bytes()).map(|words| words.into_iter().map(text).collect())
    }

    #[test]
    fn splits_by_blanks_and_quotes() {
        assert_eq!(words("  SET k  v\r\n").unwrap(), ["SET", "k", "v"]);
        assert_eq!(words("").unwrap(), [""; 0]);
        assert_eq!(words(r#"SET k "a b\n\x41\"c""#).unwrap(), ["SET", "k", "a b\nA\"c"]);
        assert_eq!(words(r"SET k 'a \' \n'").unwrap(), ["SET", "k", r"a ' \n"]);
        assert_eq!(words(r#"SET k """#).unwrap(), ["SET", "k", ""]);
        assert_eq!(words(r#"a"b c""#).unwrap(), ["ab c"]);
        assert_eq!(words(r#""\xzz""#).unwrap(), ["xzz"]);
        assert_eq!(split(br#""\xff\x+1""#).unwrap(), [b"\xffx+1"]);
    }

    #[test]
    fn refuses_unbalanced_quotes() {
        for line in ["\"a", "'a", "\"a\"b", "'a'b", "\"a\\", "\"\\x4"] {
            assert_eq!(words(line), None, "{line}");
        }
    }
}
