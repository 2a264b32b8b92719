//! Values to and from PostgreSQL. They are sent as text; what comes is in the binary form that each
//! type's `send` function writes (`src/backend/utils/adt` of PostgreSQL).

use std::error::Error;
use std::fmt::Write;

use services::database::{Real, Value};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked};

/// Microseconds from 1970 to 2000, where PostgreSQL's time begins.
const EPOCH_MICROS: i64 = 946_684_800_000_000;
const DAY_MICROS: i64 = 86_400_000_000;

/// A value as text; none is NULL.
#[derive(Debug, PartialEq, Eq)]
pub struct Written(Option<String>);

impl Written {
    /// A value.
    pub fn of(value: &Value) -> Written {
        let mut text = String::new();
        write(&mut text, value).then_some(text).map_or(Written(None), |text| Written(Some(text)))
    }
}

/// Writes a value; false if it is NULL.
fn write(text: &mut String, value: &Value) -> bool {
    match value {
        Value::Null => return false,
        Value::Bool(is) => text.push_str(if *is { "true" } else { "false" }),
        Value::Int(number) => text.push_str(itoa::Buffer::new().format(*number)),
        Value::Real(Real(number)) => drop(write!(text, "{number:e}")),
        Value::Text(word) => text.push_str(word),
        Value::Bytes(bytes) => {
            text.push_str("\\x");
            for byte in bytes {
                let _ = write!(text, "{byte:02x}");
            }
        }
    }
    true
}

/// One column of several rows as the text of an array.
pub fn array(rows: &[Value], column: usize, columns: usize) -> Written {
    let mut text = String::from("{");
    let mut word = String::new();
    for row in rows.chunks(columns) {
        if text.len() > 1 {
            text.push(',');
        }
        word.clear();
        let value = &row[column];
        if !write(&mut word, value) {
            text.push_str("NULL");
        } else if matches!(value, Value::Text(_) | Value::Bytes(_)) {
            text.push('"');
            for piece in word.split_inclusive(['"', '\\']) {
                match piece.strip_suffix(['"', '\\']) {
                    Some(before) => {
                        text.push_str(before);
                        text.push('\\');
                        text.push_str(&piece[before.len()..]);
                    }
                    None => text.push_str(piece),
                }
            }
            text.push('"');
        } else {
            text.push_str(&word);
        }
    }
    text.push('}');
    Written(Some(text))
}

impl ToSql for Written {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let Some(text) = &self.0 else { return Ok(IsNull::Yes) };
        out.extend_from_slice(text.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

/// A value that came.
pub struct Cell(pub Value);

impl<'a> FromSql<'a> for Cell {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Cell, Box<dyn Error + Sync + Send>> {
        read(kind, raw)
            .map(Cell)
            .ok_or_else(|| format!("a value of type {kind} is not understood: cast it").into())
    }

    fn from_sql_null(_: &Type) -> Result<Cell, Box<dyn Error + Sync + Send>> {
        Ok(Cell(Value::Null))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

fn read(kind: &Type, raw: &[u8]) -> Option<Value> {
    let text = |raw: &[u8]| Some(Value::Text(std::str::from_utf8(raw).ok()?.to_string()));
    Some(match *kind {
        Type::BOOL => Value::Bool(*raw.first()? != 0),
        Type::INT2 => Value::Int(i64::from(i16::from_be_bytes(raw.try_into().ok()?))),
        Type::INT4 => Value::Int(i64::from(i32::from_be_bytes(raw.try_into().ok()?))),
        Type::OID => Value::Int(i64::from(u32::from_be_bytes(raw.try_into().ok()?))),
        Type::INT8 => Value::Int(i64::from_be_bytes(raw.try_into().ok()?)),
        Type::FLOAT4 => Value::Real(Real(f64::from(f32::from_be_bytes(raw.try_into().ok()?)))),
        Type::FLOAT8 => Value::Real(Real(f64::from_be_bytes(raw.try_into().ok()?))),
        Type::NUMERIC => Value::Text(numeric(raw)?),
        Type::BYTEA => Value::Bytes(raw.to_vec()),
        Type::UUID => Value::Text(uuid(raw)?),
        Type::DATE => {
            let days = i64::from(i32::from_be_bytes(raw.try_into().ok()?));
            Value::Text(moment(days.checked_mul(DAY_MICROS)?)?.0)
        }
        Type::TIMESTAMP | Type::TIMESTAMPTZ => {
            let (day, time) = moment(i64::from_be_bytes(raw.try_into().ok()?))?;
            Value::Text(format!("{day} {time}"))
        }
        Type::TIME => {
            let micros = i64::from_be_bytes(raw.try_into().ok()?);
            Value::Text(moment(micros.checked_sub(0)?)?.1)
        }
        Type::JSONB => return text(raw.get(1..)?),
        _ if is_text(kind) => return text(raw),
        _ => return None,
    })
}

/// Types whose binary form is their text.
fn is_text(kind: &Type) -> bool {
    let texts =
        [Type::TEXT, Type::VARCHAR, Type::BPCHAR, Type::NAME, Type::JSON, Type::XML, Type::UNKNOWN];
    texts.contains(kind)
        || kind.name() == "citext"
        || matches!(kind.kind(), tokio_postgres::types::Kind::Enum(_))
}

/// A day and a time of day from microseconds since 2000, in UTC.
fn moment(micros: i64) -> Option<(String, String)> {
    let micros = micros.checked_add(EPOCH_MICROS)?;
    let (days, rest) = (micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS));
    // Howard Hinnant's days-to-civil: eras of 400 years that begin on 1 March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (seconds, micros) = (rest / 1_000_000, rest % 1_000_000);
    let fraction = if micros == 0 { String::new() } else { format!(".{micros:06}") };
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    Some((
        format!("{year:04}-{month:02}-{day:02}"),
        format!("{hour:02}:{minute:02}:{second:02}{fraction}"),
    ))
}

fn uuid(raw: &[u8]) -> Option<String> {
    let number = u128::from_be_bytes(raw.try_into().ok()?);
    let digits = format!("{number:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| &digits[range]);
    Some(parts.join("-"))
}

/// `numeric_send`: digits of base 10000 with their weight, sign and scale.
fn numeric(raw: &[u8]) -> Option<String> {
    let word = |index: usize| {
        let bytes = raw.get(index * 2..index * 2 + 2)?;
        Some(u16::from_be_bytes(bytes.try_into().ok()?))
    };
    let (count, weight) = (i32::from(word(0)?), i32::from(word(1)?.cast_signed()));
    let (sign, scale) = (word(2)?, usize::from(word(3)?));
    match sign {
        0xC000 => return Some("NaN".into()),
        0xD000 => return Some("Infinity".into()),
        0xF000 => return Some("-Infinity".into()),
        _ => {}
    }
    // Digit number `index` counts 10000 ^ (weight - index).
    let digit = |index: i32| {
        if (0..count).contains(&index) { word(4 + index as usize) } else { Some(0) }
    };
    let mut text = String::new();
    for index in 0..=weight.max(0) {
        let digit = if weight < 0 { 0 } else { digit(index)? };
        let _ = if text.is_empty() && digit > 0 {
            write!(text, "{digit}")
        } else if text.is_empty() {
            Ok(())
        } else {
            write!(text, "{digit:04}")
        };
    }
    if text.is_empty() {
        text.push('0');
    }
    if scale > 0 {
        let mut fraction = String::new();
        let mut index = weight + 1;
        while fraction.len() < scale {
            let _ = write!(fraction, "{:04}", digit(index)?);
            index += 1;
        }
        fraction.truncate(scale);
        text = format!("{text}.{fraction}");
    }
    Some(if sign == 0x4000 { format!("-{text}") } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numeric_of(weight: i16, sign: u16, scale: u16, digits: &[u16]) -> Option<String> {
        let head = [digits.len() as u16, weight.cast_unsigned(), sign, scale];
        let raw: Vec<u8> = head.iter().chain(digits).flat_map(|word| word.to_be_bytes()).collect();
        numeric(&raw)
    }

    #[test]
    fn numbers_are_written_in_full() {
        assert_eq!(numeric_of(0, 0, 2, &[12, 5000]), Some("12.50".into()));
        assert_eq!(numeric_of(1, 0x4000, 0, &[1]), Some("-10000".into()));
        assert_eq!(numeric_of(-2, 0, 7, &[1200]), Some("0.0000120".into()));
        assert_eq!(numeric_of(0, 0, 0, &[]), Some("0".into()));
        assert_eq!(numeric_of(0, 0xC000, 0, &[]), Some("NaN".into()));
    }

    #[test]
    fn moments_are_in_utc() {
        let at = |micros| moment(micros).expect("a moment");
        assert_eq!(at(0), ("2000-01-01".into(), "00:00:00".into()));
        assert_eq!(at(-1), ("1999-12-31".into(), "23:59:59.999999".into()));
        assert_eq!(at(60 * DAY_MICROS - 1_000_000).0, "2000-02-29");
        assert_eq!(moment(i64::MAX), None);
    }

    #[test]
    fn arrays_quote_what_means_something() {
        let rows = [Value::Text("a\"b\\c,{}".into()), Value::Int(1), Value::Null, Value::Int(-2)];
        assert_eq!(array(&rows, 0, 2), Written(Some("{\"a\\\"b\\\\c,{}\",NULL}".into())));
        assert_eq!(array(&rows, 1, 2), Written(Some("{1,-2}".into())));
    }

    proptest! {
        #[test]
        fn no_bytes_take_it_down(raw in prop::collection::vec(any::<u8>(), 0..40)) {
            for kind in [Type::NUMERIC, Type::UUID, Type::DATE, Type::TIMESTAMP, Type::TIME,
                         Type::JSONB, Type::INT8, Type::BOOL, Type::FLOAT4, Type::TEXT] {
                let _ = read(&kind, &raw);
            }
        }
    }
}
