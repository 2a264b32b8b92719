//! When to ask again, and when to give up: intervals that double up to a bound, with jitter.

use super::transaction::{Options, Tries};

/// The server's defaults and bounds. Seconds where dtm counts in seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// When a prepared transaction is given up, in seconds.
    pub timeout_to_fail_s: u32,
    /// The first wait before another attempt, in seconds.
    pub retry_interval_s: u32,
    /// How long a branch may take to answer, in seconds.
    pub request_timeout_s: u32,
    /// No wait is longer, in ms.
    pub retry_wait_ms_max: u64,
    /// Attempts that go wrong before a branch is a dead letter; 0 = never.
    pub tries_max: u32,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            timeout_to_fail_s: 35,
            retry_interval_s: 10,
            request_timeout_s: 3,
            retry_wait_ms_max: 300_000,
            tries_max: 100,
        }
    }
}

/// When something happens, and a number nobody can guess: both come from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// In ms since 1970.
    pub now_ms: u64,
    /// Any.
    pub random: u64,
}

impl Rules {
    /// The first wait between attempts, in ms.
    pub fn first_wait_ms(&self, options: &Options) -> u64 {
        let seconds = match (options.retry_interval_s, options.timeout_to_fail_s) {
            (0, 0) => self.retry_interval_s,
            (0, timeout) => timeout.min(self.retry_interval_s),
            (interval, _) => interval,
        };
        u64::from(seconds) * 1000
    }

    /// How long a branch may take to answer, in ms.
    pub fn request_timeout_ms(&self, options: &Options) -> u64 {
        let chosen = options.request_timeout_s;
        u64::from(if chosen == 0 { self.request_timeout_s } else { chosen }) * 1000
    }

    /// Puts the next attempt off after one that went wrong: at first by the interval, then by
    /// twice the wait before, less up to a fifth so that not all come at once. At least
    /// `asked_ms`, which the branch asked for.
    pub fn back_off(&self, tries: &mut Tries, options: &Options, moment: Moment, asked_ms: u64) {
        let first = self.first_wait_ms(options);
        tries.count = tries.count.saturating_add(1);
        tries.wait_ms = match tries.wait_ms {
            0 => first,
            wait => wait.saturating_mul(2).min(self.retry_wait_ms_max.max(first)),
        };
        let jitter = moment.random % (tries.wait_ms / 5 + 1);
        let wait = (tries.wait_ms - jitter).max(asked_ms.min(self.retry_wait_ms_max));
        tries.due_ms = moment.now_ms + wait;
    }

    /// Puts the next attempt off by the present wait.
    pub fn keep_waiting(&self, tries: &mut Tries, options: &Options, moment: Moment) {
        if tries.wait_ms == 0 {
            tries.wait_ms = self.first_wait_ms(options);
        }
        tries.due_ms = moment.now_ms + tries.wait_ms;
    }

    /// Whether these attempts are enough.
    pub fn is_dead(&self, tries: &Tries) -> bool {
        self.tries_max != 0 && tries.count >= self.tries_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(now_ms: u64, random: u64) -> Moment {
        Moment { now_ms, random }
    }

    #[test]
    fn waits_double_up_to_the_bound_less_a_fifth() {
        let rules = Rules::default();
        let options = Options::default();
        let mut tries = Tries::default();
        let mut waits = Vec::new();
        for _ in 0..8 {
            rules.back_off(&mut tries, &options, at(1000, 0), 0);
            waits.push((tries.due_ms - 1000) / 1000);
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
        for random in [1, 7919, u64::MAX, 1 << 40] {
            rules.back_off(&mut tries, &options, at(0, random), 0);
            assert!((240_000..=300_000).contains(&tries.due_ms), "{}", tries.due_ms);
        }
        assert_eq!(tries.count, 12);
    }

    #[test]
    fn the_first_wait_is_the_clients_or_the_shorter_of_interval_and_timeout() {
        let rules = Rules::default();
        let options = |interval, timeout| Options {
            retry_interval_s: interval,
            timeout_to_fail_s: timeout,
            ..Options::default()
        };
        assert_eq!(rules.first_wait_ms(&options(0, 0)), 10_000);
        assert_eq!(rules.first_wait_ms(&options(0, 4)), 4_000);
        assert_eq!(rules.first_wait_ms(&options(0, 40)), 10_000);
        assert_eq!(rules.first_wait_ms(&options(1, 4)), 1_000);
    }

    #[test]
    fn a_branch_may_ask_for_a_longer_wait_within_the_bound() {
        let rules = Rules::default();
        let mut tries = Tries::default();
        rules.back_off(&mut tries, &Options::default(), at(0, 0), 60_000);
        assert_eq!(tries.due_ms, 60_000);
        rules.back_off(&mut tries, &Options::default(), at(0, 0), u64::MAX);
        assert_eq!(tries.due_ms, 300_000);
    }

    #[test]
    fn attempts_end_at_the_limit() {
        let rules = Rules { tries_max: 2, ..Rules::default() };
        assert!(!rules.is_dead(&Tries { count: 1, ..Tries::default() }));
        assert!(rules.is_dead(&Tries { count: 2, ..Tries::default() }));
        let rules = Rules { tries_max: 0, ..rules };
        assert!(!rules.is_dead(&Tries { count: u32::MAX, ..Tries::default() }));
    }
}
