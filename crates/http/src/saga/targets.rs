//! Participants: how many calls go to one at a time, and when it is given a pause.
//!
//! ```text
//!   closed  calls go out, `calls_max` at a time; the others wait for their turn
//!   open    after `failures_max` calls in a row that reached nobody: for a time that doubles
//!           from one second up to thirty, calls are given back without having been made
//!   trying  the time is over: one call at a time, until one reaches somebody
//! ```
//!
//! **Invariant:** what has been let in is ended by exactly one [`Targets::ended`]; a participant
//! that nobody calls and that is well takes no memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

const PAUSE_MS: u64 = 1000;
const PAUSE_MS_MAX: u64 = 30_000;

/// Bounds for each participant.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Calls at a time.
    pub calls_max: usize,
    /// Calls in a row that may reach nobody; 0 = any number.
    pub failures_max: u32,
}

struct Target<T> {
    running: usize,
    waiting: VecDeque<T>,
    failures: u32,
    open_until_ms: u64,
}

/// What is to be done with a call.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn<T> {
    /// Nothing now.
    None,
    /// It goes out.
    Go(T),
    /// It is given back, to be tried after so many ms.
    Back(T, u64),
}

/// All participants.
pub struct Targets<T> {
    limits: Limits,
    all: Mutex<HashMap<Box<str>, Target<T>>>,
}

impl<T> Target<T> {
    fn turn(&mut self, limits: &Limits, now_ms: u64) -> Turn<T> {
        let is_ill = limits.failures_max > 0 && self.failures >= limits.failures_max;
        if is_ill && self.open_until_ms > now_ms {
            let wait_ms = self.open_until_ms - now_ms;
            return self.waiting.pop_front().map_or(Turn::None, |call| Turn::Back(call, wait_ms));
        }
        if self.running >= if is_ill { 1 } else { limits.calls_max } {
            return Turn::None;
        }
        match self.waiting.pop_front() {
            None => Turn::None,
            Some(call) => {
                self.running += 1;
                Turn::Go(call)
            }
        }
    }
}

impl<T> Targets<T> {
    /// Nobody has been called yet.
    pub fn new(limits: Limits) -> Targets<T> {
        Targets { limits, all: Mutex::default() }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Box<str>, Target<T>>> {
        self.all.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Somebody wants to call a participant.
    pub fn ask(&self, name: &str, call: T, now_ms: u64) -> Turn<T> {
        let mut all = self.all();
        let target = match all.get_mut(name) {
            Some(target) => target,
            None => all.entry(name.into()).or_insert_with(|| Target {
                running: 0,
                waiting: VecDeque::new(),
                failures: 0,
                open_until_ms: 0,
            }),
        };
        target.waiting.push_back(call);
        target.turn(&self.limits, now_ms)
    }

    /// A call has ended; `has_reached` = somebody answered, whatever it was.
    pub fn ended(&self, name: &str, has_reached: bool, now_ms: u64) {
        let mut all = self.all();
        let Some(target) = all.get_mut(name) else { return };
        target.running -= 1;
        if has_reached {
            target.failures = 0;
        } else {
            target.failures = target.failures.saturating_add(1);
            let beyond = target.failures.saturating_sub(self.limits.failures_max).min(16);
            let pause_ms = (PAUSE_MS << beyond).min(PAUSE_MS_MAX);
            target.open_until_ms = now_ms + pause_ms;
        }
        if target.running == 0 && target.waiting.is_empty() && target.failures == 0 {
            all.remove(name);
        }
    }

    /// What of those that wait is to be done next: to be asked for until there is nothing.
    pub fn next(&self, name: &str, now_ms: u64) -> Turn<T> {
        let mut all = self.all();
        all.get_mut(name).map_or(Turn::None, |target| target.turn(&self.limits, now_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_wait_for_their_turn() {
        let targets = Targets::new(Limits { calls_max: 2, failures_max: 3 });
        assert_eq!(targets.ask("a", 1, 0), Turn::Go(1));
        assert_eq!(targets.ask("a", 2, 0), Turn::Go(2));
        assert_eq!(targets.ask("a", 3, 0), Turn::None);
        assert_eq!(targets.ask("b", 4, 0), Turn::Go(4), "others are not held up");
        targets.ended("a", true, 0);
        assert_eq!(targets.next("a", 0), Turn::Go(3));
        assert_eq!(targets.next("a", 0), Turn::None);
        for name in ["a", "a", "b"] {
            targets.ended(name, true, 0);
        }
        assert!(targets.all().is_empty());
    }

    #[test]
    fn who_is_not_reached_is_given_a_pause_and_then_tried_by_one() {
        let targets = Targets::new(Limits { calls_max: 2, failures_max: 2 });
        for call in 0..2 {
            assert_eq!(targets.ask("a", call, 0), Turn::Go(call));
            targets.ended("a", false, 0);
        }
        assert_eq!(targets.ask("a", 7, 400), Turn::Back(7, 600));
        assert_eq!(targets.ask("a", 8, 1000), Turn::Go(8));
        assert_eq!(targets.ask("a", 9, 1000), Turn::None, "one at a time");
        targets.ended("a", false, 1000);
        assert_eq!(targets.next("a", 1000), Turn::Back(9, 2000));
        assert_eq!(targets.ask("a", 10, 3000), Turn::Go(10));
        targets.ended("a", true, 3000);
        assert_eq!(targets.ask("a", 11, 3000), Turn::Go(11));
        assert_eq!(targets.ask("a", 12, 3000), Turn::Go(12), "well again");
    }
}
