//! Points in time as text: ISO 8601 in UTC to the millisecond, `2026-01-31T23:59:59.999Z`, years 1
//! to 9999. In this form text sorts as time does.

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;
/// The first moment that has a text: the year 1.
pub const FIRST_MS: i64 = -62_135_596_800_000;
/// The last one: the year 9999.
pub const LAST_MS: i64 = 253_402_300_799_999;

/// A moment's calendar, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    /// 1 to 9999.
    pub year: i64,
    /// 1 to 12.
    pub month: i64,
    /// 1 to 31.
    pub day: i64,
    /// 0 to 23.
    pub hour: i64,
    /// 0 to 59.
    pub minute: i64,
    /// 0 to 59.
    pub second: i64,
    /// 0 to 999.
    pub millisecond: i64,
}

/// Days from 1970-01-01 to a day of the Gregorian calendar, counted in years that begin in March.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The calendar of a moment in milliseconds since 1970.
pub fn civil(ms: i64) -> Civil {
    let (days, of_day) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, millisecond) = (of_day / 1000 % 60, of_day % 1000);
    Civil { year, month, day, hour, minute, second, millisecond }
}

/// The text of a moment.
pub fn text(ms: i64) -> String {
    let Civil { year, month, day, hour, minute, second, millisecond } =
        civil(ms.clamp(FIRST_MS, LAST_MS));
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
}

/// A number of exactly `digits` digits at the start of `text`.
fn number(text: &str, digits: usize, most: i64) -> Option<(i64, &str)> {
    let head = text.get(..digits)?;
    if !head.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: i64 = head.parse().ok()?;
    (value <= most).then_some((value, &text[digits..]))
}

/// The offset from UTC at the end of a text, in minutes.
fn offset(text: &str) -> Option<i64> {
    if text.is_empty() || text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = match text.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, rest) = number(&text[1..], 2, 23)?;
    let (minutes, rest) = number(rest.strip_prefix(':').unwrap_or(rest), 2, 59)?;
    rest.is_empty().then_some(sign * (hours * 60 + minutes))
}

/// Reads `YYYY-MM-DD[THH:MM[:SS[.fraction]]][Z|+HH:MM]`; a blank may stand for the T, no zone is
/// UTC, and what is finer than a millisecond is cut off.
pub fn parse(text: &str) -> Option<i64> {
    let (year, rest) = number(text, 4, 9999)?;
    let (month, rest) = number(rest.strip_prefix('-')?, 2, 12)?;
    let (day, mut rest) = number(rest.strip_prefix('-')?, 2, 31)?;
    let (mut hour, mut minute, mut second, mut millisecond) = (0, 0, 0, 0);
    if let Some(clock) = rest.strip_prefix(['T', 't', ' ']) {
        (hour, rest) = number(clock, 2, 23)?;
        (minute, rest) = number(rest.strip_prefix(':')?, 2, 59)?;
        if let Some(seconds) = rest.strip_prefix(':') {
            (second, rest) = number(seconds, 2, 59)?;
        }
        if let Some(fraction) = rest.strip_prefix('.') {
            let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
            let shown = format!("{:0<3}", &fraction[..digits.min(3)]);
            millisecond = if (1..=9).contains(&digits) { shown.parse().ok()? } else { None? };
            rest = &fraction[digits..];
        }
    }
    let ms = ((hour * 60 + minute - offset(rest)?) * 60 + second) * 1000 + millisecond;
    let ms = days_of(year, month, day) * DAY_MS + ms;
    let is_day = month >= 1 && day >= 1 && {
        let civil = civil(days_of(year, month, day) * DAY_MS);
        (civil.month, civil.day) == (month, day)
    };
    (is_day && (FIRST_MS..=LAST_MS).contains(&ms)).then_some(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_go_to_text_and_back() {
        let known = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_123, "2000-02-29T00:00:00.123Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (FIRST_MS, "0001-01-01T00:00:00.000Z"),
            (LAST_MS, "9999-12-31T23:59:59.999Z"),
        ];
        for (ms, shown) in known {
            assert_eq!(text(ms), shown);
            assert_eq!(parse(shown), Some(ms));
        }
        for day in (-719_162..2_932_896).step_by(37) {
            let ms = day * DAY_MS + 12_345_678;
            assert_eq!(parse(&text(ms)), Some(ms));
        }
    }

    #[test]
    fn other_forms_are_read_and_nonsense_is_not() {
        assert_eq!(parse("1970-01-01"), Some(0));
        assert_eq!(parse("1970-01-01 01:00"), Some(3_600_000));
        assert_eq!(parse("1970-01-01T01:00:00.1234567+01:00"), Some(123));
        assert_eq!(parse("1969-12-31T23:00:00-0100"), Some(0));
        for wrong in [
            "",
            "1970",
            "1970-13-01",
            "1970-02-30",
            "2001-02-29",
            "1970-01-01T24:00",
            "1970-01-01T00:00:00.",
            "1970-01-01T00:00:00.1+1",
            "0001-01-01T00:00+01:00",
            "é970-01-01",
            "1970-01-01T00:00:00.123456789012",
            "1970-00-10",
            "1970-01-00",
            "1970-01-01x",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
