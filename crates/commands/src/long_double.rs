//! The 80-bit floating-point numbers in which Redis on x86-64 computes INCRBYFLOAT and
//! HINCRBYFLOAT, so that 0.1 and 0.2 make 0.3 here as there.
//!
//! ```text
//!   value = mantissa * 2^exponent      mantissa: 64 bits, the top one set, or 0
//! ```
//!
//! Reading and adding round to the nearest number, ties to even, as the processor does; writing
//! gives 17 decimals without trailing zeros, as Redis's `ld2string` does. Numbers too small for 17
//! decimals are kept without the format's lower bound: they are written as 0 anyway.
//!
//! **Invariant:** the work for a number is bounded by `TEXT_BYTES_MAX` digits and the exponent's
//! range.

use std::cmp::Ordering;

use resp::number;

/// Redis's `MAX_LONG_DOUBLE_CHARS`: longer texts are no numbers.
const TEXT_BYTES_MAX: usize = 5 * 1024;
/// The largest power of two below infinity.
const EXPONENT_MAX: i32 = 16_383;
/// Decimal exponents beyond this are infinite or nothing.
const DECIMAL_EXPONENT_MAX: i64 = 5000;

/// A number, or infinity; see the module's own text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongDouble {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// The exponent that means infinity.
const INFINITE: i32 = i32::MAX;

impl LongDouble {
    const ZERO: LongDouble = LongDouble { negative: false, mantissa: 0, exponent: 0 };

    /// Reads a number as C's `strtold` does, in whole; no leading space, no NaN.
    pub fn parse(text: &[u8]) -> Option<LongDouble> {
        if text.len() >= TEXT_BYTES_MAX {
            return None;
        }
        let (negative, body) = match text {
            [b'-', body @ ..] => (true, body),
            [b'+', body @ ..] => (false, body),
            body => (false, body),
        };
        if let Some(magnitude) = decimal(body)? {
            return Some(LongDouble { negative, ..magnitude });
        }
        // Infinity and hexadecimal digits, which a double reads as well.
        number::double(text).map(LongDouble::from_double)
    }

    /// The same number.
    pub fn from_int(number: i64) -> LongDouble {
        Self::rounded(number < 0, u128::from(number.unsigned_abs()), 0)
    }

    fn from_double(number: f64) -> LongDouble {
        let bits = number.to_bits();
        let (negative, exponent) = (bits >> 63 == 1, (bits >> 52 & 0x7ff) as i32);
        let fraction = bits & ((1 << 52) - 1);
        match exponent {
            0x7ff => LongDouble { negative, mantissa: 1 << 63, exponent: INFINITE },
            0 => Self::rounded(negative, u128::from(fraction), -1074),
            _ => Self::rounded(negative, u128::from(fraction | 1 << 52), exponent - 1075),
        }
    }

    /// Whether it is no infinity.
    pub fn is_finite(self) -> bool {
        self.exponent != INFINITE
    }

    /// The sum; both must be finite.
    pub fn plus(self, other: LongDouble) -> LongDouble {
        if self.mantissa == 0 || other.mantissa == 0 {
            return if self.mantissa == 0 { other } else { self };
        }
        let (large, small) = match self.exponent.cmp(&other.exponent) {
            Ordering::Less => (other, self),
            _ => (self, other),
        };
        // 62 bits below the larger one's last: what falls off there leaves a mark in the lowest.
        let one = u128::from(large.mantissa) << 62;
        let shift = (large.exponent - small.exponent).unsigned_abs();
        let wide = u128::from(small.mantissa) << 62;
        let kept = wide.checked_shr(shift).unwrap_or(0);
        let lost = kept.checked_shl(shift).unwrap_or(0) != wide;
        let two = kept | u128::from(lost);
        let exponent = large.exponent - 62;
        if large.negative == small.negative {
            return Self::rounded(large.negative, one + two, exponent);
        }
        if one >= two {
            Self::rounded(large.negative && one != two, one - two, exponent)
        } else {
            Self::rounded(small.negative, two - one, exponent)
        }
    }

    /// `bits * 2^exponent`, rounded to 64 bits.
    fn rounded(negative: bool, bits: u128, exponent: i32) -> LongDouble {
        if bits == 0 {
            return LongDouble { negative, ..Self::ZERO };
        }
        let excess = 64 - bits.leading_zeros() as i32;
        if excess <= 0 {
            let mantissa = (bits << -excess) as u64;
            return LongDouble { negative, mantissa, exponent: exponent + excess }.bounded();
        }
        let (mantissa, rest) = (bits >> excess, bits & ((1 << excess) - 1));
        let half = 1u128 << (excess - 1);
        let up = rest > half || rest == half && mantissa & 1 == 1;
        let mantissa = mantissa + u128::from(up);
        if mantissa >> 64 == 1 {
            return Self::rounded(negative, mantissa, exponent + excess);
        }
        LongDouble { negative, mantissa: mantissa as u64, exponent: exponent + excess }.bounded()
    }

    fn bounded(self) -> LongDouble {
        if self.exponent + 63 > EXPONENT_MAX { Self { exponent: INFINITE, ..self } } else { self }
    }

    /// The number with up to 17 decimals; it must be finite.
    pub fn text(self) -> String {
        const SCALE: u128 = 100_000_000_000_000_000;
        let mut whole = Big::from(self.mantissa);
        let mut decimals = 0;
        if self.exponent >= 0 {
            whole.shift_left(self.exponent as usize);
        } else {
            let shift = self.exponent.unsigned_abs();
            let integer = self.mantissa.checked_shr(shift).unwrap_or(0);
            let fraction = self.mantissa - integer.checked_shl(shift).unwrap_or(0);
            // Below 2^64 * 10^17, so it fits; shifted by more than that it is below a half.
            let scaled = u128::from(fraction) * SCALE;
            let kept = scaled.checked_shr(shift).unwrap_or(0);
            let rest = scaled - kept.checked_shl(shift).unwrap_or(0);
            let half = 1u128.checked_shl(shift - 1).unwrap_or(u128::MAX);
            decimals = kept + u128::from(rest > half || rest == half && kept & 1 == 1);
            whole = Big::from(integer);
            if decimals == SCALE {
                decimals = 0;
                whole = Big::from(integer + 1);
            }
        }
        let mut text = whole.text();
        if decimals > 0 {
            text.push_str(format!(".{decimals:017}").trim_end_matches('0'));
        }
        if self.negative && text != "0" {
            text.insert(0, '-');
        }
        text
    }
}

/// Reads decimal digits, with a point and an exponent: `None` if that is out of range, `Some(None)`
/// if it is something else.
fn decimal(text: &[u8]) -> Option<Option<LongDouble>> {
    let mut digits = Big::from(0);
    let (mut count, mut point, mut exponent) = (0i64, None, 0i64);
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'0'..=b'9' => {
                digits.multiply_add(10, u32::from(byte - b'0'));
                count += 1;
            }
            b'.' if point.is_none() => point = Some(count),
            b'e' | b'E' if count > 0 => {
                let Some(given) = decimal_exponent(&text[at + 1..]) else { return Some(None) };
                exponent = given;
                break;
            }
            _ => return Some(None),
        }
        at += 1;
    }
    if count == 0 {
        return Some(None);
    }
    if digits.is_zero() {
        return Some(Some(LongDouble::ZERO));
    }
    let exponent = exponent - (count - point.unwrap_or(count));
    if (exponent + count).abs() > DECIMAL_EXPONENT_MAX + count {
        return None;
    }
    let mut divisor = Big::from(1);
    let scaled = if exponent < 0 { &mut divisor } else { &mut digits };
    for _ in 0..exponent.abs() {
        scaled.multiply_add(10, 0);
    }
    let number = divide(digits, divisor);
    number.is_finite().then_some(Some(number))
}

/// The digits after an `e`, with one sign at most.
fn decimal_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // More digits than fit are out of range just as well.
    let number = digits.iter().fold(0i64, |number, digit| {
        number.saturating_mul(10).saturating_add(i64::from(digit - b'0')).min(i64::MAX / 4)
    });
    Some(if negative { -number } else { number })
}

/// The quotient of two numbers that are not 0.
fn divide(mut dividend: Big, mut divisor: Big) -> LongDouble {
    let mut exponent = dividend.bits() as i32 - divisor.bits() as i32;
    if exponent > 0 {
        divisor.shift_left(exponent as usize);
    } else {
        dividend.shift_left(exponent.unsigned_abs() as usize);
    }
    // Now dividend / divisor lies between a half and two: 66 bits and a mark for what follows.
    let mut quotient = 0u128;
    for _ in 0..67 {
        quotient <<= 1;
        if dividend.subtract_if_not_less(&divisor) {
            quotient |= 1;
        }
        dividend.shift_left(1);
    }
    exponent -= 66;
    let mark = u128::from(!dividend.is_zero());
    LongDouble::rounded(false, quotient << 1 | mark, exponent - 1)
}

/// A natural number of any size: 32 bits each, the lowest first, no zeros at the top.
struct Big(Vec<u32>);

impl Big {
    fn from(number: u64) -> Big {
        let mut big = Big(vec![number as u32, (number >> 32) as u32]);
        big.trim();
        big
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn bits(&self) -> usize {
        self.0.last().map_or(0, |top| self.0.len() * 32 - top.leading_zeros() as usize)
    }

    fn multiply_add(&mut self, factor: u32, addend: u32) {
        let mut carry = u64::from(addend);
        for part in &mut self.0 {
            carry += u64::from(*part) * u64::from(factor);
            *part = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn shift_left(&mut self, count: usize) {
        if self.is_zero() {
            return;
        }
        let mut carry = 0;
        let count_bits = count % 32;
        for part in &mut self.0 {
            let wide = u64::from(*part) << count_bits | carry;
            *part = wide as u32;
            carry = wide >> 32;
        }
        self.0.push(carry as u32);
        self.0.splice(0..0, std::iter::repeat_n(0, count / 32));
        self.trim();
    }

    fn subtract_if_not_less(&mut self, other: &Big) -> bool {
        let order = self.0.len().cmp(&other.0.len());
        let order = order.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()));
        if order == Ordering::Less {
            return false;
        }
        let mut borrow = 0i64;
        for (index, part) in self.0.iter_mut().enumerate() {
            let less = i64::from(other.0.get(index).copied().unwrap_or(0));
            borrow += i64::from(*part) - less;
            *part = borrow as u32;
            borrow >>= 32;
        }
        self.trim();
        true
    }

    fn text(mut self) -> String {
        let mut groups = Vec::new();
        while !self.is_zero() {
            let mut rest = 0u64;
            for part in self.0.iter_mut().rev() {
                rest = rest << 32 | u64::from(*part);
                *part = (rest / 1_000_000_000) as u32;
                rest %= 1_000_000_000;
            }
            self.trim();
            groups.push(rest);
        }
        let Some(first) = groups.pop() else { return "0".to_owned() };
        groups.iter().rev().fold(first.to_string(), |text, group| text + &format!("{group:09}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(one: &str, two: &str) -> String {
        let parse = |text: &str| LongDouble::parse(text.as_bytes()).expect("a number");
        parse(one).plus(parse(two)).text()
    }

    #[test]
    fn sums_are_those_of_redis() {
        // Each as redis-server 7.0.15 answers on x86-64.
        let cases = [
            ("0.1", "0.2", "0.3"),
            ("10.5", "0.1", "10.6"),
            ("1", "-1.1", "-0.1"),
            ("1.23", "-1.23", "0"),
            ("5.0e3", "2.0e2", "5200"),
            ("9223372036854775807", "0.5", "9223372036854775807.5"),
            ("17179869184", "17179869184", "34359738368"),
            ("3", "0", "3"),
            ("1e-17", "0", "0.00000000000000001"),
            ("1e-18", "0", "0"),
            ("-1e-18", "0", "0"),
            ("0.99999999999999999999", "0", "1"),
            (".5", "5.", "5.5"),
            ("0x10", "1", "17"),
        ];
        for (one, two, want) in cases {
            assert_eq!(sum(one, two), want, "{one} + {two}");
        }
        assert_eq!(sum("1e4000", "0").len(), 4000, "the nearest number is below");
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in
            ["", " 1", "1 ", "abc", "1e", "1e+-5", "--1", ".", "1.2.3", "nan", "1e5000", "e5"]
        {
            assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text}");
        }
        assert!(LongDouble::parse(&[b'1'; TEXT_BYTES_MAX]).is_none());
        assert!(!LongDouble::parse(b"-inf").expect("a number of sorts").is_finite());
        let large = LongDouble::parse(b"1.1e4932").expect("just below infinity");
        assert!(!large.plus(large).is_finite());
    }

    #[test]
    fn whole_numbers_are_exact() {
        for number in [0, 1, -1, i64::MAX, i64::MIN, 1_000_000_007] {
            assert_eq!(LongDouble::from_int(number).text(), number.to_string());
            let read = LongDouble::parse(number.to_string().as_bytes());
            assert_eq!(read, Some(LongDouble::from_int(number)));
        }
    }
}
