//! Metrics of metered ingest: no label depends on what a client sends.

use std::sync::atomic::Ordering;

use services::quota::service::Service;
use services::quota::writer::Ended;

use super::Quota;
use crate::exposition::{Kind, Page};

impl Quota {
    /// All of them, in Prometheus's text format.
    pub(crate) fn metrics(&self) -> String {
        page(&self.service)
    }
}

fn page(service: &Service) -> String {
    let mut page = Page::default();
    let counts = &service.counts;
    let name = "forebay_quota_requests_total";
    page.metric(name, Kind::Counter, "Requests for ingest over HTTP and RESP, by their end.");
    for ended in Ended::ALL {
        let count = counts.ended[ended as usize].load(Ordering::Relaxed);
        page.sample(name, &[("result", ended.name())], count as f64);
    }
    for (name, count, help) in [
        ("forebay_quota_commits_total", &counts.commits, "SQL transactions with records."),
        ("forebay_quota_records_total", &counts.records, "Records stored in the SQL database."),
        ("forebay_quota_losses_total", &counts.losses, "Times that the database was not reached."),
    ] {
        page.metric(name, Kind::Counter, help);
        page.sample(name, &[], count.load(Ordering::Relaxed) as f64);
    }
    let lost = counts.is_lost.load(Ordering::Relaxed);
    for (name, value, help) in [
        ("forebay_quota_database_up", f64::from(u8::from(!lost)), "Whether it is reached."),
        (
            "forebay_quota_backlog_rows",
            service.backlog_rows() as f64,
            "Records that wait for the SQL database.",
        ),
        ("forebay_quota_orgs", service.orgs_in_memory() as f64, "Organisations in memory."),
        ("forebay_quota_sessions", service.sessions_open() as f64, "Sessions that are open."),
    ] {
        page.metric(name, Kind::Gauge, help);
        page.sample(name, &[], value);
    }
    page.into_text()
}
