//! Metrics of sagas: few labels, all of them bounded.

use std::sync::atomic::Ordering;

use services::saga::coordinator::Coordinator;
use services::saga::words::{Hold, Status};

use crate::exposition::{Kind, Page};

/// All of them.
pub fn page(coordinator: &Coordinator) -> String {
    let mut page = Page::default();
    let counters = &coordinator.counters;
    let name = "forebay_saga_transactions";
    page.metric(name, Kind::Gauge, "Transactions that are known, by status.");
    {
        let index = coordinator.index();
        for &status in Status::ALL {
            page.sample(name, &[("status", status.word())], index.count(status) as f64);
        }
        let name = "forebay_saga_held";
        page.metric(name, Kind::Gauge, "Transactions that stand still.");
        for hold in [Hold::Paused, Hold::Dead] {
            page.sample(name, &[("hold", hold.word())], index.held_count(hold) as f64);
        }
        let name = "forebay_saga_oldest_unfinished_timestamp_seconds";
        page.metric(name, Kind::Gauge, "When the oldest unfinished one was made; 0 = none.");
        page.sample(name, &[], index.oldest_open_ms().unwrap_or(0) as f64 / 1000.0);
        let name = "forebay_saga_retained_bytes";
        page.metric(name, Kind::Gauge, "Bytes of finished transactions.");
        page.sample(name, &[], index.finished_bytes as f64);
    }
    for (name, counter, help) in [
        ("forebay_saga_submitted_total", &counters.submitted, "Transactions taken on."),
        ("forebay_saga_succeeded_total", &counters.succeeded, "Transactions that succeeded."),
        ("forebay_saga_failed_total", &counters.failed, "Transactions that failed."),
        ("forebay_saga_calls_total", &counters.calls, "Calls to participants."),
        ("forebay_saga_retries_total", &counters.retries, "Calls that brought no result."),
        ("forebay_saga_dead_total", &counters.dead, "Transactions that became dead letters."),
        ("forebay_saga_forgotten_total", &counters.forgotten, "Transactions forgotten."),
    ] {
        page.metric(name, Kind::Counter, help);
        page.sample(name, &[], counter.load(Ordering::Relaxed) as f64);
    }
    page.into_text()
}
