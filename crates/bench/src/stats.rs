//! Statistics of repeated measurements, and comparisons of two arms round by round.
//!
//! A comparison is paired: round k of one arm with round k of the other, which ran next to it, so
//! that what disturbed the machine disturbed both. The reduction is `1 - b/a` of each pair, never
//! the ratio of two means. Confidence intervals are bootstrapped (percentile method), by a fixed
//! seed, so that the same samples always print the same interval.

use serde::Serialize;

use crate::random::Random;

/// What repeated measurements of one quantity came to.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub struct Summary {
    /// How many measurements.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Sample standard deviation; 0 of a single measurement.
    pub deviation: f64,
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// `None` of no measurements. What is not a number is left out.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let count = sorted.len();
        let mean = sorted.iter().sum::<f64>() / count as f64;
        let squares = sorted.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        let deviation = if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 };
        Some(Summary { count, mean, deviation, median: median_of_sorted(&sorted), min, max })
    }
}

/// How one arm stands to another in one quantity.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub struct Comparison {
    /// `b / a` of each pair.
    pub ratio: Summary,
    /// 95 % confidence interval of the median ratio; both ends are the ratio where one pair is all.
    pub ratio_interval: (f64, f64),
    /// `100 * (1 - b / a)` of each pair.
    pub reduction_percent: Summary,
}

impl Comparison {
    /// Compares `b` with `a`, pair by pair; `None` where no pair can be compared.
    pub fn paired(a: &[f64], b: &[f64]) -> Option<Comparison> {
        let ratios: Vec<f64> = a
            .iter()
            .zip(b)
            .filter(|&(&a, &b)| a.is_finite() && b.is_finite() && a != 0.0)
            .map(|(a, b)| b / a)
            .collect();
        let reductions: Vec<f64> = ratios.iter().map(|ratio| 100.0 * (1.0 - ratio)).collect();
        Some(Comparison {
            ratio: Summary::of(&ratios)?,
            ratio_interval: bootstrap_interval(&ratios),
            reduction_percent: Summary::of(&reductions)?,
        })
    }
}

/// The 95 % confidence interval of the median of `samples`.
pub fn bootstrap_interval(samples: &[f64]) -> (f64, f64) {
    const RESAMPLES: usize = 2000;
    if samples.is_empty() {
        return (f64::NAN, f64::NAN);
    }
    let mut random = Random::new(0xb007);
    let mut resample = vec![0.0; samples.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            resample.fill_with(|| samples[random.below(samples.len() as u64) as usize]);
            resample.sort_by(f64::total_cmp);
            median_of_sorted(&resample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    (medians[RESAMPLES * 25 / 1000], medians[RESAMPLES * 975 / 1000 - 1])
}

/// The median of unsorted numbers; `None` of none.
pub fn median(samples: &[f64]) -> Option<f64> {
    Summary::of(samples).map(|summary| summary.median)
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_by_hand() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0, f64::NAN]).unwrap();
        assert_eq!((summary.count, summary.min, summary.max), (4, 1.0, 4.0));
        assert_eq!((summary.mean, summary.median), (2.5, 2.5));
        assert!((summary.deviation - 1.290_994_4).abs() < 1e-6);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[7.0]).unwrap().deviation, 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    }

    #[test]
    fn comparison_is_of_pairs_not_of_means() {
        // The machine was twice as slow in the second round; the pairs do not see it.
        let comparison = Comparison::paired(&[10.0, 20.0], &[5.0, 10.0]).unwrap();
        assert_eq!(comparison.ratio.median, 0.5);
        assert_eq!(comparison.ratio.deviation, 0.0);
        assert_eq!(comparison.reduction_percent.mean, 50.0);
        assert_eq!(comparison.ratio_interval, (0.5, 0.5));
        assert_eq!(Comparison::paired(&[0.0], &[1.0]), None);
        assert_eq!(Comparison::paired(&[1.0], &[]), None);
    }

    #[test]
    fn bootstrap_interval_holds_the_median_and_shrinks_with_more_samples() {
        let few: Vec<f64> = (0..5).map(f64::from).collect();
        let many: Vec<f64> = (0..500).map(|i| f64::from(i) / 100.0).collect();
        let (low, high) = bootstrap_interval(&few);
        let (low_many, high_many) = bootstrap_interval(&many);
        assert!(low <= 2.0 && 2.0 <= high);
        assert!(low_many <= 2.5 && 2.5 <= high_many);
        assert!(high_many - low_many < (high - low) / 3.0);
    }
}
