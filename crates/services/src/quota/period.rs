//! Periods by the calendar of an organisation's own time zone: from an anchor day's midnight to the
//! next one's. Months have 28 to 31 days, days 23 to 25 hours; an anchor day that a month does not
//! have is its last day.
//!
//! **Invariant:** the periods of a calendar follow each other without gap or overlap: the end of
//! one is the start of the next.

use std::fmt;

use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

/// How long a period is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Every {
    Minute,
    Hour,
    Day,
    Week,
    #[default]
    Month,
    Year,
}

impl Every {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Every::Minute => "minute",
            Every::Hour => "hour",
            Every::Day => "day",
            Every::Week => "week",
            Every::Month => "month",
            Every::Year => "year",
        }
    }

    /// From its name.
    pub fn of(name: &str) -> Option<Every> {
        let all = [Every::Minute, Every::Hour, Every::Day, Every::Week, Every::Month, Every::Year];
        all.into_iter().find(|every| every.name() == name)
    }
}

/// From `start_ms` to before `end_ms`, milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub struct Period {
    pub start_ms: i64,
    pub end_ms: i64,
}

impl Period {
    /// Whether a moment lies in it.
    pub fn has(&self, at_ms: i64) -> bool {
        (self.start_ms..self.end_ms).contains(&at_ms)
    }
}

/// There is no such time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownZone(pub String);

impl fmt::Display for UnknownZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no time zone {:?}; it is a name such as Europe/Rome", self.0)
    }
}

/// Says in which period a moment lies.
#[derive(Debug, Clone)]
pub struct Calendar {
    every: Every,
    zone: TimeZone,
    /// Day of the month or year 1-31, or of the week 1-7 from Monday.
    anchor_day: i8,
}

/// The last moment that has a date, roughly the year 9999; and the first, the year 1.
const LAST_MS: i64 = 253_370_764_800_000;
const FIRST_MS: i64 = -62_000_000_000_000;

impl Calendar {
    /// A calendar in a time zone of the IANA database.
    pub fn new(every: Every, zone: &str, anchor_day: u8) -> Result<Calendar, UnknownZone> {
        let zone = if zone.eq_ignore_ascii_case("utc") {
            TimeZone::UTC
        } else {
            TimeZone::get(zone).map_err(|_| UnknownZone(zone.to_string()))?
        };
        Ok(Calendar { every, zone, anchor_day: anchor_day.clamp(1, 31) as i8 })
    }

    /// The period that a moment lies in.
    pub fn period_of(&self, at_ms: i64) -> Period {
        let at_ms = at_ms.clamp(FIRST_MS, LAST_MS);
        match self.every {
            Every::Minute => self.even(at_ms, 60_000),
            Every::Hour => self.even(at_ms, 3_600_000),
            _ => self.by_date(at_ms),
        }
    }

    /// Periods of one length, counted from a whole hour of local time.
    fn even(&self, at_ms: i64, length_ms: i64) -> Period {
        let offset_ms = i64::from(self.zone.to_offset(timestamp(at_ms)).seconds()) * 1000;
        let start_ms = at_ms - (at_ms + offset_ms).rem_euclid(length_ms);
        Period { start_ms, end_ms: start_ms + length_ms }
    }

    fn by_date(&self, at_ms: i64) -> Period {
        let today = self.local(at_ms).date();
        let mut start = self.start_of(today);
        // A midnight that does not exist, or exists twice, may lie on the other side of its date.
        if self.midnight_ms(start) > at_ms {
            start = self.start_of(start.yesterday().unwrap_or(start));
        }
        let mut next = self.after(start);
        if self.midnight_ms(next) <= at_ms {
            (start, next) = (next, self.after(next));
        }
        Period { start_ms: self.midnight_ms(start), end_ms: self.midnight_ms(next) }
    }

    /// Local time.
    pub fn local(&self, at_ms: i64) -> DateTime {
        self.zone.to_datetime(timestamp(at_ms))
    }

    /// The first day of the period that a day lies in.
    fn start_of(&self, day: Date) -> Date {
        match self.every {
            Every::Week => {
                let anchor = Weekday::from_monday_one_offset(self.anchor_day.min(7));
                let days = anchor.map_or(0, |anchor| day.weekday().since(anchor));
                day.saturating_sub(i64::from(days).days())
            }
            Every::Month => {
                let anchor = self.anchored(day.year(), day.month());
                if day >= anchor { anchor } else { self.month_after(anchor, -1) }
            }
            Every::Year => {
                let anchor = self.anchored(day.year(), 1);
                if day >= anchor { anchor } else { self.anchored(day.year() - 1, 1) }
            }
            _ => day,
        }
    }

    /// The first day of the period after the one that begins at `start`.
    fn after(&self, start: Date) -> Date {
        match self.every {
            Every::Week => start.saturating_add(7.days()),
            Every::Month => self.month_after(start, 1),
            Every::Year => self.anchored(start.year() + 1, 1),
            _ => start.saturating_add(1.day()),
        }
    }

    fn month_after(&self, start: Date, months: i64) -> Date {
        let month = start.first_of_month().saturating_add(months.months());
        self.anchored(month.year(), month.month())
    }

    fn anchored(&self, year: i16, month: i8) -> Date {
        let first = Date::new(year, month, 1).unwrap_or(Date::MAX);
        let day = self.anchor_day.min(first.days_in_month());
        Date::new(first.year(), first.month(), day).unwrap_or(first)
    }

    /// The first moment of a day; where the clock skips midnight, the moment after the gap.
    fn midnight_ms(&self, day: Date) -> i64 {
        let midnight = day.to_datetime(jiff::civil::Time::midnight());
        let zoned = self.zone.to_ambiguous_zoned(midnight).compatible();
        zoned.map_or(LAST_MS, |zoned| zoned.timestamp().as_millisecond())
    }

    /// A period's name in keys and answers: the local date (and time, if short) of its start.
    pub fn name_of(&self, period: Period) -> String {
        let start = self.local(period.start_ms);
        match self.every {
            Every::Minute | Every::Hour => start.strftime("%Y-%m-%dT%H:%M").to_string(),
            Every::Month if self.anchor_day == 1 => start.strftime("%Y-%m").to_string(),
            _ => start.strftime("%Y-%m-%d").to_string(),
        }
    }
}

fn timestamp(at_ms: i64) -> Timestamp {
    Timestamp::from_millisecond(at_ms).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A moment as RFC 3339 has it, in UTC, to the millisecond.
pub fn rfc3339(at_ms: i64) -> String {
    let at = timestamp(at_ms.clamp(FIRST_MS, LAST_MS));
    jiff::fmt::temporal::DateTimePrinter::new().precision(Some(3)).timestamp_to_string(&at)
}

/// A moment from RFC 3339, in milliseconds since 1970.
pub fn from_rfc3339(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(|at| at.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(text: &str) -> i64 {
        from_rfc3339(text).expect("a moment")
    }

    fn check(calendar: &Calendar, at: &str, start: &str, end: &str) {
        let period = calendar.period_of(ms(at));
        let got = (rfc3339(period.start_ms), rfc3339(period.end_ms));
        assert_eq!(got, (rfc3339(ms(start)), rfc3339(ms(end))), "{at}");
    }

    fn calendar(every: Every, zone: &str, anchor_day: u8) -> Calendar {
        Calendar::new(every, zone, anchor_day).expect("a zone")
    }

    #[test]
    fn months_have_28_to_31_days() {
        let utc = calendar(Every::Month, "UTC", 1);
        check(&utc, "2026-02-28T23:59:59.999Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z");
        check(&utc, "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z");
        check(&utc, "2026-03-31T00:00:00Z", "2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z");
        check(&utc, "2026-12-31T23:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z");
    }

    #[test]
    fn an_anchor_day_that_is_not_there_is_the_last_one() {
        let last = calendar(Every::Month, "UTC", 31);
        check(&last, "2026-02-27T23:59:59Z", "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z");
        check(&last, "2026-02-28T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z");
        check(&last, "2026-04-30T00:00:00Z", "2026-04-30T00:00:00Z", "2026-05-31T00:00:00Z");
        let leap = calendar(Every::Month, "UTC", 29);
        check(&leap, "2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-29T00:00:00Z");
    }

    #[test]
    fn the_months_own_midnight_is_local() {
        let rome = calendar(Every::Month, "Europe/Rome", 1);
        // Summer time begins in March and ends in October: the ends differ from the starts.
        check(&rome, "2026-03-15T00:00:00Z", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z");
        check(&rome, "2026-10-15T00:00:00Z", "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z");
        let auckland = calendar(Every::Month, "Pacific/Auckland", 1);
        check(&auckland, "2026-11-30T11:00:00Z", "2026-11-30T11:00:00Z", "2026-12-31T11:00:00Z");
    }

    #[test]
    fn days_of_23_and_25_hours_and_no_midnight() {
        let rome = calendar(Every::Day, "Europe/Rome", 1);
        check(&rome, "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z");
        check(&rome, "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z");
        // In 2018 Sao Paulo's clocks went from 23:59:59 on November 3 to 01:00 on the 4th.
        let sao_paulo = calendar(Every::Day, "America/Sao_Paulo", 1);
        check(&sao_paulo, "2018-11-04T03:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z");
        check(&sao_paulo, "2018-11-04T02:59:59Z", "2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z");
    }

    #[test]
    fn weeks_years_hours_and_minutes() {
        let week = calendar(Every::Week, "UTC", 1);
        check(&week, "2026-11-20T10:00:00Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z");
        let sundays = calendar(Every::Week, "UTC", 7);
        check(&sundays, "2026-11-22T00:00:00Z", "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z");
        let year = calendar(Every::Year, "UTC", 15);
        check(&year, "2026-01-14T00:00:00Z", "2025-01-15T00:00:00Z", "2026-01-15T00:00:00Z");
        let hour = calendar(Every::Hour, "Asia/Kolkata", 1);
        check(&hour, "2026-01-14T10:45:00Z", "2026-01-14T10:30:00Z", "2026-01-14T11:30:00Z");
        let minute = calendar(Every::Minute, "UTC", 1);
        check(&minute, "2026-01-14T10:45:59Z", "2026-01-14T10:45:00Z", "2026-01-14T10:46:00Z");
    }

    #[test]
    fn names_are_local_dates() {
        let rome = calendar(Every::Month, "Europe/Rome", 1);
        assert_eq!(rome.name_of(rome.period_of(ms("2026-10-31T23:30:00Z"))), "2026-11");
        let anchored = calendar(Every::Month, "Europe/Rome", 15);
        assert_eq!(anchored.name_of(anchored.period_of(ms("2026-11-01T00:00:00Z"))), "2026-10-15");
        assert!(Calendar::new(Every::Day, "Mars/Olympus", 1).is_err());
    }

    proptest! {
        #[test]
        fn periods_follow_each_other(
            at_ms in -2_000_000_000_000i64..4_000_000_000_000,
            zone in proptest::sample::select(vec![
                "UTC", "Europe/Rome", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kolkata",
                "Pacific/Apia", "America/St_Johns", "Africa/Casablanca", "Asia/Tehran",
            ]),
            every in proptest::sample::select(vec![
                Every::Minute, Every::Hour, Every::Day, Every::Week, Every::Month, Every::Year,
            ]),
            anchor_day in 1u8..=31,
        ) {
            let calendar = calendar(every, zone, anchor_day);
            let period = calendar.period_of(at_ms);
            prop_assert!(period.has(at_ms), "{period:?} {at_ms}");
            prop_assert_eq!(calendar.period_of(period.start_ms), period);
            prop_assert_eq!(calendar.period_of(period.end_ms - 1), period);
            if !matches!(every, Every::Minute | Every::Hour) {
                prop_assert_eq!(calendar.period_of(period.end_ms).start_ms, period.end_ms);
            }
        }
    }
}
