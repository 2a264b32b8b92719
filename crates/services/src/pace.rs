//! What work of one kind has cost lately: whether a thread that has other things to do may do it
//! itself instead of handing it over.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// See the module. What has not been done yet counts as long.
#[derive(Debug)]
pub struct Pace(AtomicU32);

impl Default for Pace {
    fn default() -> Pace {
        Pace(AtomicU32::new(u32::MAX))
    }
}

impl Pace {
    /// It took so long this time. What took longer counts at once, what took less by a quarter of
    /// the difference: once slow, it has to be quick some times.
    pub fn took(&self, time: Duration) {
        let new_us = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let old_us = self.cost_us();
        let is_first = old_us == u32::MAX;
        let next_us =
            if is_first { new_us } else { new_us.max(old_us - old_us.saturating_sub(new_us) / 4) };
        // Of two at once either may count.
        self.set_us(next_us);
    }

    /// From now on it counts as so long, in microseconds, whatever it took.
    pub fn set_us(&self, cost_us: u32) {
        self.0.store(cost_us, Ordering::Relaxed);
    }

    /// What it may cost, in microseconds.
    pub fn cost_us(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_slow_once_has_to_be_quick_some_times() {
        let pace = Pace::default();
        assert_eq!(pace.cost_us(), u32::MAX);
        let took = |us| {
            pace.took(Duration::from_micros(us));
            pace.cost_us()
        };
        assert_eq!((took(100), took(60), took(90), took(50_000)), (100, 90, 90, 50_000));
        let quick = (0..30).take_while(|_| took(100) > 1000).count();
        assert!((5..25).contains(&quick), "{quick}");
    }
}
