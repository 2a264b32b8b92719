//! Latencies, counted in buckets whose width grows with them: four to each power of two, from one
//! microsecond to about a minute. A quarter of the value is the most that a percentile is off by.
//!
//! **Invariant:** one thread writes, all read: no locked instruction.

use std::sync::atomic::{AtomicU64, Ordering};

use keyspace::keyspace::add;

/// Nanoseconds of the first bucket, as a power of two.
const FIRST_BITS: u32 = 10;
/// Buckets in each power of two, as a power of two.
const STEP_BITS: u32 = 2;
const STEPS: usize = 1 << STEP_BITS;
const POWERS: usize = 26;
const BUCKETS: usize = 1 + POWERS * STEPS;

/// See the module.
#[derive(Debug)]
pub struct Histogram([AtomicU64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Histogram([const { AtomicU64::new(0) }; BUCKETS])
    }
}

fn bucket(nanoseconds: u64) -> usize {
    let power = (nanoseconds | 1).ilog2();
    if power < FIRST_BITS {
        return 0;
    }
    let step = (nanoseconds >> (power - STEP_BITS)) as usize & (STEPS - 1);
    (1 + (power - FIRST_BITS) as usize * STEPS + step).min(BUCKETS - 1)
}

/// The most nanoseconds that belong into a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket == 0 {
        return (1 << FIRST_BITS) - 1;
    }
    let (power, step) = ((bucket - 1) / STEPS, (bucket - 1) % STEPS);
    let width = 1u64 << (power as u32 + FIRST_BITS - STEP_BITS);
    (STEPS + step + 1) as u64 * width - 1
}

impl Histogram {
    /// Counts so many calls that took so long each.
    #[inline]
    pub fn note(&self, nanoseconds: u64, calls: u64) {
        add(&self.0[bucket(nanoseconds)], calls);
    }

    /// Sets all to zero.
    pub fn reset(&self) {
        self.0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

/// Several histograms added up, to be looked at.
#[derive(Debug, Clone)]
pub struct Summary(Box<[u64; BUCKETS]>);

impl Summary {
    /// Adds up.
    pub fn of<'h>(histograms: impl Iterator<Item = &'h Histogram>) -> Summary {
        let mut sum = Summary(Box::new([0; BUCKETS]));
        for histogram in histograms {
            for (sum, count) in sum.0.iter_mut().zip(&histogram.0) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        sum
    }

    /// Number of calls.
    pub fn calls(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The microseconds that so many percent of the calls took at most.
    pub fn percentile(&self, percent: f64) -> f64 {
        let wanted = ((self.calls() as f64 * percent / 100.0).ceil() as u64).max(1);
        let mut sum = 0;
        let found = self.0.iter().position(|count| {
            sum += count;
            sum >= wanted
        });
        upper(found.unwrap_or(0)) as f64 / 1000.0
    }

    /// Microseconds, each twice those before, with the number of calls that took at most so long;
    /// without those that add none.
    pub fn doubling(&self) -> Vec<(u64, u64)> {
        let mut out: Vec<(u64, u64)> = Vec::new();
        let mut sum = 0;
        for power in 0..=POWERS {
            let from = if power == 0 { 0 } else { 1 + (power - 1) * STEPS };
            let to = 1 + power * STEPS;
            let more: u64 = self.0[from..to].iter().sum();
            sum += more;
            if more > 0 {
                out.push((upper(to - 1) / 1000, sum));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_its_bucket() {
        let mut last = 0;
        for shift in 0..40 {
            for time in [1u64 << shift, (1 << shift) + (1 << shift) / 3, (2 << shift) - 1] {
                let bucket = bucket(time);
                assert!(bucket >= last && bucket < BUCKETS);
                last = bucket;
                if bucket < BUCKETS - 1 {
                    assert!(time <= upper(bucket), "{time} {bucket}");
                    assert!(bucket == 0 || time > upper(bucket - 1), "{time} {bucket}");
                }
            }
        }
    }

    #[test]
    fn percentiles_are_close() {
        let histogram = Histogram::default();
        (1..=1000u64).for_each(|micro| histogram.note(micro * 1000, 1));
        let summary = Summary::of([&histogram, &histogram].into_iter());
        assert_eq!(summary.calls(), 2000);
        for percent in [50.0, 90.0, 99.0] {
            let found = summary.percentile(percent);
            assert!(found >= percent * 10.0 && found <= percent * 12.6, "{percent}: {found}");
        }
        let doubling = summary.doubling();
        assert_eq!(doubling.first(), Some(&(1, 2)));
        assert_eq!(doubling.last().map(|last| last.1), Some(2000));
        assert_eq!(Summary::of([].into_iter()).percentile(50.0), 1.023);
    }
}
