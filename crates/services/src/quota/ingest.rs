//! The way of a request from its body to the writer's queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::answer::{Outcome, Refusal, Usage, Verdict, refuse};
use super::batch::Batch;
use super::caller::{Caller, Scope};
use super::event::Parsed;
use super::known::{Known, release};
use super::lead::Lead;
use super::org::{Cost, NotCharged, Standing};
use super::queue::{Done, Idempotency, Item, Queue, Work};
use super::service::{Service, busy, lock};
use super::writer::Ended;
use crate::store::Throttled;

/// How far back and ahead an event's own time may lie.
const BACK_MS: i64 = 35 * 86_400_000;
const AHEAD_MS: i64 = 5 * 60_000;
/// A counter that is loaded and gone again so often is given up.
const LOADS_MAX: usize = 8;

/// Adds a request to a queue.
type Push = fn(&Queue<Work>, Work) -> Result<(), Box<Work>>;

/// Answers a request: nothing is left to be done.
fn told(done: Done, outcome: Outcome) -> Option<Work> {
    done(outcome);
    None
}

/// A request for ingest.
pub struct Ingest {
    /// Who asks.
    pub caller: Arc<Caller>,
    /// The records.
    pub records: Parsed,
    /// What each costs that does not say so itself; the plan says it unless given.
    pub cost: Option<i64>,
    /// The idempotency key, if it came with one.
    pub idempotency: Option<Idempotency>,
    /// When it came.
    pub now_ms: i64,
    /// Takes the outcome.
    pub done: Done,
}

impl Service {
    /// Takes a request: stores and counts what the quota has room for, and then says so.
    pub fn ingest(self: &Arc<Self>, request: Ingest) {
        if let Some(work) = self.prepare(request) {
            self.admit(work, 0);
        }
    }

    /// The same for an event loop that may store a lone request itself: what comes back is to be
    /// [used](Lead::go) when all that has come in the same turn was taken.
    pub fn ingest_and_lead(self: &Arc<Self>, request: Ingest) -> Option<Lead> {
        let work = self.prepare(request)?;
        let place = self.place.as_ref().filter(|place| place.is_free() && !work.needs_look());
        let Some(place) = place else {
            self.admit(work, 0);
            return None;
        };
        let work = self.admitted(work, 0)?;
        self.line_up(work, Queue::push_quietly).then(|| Lead::new(place))
    }

    /// What of a request may be stored, as far as memory tells; nothing if it is answered.
    fn prepare(self: &Arc<Self>, request: Ingest) -> Option<Work> {
        let Ingest { caller, records, cost, idempotency, now_ms, done } = request;
        let counts = Arc::clone(&self.counts);
        let done: Done = Box::new(move |outcome| {
            counts.ended[Ended::of(&outcome) as usize].fetch_add(1, Ordering::Relaxed);
            done(outcome);
        });
        let burst = match self.gate(&caller, now_ms) {
            Ok(burst) => burst,
            Err(refusal) => return told(done, refuse(refusal, None)),
        };
        let planned = caller.org.planned();
        let (period, _) = caller.org.period(now_ms);
        let usage = Usage {
            org: Arc::clone(&caller.org.id),
            planned,
            period,
            standing: Standing::default(),
            burst,
            now_ms,
        };
        if let Some(throttled) = burst.filter(|burst| burst.is_limited)
            && !usage.planned.plan.dry_run
        {
            caller.org.deny(1);
            let retry_after_s = throttled.retry_after_ms.unwrap_or(0).div_euclid(1000) + 1;
            let refusal = Refusal::Quota { policy: "burst", retry_after_s };
            return told(done, refuse(refusal, Some(usage)));
        }
        let records = match records {
            Ok(records) => records,
            Err(why) => return told(done, refuse(Refusal::Malformed(why), Some(usage))),
        };
        let mut items = Vec::with_capacity(records.len());
        for record in records {
            items.push(item(&caller, &usage, record, cost));
        }
        let deadline = Instant::now() + self.settings.wait;
        let done = match &idempotency {
            None => done,
            Some(idempotency) => match self.only_one(&caller, idempotency, done) {
                Ok(done) => done,
                Err(done) => return told(done, refuse(Refusal::InFlight, Some(usage))),
            },
        };
        let received_ms = now_ms;
        Some(Work { caller, items, idempotency, usage, received_ms, deadline, done })
    }

    /// Whether the key may be used, and what the burst limit says.
    fn gate(&self, caller: &Caller, now_ms: i64) -> Result<Option<Throttled>, Refusal> {
        caller.may(Scope::Ingest, now_ms)?;
        let throttled = caller.org.throttle(&*self.store, now_ms, 1);
        throttled.map_err(|error| busy(error.to_string()))
    }

    /// Lets one request of an idempotency key in at a time: `done`, which lets the next one in.
    fn only_one(
        self: &Arc<Self>,
        caller: &Caller,
        idempotency: &Idempotency,
        done: Done,
    ) -> Result<Done, Done> {
        let name = (Arc::clone(&caller.org.id), idempotency.key.clone());
        if !lock(&self.in_flight).insert(name.clone()) {
            return Err(done);
        }
        let service = Arc::clone(self);
        Ok(Box::new(move |outcome| {
            lock(&service.in_flight).remove(&name);
            done(outcome);
        }))
    }

    /// Reserves and queues.
    fn admit(self: &Arc<Self>, work: Work, loads: usize) {
        if let Some(work) = self.admitted(work, loads) {
            self.line_up(work, Queue::push);
        }
    }

    /// Reserves; gives it back if it is to be queued now.
    fn admitted(self: &Arc<Self>, mut work: Work, loads: usize) -> Option<Work> {
        match self.reserve(&mut work) {
            Ok(()) => {}
            Err((NotCharged::Missing, at_ms)) if loads < LOADS_MAX => {
                let (service, org) = (Arc::clone(self), Arc::clone(&work.caller.org));
                self.load(org, at_ms, move |result| match result {
                    Ok(()) => service.admit(work, loads + 1),
                    Err(refusal) => (work.done)(refuse(refusal, None)),
                });
                return None;
            }
            Err((why, _)) => {
                let why = match why {
                    NotCharged::Missing => "the counter is gone again and again".to_string(),
                    NotCharged::Store(error) => error.to_string(),
                };
                return told(work.done, refuse(busy(why), None));
            }
        }
        if !work.items.iter().any(|item| item.is_charged) && !work.needs_look() {
            self.refuse_at_once(work);
            return None;
        }
        Some(work)
    }

    /// Queues by `push`, or refuses; whether it is queued.
    fn line_up(&self, work: Work, push: Push) -> bool {
        let pushed = if self.is_full() { Err(Box::new(work)) } else { push(&self.queue, work) };
        let Err(mut work) = pushed else { return true };
        release(&mut work, &*self.store, self.now_ms(), |_| true);
        let usage = Some(work.usage.clone());
        let why = "more waits for the database than may wait";
        (work.done)(refuse(busy(why.into()), usage));
        false
    }

    /// Nothing of it can be stored, and nobody need be asked.
    fn refuse_at_once(&self, mut work: Work) {
        let mut nothing = Batch::default();
        let (store, ack) = (&*self.store, self.settings.grouping.ack);
        let now_ms = work.received_ms;
        let outcome: Outcome = Known::default().decide(&mut work, store, ack, now_ms, &mut nothing);
        (work.done)(outcome);
    }

    /// Charges what there is room for, period by period. If a counter has to be loaded nothing is
    /// charged; with the moment whose counter it is.
    fn reserve(&self, work: &mut Work) -> Result<(), (NotCharged, i64)> {
        let now_ms = work.received_ms;
        let mut periods: Vec<(i64, i64)> = Vec::new();
        for item in work.items.iter().filter(|item| item.verdict == Verdict::Accepted) {
            if !periods.iter().any(|(period_ms, _)| *period_ms == item.period_ms) {
                let at_ms = item.event.as_ref().and_then(|event| event.at_ms).unwrap_or(now_ms);
                periods.push((item.period_ms, at_ms));
            }
        }
        let current_ms = work.usage.period.start_ms;
        if !periods.iter().any(|(period_ms, _)| *period_ms == current_ms) {
            // Nothing to charge, but its standing is told.
            periods.push((current_ms, now_ms));
        }
        for (period_ms, at_ms) in periods {
            if let Err(why) = self.reserve_in(work, period_ms, at_ms) {
                release(work, &*self.store, now_ms, |_| true);
                for item in &mut work.items {
                    let was = item.verdict == Verdict::OverQuota;
                    item.verdict = if was { Verdict::Accepted } else { item.verdict.clone() };
                }
                return Err((why, at_ms));
            }
        }
        Ok(())
    }

    fn reserve_in(&self, work: &mut Work, period_ms: i64, at_ms: i64) -> Result<(), NotCharged> {
        let is_in = |item: &Item| item.period_ms == period_ms && item.verdict == Verdict::Accepted;
        let mut costs: Vec<Cost> = Vec::with_capacity(work.items.len());
        for (index, item) in work.items.iter().enumerate().filter(|(_, item)| is_in(item)) {
            costs.push(Cost { index, cost: item.cost, is_charged: false });
        }
        let org = &work.caller.org;
        let standing = org.reserve(&*self.store, at_ms, work.received_ms, &mut costs)?;
        if work.usage.period.start_ms == period_ms {
            work.usage.standing = standing;
        }
        for cost in costs {
            let item = &mut work.items[cost.index];
            item.is_charged = cost.is_charged;
            if !cost.is_charged {
                item.verdict = Verdict::OverQuota;
            }
        }
        Ok(())
    }
}

fn item(
    caller: &Caller,
    usage: &Usage,
    record: Result<super::event::Event, String>,
    cost: Option<i64>,
) -> Item {
    let period_ms = usage.period.start_ms;
    let event = match record {
        Ok(event) => event,
        Err(why) => {
            let verdict = Verdict::Malformed(why);
            return Item { event: None, verdict, cost: 0, is_charged: false, period_ms };
        }
    };
    let plan = &usage.planned.plan;
    let cost = event.cost.or(cost).unwrap_or_else(|| plan.cost_of(event.kind.as_deref()));
    let now_ms = usage.now_ms;
    let (verdict, period_ms) = match event.at_ms {
        Some(at_ms) if !(now_ms - BACK_MS..=now_ms + AHEAD_MS).contains(&at_ms) => {
            (Verdict::OutOfTime, period_ms)
        }
        Some(at_ms) if !usage.period.has(at_ms) => {
            (Verdict::Accepted, caller.org.period(at_ms).0.start_ms)
        }
        _ => (Verdict::Accepted, period_ms),
    };
    Item { event: Some(event), verdict, cost, is_charged: false, period_ms }
}
