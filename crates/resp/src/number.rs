//! Numbers as Redis reads and writes them.

/// Reads a canonical decimal integer, as Redis's `string2ll`: no spaces, no plus, no leading
/// zeros, the whole of `text`.
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut number: u64 = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + u64::from(digit);
    }
    if negative { 0i64.checked_sub_unsigned(number) } else { i64::try_from(number).ok() }
}

/// Reads a floating-point number, as Redis's `getDoubleFromObject`: what `strtod` takes, in whole
/// and without leading space; `inf` and hexadecimal included, not a number refused, and so is what
/// no double can hold, be it too large or too small.
pub fn double(text: &[u8]) -> Option<f64> {
    // Most are short integers, which need no care.
    if text.len() <= 15
        && let Some(number) = integer(text)
    {
        return Some(number as f64);
    }
    let number = rounded_double(text)?;
    let mut mantissa = text.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
    let is_lost = match number {
        0.0 => mantissa.any(|byte| matches!(byte, b'1'..=b'9')),
        number => number.is_infinite() && mantissa.any(u8::is_ascii_digit),
    };
    (!is_lost).then_some(number)
}

/// As [`double`], but what is too large becomes infinite and what is too small 0, as `strtod` has
/// it and with it the bounds of score ranges.
pub fn rounded_double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let (sign, body) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    let is_decimal = body.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    if is_decimal && !matches!(body.as_bytes().get(1), Some(b'x' | b'X')) {
        return body.parse::<f64>().ok().map(|number| sign * number);
    }
    let lower = body.to_ascii_lowercase();
    if lower == "inf" || lower == "infinity" {
        return Some(sign * f64::INFINITY);
    }
    // What is left, such as "nan", is refused.
    lower.strip_prefix("0x").and_then(hexadecimal).map(|number| sign * number)
}

fn hexadecimal(digits: &str) -> Option<f64> {
    let (mantissa, exponent) = match digits.split_once('p') {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut number = 0.0;
    for digit in whole.chars().chain(fraction.chars()) {
        number = number * 16.0 + f64::from(digit.to_digit(16)?);
    }
    Some(number * 2f64.powi(exponent - 4 * fraction.len() as i32))
}

/// Appends a double as Redis writes scores: the shortest digits that read back the same, whole
/// numbers without a point, exponents as C's `%.17g` would place them, `inf`, `-inf`, `nan`.
pub fn write_double(out: &mut Vec<u8>, number: f64) {
    if number.is_nan() {
        return out.extend_from_slice(b"nan");
    }
    if number.is_infinite() {
        return out.extend_from_slice(if number > 0.0 { b"inf" } else { b"-inf" });
    }
    if number == number.trunc() && number.abs() < 1e17 {
        if number == 0.0 && number.is_sign_negative() {
            return out.extend_from_slice(b"-0");
        }
        let mut buffer = itoa::Buffer::new();
        return out.extend_from_slice(buffer.format(number as i64).as_bytes());
    }
    let exponential = format!("{number:e}");
    let (digits, exponent) = exponential.split_once('e').expect("{:e} always writes an e");
    let exponent: i32 = exponent.parse().expect("{:e} writes a whole exponent");
    if (-5..17).contains(&exponent) {
        out.extend_from_slice(number.to_string().as_bytes());
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        let text = format!("{digits}e{sign}{:02}", exponent.abs());
        out.extend_from_slice(text.as_bytes());
    }
}

/// A double as [`write_double`] writes it.
pub fn double_text(number: f64) -> String {
    let mut out = Vec::new();
    write_double(&mut out, number);
    String::from_utf8(out).expect("digits and signs only")
}

/// A number as INCRBYFLOAT writes it: never with an exponent, no trailing zeros.
pub fn plain_text(number: f64) -> String {
    let text = number.to_string();
    if text == "-0" { "0".to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_canonical() {
        let good = [("0", 0), ("-1", -1), ("42", 42), ("9223372036854775807", i64::MAX)];
        for (text, number) in good {
            assert_eq!(integer(text.as_bytes()), Some(number));
        }
        assert_eq!(integer(b"-9223372036854775808"), Some(i64::MIN));
        for text in ["", "-", "-0", "01", "+1", " 1", "1 ", "1a", "9223372036854775808", "1e3"] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn doubles_are_as_strtod_takes_them() {
        let good = [
            ("1", 1.0),
            ("-1.5e3", -1500.0),
            ("+.5", 0.5),
            ("5.", 5.0),
            ("0x10", 16.0),
            ("0x1.8p1", 3.0),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
        ];
        for (text, number) in good {
            assert_eq!(double(text.as_bytes()), Some(number), "{text}");
        }
        let bad =
            ["", "nan", "abc", "1 ", " 1", "1x", "--1", "0x", ".", "e5", "+", "1e400", "1e-400"];
        for text in bad {
            assert_eq!(double(text.as_bytes()), None, "{text}");
        }
        assert_eq!(rounded_double(b"-1e400"), Some(f64::NEG_INFINITY));
        assert_eq!(rounded_double(b"1e-400"), Some(0.0));
        assert_eq!(double(b"-0.00"), Some(-0.0));
    }

    #[test]
    fn doubles_are_written_shortest() {
        let cases = [
            (3.0, "3"),
            (0.1, "0.1"),
            (-1.5, "-1.5"),
            (1e17, "1e+17"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (1e-7, "1e-07"),
            (0.0001, "0.0001"),
            (f64::INFINITY, "inf"),
            (-0.0, "-0"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
        ];
        for (number, text) in cases {
            assert_eq!(double_text(number), text);
        }
        assert_eq!(plain_text(1e21), "1000000000000000000000");
        assert_eq!(plain_text(3.1), "3.1");
    }
}
