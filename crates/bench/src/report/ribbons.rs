//! The cache article's chart: the number of an address against time, a line for the mean and a
//! ribbon of one standard deviation around it, for each arm; the same on a logarithmic axis; and,
//! since a mean with a deviation says little of a skewed distribution, percentiles.

use std::fmt::Write;

use crate::harness::{Entry, Item, Results};
use crate::report::format;
use crate::report::html::{colour, row_start};
use crate::report::svg::{self, Axis, Drawing, Mark, Series, Size, escape};

const SIZE: Size = Size { width: 490.0, height: 330.0 };
/// Charts of percentiles have twice as many lines.
const TALL: Size = Size { width: 490.0, height: 420.0 };

/// Adds the section: three charts for each cell that has items.
pub fn section(out: &mut String, results: &Results) {
    let cells: Vec<usize> =
        (0..results.cells.len()).filter(|&cell| of_cell(results, cell).next().is_some()).collect();
    if cells.is_empty() {
        return;
    }
    out.push_str(
        "<section><h2>Address by address</h2><div class=\"sub\">Line: mean; ribbon: one standard \
         deviation, not below 0. Beside it the same on a logarithmic axis, below it the median \
         and, dashed, the 99th percentile.</div>",
    );
    for cell in cells {
        let label = escape(&results.cells[cell].label);
        let _ = write!(out, "<h3>{label}</h3><div class=\"grid-2\">");
        for is_log in [false, true] {
            let _ = write!(out, "<div>{}</div>", means(results, cell, is_log));
        }
        let _ = write!(out, "<div>{}</div></div>", percentiles(results, cell));
        table(out, results, cell);
    }
    out.push_str("</section>\n");
}

/// The entries of a cell that have items.
fn of_cell(results: &Results, cell: usize) -> impl Iterator<Item = &Entry> {
    results.entries.iter().filter(move |entry| entry.cell == cell && !entry.items.is_empty())
}

fn series(
    results: &Results,
    entry: &Entry,
    (what, is_dashed): (&str, bool),
    mark: impl Fn(&Item) -> (f64, Option<(f64, f64)>),
) -> Series {
    let arm = &results.arms[entry.arm];
    let name = if what.is_empty() { arm.clone() } else { format!("{arm}, {what}") };
    let marks = entry.items.iter().enumerate().map(|(number, item)| {
        let (y, range) = mark(item);
        Mark {
            x: number as f64,
            y,
            range,
            label: String::new(),
            title: format!("{name}\naddress {number}\n{}", format::microseconds(y)),
        }
    });
    Series { marks: marks.collect(), colour: colour(results, entry.arm), is_dashed, name }
}

fn addresses(results: &Results, cell: usize) -> Axis {
    let last = of_cell(results, cell).map(|entry| entry.items.len() - 1).max().unwrap_or(1);
    let mut axis = Axis::linear("URL ID", &[last as f64], |at| format!("{at:.0}"));
    axis.max = last.max(1) as f64;
    axis.ticks.retain(|(at, _)| *at <= last as f64 && at.fract() == 0.0);
    axis
}

fn means(results: &Results, cell: usize, is_log: bool) -> String {
    let ribbon = |item: &Item| {
        let low = (item.mean_us - item.deviation_us).max(0.0);
        // Nothing is at 0 on a logarithmic axis: its ribbon ends at the fastest half.
        let low = if is_log && low == 0.0 { item.p50_us.min(item.mean_us) / 2.0 } else { low };
        (item.mean_us, Some((low, item.mean_us + item.deviation_us)))
    };
    let all: Vec<Series> =
        of_cell(results, cell).map(|entry| series(results, entry, ("", false), ribbon)).collect();
    let ends = |mark: &Mark| mark.range.map_or(vec![mark.y], |(low, high)| vec![low, high]);
    let values: Vec<f64> = all.iter().flat_map(|one| one.marks.iter().flat_map(ends)).collect();
    let text = |value: f64| format!("{}", value / 1e3);
    let y = match is_log {
        true => Axis::log("Time (ms)", &values, text),
        false => Axis::linear("Time (ms)", &values, text),
    };
    svg::lines(&all, &addresses(results, cell), &y, Drawing::Lines, SIZE)
}

fn percentiles(results: &Results, cell: usize) -> String {
    let mut all = Vec::new();
    for entry in of_cell(results, cell) {
        all.push(series(results, entry, ("p50", false), |item| (item.p50_us, None)));
        all.push(series(results, entry, ("p99", true), |item| (item.p99_us, None)));
    }
    let values: Vec<f64> = all.iter().flat_map(|one| one.marks.iter().map(|m| m.y)).collect();
    let y = Axis::log("Time (ms)", &values, |value| format!("{}", value / 1e3));
    svg::lines(&all, &addresses(results, cell), &y, Drawing::Lines, TALL)
}

fn table(out: &mut String, results: &Results, cell: usize) {
    out.push_str(
        "<details><summary>Numbers of these charts</summary><div class=\"scroll\"><table><tr>\
         <th class=\"name\">panel</th><th class=\"name\">target</th><th>URL ID</th><th>mean</th>\
         <th>sd</th><th>p50</th><th>p95</th><th>p99</th></tr>",
    );
    for (index, entry) in of_cell(results, cell).enumerate() {
        for (number, item) in entry.items.iter().enumerate() {
            row_start(out, results, entry, index == 0 && number == 0);
            let _ = write!(out, "<td>{number}</td>");
            for value in [item.mean_us, item.deviation_us, item.p50_us, item.p95_us, item.p99_us] {
                let _ = write!(out, "<td>{}</td>", format::microseconds(value));
            }
            out.push_str("</tr>");
        }
    }
    out.push_str("</table></div></details>");
}
