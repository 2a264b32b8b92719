//! Metrics of sagas: few labels, all of them bounded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use services::saga::coordinator::Coordinator;
use services::saga::words::{Hold, Kind as Model, Op, Status, Verdict};

use super::served::{Served, histogram};
use crate::exposition::{Kind, Page};

/// All of them.
pub fn page(coordinator: &Coordinator, served: &Served, version: &str) -> String {
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
    answers(&mut page, coordinator);
    dtm_names(&mut page, coordinator);
    served.write(&mut page, version);
    page.into_text()
}

/// Every pair of kind and operation that has had an answer, with the answers by verdict.
fn each_answered(coordinator: &Coordinator, mut visit: impl FnMut(Model, Op, Verdict, f64)) {
    for (&kind, by_op) in Model::ALL.iter().zip(&coordinator.counters.answers) {
        for (&op, by_verdict) in Op::ALL.iter().zip(by_op) {
            for (&verdict, count) in Verdict::ALL.iter().zip(by_verdict) {
                match count.load(Ordering::Relaxed) {
                    0 => {}
                    count => visit(kind, op, verdict, count as f64),
                }
            }
        }
    }
}

fn answers(page: &mut Page, coordinator: &Coordinator) {
    let name = "forebay_saga_answers_total";
    page.metric(name, Kind::Counter, "Answers of branches, by kind, operation and verdict.");
    each_answered(coordinator, |kind, op, verdict, count| {
        let labels = [("kind", kind.word()), ("op", op.word()), ("verdict", verdict.word())];
        page.sample(name, &labels, count);
    });
}

/// The same under dtm's names and words, for dashboards that have them; without `branchid`, which
/// has no bound (dtm, `dtmsvr/metrics.go`).
fn dtm_names(page: &mut Page, coordinator: &Coordinator) {
    let counters = &coordinator.counters;
    let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
    let name = "dtm_transaction_process_total";
    page.metric(name, Kind::Counter, "Transactions that ended, by model and status.");
    for (&kind, ended) in Model::ALL.iter().zip(&counters.ended) {
        for (status, count) in ["ok", "fail"].iter().zip(ended) {
            page.sample(name, &[("model", kind.word()), ("status", status)], value(count));
        }
    }
    let mut by_status = BTreeMap::new();
    each_answered(coordinator, |kind, op, verdict, count| {
        let status = if verdict == Verdict::Success { "ok" } else { "fail" };
        *by_status.entry((kind.word(), op.word(), status)).or_insert(0.0) += count;
    });
    let name = "dtm_branch_process_total";
    page.metric(name, Kind::Counter, "Answers of branches, by model, operation and status.");
    for ((model, op, status), count) in by_status {
        page.sample(name, &[("model", model), ("branchtype", op), ("status", status)], count);
    }
    let name = "dtm_transaction_handled_duration";
    page.metric(name, Kind::Histogram, "Seconds that ended transactions took.");
    for (place, &kind) in Model::ALL.iter().enumerate() {
        let within: Vec<f64> = counters.ended_within[place].iter().map(value).collect();
        let (sum, count) = (value(&counters.ended_ms[place]), counters.ended[place].iter());
        let (sum, count) = (sum / 1000.0, count.map(value).sum());
        histogram(page, name, &[("model", kind.word())], &within, sum, count);
    }
}
