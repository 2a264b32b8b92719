//! Where counters live while they are hot: the embedded keyspace, or a cluster that several
//! servers share. Each operation touches one key and happens at once, so a cluster can do it where
//! the key is.
//!
//! **Invariant:** a counter never passes its limit by [`Store::charge`], however many call it.
//! **Invariant:** a store may forget a counter at any time (eviction, DEL, a restart); then
//! [`Charge::Missing`] says so, and the caller loads it from the database.

use std::fmt;

/// What became of a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// Done; what the counter holds now.
    Done(i64),
    /// It would pass the limit; what the counter holds.
    Over(i64),
    /// There is no such counter.
    Missing,
}

/// A limit on bursts: `count` in `period_ms` and `burst_max` more at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttle {
    /// What may come at once besides the steady flow.
    pub burst_max: i64,
    /// How much flows in one period.
    pub count: i64,
    /// The period in milliseconds.
    pub period_ms: i64,
}

/// What a throttle says, as redis-cell has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttled {
    /// Refused.
    pub is_limited: bool,
    /// What may come at once at most.
    pub limit: i64,
    /// What may come now.
    pub remaining: i64,
    /// When the same would be let through, in milliseconds from now; `None` if it was.
    pub retry_after_ms: Option<i64>,
    /// When the limit is whole again, in milliseconds from now.
    pub reset_after_ms: i64,
}

/// The store does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError(pub String);

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store of counters does not answer: {}", self.0)
    }
}

impl std::error::Error for StoreError {}

/// See the module. Times are in milliseconds since 1970.
pub trait Store: Send + Sync {
    /// Adds `cost` to a counter unless it would pass `limit`.
    fn charge(&self, key: &str, cost: i64, limit: i64, now_ms: i64) -> Result<Charge, StoreError>;

    /// Makes a counter that is forgotten at `expire_at_ms`, whatever it held.
    fn put(&self, key: &str, used: i64, expire_at_ms: i64, now_ms: i64) -> Result<(), StoreError>;

    /// What a counter holds, if it is there.
    fn read(&self, key: &str, now_ms: i64) -> Result<Option<i64>, StoreError>;

    /// Lets `quantity` through a throttle, or not.
    fn throttle(
        &self,
        key: &str,
        throttle: Throttle,
        quantity: i64,
        now_ms: i64,
    ) -> Result<Throttled, StoreError>;

    /// Sets a text that is forgotten at `expire_at_ms`.
    fn set_text(
        &self,
        key: &str,
        text: &str,
        expire_at_ms: i64,
        now_ms: i64,
    ) -> Result<(), StoreError>;

    /// A text; it lives until `expire_at_ms` from now on.
    fn touch_text(
        &self,
        key: &str,
        expire_at_ms: i64,
        now_ms: i64,
    ) -> Result<Option<String>, StoreError>;

    /// Forgets a key; whether it was there.
    fn remove(&self, key: &str, now_ms: i64) -> Result<bool, StoreError>;
}

/// The generic cell rate algorithm: from the theoretical arrival time that was kept, the one to
/// keep (`None` = as it was) and the verdict. Times are in microseconds; what is kept never lies
/// further ahead than the burst allows, so a clock that jumped back does not lock anybody out.
pub fn admit(
    kept_us: Option<i64>,
    throttle: Throttle,
    quantity: i64,
    now_us: i64,
) -> (Option<i64>, Throttled) {
    let limit = throttle.burst_max.saturating_add(1);
    let interval = (throttle.period_ms.saturating_mul(1000) / throttle.count.max(1)).max(1);
    let tolerance = interval.saturating_mul(limit);
    let ahead = |at: i64| at.saturating_sub(now_us).clamp(0, tolerance);
    let before = kept_us.map_or(0, ahead);
    let after = before.saturating_add(interval.saturating_mul(quantity));
    let is_limited = after > tolerance;
    let ahead_now = if is_limited { before } else { after };
    let verdict = Throttled {
        is_limited,
        limit,
        remaining: (tolerance - ahead_now) / interval,
        retry_after_ms: is_limited.then(|| (after - tolerance) / 1000),
        reset_after_ms: ahead_now / 1000,
    };
    let keep = (!is_limited && quantity != 0).then(|| now_us.saturating_add(after));
    (keep, verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    #[test]
    fn a_burst_then_the_steady_flow() {
        let throttle = Throttle { burst_max: 2, count: 1, period_ms: 1000 };
        let mut kept = None;
        let mut ask = |now_us| {
            let (keep, verdict) = admit(kept, throttle, 1, now_us);
            kept = keep.or(kept);
            verdict
        };
        let first = ask(0);
        assert_eq!((first.is_limited, first.limit, first.remaining), (false, 3, 2));
        assert_eq!((first.retry_after_ms, first.reset_after_ms), (None, 1000));
        assert!(!ask(0).is_limited);
        assert_eq!(ask(0).remaining, 0);
        let refused = ask(0);
        assert_eq!((refused.is_limited, refused.retry_after_ms), (true, Some(1000)));
        assert_eq!(refused.reset_after_ms, 3000);
        assert!(!ask(SECOND).is_limited);
        assert!(ask(SECOND).is_limited);
    }

    #[test]
    fn more_than_the_burst_never_fits() {
        let throttle = Throttle { burst_max: 4, count: 10, period_ms: 1000 };
        let (keep, verdict) = admit(None, throttle, 6, 0);
        assert_eq!((keep, verdict.is_limited, verdict.remaining), (None, true, 5));
        assert_eq!(admit(None, throttle, 5, 0).1.remaining, 0);
    }

    #[test]
    fn a_clock_that_jumps_back_locks_nobody_out_for_long() {
        let throttle = Throttle { burst_max: 0, count: 1, period_ms: 1000 };
        let kept = admit(None, throttle, 1, 3600 * SECOND).0;
        let refused = admit(kept, throttle, 1, 0).1;
        assert_eq!(refused.retry_after_ms, Some(1000));
    }

    #[test]
    fn a_look_costs_nothing() {
        let throttle = Throttle { burst_max: 2, count: 1, period_ms: 1000 };
        assert_eq!(admit(Some(SECOND), throttle, 0, 0).0, None);
    }
}
