//! The generic cell rate algorithm: a steady flow with room for bursts, kept in one number.
//!
//! ```text
//!   now            theoretical arrival time         now + tolerance
//!    |---- ahead: used up ----|------ remaining ------|
//! ```
//!
//! **Invariant:** in any span of time not more gets through than the burst and the steady flow
//! allow.

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
    /// When the same would be let through, in milliseconds from now; `None` if it was,
    /// or if there is no such time.
    pub retry_after_ms: Option<i64>,
    /// When the limit is whole again, in milliseconds from now.
    pub reset_after_ms: i64,
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
    // More than the limit never fits: there is no time after which it would.
    let would_fit = is_limited && quantity <= limit;
    let verdict = Throttled {
        is_limited,
        limit,
        remaining: (tolerance - ahead_now) / interval,
        retry_after_ms: would_fit.then(|| {
            (after - tolerance).div_euclid(1000) + i64::from((after - tolerance) % 1000 > 0)
        }),
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
        assert_eq!(verdict.retry_after_ms, None);
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
