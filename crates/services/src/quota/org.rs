//! An organisation in memory: its plan, the counters of its periods, what is reserved.
//!
//! ```text
//!  reserve: counter + cost, pending + cost      (refused if the counter would pass the limit)
//!  settle:                  pending - cost      (the database holds it now)
//!  release: counter - cost, pending - cost      (it was not stored)
//!  load:    counter = database + pending        (the store had forgotten it)
//! ```
//!
//! **Invariant:** counter = what the database holds + pending, whenever the lock is free.
//! **Invariant:** settle, release and load run in the writer's thread, after its transaction.

use std::sync::{Arc, Mutex, MutexGuard};

use super::period::{Calendar, Period, rfc3339};
use super::plan::Plan;
use crate::store::{Charge, Store, StoreError, Throttled};

/// Periods of an organisation that are kept in memory though nothing is reserved in them.
const PERIODS_KEPT: usize = 2;
/// A counter stays in the store for so long after its period, for late events.
const KEPT_AFTER_MS: i64 = 36 * 86_400_000;

/// A plan with its calendar.
#[derive(Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Its calendar.
    pub calendar: Calendar,
    /// The period that was told of last: the next answer is of the same one, as a rule.
    last: Mutex<Option<(Period, Arc<Told>)>>,
}

/// What answers say of a period.
#[derive(Debug)]
pub struct Told {
    /// Its name.
    pub name: String,
    /// Its end, in RFC 3339.
    pub end: String,
}

impl Planned {
    fn new(plan: Plan, calendar: Calendar) -> Planned {
        Planned { plan, calendar, last: Mutex::default() }
    }

    /// What answers say of a period.
    pub fn told(&self, period: Period) -> Arc<Told> {
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((of, told)) = &*last
            && *of == period
        {
            return Arc::clone(told);
        }
        let (name, end) = (self.calendar.name_of(period), rfc3339(period.end_ms));
        let told = Arc::new(Told { name, end });
        *last = Some((period, Arc::clone(&told)));
        told
    }
}

/// A counter.
#[derive(Debug)]
struct Counter {
    period: Period,
    key: Arc<str>,
    pending: i64,
    /// The number of the plan that it was made by.
    plans: u32,
    /// Whether the store was given what the database holds since this server started.
    is_loaded: bool,
    /// What the store said last that it holds.
    used: Option<i64>,
    /// Once the database holds so much, a threshold may have been passed.
    next_line: i64,
}

impl Counter {
    fn new(period: Period, key: Arc<str>, pending: i64, plans: u32) -> Counter {
        Counter { period, key, pending, plans, is_loaded: false, used: None, next_line: 0 }
    }

    /// What the database holds, as far as that is known.
    fn held(&self) -> Option<i64> {
        Some(self.used? - self.pending)
    }

    /// Whether a threshold may have been passed; says so once.
    fn passes(&mut self) -> bool {
        let passes = self.held().is_some_and(|held| held >= self.next_line);
        if passes {
            self.next_line = i64::MAX;
        }
        passes
    }
}

#[derive(Debug)]
struct State {
    planned: Arc<Planned>,
    counters: Vec<Counter>,
    /// Plans that there have been.
    plans: u32,
    denied: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Org {
    /// Its name.
    pub id: Arc<str>,
    state: Mutex<State>,
}

/// What is to be charged for one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Its place in the request.
    pub index: usize,
    /// What it costs.
    pub cost: i64,
    /// Whether it was charged.
    pub is_charged: bool,
}

/// Why nothing could be charged.
#[derive(Debug, PartialEq, Eq)]
pub enum NotCharged {
    /// The counter must be loaded first.
    Missing,
    /// The store does not answer.
    Store(StoreError),
}

impl From<StoreError> for NotCharged {
    fn from(error: StoreError) -> NotCharged {
        NotCharged::Store(error)
    }
}

/// Where a counter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// What it held before this request.
    pub before: i64,
    /// What it holds.
    pub used: i64,
}

/// What [`Org::glance`] sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glance {
    /// What the counter holds.
    pub used: i64,
    /// What it may hold; none = no limit.
    pub limit: Option<i64>,
    /// Seconds until the next period, rounded up.
    pub reset_after_s: i64,
}

/// What [`Org::passed`] finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// Percents of the limit, the smallest first.
    pub percents: Vec<u16>,
    /// What the database's counter holds.
    pub used: i64,
    /// The limit.
    pub limit: i64,
    /// The period.
    pub period: Period,
    /// Its name.
    pub name: String,
}

/// What a counter holds after a charge.
fn held(charge: Charge) -> Option<i64> {
    match charge {
        Charge::Done(used) | Charge::Over(used) => Some(used),
        Charge::Missing => None,
    }
}

impl Org {
    /// An organisation with nothing reserved.
    pub fn new(id: &str, plan: Plan) -> Result<Org, String> {
        let calendar = plan.check()?;
        let planned = Arc::new(Planned::new(plan, calendar));
        let state = State { planned, counters: Vec::new(), plans: 0, denied: 0 };
        Ok(Org { id: id.into(), state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Its plan.
    pub fn planned(&self) -> Arc<Planned> {
        Arc::clone(&self.lock().planned)
    }

    /// Gives it another plan. Counters stay where the periods stay the same.
    pub fn set_plan(&self, plan: Plan) -> Result<(), String> {
        let calendar = plan.check()?;
        let mut state = self.lock();
        state.planned = Arc::new(Planned::new(plan, calendar));
        state.plans += 1;
        state.counters.iter_mut().for_each(|counter| counter.next_line = 0);
        Ok(())
    }

    /// The period that a moment lies in, and the name of its counter in the store.
    pub fn period(&self, at_ms: i64) -> (Period, Arc<str>) {
        let mut state = self.lock();
        let counter = self.counter(&mut state, at_ms);
        (counter.period, Arc::clone(&counter.key))
    }

    fn counter<'s>(&self, state: &'s mut State, at_ms: i64) -> &'s mut Counter {
        let plans = state.plans;
        let is_it = |counter: &Counter| counter.plans == plans && counter.period.has(at_ms);
        let place = match state.counters.iter().rposition(is_it) {
            Some(place) => place,
            None => self.open(state, at_ms),
        };
        &mut state.counters[place]
    }

    /// Makes the counter of a moment's period, and forgets old ones.
    fn open(&self, state: &mut State, at_ms: i64) -> usize {
        let calendar = &state.planned.calendar;
        let period = calendar.period_of(at_ms);
        let key: Arc<str> = format!("quota:{{{}}}:{}", self.id, calendar.name_of(period)).into();
        let plans = state.plans;
        // Counters are known by their start: another plan's period may begin there, too.
        let same = |counter: &Counter| counter.period.start_ms == period.start_ms;
        if let Some(place) = state.counters.iter().position(same) {
            let pending = state.counters[place].pending;
            state.counters[place] = Counter::new(period, key, pending, plans);
            return place;
        }
        while state.counters.len() >= PERIODS_KEPT {
            let idle = state.counters.iter().position(|counter| counter.pending == 0);
            let Some(idle) = idle else { break };
            state.counters.remove(idle);
        }
        state.counters.push(Counter::new(period, key, 0, plans));
        state.counters.len() - 1
    }

    /// Asks the burst limit, if there is one, for one request.
    pub fn throttle(
        &self,
        store: &dyn Store,
        now_ms: i64,
        quantity: i64,
    ) -> Result<Option<Throttled>, StoreError> {
        let planned = self.planned();
        let Some(burst) = &planned.plan.burst else { return Ok(None) };
        let key = format!("quota:{{{}}}:burst", self.id);
        store.throttle(&key, burst.throttle(), quantity, now_ms).map(Some)
    }

    /// Charges as many of `costs` as the limit has room for, in their order, to the period of
    /// `at_ms`.
    pub fn reserve(
        &self,
        store: &dyn Store,
        at_ms: i64,
        now_ms: i64,
        costs: &mut [Cost],
    ) -> Result<Standing, NotCharged> {
        let mut state = self.lock();
        let ceiling = state.planned.plan.ceiling();
        let counter = self.counter(&mut state, at_ms);
        if !counter.is_loaded && store.is_own() {
            return Err(NotCharged::Missing);
        }
        let mut room = i64::MAX;
        loop {
            let mut total = 0i64;
            for cost in costs.iter_mut() {
                cost.is_charged = cost.cost <= room - total;
                total += if cost.is_charged { cost.cost } else { 0 };
            }
            match store.charge(&counter.key, total, ceiling, now_ms)? {
                Charge::Done(used) => {
                    counter.pending += total;
                    counter.used = Some(used);
                    return Ok(Standing { before: used - total, used });
                }
                Charge::Missing => return Err(NotCharged::Missing),
                // Nothing fits: a limit that was lowered below what is used already.
                Charge::Over(used) if total == 0 => {
                    let fits = |cost: &Cost| cost.cost == 0;
                    costs.iter_mut().for_each(|cost| cost.is_charged = fits(cost));
                    return Ok(Standing { before: used, used });
                }
                Charge::Over(used) => room = (ceiling - used).max(0).min(total - 1),
            }
        }
    }

    /// What was reserved in a period is in the database now. True if [`Org::passed`] is to be
    /// asked.
    #[must_use]
    pub fn settle(&self, period_ms: i64, cost: i64) -> bool {
        let mut state = self.lock();
        let found = state.counters.iter_mut().find(|counter| counter.period.start_ms == period_ms);
        let Some(counter) = found else { return false };
        counter.pending -= cost;
        counter.passes()
    }

    /// The thresholds of a period that the database's counter has reached, all of them each time.
    pub fn passed(&self, period_ms: i64) -> Option<Passed> {
        let mut state = self.lock();
        let planned = Arc::clone(&state.planned);
        let plan = &planned.plan;
        let found = state.counters.iter_mut().find(|counter| counter.period.start_ms == period_ms);
        let counter = found?;
        let (limit, used) = (plan.limit?, counter.held()?);
        let line = |percent: &u16| {
            let line = i128::from(limit) * i128::from(*percent);
            // A line lies within what counters can hold.
            i64::try_from((line + 99) / 100).unwrap_or(i64::MAX).max(1)
        };
        let ahead = plan.thresholds.iter().map(line).filter(|line| *line > used);
        counter.next_line = ahead.min().unwrap_or(i64::MAX);
        let mut percents = plan.thresholds.clone();
        percents.retain(|percent| line(percent) <= used);
        percents.sort_unstable();
        percents.dedup();
        let (period, name) = (counter.period, planned.calendar.name_of(counter.period));
        Some(Passed { percents, used, limit, period, name: name.to_string() })
    }

    /// What was reserved in a period will not be stored.
    pub fn release(
        &self,
        store: &dyn Store,
        period_ms: i64,
        cost: i64,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let mut state = self.lock();
        let found = state.counters.iter_mut().find(|counter| counter.period.start_ms == period_ms);
        let Some(counter) = found else { return Ok(()) };
        counter.pending -= cost;
        // If the store has forgotten it, it will be loaded without this.
        let charge = store.charge(&counter.key, -cost, i64::MAX, now_ms)?;
        counter.used = held(charge);
        Ok(())
    }

    /// Adds to a counter what the database holds already. True if [`Org::passed`] is to be
    /// asked.
    pub fn adjust(
        &self,
        store: &dyn Store,
        period_ms: i64,
        delta: i64,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let mut state = self.lock();
        let found = state.counters.iter_mut().find(|counter| counter.period.start_ms == period_ms);
        let Some(counter) = found else { return Ok(false) };
        // A counter that the store has forgotten is loaded with this in it.
        let charge = store.charge(&counter.key, delta, i64::MAX, now_ms)?;
        counter.used = held(charge);
        Ok(counter.passes())
    }

    /// Where it stands, from memory alone and without waiting: none if that is not known, or if
    /// somebody else is at it.
    pub fn glance(&self, now_ms: i64) -> Option<Glance> {
        let state = self.state.try_lock().ok()?;
        let is_it = |counter: &&Counter| counter.plans == state.plans && counter.period.has(now_ms);
        let counter = state.counters.iter().rfind(is_it)?;
        let (used, limit) = (counter.used?, state.planned.plan.limit);
        let reset_after_s = (counter.period.end_ms - now_ms + 999) / 1000;
        Some(Glance { used, limit, reset_after_s })
    }

    /// Gives the store what the database holds of the period of `at_ms`, if it has forgotten it.
    /// Only in the writer's thread, between transactions.
    pub fn load(
        &self,
        store: &dyn Store,
        at_ms: i64,
        held: i64,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let mut state = self.lock();
        let counter = self.counter(&mut state, at_ms);
        let is_believed = counter.is_loaded || !store.is_own();
        if is_believed && store.read(&counter.key, now_ms)?.is_some() {
            return Ok(());
        }
        counter.is_loaded = true;
        let expire_at_ms = counter.period.end_ms.saturating_add(KEPT_AFTER_MS);
        let used = held + counter.pending;
        counter.used = Some(used);
        store.put(&counter.key, used, expire_at_ms, now_ms)
    }

    /// What is reserved in a period and not yet in the database.
    pub fn pending(&self, period_ms: i64) -> i64 {
        let state = self.lock();
        let counters = state.counters.iter().filter(|counter| counter.period.start_ms == period_ms);
        counters.map(|counter| counter.pending).sum()
    }

    /// The counters that the store was given by this server: the start of each period, its key, and
    /// what is reserved in it.
    pub fn counters(&self) -> Vec<(i64, Arc<str>, i64)> {
        let state = self.lock();
        let loaded = state.counters.iter().filter(|counter| counter.is_loaded);
        let told = |counter: &Counter| {
            (counter.period.start_ms, Arc::clone(&counter.key), counter.pending)
        };
        loaded.map(told).collect()
    }

    /// Whether it can be forgotten without losing anything.
    pub fn is_idle(&self) -> bool {
        let state = self.lock();
        state.denied == 0 && state.counters.iter().all(|counter| counter.pending == 0)
    }

    /// Counts records that were refused.
    pub fn deny(&self, count: u64) {
        self.lock().denied += count;
    }

    /// Records that were refused since this was called last.
    pub fn take_denied(&self) -> u64 {
        std::mem::take(&mut self.lock().denied)
    }
}

#[cfg(test)]
mod tests {
    use super::super::period::from_rfc3339;
    use super::*;
    use crate::testing::MemoryStore;

    fn org(plan: &str) -> Org {
        Org::new("acme", serde_json::from_str(plan).expect("a plan")).expect("it makes sense")
    }

    fn ms(text: &str) -> i64 {
        from_rfc3339(text).expect("a moment")
    }

    /// Reserves records of these costs; which were charged, and where the counter stands.
    fn ask(org: &Org, store: &MemoryStore, now: i64, costs: &[i64]) -> (Vec<bool>, i64) {
        let cost = |(index, cost): (usize, &i64)| Cost { index, cost: *cost, is_charged: false };
        let mut costs: Vec<Cost> = costs.iter().enumerate().map(cost).collect();
        let mut standing = org.reserve(store, now, now, &mut costs);
        if standing == Err(NotCharged::Missing) {
            org.load(store, now, 0, now).expect("memory answers");
            standing = org.reserve(store, now, now, &mut costs);
        }
        let standing = standing.expect("it is loaded");
        (costs.iter().map(|cost| cost.is_charged).collect(), standing.used)
    }

    #[test]
    fn the_limit_is_reached_exactly() {
        let (org, store) = (org(r#"{"limit": 10}"#), MemoryStore::default());
        let now = ms("2026-11-20T00:00:00Z");
        assert_eq!(ask(&org, &store, now, &[4]), (vec![true], 4));
        // What fits is taken, in order; a record that does not fit does not stop smaller ones.
        assert_eq!(ask(&org, &store, now, &[5, 2, 1, 1]), (vec![true, false, true, false], 10));
        assert_eq!(ask(&org, &store, now, &[1]), (vec![false], 10));
        assert_eq!(ask(&org, &store, now, &[0]), (vec![true], 10));
    }

    #[test]
    fn racing_clients_admit_the_limit() {
        let (org, store) = (org(r#"{"limit": 1000}"#), MemoryStore::default());
        let now = ms("2026-11-20T00:00:00Z");
        org.load(&store, now, 0, now).expect("memory answers");
        let admitted: usize = std::thread::scope(|scope| {
            let race = || (0..200).filter(|_| ask(&org, &store, now, &[1]).0[0]).count();
            let racers: Vec<_> = (0..8).map(|_| scope.spawn(race)).collect();
            racers.into_iter().map(|racer| racer.join().expect("it does not panic")).sum()
        });
        assert_eq!(admitted, 1000);
    }

    #[test]
    fn what_is_released_can_be_used_again() {
        let (org, store) = (org(r#"{"limit": 2}"#), MemoryStore::default());
        let now = ms("2026-11-20T00:00:00Z");
        let start = ms("2026-11-01T00:00:00Z");
        assert_eq!(ask(&org, &store, now, &[1, 1, 1]).0, [true, true, false]);
        org.release(&store, start, 1, now).expect("memory answers");
        assert_eq!(ask(&org, &store, now, &[1, 1]).0, [true, false]);
        let _ = org.settle(start, 1);
        assert_eq!(org.pending(start), 1);
    }

    #[test]
    fn a_store_that_forgets_grants_nothing_twice() {
        let (org, store) = (org(r#"{"limit": 5}"#), MemoryStore::default());
        let now = ms("2026-11-20T00:00:00Z");
        assert_eq!(ask(&org, &store, now, &[1, 1, 1]).1, 3);
        let _ = org.settle(ms("2026-11-01T00:00:00Z"), 2);
        store.clear();
        // The database holds the two that were settled; one is on its way.
        org.load(&store, now, 2, now).expect("memory answers");
        assert_eq!(ask(&org, &store, now, &[1, 1, 1]), (vec![true, true, false], 5));
    }

    #[test]
    fn thresholds_are_passed_by_what_is_stored() {
        let org = org(r#"{"limit": 10, "thresholds": [100, 50]}"#);
        let (store, start) = (MemoryStore::default(), ms("2026-11-01T00:00:00Z"));
        let now = ms("2026-11-20T00:00:00Z");
        let percents = || org.passed(start).expect("there is a limit").percents;
        ask(&org, &store, now, &[1; 9]);
        // The first one asks; nothing is passed before it is stored.
        assert!(org.settle(start, 1));
        assert!(percents().is_empty());
        assert!(!org.settle(start, 3));
        assert!(org.settle(start, 1));
        assert!(!org.settle(start, 1), "it says so once");
        assert_eq!(percents(), [50]);
        assert_eq!(org.adjust(&store, start, 4, now), Ok(true));
        assert_eq!(percents(), [50, 100]);
        org.set_plan(serde_json::from_str(r#"{"limit": 20}"#).expect("a plan")).expect("sense");
        assert!(org.settle(start, 1));
        assert_eq!(percents(), [50]);
    }

    #[test]
    fn a_glance_sees_what_was_charged_and_given_back() {
        let (org, store) = (org(r#"{"limit": 5}"#), MemoryStore::default());
        let (now, start) = (ms("2026-11-30T23:59:00Z"), ms("2026-11-01T00:00:00Z"));
        let used = |now| org.glance(now).map(|glance| glance.used);
        assert_eq!(used(now), None);
        ask(&org, &store, now, &[1, 1, 1]);
        let seen = Glance { used: 3, limit: Some(5), reset_after_s: 60 };
        assert_eq!(org.glance(now), Some(seen));
        org.release(&store, start, 1, now).expect("memory answers");
        let _ = org.adjust(&store, start, -1, now).expect("memory answers");
        assert_eq!(used(now), Some(1));
        assert_eq!(used(now + 60_000), None);
        store.clear();
        let _ = org.adjust(&store, start, -1, now).expect("memory answers");
        assert_eq!(used(now), None);
    }

    #[test]
    fn each_period_has_its_counter() {
        let (org, store) = (org(r#"{"limit": 1, "tz": "Europe/Rome"}"#), MemoryStore::default());
        let (october, november) = (ms("2026-10-31T22:59:59Z"), ms("2026-10-31T23:00:00Z"));
        assert_eq!(ask(&org, &store, october, &[1, 1]).0, [true, false]);
        assert_eq!(ask(&org, &store, november, &[1, 1]).0, [true, false]);
        // A clock that jumps back finds the old counter as it was.
        assert_eq!(ask(&org, &store, october, &[1]).0, [false]);
    }

    #[test]
    fn a_new_plan_holds_at_once() {
        let (org, store) = (org(r#"{"limit": 3}"#), MemoryStore::default());
        let now = ms("2026-11-20T12:00:00Z");
        assert_eq!(ask(&org, &store, now, &[1, 1, 1, 1]).1, 3);
        let plan = |text: &str| serde_json::from_str(text).expect("a plan");
        org.set_plan(plan(r#"{"limit": 2}"#)).expect("it makes sense");
        assert_eq!(ask(&org, &store, now, &[1]), (vec![false], 3));
        org.set_plan(plan(r#"{"limit": 4, "soft": true}"#)).expect("it makes sense");
        assert_eq!(ask(&org, &store, now, &[9]), (vec![true], 12));
        org.set_plan(plan(r#"{"limit": 4, "period": "day"}"#)).expect("it makes sense");
        assert_eq!(ask(&org, &store, now, &[1]), (vec![true], 1));
    }

    #[test]
    fn bursts_are_limited_beside_the_quota() {
        let (org, store) = (org(r#"{"burst": {"rate": 2, "per": 1}}"#), MemoryStore::default());
        let is_limited = |now| {
            let verdict = org.throttle(&store, now, 1).expect("memory answers");
            verdict.expect("there is a burst limit").is_limited
        };
        assert_eq!([0, 0, 0, 499, 500].map(is_limited), [false, false, true, true, false]);
    }
}
