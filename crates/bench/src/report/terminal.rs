//! The table on the terminal.

use std::io::{IsTerminal, stdout};

use crate::harness::{Place, Results};
use crate::report::format;

/// Environment, table, failures and caveats, as text.
pub fn table(results: &Results) -> String {
    let is_coloured = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let paint = |text: &str, code: &str| match is_coloured {
        true => format!("\x1b[{code}m{text}\x1b[0m"),
        false => text.to_owned(),
    };
    let mut out = format!("\n{}\n", paint(&results.title, "1"));
    out.push_str(&heading(results));
    let grid = grid(results);
    let widths: Vec<usize> = (0..grid[0].len())
        .map(|column| grid.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    for (index, row) in grid.iter().enumerate() {
        let mut line = String::new();
        for (column, text) in row.iter().enumerate() {
            let padding = " ".repeat(widths[column] - text.chars().count());
            // Names to the left, numbers to the right.
            match column {
                0 | 1 => line.push_str(&format!("{text}{padding}  ")),
                _ => line.push_str(&format!("{padding}{text}  ")),
            }
        }
        let line = line.trim_end();
        out.push_str(&match index {
            0 => paint(line, "2"),
            _ if row.last().is_some_and(|check| check.starts_with("FAILED")) => paint(line, "31"),
            _ => line.to_owned(),
        });
        out.push('\n');
    }
    out.push('\n');
    for failure in &results.failures {
        out.push_str(&format!("{}\n", paint(&format!("FAILED  {failure}"), "31;1")));
    }
    if results.failures.is_empty() {
        let checked = format::grouped(results.checked());
        out.push_str(&format!("{checked} replies checked, none wrong\n"));
    }
    if results.is_partial {
        out.push_str(&paint("Not all rounds were run: the results are partial.\n", "33"));
    }
    for caveat in &results.caveats {
        out.push_str(&paint(&format!("note: {caveat}\n"), "2"));
    }
    out
}

fn heading(results: &Results) -> String {
    let environment = &results.environment;
    let mut out = format!(
        "{} · {} cores · {} · load {}\n",
        environment.cpu, environment.cores, environment.kernel, environment.load_average
    );
    for server in &environment.servers {
        let pid = server.pid.map_or(String::new(), |pid| format!(", pid {pid}"));
        let threads = server.threads.as_deref().unwrap_or("?");
        out.push_str(&format!(
            "{}: {} at {}{pid}, threads {threads}, {}\n",
            server.name, server.version, server.address, server.persistence
        ));
    }
    let parameters: Vec<String> =
        results.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
    out.push_str(&format!("{}\n\n", parameters.join(" · ")));
    out
}

/// The table's rows as texts, the heading first.
pub fn grid(results: &Results) -> Vec<Vec<String>> {
    let shown = || results.metrics.iter().filter(|metric| metric.place != Place::File);
    let baseline = &results.arms[results.baseline];
    let is_compared = results.arms.len() > 1;
    let mut heading = vec![results.cell_heading.to_owned(), "target".to_owned()];
    for metric in shown() {
        heading.push(metric.label.to_owned());
        if metric.place == Place::Compared && is_compared {
            heading.push(format!("vs {baseline}"));
        }
    }
    heading.push("check".into());
    let mut rows = vec![heading];
    for entry in &results.entries {
        let mut row =
            vec![results.cells[entry.cell].label.clone(), results.arms[entry.arm].clone()];
        for metric in shown() {
            let summary = entry.summaries.get(metric.key);
            row.push(summary.map_or("–".into(), |s| format::value(s.median, metric.unit)));
            if metric.place == Place::Compared && is_compared {
                let comparison = entry.versus_baseline.get(metric.key);
                row.push(
                    comparison.map_or(String::new(), |c| format::comparison(c, metric.better)),
                );
            }
        }
        row.push(match entry.failures {
            0 => "ok".into(),
            failures => format!("FAILED {}", format::grouped(failures)),
        });
        rows.push(row);
    }
    rows
}
