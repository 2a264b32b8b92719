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

use super::period::{Calendar, Period};
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
}

/// A counter.
#[derive(Debug)]
struct Counter {
    period: Period,
    key: Arc<str>,
    pending: i64,
    /// The number of the plan that it was made by.
    plans: u32,
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

impl Org {
    /// An organisation with nothing reserved.
    pub fn new(id: &str, plan: Plan) -> Result<Org, String> {
        let calendar = plan.check()?;
        let planned = Arc::new(Planned { plan, calendar });
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
        state.planned = Arc::new(Planned { plan, calendar });
        state.plans += 1;
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
            state.counters[place] = Counter { period, key, pending, plans };
            return place;
        }
        while state.counters.len() >= PERIODS_KEPT {
            let idle = state.counters.iter().position(|counter| counter.pending == 0);
            let Some(idle) = idle else { break };
            state.counters.remove(idle);
        }
        state.counters.push(Counter { period, key, pending: 0, plans });
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

    /// What was reserved in a period is in the database now.
    pub fn settle(&self, period_ms: i64, cost: i64) {
        let mut state = self.lock();
        let found = state.counters.iter_mut().find(|counter| counter.period.start_ms == period_ms);
        if let Some(counter) = found {
            counter.pending -= cost;
        }
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
        store.charge(&counter.key, -cost, i64::MAX, now_ms).map(drop)
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
        if store.read(&counter.key, now_ms)?.is_some() {
            return Ok(());
        }
        let expire_at_ms = counter.period.end_ms.saturating_add(KEPT_AFTER_MS);
        store.put(&counter.key, held + counter.pending, expire_at_ms, now_ms)
    }

    /// What is reserved in a period and not yet in the database.
    pub fn pending(&self, period_ms: i64) -> i64 {
        let state = self.lock();
        let counters = state.counters.iter().filter(|counter| counter.period.start_ms == period_ms);
        counters.map(|counter| counter.pending).sum()
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
