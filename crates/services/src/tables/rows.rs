//! Rows as JSON, written directly.

use super::schema::{Kind, Table};
use crate::database::{Row, Value};
use crate::quota::secret::base64;

/// Adds a text with its quotes and escapes.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut begun = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&text.as_bytes()[begun..at]);
        begun = at + 1;
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            _ => out.extend(format!("\\u{byte:04x}").bytes()),
        }
    }
    out.extend_from_slice(&text.as_bytes()[begun..]);
    out.push(b'"');
}

fn write_real(out: &mut Vec<u8>, number: f64) {
    if !number.is_finite() {
        out.extend(b"null");
    } else if number.fract() == 0.0 && number.abs() < 1e15 {
        out.extend((number as i64).to_string().bytes());
    } else {
        out.extend(format!("{number:?}").bytes());
    }
}

/// Adds a value of a column.
pub fn write_value(out: &mut Vec<u8>, value: &Value, kind: Kind) {
    match (value, kind) {
        (Value::Null, _) => out.extend(b"null"),
        (Value::Int(number), Kind::Bool) => {
            out.extend_from_slice(if *number != 0 { b"true" } else { b"false" });
        }
        (Value::Int(number), _) => out.extend(number.to_string().bytes()),
        (Value::Real(number), _) => write_real(out, number.0),
        (Value::Bool(is_true), _) => {
            out.extend_from_slice(if *is_true { b"true" } else { b"false" });
        }
        (Value::Text(text), _) => write_text(out, text),
        (Value::Bytes(bytes), _) => write_text(out, &base64(bytes)),
    }
}

/// Adds a row as an object.
pub fn write_row(out: &mut Vec<u8>, row: &Row, places: &[usize], table: &Table) {
    out.push(b'{');
    for (index, (value, place)) in row.iter().zip(places).enumerate() {
        let column = &table.columns[*place];
        out.extend_from_slice(if index > 0 { b",\"" } else { b"\"" });
        out.extend_from_slice(column.name.as_bytes());
        out.extend_from_slice(b"\":");
        write_value(out, value, column.kind);
    }
    out.push(b'}');
}

/// Adds rows as a list.
pub fn write_rows(out: &mut Vec<u8>, rows: &[Row], places: &[usize], table: &Table) {
    out.push(b'[');
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_row(out, row, places, table);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_numbers_are_json() {
        for text in ["", "plain", "q\"b\\", "line\nfeed\r\t", "nul\0\u{1f}", "é😀"] {
            let mut out = Vec::new();
            write_text(&mut out, text);
            let back: String = serde_json::from_slice(&out).expect("JSON");
            assert_eq!(back, text);
        }
        for number in [0.0, 1.0, -2.5, 1e300, 1e15, 0.1, 123_456_789.123] {
            let mut out = Vec::new();
            write_real(&mut out, number);
            let back: f64 = serde_json::from_slice(&out).expect("JSON");
            assert_eq!(back, number);
        }
    }
}
