//! Metrics of sagas: few labels, all of them bounded.

use std::sync::atomic::{AtomicU64, Ordering};

use services::saga::coordinator::Coordinator;
use services::saga::words::{Hold, Kind as Model, Op, Status, Verdict};

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
    dtm_names(&mut page, coordinator);
    page.into_text()
}

/// The same under dtm's names, for dashboards that have them; without `branchid`, which has no
/// bound.
fn dtm_names(page: &mut Page, coordinator: &Coordinator) {
    let counters = &coordinator.counters;
    let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
    let name = "dtm_transaction_process_total";
    page.metric(name, Kind::Counter, "Transactions that ended, by model and status.");
    for (&kind, ended) in Model::ALL.iter().zip(&counters.ended) {
        for (status, count) in [Status::Succeed, Status::Failed].iter().zip(ended) {
            page.sample(name, &[("model", kind.word()), ("status", status.word())], value(count));
        }
    }
    let name = "dtm_branch_process_total";
    page.metric(name, Kind::Counter, "Answers of branches, by model, operation and status.");
    for (&kind, by_op) in Model::ALL.iter().zip(&counters.answers) {
        for (op, by_verdict) in Op::ALL.iter().zip(by_op) {
            for (verdict, count) in Verdict::ALL.iter().zip(by_verdict) {
                let (model, status) = (kind.word(), verdict.word());
                let labels = [("model", model), ("branchtype", op.word()), ("status", status)];
                // Most pairs of kind and operation do not exist.
                if count.load(Ordering::Relaxed) > 0 {
                    page.sample(name, &labels, value(count));
                }
            }
        }
    }
    for (suffix, help) in [
        ("sum", "Seconds that ended transactions took, added up."),
        ("count", "Transactions that ended."),
    ] {
        let name = format!("dtm_transaction_handled_duration_{suffix}");
        page.metric(&name, Kind::Counter, help);
        for (place, &kind) in Model::ALL.iter().enumerate() {
            let sum = value(&counters.ended_ms[place]) / 1000.0;
            let count = counters.ended[place].iter().map(value).sum();
            page.sample(
                &name,
                &[("model", kind.word())],
                if suffix == "sum" { sum } else { count },
            );
        }
    }
}
