//! Any text as the body of metered ingest, in each format: no panic, and what is stored is a piece
//! of the body, byte for byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use services::quota::event::{Format, parse};

fuzz_target!(|body: &str| {
    for format in [Format::Json, Format::Lines, Format::CloudEvent, Format::CloudEvents] {
        let Ok(records) = parse(body, format) else { continue };
        for event in records.into_iter().flatten() {
            assert!(body.contains(&event.data), "stored as it came");
            assert!(event.cost.is_none_or(|cost| cost >= 0));
            for word in [&event.kind, &event.source, &event.subject].into_iter().flatten() {
                assert!((1..=255).contains(&word.len()));
            }
        }
    }
});
