//! What a request is answered: counts, usage, refusals. The words are the same over HTTP and RESP.

use std::sync::Arc;

use super::org::{Planned, Standing};
use super::period::Period;
use crate::append::Append;
use crate::store::Throttled;

/// When a record is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ack {
    /// Committed in a transaction of its own.
    Sync,
    /// Committed in a transaction that is shared with whoever came at the same time.
    #[default]
    Group,
    /// Flushed to the server's own journal; the database follows.
    Journal,
}

impl Ack {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Ack::Sync => "sync",
            Ack::Group => "group",
            Ack::Journal => "journal",
        }
    }
}

/// Why a request is refused. Nothing of it is stored or counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The request makes no sense.
    Malformed(String),
    /// No key, or one that nobody knows.
    Unauthorized(&'static str),
    /// The key may not do this.
    Forbidden(String),
    /// There is no such thing.
    NotFound(String),
    /// The body is too large, or has too many records.
    TooLarge(String),
    /// The quota or the burst limit is reached; which, and seconds until it is worth trying again.
    Quota {
        /// The policy's name: `burst`, or the period's.
        policy: &'static str,
        /// Seconds.
        retry_after_s: i64,
    },
    /// A request with this idempotency key is being worked on.
    InFlight,
    /// This idempotency key came with other content.
    OtherContent,
    /// The backlog is full or the database does not answer; seconds until another try.
    Busy {
        /// What is missing.
        detail: String,
        /// Seconds.
        retry_after_s: i64,
    },
}

/// What happened to one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Stored and counted.
    Accepted,
    /// It was there already.
    Duplicate,
    /// There was no room for it.
    OverQuota,
    /// It makes no sense.
    Malformed(String),
    /// Its time lies too far back or ahead.
    OutOfTime,
}

impl Verdict {
    /// One word for it, and what there is to say.
    fn words(&self) -> (&'static str, &str) {
        match self {
            Verdict::Accepted => ("accepted", ""),
            Verdict::Duplicate => ("duplicate", ""),
            Verdict::OverQuota => ("quota-exceeded", "the quota has no room for it"),
            Verdict::Malformed(why) => ("malformed", why),
            Verdict::OutOfTime => {
                ("out-of-time", "its time is more than 35 days back or 5 minutes ahead")
            }
        }
    }
}

/// Where an organisation stands after a request.
#[derive(Debug, Clone)]
pub struct Usage {
    /// Its name.
    pub org: Arc<str>,
    /// Its plan.
    pub planned: Arc<Planned>,
    /// The period.
    pub period: Period,
    /// Its counter.
    pub standing: Standing,
    /// What its burst limit says, if it has one.
    pub burst: Option<Throttled>,
    /// When that was.
    pub now_ms: i64,
}

impl Usage {
    /// What is left in the period; none if there is no limit.
    pub fn remaining(&self) -> Option<i64> {
        self.planned.plan.limit.map(|limit| (limit - self.standing.used).max(0))
    }

    /// Seconds until the next period, rounded up.
    pub fn reset_after_s(&self) -> i64 {
        (self.period.end_ms - self.now_ms + 999).max(0) / 1000
    }

    /// Appends it as a JSON object.
    pub fn write_json(&self, out: &mut String) {
        let plan = &self.planned.plan;
        let told = self.planned.told(self.period);
        let used = self.standing.used;
        out.text("{\"org\":\"").text(&self.org).text("\",\"period\":\"").text(&told.name);
        out.text("\",\"used\":").number(used);
        if let Some(limit) = plan.limit {
            let left = self.remaining().unwrap_or(0);
            out.text(",\"limit\":").number(limit).text(",\"remaining\":").number(left);
            if used > limit {
                let kind = if plan.dry_run { "dry_run" } else { "soft" };
                out.text(",\"over_limit\":true,\"because\":\"").text(kind).text("\"");
            }
        }
        out.text(",\"every\":\"").text(plan.period.name());
        out.text("\",\"resets_at\":\"").text(&told.end).text("\"}");
    }
}

/// An answer to ingest.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The status over HTTP: 200 where the database has it, 202 where the journal has it.
    pub status: u16,
    /// JSON.
    pub body: String,
    /// Records stored by it.
    pub accepted: i64,
    /// Whether it is the answer to an earlier request of the same idempotency key.
    pub is_replay: bool,
    /// For the RateLimit headers.
    pub usage: Option<Usage>,
}

/// What a request for ingest ends as.
pub type Outcome = Result<Answer, Box<Refused>>;

/// A request that is refused.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// Where its organisation stands, if that is known.
    pub usage: Option<Usage>,
}

/// Refuses a request.
pub fn refuse(refusal: Refusal, usage: Option<Usage>) -> Outcome {
    Err(Box::new(Refused { refusal, usage }))
}

/// The body of an answer to ingest.
pub fn ingest_body(verdicts: &[Verdict], usage: &Usage, ack: Ack) -> String {
    let count = |want| verdicts.iter().filter(|verdict| *verdict == want).count() as i64;
    let mut body = String::with_capacity(256);
    body.text("{\"accepted\":").number(count(&Verdict::Accepted));
    body.text(",\"duplicate\":").number(count(&Verdict::Duplicate)).text(",\"rejected\":[");
    let mut comma = "";
    for (index, verdict) in verdicts.iter().enumerate() {
        if matches!(verdict, Verdict::Accepted | Verdict::Duplicate) {
            continue;
        }
        let (reason, detail) = verdict.words();
        // A text always has a JSON form.
        let detail = serde_json::to_string(detail).unwrap_or_default();
        body.text(comma).text("{\"index\":").number(index as i64);
        body.text(",\"reason\":\"").text(reason).text("\",\"detail\":").text(&detail).text("}");
        comma = ",";
    }
    body.push_str("],\"usage\":");
    usage.write_json(&mut body);
    body.text(",\"mode\":\"").text(ack.name()).text("\"}");
    body
}
