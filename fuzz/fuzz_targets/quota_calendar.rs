//! Any time zone, anchor and moment, as plans and the usage query have them: no panic, and a moment
//! lies in its own period, which is the same seen from its both ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use services::quota::period::{Calendar, Every, from_rfc3339, rfc3339};
use services::quota::plan::Plan;

fuzz_target!(|input: (u8, u8, i64, &str, &str)| {
    let (every, anchor_day, at_ms, zone, text) = input;
    let all = [Every::Minute, Every::Hour, Every::Day, Every::Week, Every::Month, Every::Year];
    let every = all[usize::from(every) % all.len()];
    if let Some(at_ms) = from_rfc3339(text) {
        let _ = rfc3339(at_ms);
    }
    if let Ok(plan) = serde_json::from_str::<Plan>(text) {
        let _ = plan.check();
    }
    let days = if every == Every::Week { 7 } else { 31 };
    let Ok(calendar) = Calendar::new(every, zone, anchor_day % days + 1) else { return };
    // Calendars go from the year 1 to 9999; a moment outside is at its end.
    let at_ms = at_ms % 200_000_000_000_000;
    let period = calendar.period_of(at_ms);
    let _ = calendar.name_of(period);
    if (-60_000_000_000_000..250_000_000_000_000).contains(&at_ms) {
        assert!(period.has(at_ms), "{period:?} {at_ms}");
        assert_eq!(calendar.period_of(period.start_ms), period);
        assert_eq!(calendar.period_of(period.end_ms - 1), period);
    }
});
