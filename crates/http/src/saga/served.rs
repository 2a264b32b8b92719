//! What was served, under dtm's names: requests by door, name and outcome, and how long they took
//! (dtm, `dtmsvr/metrics.go`).
//!
//! **Invariant:** names that are none of the API are counted as `other`: labels have a bound
//! (dtm takes whatever a client writes).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use services::saga::coordinator::{BUCKETS_MS, bucket};

use crate::exposition::{Kind, Page};

/// The last parts of the paths, as dtm writes them in metrics; the last is for all others.
const NAMES: [&str; 23] = [
    "submit",
    "prepare",
    "abort",
    "registerbranch",
    "registertccbranch",
    "registerxabranch",
    "newgid",
    "query",
    "all",
    "forcestop",
    "resetnextcrontime",
    "resetcrontime",
    "prepareworkflow",
    "subscribe",
    "unsubscribe",
    "deletetopic",
    "scankv",
    "querykv",
    "version",
    "json-rpc",
    "metrics",
    "ping",
    "other",
];

/// The doors, as dtm calls them.
const DOORS: [&str; 2] = ["http", "grpc"];

#[derive(Default)]
struct Count {
    ok: AtomicU64,
    fail: AtomicU64,
    micros: AtomicU64,
    within: [AtomicU64; BUCKETS_MS.len()],
}

/// See the module.
#[derive(Default)]
pub struct Served([[Count; NAMES.len()]; DOORS.len()]);

/// The last part of a path; all topics have one name.
fn name_of(path: &str) -> usize {
    let name = match path.starts_with("/api/dtmsvr/topic/") {
        true => "deletetopic",
        false => path.rsplit('/').next().unwrap_or(""),
    };
    NAMES.iter().position(|known| known.eq_ignore_ascii_case(name)).unwrap_or(NAMES.len() - 1)
}

impl Served {
    /// A request over HTTP.
    pub(super) fn count_http(&self, path: &str, is_ok: bool, took: Duration) {
        self.count(0, path, is_ok, took);
    }

    /// A call over gRPC.
    pub(super) fn count_grpc(&self, path: &str, is_ok: bool, took: Duration) {
        self.count(1, path, is_ok, took);
    }

    fn count(&self, door: usize, path: &str, is_ok: bool, took: Duration) {
        let count = &self.0[door][name_of(path)];
        let add = |counter: &AtomicU64, by| counter.fetch_add(by, Ordering::Relaxed);
        add(if is_ok { &count.ok } else { &count.fail }, 1);
        add(&count.micros, took.as_micros() as u64);
        if let Some(bucket) = bucket(took.as_millis() as u64) {
            add(&count.within[bucket], 1);
        }
    }

    /// Writes them. Names that nobody asked for are left out.
    pub(super) fn write(&self, page: &mut Page, version: &str) {
        page.metric("dtm_server_info", Kind::Gauge, "What serves dtm's API.");
        let labels = [("gin_version", "none"), ("grpc_version", "none"), ("forebay", version)];
        page.sample("dtm_server_info", &labels, 1.0);
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let name = "dtm_server_process_total";
        page.metric(name, Kind::Counter, "Requests of dtm's API, by door, name and outcome.");
        self.each(|door, api, count| {
            for (status, counter) in [("ok", &count.ok), ("fail", &count.fail)] {
                let labels = [("type", door), ("api", api), ("status", status)];
                page.sample(name, &labels, value(counter));
            }
        });
        let name = "dtm_server_response_duration";
        page.metric(name, Kind::Histogram, "Seconds that requests of dtm's API took.");
        self.each(|door, api, count| {
            let within: Vec<f64> = count.within.iter().map(value).collect();
            let labels = [("type", door), ("api", api)];
            let all = value(&count.ok) + value(&count.fail);
            histogram(page, name, &labels, &within, value(&count.micros) / 1e6, all);
        });
    }

    fn each(&self, mut visit: impl FnMut(&'static str, &'static str, &Count)) {
        for (door, counts) in DOORS.iter().zip(&self.0) {
            for (name, count) in NAMES.iter().zip(counts) {
                let both = count.ok.load(Ordering::Relaxed) + count.fail.load(Ordering::Relaxed);
                if both > 0 {
                    visit(door, name, count);
                }
            }
        }
    }
}

/// Writes the samples of a histogram over [`BUCKETS_MS`], in seconds.
pub(super) fn histogram(
    page: &mut Page,
    name: &str,
    labels: &[(&str, &str)],
    within: &[f64],
    sum: f64,
    count: f64,
) {
    let (bucket, mut below) = (format!("{name}_bucket"), 0.0);
    let bounds = BUCKETS_MS.map(|ms| (ms as f64 / 1000.0).to_string());
    for (bound, count) in bounds.iter().zip(within) {
        below += count;
        page.sample(&bucket, &[labels, &[("le", bound)]].concat(), below);
    }
    page.sample(&bucket, &[labels, &[("le", "+Inf")]].concat(), count);
    page.sample(&format!("{name}_sum"), labels, sum);
    page.sample(&format!("{name}_count"), labels, count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_under_bounded_names() {
        let served = Served::default();
        served.count_http("/api/dtmsvr/newGid", true, Duration::from_millis(7));
        served.count_http("/api/dtmsvr/anything", false, Duration::from_secs(60));
        served.count_http("/api/dtmsvr/topic/mine", true, Duration::ZERO);
        served.count_grpc("/dtmgimp.Dtm/NewGid", true, Duration::ZERO);
        let mut page = Page::default();
        served.write(&mut page, "v");
        let text = page.into_text();
        for line in [
            r#"dtm_server_process_total{type="http",api="newgid",status="ok"} 1"#,
            r#"dtm_server_process_total{type="http",api="newgid",status="fail"} 0"#,
            r#"dtm_server_process_total{type="http",api="other",status="fail"} 1"#,
            r#"dtm_server_process_total{type="http",api="deletetopic",status="ok"} 1"#,
            r#"dtm_server_process_total{type="grpc",api="newgid",status="ok"} 1"#,
            r#"dtm_server_response_duration_bucket{type="http",api="newgid",le="0.005"} 0"#,
            r#"dtm_server_response_duration_bucket{type="http",api="newgid",le="0.01"} 1"#,
            r#"dtm_server_response_duration_bucket{type="http",api="other",le="10"} 0"#,
            r#"dtm_server_response_duration_bucket{type="http",api="other",le="+Inf"} 1"#,
            r#"dtm_server_response_duration_sum{type="http",api="other"} 60"#,
            r#"dtm_server_response_duration_count{type="grpc",api="newgid"} 1"#,
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
        assert!(!text.contains("\"submit\""), "nobody asked for it");
    }
}
