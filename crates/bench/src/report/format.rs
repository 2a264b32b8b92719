//! Numbers as people read them.

use crate::harness::{Better, Unit};
use crate::stats::Comparison;

/// A value in its unit.
pub fn value(value: f64, unit: Unit) -> String {
    match unit {
        Unit::PerSecond | Unit::Count => si(value),
        Unit::Microseconds => microseconds(value),
        Unit::Percent => format!("{value:.0} %"),
    }
}

/// A value at a tick of an axis: without digits that say nothing.
pub fn tick(number: f64, unit: Unit) -> String {
    let text = value(number, unit);
    let (digits, suffix) = text.split_once(' ').unwrap_or((&text, ""));
    let digits = match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    };
    if number == 0.0 || suffix.is_empty() { digits.into() } else { format!("{digits} {suffix}") }
}

/// A value beside a mark, where the axis tells the unit.
pub fn label(number: f64, unit: Unit) -> String {
    let text = value(number, unit);
    text.strip_suffix(" µs").unwrap_or(&text).to_owned()
}

/// Three digits and a prefix: `999`, `12.3 k`, `1.23 M`.
pub fn si(value: f64) -> String {
    let (scaled, prefix) = match value.abs() {
        size if size >= 999.5e6 => (value / 1e9, " G"),
        size if size >= 999.5e3 => (value / 1e6, " M"),
        size if size >= 999.5 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let text = if prefix.is_empty() && value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        three_digits(scaled)
    };
    format!("{text}{prefix}")
}

/// A time: `0.23 µs`, `87.1 µs`, `1.24 ms`, `2.00 s`.
pub fn microseconds(value: f64) -> String {
    match value.abs() {
        size if size >= 999.5e3 => format!("{} s", three_digits(value / 1e6)),
        size if size >= 999.5 => format!("{} ms", three_digits(value / 1e3)),
        _ => format!("{} µs", three_digits(value)),
    }
}

fn three_digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A count with thousands apart: `1 234 567`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// How an arm stands to the baseline: a factor where more is better, a reduction where less is,
/// with the confidence interval where there was more than one round.
pub fn comparison(comparison: &Comparison, better: Better) -> String {
    let (low, high) = comparison.ratio_interval;
    let ratio = comparison.ratio;
    match better {
        Better::Lower => {
            let percent = |ratio: f64| {
                let change = ((ratio - 1.0) * 100.0).round();
                let sign = if change > 0.0 {
                    "+"
                } else if change < 0.0 {
                    "−"
                } else {
                    ""
                };
                format!("{sign}{:.0}", change.abs())
            };
            match ratio.count {
                1 => format!("{} %", percent(ratio.median)),
                _ => format!("{} % [{}, {}]", percent(ratio.median), percent(low), percent(high)),
            }
        }
        _ if ratio.count == 1 => format!("×{:.2}", ratio.median),
        _ => format!("×{:.2} [{low:.2}, {high:.2}]", ratio.median),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(si(0.0), "0");
        assert_eq!(si(999.0), "999");
        assert_eq!(si(12_345.0), "12.3 k");
        assert_eq!(si(999_600.0), "1.00 M");
        assert_eq!(si(1_234_567.0), "1.23 M");
        assert_eq!(microseconds(0.023), "0.023 µs");
        assert_eq!(microseconds(1.2), "1.20 µs");
        assert_eq!(microseconds(1234.0), "1.23 ms");
        assert_eq!(microseconds(2e6), "2.00 s");
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(grouped(12), "12");
    }

    #[test]
    fn ticks_and_labels() {
        assert_eq!(tick(0.0, Unit::Microseconds), "0");
        assert_eq!(tick(50.0, Unit::Microseconds), "50 µs");
        assert_eq!(tick(2500.0, Unit::Microseconds), "2.5 ms");
        assert_eq!(tick(1e6, Unit::PerSecond), "1 M");
        assert_eq!(tick(500.0, Unit::PerSecond), "500");
        assert_eq!(label(0.78, Unit::Microseconds), "0.78");
    }

    #[test]
    fn comparisons() {
        let halved = Comparison::paired(&[2.0, 2.0], &[1.0, 1.0]).unwrap();
        assert_eq!(comparison(&halved, Better::Lower), "−50 % [−50, −50]");
        assert_eq!(comparison(&halved, Better::Higher), "×0.50 [0.50, 0.50]");
        let once = Comparison::paired(&[2.0], &[3.0]).unwrap();
        assert_eq!(comparison(&once, Better::Lower), "+50 %");
    }
}
