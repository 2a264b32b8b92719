//! The report: one HTML file that needs nothing else, with the charts inside it.
//!
//! **Invariant:** every number in a chart stands in the table under it; every text that came from
//! outside (a server's name, an error) is escaped.

use std::fmt::Write;

use crate::harness::{Better, Chart, Entry, Metric, Place, Results, Unit};
use crate::report::format;
use crate::report::ribbons;
use crate::report::svg::{self, Axis, Drawing, Mark, Scale, Series, Size, escape};
use crate::report::terminal;
use crate::stats::Summary;

/// Bars in one row of charts, at most: more get a row of their own.
const GROUPS_PER_CHART: usize = 6;

/// The page.
pub fn page(results: &Results, charts: &[Chart]) -> String {
    let mut out = String::with_capacity(64 << 10);
    let title = escape(&results.title);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title} · forebay bench</title><style>\n{}</style></head><body><main>\n",
        include_str!("style.css")
    );
    header(&mut out, results);
    figures(&mut out, results);
    failures(&mut out, results);
    for chart in charts {
        section(&mut out, results, *chart);
    }
    whole_table(&mut out, results);
    honesty(&mut out, results);
    environment(&mut out, results);
    let _ = write!(
        out,
        "<footer>Made by forebay bench {} · {} · all numbers, every single measurement included, \
         are in results.json beside this file.</footer>\n</main></body></html>\n",
        escape(results.environment.forebay_version),
        escape(&results.environment.time)
    );
    out
}

/// The colour of an arm: the null server is grey wherever it stands, as it is no competitor.
pub(super) fn colour(results: &Results, arm: usize) -> usize {
    if results.arms[arm] == "null" { svg::SERIES_MAX - 1 } else { arm % (svg::SERIES_MAX - 1) }
}

fn header(out: &mut String, results: &Results) {
    let environment = &results.environment;
    let _ = write!(
        out,
        "<header><div class=\"eyebrow\">forebay bench {} · {} · {}, {} cores</div><h1>{}</h1>\
         <p class=\"lead\">{}</p>",
        escape(results.experiment),
        escape(&environment.time),
        escape(&environment.cpu),
        environment.cores,
        escape(&results.title),
        escape(&results.summary)
    );
    let checked = format::grouped(results.checked());
    let _ = match results.failures.len() {
        0 => write!(out, "<span class=\"verdict\">✓ {checked} replies checked, none wrong</span>"),
        _ => write!(out, "<span class=\"verdict bad\">✗ verification failed: see below</span>"),
    };
    if results.is_partial {
        out.push_str("<span class=\"verdict partial\">partial: not all rounds were run</span>");
    }
    out.push_str("</header>\n");
}

/// The comparison in a few large numbers: geometric means over the cells.
fn figures(out: &mut String, results: &Results) {
    let compared = || results.metrics.iter().filter(|metric| metric.place == Place::Compared);
    let baseline = escape(&results.arms[results.baseline]);
    let mut cards = String::new();
    for (arm, name) in results.arms.iter().enumerate() {
        if arm == results.baseline || name == "null" {
            continue;
        }
        for metric in compared() {
            let ratios: Vec<f64> = results
                .entries
                .iter()
                .filter(|entry| entry.arm == arm)
                .filter_map(|entry| Some(entry.versus_baseline.get(metric.key)?.ratio.median))
                .filter(|ratio| *ratio > 0.0)
                .collect();
            let Some(range) = Summary::of(&ratios) else { continue };
            let mean =
                (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / range.count as f64).exp();
            let text = |ratio: f64| match metric.better {
                Better::Lower => signed_percent(ratio),
                _ => format!("×{ratio:.2}"),
            };
            let class = match metric.better {
                Better::Higher if mean > 1.02 => " good",
                Better::Lower if mean < 0.98 => " good",
                Better::Higher if mean < 0.98 => " bad",
                Better::Lower if mean > 1.02 => " bad",
                _ => "",
            };
            let (low, high) = (text(range.min), text(range.max));
            let _ = write!(
                cards,
                "<div class=\"card\"><div class=\"sub\">{} · {}</div>\
                 <div class=\"figure{class}\">{}</div>\
                 <div class=\"sub\">against {baseline}; {low} to {high} over {} {}</div></div>",
                escape(name),
                escape(&long_label(metric)),
                text(mean),
                range.count,
                plural(results.cell_heading, range.count)
            );
        }
    }
    if !cards.is_empty() {
        let _ = writeln!(out, "<div class=\"figures\">{cards}</div>");
    }
}

fn plural(word: &str, count: usize) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

fn signed_percent(ratio: f64) -> String {
    let change = (ratio - 1.0) * 100.0;
    let sign = if change < 0.0 { "−" } else { "+" };
    format!("{sign}{:.0} %", change.abs())
}

fn failures(out: &mut String, results: &Results) {
    if results.failures.is_empty() {
        return;
    }
    out.push_str("<section class=\"failures\"><h2>Failed verifications</h2><ul>");
    for failure in &results.failures {
        let _ = write!(out, "<li>{}</li>", escape(failure));
    }
    out.push_str("</ul></section>\n");
}

fn section(out: &mut String, results: &Results, chart: Chart) {
    let (heading, sub, body, key) = match chart {
        Chart::Bars(key) | Chart::Lines(key) | Chart::Runs(key) | Chart::Drift(key) => {
            let Some(metric) = results.metrics.iter().find(|metric| metric.key == key) else {
                return;
            };
            if !results.entries.iter().any(|entry| entry.summaries.contains_key(key)) {
                return;
            }
            match chart {
                Chart::Bars(_) => {
                    (long_label(metric), spread(results), bar_charts(results, metric), Some(metric))
                }
                Chart::Lines(_) => {
                    (long_label(metric), spread(results), line_chart(results, metric), Some(metric))
                }
                Chart::Runs(_) => (
                    format!("{}, run by run", long_label(metric)),
                    "Each round of each target; those of a round ran one after the other.".into(),
                    run_charts(results, metric),
                    None,
                ),
                _ => (
                    "Steadiness".into(),
                    format!(
                        "Each measurement of {} in the order in which they ran, as its distance \
                         from the median of its {} and target. A slope would be drift of the \
                         machine.",
                        metric.label, results.cell_heading
                    ),
                    drift_chart(results, metric),
                    None,
                ),
            }
        }
        Chart::Ribbons => {
            ribbons::section(out, results);
            return;
        }
        Chart::Percentiles => (
            "Latency by percentile".into(),
            "All rounds together; both axes logarithmic. The further right, the rarer.".into(),
            percentile_charts(results),
            None,
        ),
    };
    if body.is_empty() {
        return;
    }
    let (heading, sub) = (escape(&heading), escape(&sub));
    let _ = write!(out, "<section><h2>{heading}</h2><div class=\"sub\">{sub}</div>{body}");
    match (key, chart) {
        (Some(metric), _) => metric_table(out, results, metric),
        (None, Chart::Percentiles) => percentile_table(out, results),
        _ => {}
    }
    out.push_str("</section>\n");
}

fn spread(results: &Results) -> String {
    let rounds = results.rows.iter().map(|row| row.round + 1).max().unwrap_or(1);
    match rounds {
        1 => "One round: no spread is known.".into(),
        _ => {
            format!("Median of {rounds} rounds; whiskers and bands from the least to the greatest.")
        }
    }
}

/// What a metric is called where there is room.
fn long_label(metric: &Metric) -> String {
    let better = match metric.better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
        Better::Neither => return metric.label.to_owned(),
    };
    let name = match metric.key {
        "ops_per_s" => "Throughput, operations per second",
        "server_cpu_us" => "Server CPU time per operation",
        "p99_us" => "99th percentile of latency",
        _ => metric.label,
    };
    format!("{name} ({better})")
}

fn mark(results: &Results, entry: &Entry, metric: &Metric, x: f64) -> Option<Mark> {
    let summary = entry.summaries.get(metric.key)?;
    let value = |value| format::value(value, metric.unit);
    let versus = entry.versus_baseline.get(metric.key).map_or(String::new(), |comparison| {
        let baseline = &results.arms[results.baseline];
        format!("\n{} against {baseline}", format::comparison(comparison, metric.better))
    });
    Some(Mark {
        x,
        y: summary.median,
        range: (summary.count > 1).then_some((summary.min, summary.max)),
        label: format::label(summary.median, metric.unit),
        title: format!(
            "{} · {}\n{} (median of {})\n{} to {}{versus}",
            results.cells[entry.cell].label,
            results.arms[entry.arm],
            value(summary.median),
            summary.count,
            value(summary.min),
            value(summary.max)
        ),
    })
}

fn all_values(series: &[Series]) -> Vec<f64> {
    let of_mark = |mark: &Mark| match mark.range {
        Some((low, high)) => vec![low, mark.y, high],
        None => vec![mark.y],
    };
    series.iter().flat_map(|series| series.marks.iter().flat_map(of_mark)).collect()
}

fn bar_charts(results: &Results, metric: &Metric) -> String {
    let mut out = String::new();
    let cells: Vec<usize> = (0..results.cells.len()).collect();
    for part in cells.chunks(GROUPS_PER_CHART) {
        let groups: Vec<String> =
            part.iter().map(|&cell| results.cells[cell].label.clone()).collect();
        let series = arm_series(results, |arm| {
            let of_cell = |(index, &cell): (usize, &usize)| {
                mark(results, results.entry(cell, arm)?, metric, index as f64)
            };
            part.iter().enumerate().filter_map(of_cell).collect()
        });
        let unit = |value| format::tick(value, metric.unit);
        let axis = Axis::linear(metric.label, &all_values(&series), unit);
        out.push_str(&svg::bars(&groups, &series, &axis, Size { width: 1000.0, height: 340.0 }));
    }
    out
}

fn line_chart(results: &Results, metric: &Metric) -> String {
    let series = arm_series(results, |arm| {
        let of_cell = |(cell, place): (usize, &crate::harness::Cell)| {
            mark(results, results.entry(cell, arm)?, metric, place.position)
        };
        results.cells.iter().enumerate().filter_map(of_cell).collect()
    });
    let positions: Vec<f64> = results.cells.iter().map(|cell| cell.position).collect();
    let (min, max) = positions.iter().fold((f64::MAX, 0.0_f64), |(a, b), &x| (a.min(x), b.max(x)));
    let x = Axis {
        label: results.cell_heading.to_owned(),
        scale: Scale::Log,
        min: min / 1.15,
        max: max * 1.15,
        ticks: results.cells.iter().map(|cell| (cell.position, cell.label.clone())).collect(),
    };
    let y = Axis::log(metric.label, &all_values(&series), |v| format::tick(v, metric.unit));
    let size = Size { width: 1000.0, height: 420.0 };
    svg::lines(&series, &x, &y, Drawing::LinesAndMarkers, size)
}

fn arm_series(results: &Results, marks: impl Fn(usize) -> Vec<Mark>) -> Vec<Series> {
    (0..results.arms.len())
        .map(|arm| Series {
            name: results.arms[arm].clone(),
            colour: colour(results, arm),
            is_dashed: false,
            marks: marks(arm),
        })
        .filter(|series| !series.marks.is_empty())
        .collect()
}

fn drift_chart(results: &Results, metric: &Metric) -> String {
    let deviation = |index: usize| {
        let row = &results.rows[index];
        let median = results.entry(row.cell, row.arm)?.summaries.get(metric.key)?.median;
        let value = row.values.get(metric.key)?;
        (median != 0.0).then(|| (100.0 * (value / median - 1.0), *value))
    };
    let series = arm_series(results, |arm| {
        (0..results.rows.len())
            .filter(|&index| results.rows[index].arm == arm)
            .filter_map(|index| {
                let row = &results.rows[index];
                let (percent, value) = deviation(index)?;
                Some(Mark {
                    x: index as f64 + 1.0,
                    y: percent,
                    range: None,
                    label: String::new(),
                    title: format!(
                        "{} · {} · round {}\n{} ({percent:+.1} %)",
                        results.cells[row.cell].label,
                        results.arms[arm],
                        row.round + 1,
                        format::value(value, metric.unit)
                    ),
                })
            })
            .collect()
    });
    if results.rows.len() < 4 || results.rows.iter().all(|row| row.round == 0) {
        return String::new();
    }
    let largest = all_values(&series).iter().fold(1.0_f64, |a, b| a.max(b.abs()));
    let half = Axis::linear("", &[largest], |v| format!("{v}"));
    let mut ticks: Vec<(f64, String)> = Vec::new();
    for (value, _) in half.ticks.iter().step_by(if half.ticks.len() > 4 { 2 } else { 1 }) {
        ticks.push((*value, if *value == 0.0 { "median".into() } else { format!("+{value} %") }));
        if *value > 0.0 {
            ticks.insert(0, (-*value, format!("−{value} %")));
        }
    }
    let y = Axis {
        label: "from the median".into(),
        scale: Scale::Linear,
        min: -half.max,
        max: half.max,
        ticks,
    };
    let count = results.rows.len() as f64;
    let mut x = Axis::linear("measurement, in the order in which they ran", &[count], |v| {
        format!("{v:.0}")
    });
    (x.min, x.max) = (0.0, count + 1.0);
    x.ticks.retain(|(value, _)| *value > 0.0 && *value <= count && value.fract() == 0.0);
    svg::lines(&series, &x, &y, Drawing::Markers, Size { width: 1000.0, height: 260.0 })
}

fn run_charts(results: &Results, metric: &Metric) -> String {
    let mut out = String::from("<div class=\"grid-2\">");
    for (cell, place) in results.cells.iter().enumerate() {
        let series = arm_series(results, |arm| {
            let rows = results.rows.iter().filter(|row| row.cell == cell && row.arm == arm);
            let of_row = |row: &crate::harness::Row| {
                let value = *row.values.get(metric.key)?;
                let run = row.round + 1;
                let (name, told) = (&results.arms[arm], format::value(value, metric.unit));
                let title = format!("{name} · run {run}\n{told}");
                let x = f64::from(run);
                Some(Mark { x, y: value, range: None, label: String::new(), title })
            };
            rows.filter_map(of_row).collect()
        });
        let runs = results.rows.iter().map(|row| row.round + 1).max().unwrap_or(1);
        let ticks = (1..=runs).map(|run| (f64::from(run), run.to_string()));
        let x = Axis {
            label: "run".into(),
            scale: Scale::Linear,
            min: 0.5,
            max: f64::from(runs) + 0.5,
            ticks: ticks.step_by(runs.div_ceil(10) as usize).collect(),
        };
        let unit = |value| format::tick(value, metric.unit);
        let y = Axis::linear(metric.label, &all_values(&series), unit);
        let height = 278.0 + 22.0 * series.len().div_ceil(3) as f64;
        let size = Size { width: 490.0, height };
        let chart = svg::lines(&series, &x, &y, Drawing::LinesAndMarkers, size);
        let _ = write!(out, "<div><h3>{}</h3>{chart}</div>", escape(&place.label));
    }
    out.push_str("</div>");
    out
}

fn percentile_charts(results: &Results) -> String {
    let mut out = String::from("<div class=\"grid-2\">");
    for (cell, place) in results.cells.iter().enumerate() {
        let mut series = Vec::new();
        for (arm, name) in results.arms.iter().enumerate() {
            let Some(entry) = results.entry(cell, arm) else { continue };
            for (index, curve) in entry.curves.iter().enumerate() {
                let name = match entry.curves.len() {
                    1 => name.clone(),
                    _ => format!("{name}, {}", curve.name),
                };
                let marks = curve.points.iter().map(|&(percentile, microseconds)| Mark {
                    x: 100.0 / (100.0 - percentile),
                    y: microseconds,
                    range: None,
                    label: String::new(),
                    title: format!(
                        "{name}\np{} {}",
                        percentile_text(percentile),
                        format::microseconds(microseconds)
                    ),
                });
                series.push(Series {
                    marks: marks.collect(),
                    colour: colour(results, arm),
                    is_dashed: index > 0,
                    name,
                });
            }
        }
        let rarest = series.iter().flat_map(|s| &s.marks).map(|mark| mark.x).fold(10.0, f64::max);
        let mut ticks = vec![(1.0, "0".to_owned()), (2.0, "50".to_owned())];
        let mut at = 10.0;
        while at <= rarest * 1.01 {
            ticks.push((at, percentile_text(100.0 * (1.0 - 1.0 / at))));
            at *= 10.0;
        }
        let x =
            Axis { label: "percentile".into(), scale: Scale::Log, min: 1.0, max: rarest, ticks };
        let y = Axis::log("latency", &all_values(&series), |v| format::tick(v, Unit::Microseconds));
        // Each line of an open loop has a row of the legend to itself.
        let is_open = series.iter().any(|series| series.is_dashed);
        let legend_rows = if is_open { series.len() } else { 1 };
        let size = Size { width: 490.0, height: 278.0 + 22.0 * legend_rows as f64 };
        let chart = svg::lines(&series, &x, &y, Drawing::Lines, size);
        let _ = write!(out, "<div><h3>{}</h3>{chart}</div>", escape(&place.label));
    }
    out.push_str("</div>");
    out
}

/// `90`, `99`, `99.9`: without the noise of binary fractions.
fn percentile_text(percentile: f64) -> String {
    let text = format!("{percentile:.5}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(super) fn row_start(out: &mut String, results: &Results, entry: &Entry, is_first: bool) {
    let class = if is_first { " class=\"first\"" } else { "" };
    let cell = if is_first { results.cells[entry.cell].label.as_str() } else { "" };
    let _ = write!(
        out,
        "<tr{class}><td class=\"name\">{}</td><td class=\"name\"><span class=\"dot s{}\"></span>{}\
         </td>",
        escape(cell),
        colour(results, entry.arm),
        escape(&results.arms[entry.arm])
    );
}

/// Whether an entry is the first of its cell.
fn is_first(results: &Results, index: usize) -> bool {
    index == 0 || results.entries[index - 1].cell != results.entries[index].cell
}

fn metric_table(out: &mut String, results: &Results, metric: &Metric) {
    let _ = write!(
        out,
        "<details><summary>Numbers of this chart</summary><div class=\"scroll\"><table><tr>\
         <th class=\"name\">{}</th><th class=\"name\">target</th><th>median</th>\
         <th>mean ± sd</th><th>min</th><th>max</th><th>rounds</th><th>against {}, pairs</th></tr>",
        escape(results.cell_heading),
        escape(&results.arms[results.baseline])
    );
    for (index, entry) in results.entries.iter().enumerate() {
        let Some(summary) = entry.summaries.get(metric.key) else { continue };
        row_start(out, results, entry, is_first(results, index));
        let value = |value| format::value(value, metric.unit);
        let versus = entry.versus_baseline.get(metric.key);
        let _ = write!(
            out,
            "<td>{}</td><td>{} ± {}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td class=\"vs\">{}</td></tr>",
            value(summary.median),
            value(summary.mean),
            value(summary.deviation),
            value(summary.min),
            value(summary.max),
            summary.count,
            versus.map_or(String::new(), |c| format::comparison(c, metric.better))
        );
    }
    out.push_str("</table></div></details>");
}

fn percentile_table(out: &mut String, results: &Results) {
    const SHOWN: [f64; 6] = [50.0, 90.0, 95.0, 99.0, 99.9, 99.99];
    let _ = write!(
        out,
        "<details><summary>Numbers of these charts</summary><div class=\"scroll\"><table><tr>\
         <th class=\"name\">{}</th><th class=\"name\">target</th><th class=\"name\">counted</th>",
        escape(results.cell_heading)
    );
    for percentile in SHOWN {
        let _ = write!(out, "<th>p{percentile}</th>");
    }
    out.push_str("</tr>");
    for (index, entry) in results.entries.iter().enumerate() {
        for (number, curve) in entry.curves.iter().enumerate() {
            row_start(out, results, entry, number == 0 && is_first(results, index));
            let _ = write!(out, "<td class=\"name\">{}</td>", escape(curve.name));
            for wanted in SHOWN {
                let point =
                    curve.points.iter().find(|(percentile, _)| *percentile >= wanted - 1e-6);
                let text = point.map_or("–".into(), |(_, value)| format::microseconds(*value));
                let _ = write!(out, "<td>{text}</td>");
            }
            out.push_str("</tr>");
        }
    }
    out.push_str("</table></div></details>");
}

fn whole_table(out: &mut String, results: &Results) {
    out.push_str("<section><h2>All results</h2><div class=\"sub\">Medians. ");
    if results.arms.len() > 1 {
        let _ = write!(
            out,
            "Comparisons are the median of the pairs of each round, with its 95 % confidence \
             interval, against {}.",
            escape(&results.arms[results.baseline])
        );
    }
    out.push_str("</div><div class=\"scroll\"><table>");
    let grid = terminal::grid(results);
    for (index, row) in grid.iter().enumerate() {
        match index {
            0 => {
                out.push_str("<tr>");
                for (column, text) in row.iter().enumerate() {
                    let class = if column < 2 { " class=\"name\"" } else { "" };
                    let _ = write!(out, "<th{class}>{}</th>", escape(text));
                }
            }
            _ => {
                let entry = &results.entries[index - 1];
                row_start(out, results, entry, is_first(results, index - 1));
                for (column, text) in row.iter().enumerate().skip(2) {
                    let class = match text.as_str() {
                        "ok" => "ok",
                        _ if text.starts_with("FAILED") => "failed",
                        _ if grid[0][column].starts_with("vs ") => "vs",
                        _ => "",
                    };
                    let _ = write!(out, "<td class=\"{class}\">{}</td>", escape(text));
                }
            }
        }
        out.push_str("</tr>");
    }
    out.push_str("</table></div></section>\n");
}

fn honesty(out: &mut String, results: &Results) {
    out.push_str("<section class=\"honesty\"><h2>Read this before quoting a number</h2><ul>");
    for caveat in &results.caveats {
        let _ = write!(out, "<li>{}</li>", escape(caveat));
    }
    out.push_str("</ul></section>\n");
}

fn environment(out: &mut String, results: &Results) {
    let environment = &results.environment;
    out.push_str("<section><h2>Where and how</h2><dl>");
    let mut row = |name: &str, value: &str| {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    };
    row(
        "Machine",
        &format!(
            "{}, {} cores, {} GB",
            environment.cpu, environment.cores, environment.memory_gigabytes
        ),
    );
    row("System", &format!("{}, {}", environment.system, environment.kernel));
    row("Load average", &format!("{} at the start", environment.load_average));
    let sharing = if environment.is_shared() { "shared with servers" } else { "separate" };
    row(
        "Load generator",
        &format!(
            "forebay {} ({} build), {sharing}",
            environment.forebay_version, environment.build
        ),
    );
    for server in &environment.servers {
        let pid = server.pid.map_or(String::new(), |pid| format!(", process {pid}"));
        let threads = server.threads.as_ref().map_or(String::new(), |t| format!(", threads {t}"));
        row(
            &server.name,
            &format!(
                "{} at {}{pid}{threads}; {}",
                server.version, server.address, server.persistence
            ),
        );
    }
    for (name, value) in &results.parameters {
        row(name, value);
    }
    let _ = write!(out, "<dt>Command</dt><dd><code>{}</code></dd>", escape(&results.command));
    out.push_str("</dl></section>\n");
}
