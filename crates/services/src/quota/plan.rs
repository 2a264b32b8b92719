//! What an organisation may use: its limit, period, burst limit, costs and thresholds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::period::{Calendar, Every};
use crate::store::Throttle;

/// Limits of numbers in a plan: they fit any counter with room to add up.
pub const NUMBER_MAX: i64 = 1 << 53;
/// Costs by type, thresholds: so many at most.
const COSTS_MAX: usize = 1000;
const THRESHOLDS_MAX: usize = 10;

/// At most `rate` requests in `per` seconds, and `max` at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Requests in one `per`.
    pub rate: i64,
    /// Seconds.
    #[serde(default = "one")]
    pub per: i64,
    /// Requests at once; as many as `rate` unless given.
    #[serde(default)]
    pub max: i64,
}

fn one() -> i64 {
    1
}

impl Burst {
    /// For the store.
    pub fn throttle(&self) -> Throttle {
        let max = if self.max == 0 { self.rate } else { self.max };
        Throttle { burst_max: max - 1, count: self.rate, period_ms: self.per * 1000 }
    }
}

/// See the module. As JSON it is what PUT quota takes and what the database keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// What may be used in one period; none = no limit.
    pub limit: Option<i64>,
    /// How long a period is.
    pub period: Every,
    /// The day of the month (or the week, from Monday) that a period begins on.
    pub anchor_day: u8,
    /// The time zone whose midnight that is.
    pub tz: String,
    /// Records above the limit are taken and marked.
    pub soft: bool,
    /// Nothing is refused; what would have been is counted.
    pub dry_run: bool,
    /// A limit on requests in a short time, beside the quota.
    pub burst: Option<Burst>,
    /// What a record of a type costs; 1 unless it is here.
    pub costs: BTreeMap<String, i64>,
    /// Percents of the limit at which webhooks are told.
    pub thresholds: Vec<u16>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            limit: None,
            period: Every::Month,
            anchor_day: 1,
            tz: "UTC".into(),
            soft: false,
            dry_run: false,
            burst: None,
            costs: BTreeMap::new(),
            thresholds: vec![50, 80, 100],
        }
    }
}

impl Plan {
    /// Its calendar, if everything in it makes sense; else what does not.
    pub fn check(&self) -> Result<Calendar, String> {
        let within = |number: i64, least: i64| (least..=NUMBER_MAX).contains(&number);
        if self.limit.is_some_and(|limit| !within(limit, 0)) {
            return Err(format!("limit is from 0 to {NUMBER_MAX}"));
        }
        let days = if self.period == Every::Week { 7 } else { 31 };
        if !(1..=days).contains(&self.anchor_day) {
            return Err(format!("anchor_day is from 1 to {days}"));
        }
        if let Some(burst) = &self.burst {
            let is_good = (1..=1_000_000).contains(&burst.rate)
                && (1..=86_400).contains(&burst.per)
                && (0..=1_000_000).contains(&burst.max);
            if !is_good {
                let text = "burst: rate from 1 to 1000000, per from 1 to 86400 seconds, \
                            max to 1000000";
                return Err(text.into());
            }
        }
        if self.costs.len() > COSTS_MAX || self.costs.values().any(|cost| !within(*cost, 0)) {
            return Err(format!("costs: {COSTS_MAX} types at most, none costs less than 0"));
        }
        let is_good = |percent: &u16| (1..=1000).contains(percent);
        if self.thresholds.len() > THRESHOLDS_MAX || !self.thresholds.iter().all(is_good) {
            return Err(format!("thresholds: {THRESHOLDS_MAX} percents at most, from 1 to 1000"));
        }
        Calendar::new(self.period, &self.tz, self.anchor_day).map_err(|error| error.to_string())
    }

    /// What may be charged at most: soft limits and dry runs let everything through.
    pub fn ceiling(&self) -> i64 {
        match self.limit {
            Some(limit) if !self.soft && !self.dry_run => limit,
            _ => i64::MAX,
        }
    }

    /// What a record of this type costs unless it says so itself.
    pub fn cost_of(&self, kind: Option<&str>) -> i64 {
        kind.and_then(|kind| self.costs.get(kind)).copied().unwrap_or(1)
    }

    /// The highest threshold that is passed by going from `before` to `after`, in percents.
    pub fn crossed(&self, before: i64, after: i64) -> Option<u16> {
        let limit = i128::from(self.limit.filter(|limit| *limit > 0)?);
        let reaches =
            |used: i64, percent: u16| i128::from(used) * 100 >= limit * i128::from(percent);
        let passed = |percent: &&u16| !reaches(before, **percent) && reaches(after, **percent);
        self.thresholds.iter().filter(passed).max().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(json: &str) -> Result<Plan, String> {
        let plan: Plan = serde_json::from_str(json).map_err(|error| error.to_string())?;
        plan.check().map(|_| plan)
    }

    #[test]
    fn plans_are_checked() {
        assert!(plan("{}").is_ok_and(|plan| plan == Plan::default()));
        for bad in [
            r#"{"limit": -1}"#,
            r#"{"limit": 1e3}"#,
            r#"{"anchor_day": 0}"#,
            r#"{"anchor_day": 32}"#,
            r#"{"period": "week", "anchor_day": 8}"#,
            r#"{"period": "fortnight"}"#,
            r#"{"tz": "Nowhere"}"#,
            r#"{"burst": {"rate": 0}}"#,
            r#"{"costs": {"a": -1}}"#,
            r#"{"thresholds": [0]}"#,
            r#"{"limits": 1}"#,
        ] {
            assert!(plan(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn thresholds_are_passed_once() {
        let plan = plan(r#"{"limit": 10, "thresholds": [50, 80, 100]}"#).expect("a plan");
        assert_eq!(plan.crossed(0, 4), None);
        assert_eq!(plan.crossed(4, 5), Some(50));
        assert_eq!(plan.crossed(5, 7), None);
        assert_eq!(plan.crossed(4, 10), Some(100));
        assert_eq!(plan.crossed(10, 20), None);
    }

    #[test]
    fn soft_limits_and_dry_runs_let_everything_through() {
        assert_eq!(plan(r#"{"limit": 3}"#).expect("a plan").ceiling(), 3);
        for open in [r#"{"limit": 3, "soft": true}"#, r#"{"limit": 3, "dry_run": true}"#, "{}"] {
            assert_eq!(plan(open).expect("a plan").ceiling(), i64::MAX);
        }
        let plan = plan(r#"{"costs": {"big": 5}}"#).expect("a plan");
        assert_eq!(
            (plan.cost_of(Some("big")), plan.cost_of(Some("x")), plan.cost_of(None)),
            (5, 1, 1)
        );
    }
}
