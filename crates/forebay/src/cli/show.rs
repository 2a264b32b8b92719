//! A reply as text: for people, bare, or as JSON.
//!
//! ```text
//!   1) "a"                 array        1~ "a"     set
//!   2) 1) (integer) 1      nested       1# "k" => "v"   map
//!      2) (nil)
//! ```

use resp::reply::Value;
use serde_json::json;

/// How replies are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// With types and numbers, strings in quotes.
    Pretty,
    /// Bare bytes, a line each.
    Raw,
    /// JSON, a line for each reply.
    Json,
}

/// Appends a reply and its line end.
pub fn write(value: &Value, style: Style, out: &mut Vec<u8>) {
    match style {
        Style::Pretty => pretty(value, 0, out),
        Style::Raw => raw(value, out),
        Style::Json => out.extend_from_slice(as_json(value).to_string().as_bytes()),
    }
    if out.last() != Some(&b'\n') || style != Style::Pretty {
        out.push(b'\n');
    }
}

/// Text as it would be typed: in double quotes, with escapes.
pub fn quote(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            7 => out.extend_from_slice(b"\\a"),
            8 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}

/// Appends a value and a line end; lines after the first are indented by so many blanks.
fn pretty(value: &Value, indent: usize, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"(nil)"),
        Value::Simple(text) => out.extend_from_slice(text),
        Value::Error(text) => {
            out.extend_from_slice(b"(error) ");
            out.extend_from_slice(text);
        }
        Value::Integer(number) => out.extend_from_slice(format!("(integer) {number}").as_bytes()),
        Value::Double(number) => {
            out.extend_from_slice(format!("(double) {}", double(*number)).as_bytes());
        }
        Value::Boolean(true) => out.extend_from_slice(b"(true)"),
        Value::Boolean(false) => out.extend_from_slice(b"(false)"),
        Value::BigNumber(digits) => {
            out.extend_from_slice(b"(big number) ");
            out.extend_from_slice(digits);
        }
        Value::Bulk(bytes) => quote(bytes, out),
        // Verbatim text is meant to be read as it is.
        Value::Verbatim(_, text) => out.extend_from_slice(text),
        Value::Array(values) => return list(values, ')', "(empty array)", indent, out),
        Value::Set(values) => return list(values, '~', "(empty set)", indent, out),
        Value::Push(values) => return list(values, ')', "(empty push)", indent, out),
        Value::Map(pairs) => return map(pairs, '#', "(empty hash)", indent, out),
        Value::Attributed(pairs, value) => {
            map(pairs, '|', "(no attributes)", indent, out);
            out.extend_from_slice(" ".repeat(indent).as_bytes());
            return pretty(value, indent, out);
        }
    }
    if out.last() != Some(&b'\n') {
        out.push(b'\n');
    }
}

fn list(values: &[Value], mark: char, empty: &str, indent: usize, out: &mut Vec<u8>) {
    if values.is_empty() {
        out.extend_from_slice(format!("{empty}\n").as_bytes());
    }
    let width = values.len().to_string().len();
    for (index, value) in values.iter().enumerate() {
        number(index, width, mark, indent, out);
        pretty(value, indent + width + 2, out);
    }
}

fn map(pairs: &[(Value, Value)], mark: char, empty: &str, indent: usize, out: &mut Vec<u8>) {
    if pairs.is_empty() {
        out.extend_from_slice(format!("{empty}\n").as_bytes());
    }
    let width = pairs.len().to_string().len();
    for (index, (key, value)) in pairs.iter().enumerate() {
        number(index, width, mark, indent, out);
        let inner = indent + width + 2;
        pretty(key, inner, out);
        if out.last() == Some(&b'\n') {
            out.pop();
        }
        out.extend_from_slice(b" =>");
        let is_nested = matches!(value, Value::Array(v) | Value::Set(v) if !v.is_empty())
            || matches!(value, Value::Map(v) if !v.is_empty());
        if is_nested {
            out.push(b'\n');
            out.extend_from_slice(" ".repeat(inner).as_bytes());
        } else {
            out.push(b' ');
        }
        pretty(value, inner, out);
    }
}

/// `1) `, indented where it is not the first of its line.
fn number(index: usize, width: usize, mark: char, indent: usize, out: &mut Vec<u8>) {
    let indent = if index == 0 { 0 } else { indent };
    let text = format!("{:indent$}{:>width$}{mark} ", "", index + 1);
    out.extend_from_slice(text.as_bytes());
}

fn raw(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => {}
        Value::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Value::Double(number) => out.extend_from_slice(double(*number).as_bytes()),
        Value::Boolean(flag) => out.extend_from_slice(if *flag { b"true" } else { b"false" }),
        Value::Simple(text) | Value::Error(text) | Value::Bulk(text) => out.extend_from_slice(text),
        Value::BigNumber(text) | Value::Verbatim(_, text) => out.extend_from_slice(text),
        Value::Array(values) | Value::Set(values) | Value::Push(values) => {
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push(b'\n');
                }
                raw(value, out);
            }
        }
        Value::Map(pairs) => {
            for (index, (key, value)) in pairs.iter().enumerate() {
                if index > 0 {
                    out.push(b'\n');
                }
                raw(key, out);
                out.push(b'\n');
                raw(value, out);
            }
        }
        Value::Attributed(_, value) => raw(value, out),
    }
}

fn as_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Integer(number) => json!(number),
        Value::Boolean(flag) => json!(flag),
        // JSON has no infinities.
        Value::Double(number) if number.is_finite() => json!(number),
        Value::Double(number) => json!(double(*number)),
        Value::Error(text) => json!({ "error": String::from_utf8_lossy(text) }),
        Value::Simple(text) | Value::Bulk(text) => json!(String::from_utf8_lossy(text)),
        Value::BigNumber(text) | Value::Verbatim(_, text) => json!(String::from_utf8_lossy(text)),
        Value::Array(values) | Value::Set(values) | Value::Push(values) => {
            values.iter().map(as_json).collect()
        }
        Value::Map(pairs) => {
            let entry = |(key, value): &(Value, Value)| (json_key(key), as_json(value));
            serde_json::Value::Object(pairs.iter().map(entry).collect())
        }
        Value::Attributed(_, value) => as_json(value),
    }
}

/// A map's key as text, which is all that JSON allows.
fn json_key(key: &Value) -> String {
    match as_json(key) {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    }
}

/// A double as servers write it: no fraction where there is none.
fn double(number: f64) -> String {
    match number {
        _ if number.is_nan() => "nan".into(),
        _ if number == f64::INFINITY => "inf".into(),
        _ if number == f64::NEG_INFINITY => "-inf".into(),
        _ if number.abs() >= 1e21 || (number != 0.0 && number.abs() < 1e-6) => {
            format!("{number:e}")
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use resp::reply::{Limits, parse};

    use super::*;

    fn shown(reply: &str, style: Style) -> String {
        let (value, _) = parse(reply.as_bytes(), &Limits::default()).unwrap().unwrap();
        let mut out = Vec::new();
        write(&value, style, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn leaves() {
        for (reply, pretty, raw, json) in [
            ("+OK\r\n", "OK", "OK", "\"OK\""),
            ("-ERR no\r\n", "(error) ERR no", "ERR no", "{\"error\":\"ERR no\"}"),
            (":7\r\n", "(integer) 7", "7", "7"),
            ("$4\r\na\"\nb\r\n", "\"a\\\"\\nb\"", "a\"\nb", "\"a\\\"\\nb\""),
            ("$-1\r\n", "(nil)", "", "null"),
            (",1.5\r\n", "(double) 1.5", "1.5", "1.5"),
            (",inf\r\n", "(double) inf", "inf", "\"inf\""),
            ("#t\r\n", "(true)", "true", "true"),
            ("=6\r\ntxt:ab\r\n", "ab", "ab", "\"ab\""),
            ("*0\r\n", "(empty array)", "", "[]"),
            ("%0\r\n", "(empty hash)", "", "{}"),
        ] {
            assert_eq!(shown(reply, Style::Pretty), format!("{pretty}\n"));
            assert_eq!(shown(reply, Style::Raw), format!("{raw}\n"));
            assert_eq!(shown(reply, Style::Json), format!("{json}\n"));
        }
    }

    #[test]
    fn nested_lists_line_up() {
        let reply = "*2\r\n*2\r\n:1\r\n*1\r\n$1\r\na\r\n~2\r\n+x\r\n_\r\n";
        let wanted = "1) 1) (integer) 1\n   2) 1) \"a\"\n2) 1~ x\n   2~ (nil)\n";
        assert_eq!(shown(reply, Style::Pretty), wanted);
        let ten = format!("*10\r\n{}", ":5\r\n".repeat(10));
        let lines = shown(&ten, Style::Pretty);
        assert!(lines.starts_with(" 1) (integer) 5\n") && lines.contains("\n10) "));
    }

    #[test]
    fn maps_show_key_and_value() {
        let reply = "%2\r\n$1\r\nk\r\n:1\r\n$1\r\nl\r\n*1\r\n:2\r\n";
        let wanted = "1# \"k\" => (integer) 1\n2# \"l\" =>\n   1) (integer) 2\n";
        assert_eq!(shown(reply, Style::Pretty), wanted);
        assert_eq!(shown(reply, Style::Json), "{\"k\":1,\"l\":[2]}\n");
        assert_eq!(shown(reply, Style::Raw), "k\n1\nl\n2\n");
    }
}
