//! What all experiments share: the plan of cells, arms and rounds, its running, and its results.
//!
//! ```text
//!            cell 1 (get)              cell 2 (set) ...
//!   round 1  arm A   arm B             arm B   arm A
//!   round 2  arm B   arm A             arm A   arm B
//!   round 3  arm A   arm B             ...
//! ```
//!
//! An experiment says what its cells, arms and metrics are and measures one place of the plan at
//! a time; the order, the progress, the statistics, the table, results.json and the report come
//! from here. A new experiment implements [`Experiment`] and is one line in `lib.rs`.
//!
//! **Invariant:** the rounds of one cell run next to each other and their order is turned around
//! each time, so that drift of the machine falls on all arms alike.
//!
//! **Invariant:** a failed verification or a failed measurement ends in exit code 1.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::environment::Environment;
use crate::interrupt;
use crate::options::{Common, command_line, usage_error};
use crate::progress::Progress;
use crate::random::Random;
use crate::report;
use crate::stats::{Comparison, Summary};

/// Which way a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Better {
    /// Throughput and the like.
    Higher,
    /// Costs and latencies.
    Lower,
    /// Neither: shown for information.
    Neither,
}

/// How a metric's numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Per second, with k and M.
    PerSecond,
    /// Microseconds, growing to ms and s.
    Microseconds,
    /// Percent.
    Percent,
    /// A count.
    Count,
}

/// Where a metric is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Place {
    /// In the table, compared with the baseline.
    Compared,
    /// In the table.
    Table,
    /// In results.json only.
    File,
}

/// A quantity that an experiment measures.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Metric {
    /// Its name in results.json.
    pub key: &'static str,
    /// Its heading.
    pub label: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Which way it is better.
    pub better: Better,
    /// Where it is shown.
    pub place: Place,
}

/// A metric, for tables of them.
pub const fn metric(
    key: &'static str,
    label: &'static str,
    unit: Unit,
    better: Better,
    place: Place,
) -> Metric {
    Metric { key, label, unit, better, place }
}

/// One thing that is measured for all arms, such as a command or a pipeline depth.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// What tables call it.
    pub label: String,
    /// Where it lies on a numeric axis.
    pub position: f64,
}

/// What one measurement found.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Values by [`Metric::key`].
    pub values: BTreeMap<&'static str, f64>,
    /// How many replies or facts were verified.
    pub checked: u64,
    /// How many of them were wrong.
    pub failures: u64,
    /// The first few wrong ones.
    pub failure_examples: Vec<String>,
    /// What a reader has to know about this sample.
    pub notes: Vec<String>,
    /// Latencies in nanoseconds, by what they count from.
    pub histograms: Vec<(&'static str, Histogram<u64>)>,
    /// Latencies in nanoseconds of the things that a cell is made of, such as addresses, by number.
    pub items: Vec<Histogram<u64>>,
}

/// One measurement's place in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Index of the cell.
    pub cell: usize,
    /// Index of the arm.
    pub arm: usize,
    /// Which repetition, from 0.
    pub round: u32,
}

/// A chart of the report.
#[derive(Clone, Copy, Debug)]
pub enum Chart {
    /// Bars of a metric: a group for each cell, a bar for each arm.
    Bars(&'static str),
    /// A line for each arm over the cells' positions, both axes logarithmic.
    Lines(&'static str),
    /// Latency by percentile, a small chart for each cell.
    Percentiles,
    /// Each run of a metric side by side, a small chart for each cell, a line for each arm.
    Runs(&'static str),
    /// Every measurement in the order in which they ran, relative to its arm's median.
    Drift(&'static str),
    /// The things that each cell is made of, by number: mean with a ribbon of one standard
    /// deviation, the same with a logarithmic axis, and percentiles.
    Ribbons,
}

/// What can be measured by this harness.
pub trait Experiment {
    /// Its subcommand.
    fn name(&self) -> &'static str;
    /// Its title in the report.
    fn title(&self) -> String;
    /// One sentence on what it does.
    fn summary(&self) -> String;
    /// What the cells are: a heading, such as "test".
    fn cell_heading(&self) -> &'static str;
    /// What is measured.
    fn cells(&self) -> Vec<Cell>;
    /// Which arms are compared.
    fn arms(&self) -> Vec<String>;
    /// The quantities, the most important first.
    fn metrics(&self) -> &'static [Metric];
    /// The charts of the report.
    fn charts(&self) -> Vec<Chart>;
    /// Parameters for the reader: name and value.
    fn parameters(&self) -> Vec<(String, String)>;
    /// What is not measured, what differs between arms, what deviates from the published account.
    fn caveats(&self) -> Vec<String>;
    /// Measures one place of the plan. `live` is told the operations so far.
    fn measure(&mut self, turn: Turn, live: &mut dyn FnMut(u64)) -> Result<Sample, String>;
    /// Files that are written beside the report: name and content.
    fn files(&self, _: &Results) -> Vec<(String, String)> {
        Vec::new()
    }
    /// Removes what the experiment has left in the servers.
    fn clean_up(&mut self) -> Result<(), String>;
}

/// A sample with its place.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Index of the cell.
    pub cell: usize,
    /// Index of the arm.
    pub arm: usize,
    /// Which repetition, from 0.
    pub round: u32,
    /// Values by metric.
    pub values: BTreeMap<&'static str, f64>,
    /// Verified replies or facts.
    pub checked: u64,
    /// Wrong ones.
    pub failures: u64,
}

/// All rounds of one arm in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Index of the cell.
    pub cell: usize,
    /// Index of the arm.
    pub arm: usize,
    /// Statistics by metric.
    pub summaries: BTreeMap<&'static str, Summary>,
    /// Comparison with the baseline by metric; none of the baseline itself.
    pub versus_baseline: BTreeMap<&'static str, Comparison>,
    /// Verified replies or facts in all rounds.
    pub checked: u64,
    /// Wrong ones.
    pub failures: u64,
    /// Latency by percentile, all rounds together.
    pub curves: Vec<Curve>,
    /// Latency of each thing that the cell is made of, all rounds together.
    pub items: Vec<Item>,
}

/// Latency of one thing of many in a cell, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Item {
    /// Mean.
    pub mean_us: f64,
    /// Standard deviation.
    pub deviation_us: f64,
    /// Half are below.
    pub p50_us: f64,
    /// 95 of 100 are below.
    pub p95_us: f64,
    /// 99 of 100 are below.
    pub p99_us: f64,
}

impl Item {
    /// Of latencies in nanoseconds.
    pub fn of(latency: &Histogram<u64>) -> Item {
        let percentile = |percentile| latency.value_at_percentile(percentile) as f64 / 1e3;
        Item {
            mean_us: latency.mean() / 1e3,
            deviation_us: latency.stdev() / 1e3,
            p50_us: percentile(50.0),
            p95_us: percentile(95.0),
            p99_us: percentile(99.0),
        }
    }
}

/// Latency by percentile.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// What it counts from.
    pub name: &'static str,
    /// Percentile and microseconds.
    pub points: Vec<(f64, f64)>,
}

/// What an experiment came to: all of it is in results.json.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// Subcommand of the experiment.
    pub experiment: &'static str,
    /// Its title.
    pub title: String,
    /// What it does.
    pub summary: String,
    /// Whether it was ended before its last round.
    pub is_partial: bool,
    /// Where it ran.
    pub environment: Environment,
    /// The command line, without passwords.
    pub command: String,
    /// With which parameters.
    pub parameters: Vec<(String, String)>,
    /// What the cells are.
    pub cell_heading: &'static str,
    /// The cells.
    pub cells: Vec<Cell>,
    /// The arms.
    pub arms: Vec<String>,
    /// Index of the arm that the others are compared with.
    pub baseline: usize,
    /// The metrics.
    pub metrics: &'static [Metric],
    /// Statistics: one for each cell and arm that was measured.
    pub entries: Vec<Entry>,
    /// Every measurement in the order in which they ran.
    pub rows: Vec<Row>,
    /// Wrong replies and failed measurements, the first of each.
    pub failures: Vec<String>,
    /// What has to be known to read the numbers.
    pub caveats: Vec<String>,
}

impl Results {
    /// The statistics of one arm in one cell.
    pub fn entry(&self, cell: usize, arm: usize) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.cell == cell && entry.arm == arm)
    }

    /// How many replies or facts were verified.
    pub fn checked(&self) -> u64 {
        self.rows.iter().map(|row| row.checked).sum()
    }
}

/// Runs an experiment from the first round to the written report.
pub fn run(
    experiment: &mut dyn Experiment,
    options: &Common,
    environment: Environment,
) -> ExitCode {
    let name = experiment.name();
    // Made before anything runs: half an hour of measuring should not end in a missing folder.
    let out = options.out.clone().unwrap_or_else(|| PathBuf::from("bench-out").join(name));
    if let Err(error) = std::fs::create_dir_all(&out) {
        return usage_error(name, &format!("cannot create {}: {error}", out.display()));
    }
    if let Err(error) = interrupt::install() {
        return usage_error(name, &format!("cannot listen for Ctrl-C: {error}"));
    }
    let results = measure_all(experiment, options, environment);
    let table = report::terminal::table(&results);
    if options.json {
        eprint!("{table}");
        println!("{}", report::json(&results));
    } else {
        print!("{table}");
    }
    let mut files = vec![
        ("results.json".to_owned(), report::json(&results)),
        ("report.html".to_owned(), report::html::page(&results, &experiment.charts())),
    ];
    files.extend(experiment.files(&results));
    for (file, content) in files {
        let path = out.join(file);
        match std::fs::write(&path, content) {
            Ok(()) => eprintln!("wrote {}", path.display()),
            Err(error) => {
                eprintln!("forebay bench {name}: cannot write {}: {error}", path.display());
                return ExitCode::FAILURE;
            }
        }
    }
    if results.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure_all(
    experiment: &mut dyn Experiment,
    options: &Common,
    environment: Environment,
) -> Results {
    let arms = experiment.arms();
    let cells = experiment.cells();
    let turns = plan(cells.len(), arms.len(), options.rounds(), options.seed);
    let (samples, failures) = take_samples(experiment, options, &turns, &cells, &arms);
    if let Err(error) = experiment.clean_up() {
        eprintln!("forebay bench {}: test keys may be left behind: {error}", experiment.name());
    }
    let mut caveats = experiment.caveats();
    caveats.extend(shared_caveats(&environment, options));
    caveats.extend(notes(&samples, &cells, &arms));
    let baseline = options.baseline.as_ref();
    let baseline = baseline.and_then(|name| arms.iter().position(|arm| arm == name)).unwrap_or(0);
    Results {
        experiment: experiment.name(),
        title: experiment.title(),
        summary: experiment.summary(),
        is_partial: samples.len() < turns.len(),
        environment,
        command: command_line(),
        parameters: experiment.parameters(),
        cell_heading: experiment.cell_heading(),
        entries: entries(&samples, cells.len(), arms.len(), baseline),
        cells,
        arms,
        baseline,
        metrics: experiment.metrics(),
        rows: samples.iter().map(|(turn, sample)| row(*turn, sample)).collect(),
        failures,
        caveats,
    }
}

/// Measures turn by turn: what came out, and what went wrong.
fn take_samples(
    experiment: &mut dyn Experiment,
    options: &Common,
    turns: &[Turn],
    cells: &[Cell],
    arms: &[String],
) -> (Vec<(Turn, Sample)>, Vec<String>) {
    let mut progress = Progress::new(turns.len());
    let mut samples: Vec<(Turn, Sample)> = Vec::new();
    let mut failures = Vec::new();
    for (index, &turn) in turns.iter().enumerate() {
        // Rounds are whole: an interrupt takes effect where the next begins.
        let place = |turn: &Turn| (turn.cell, turn.round);
        let is_new_round = index == 0 || place(&turns[index - 1]) != place(&turn);
        if is_new_round && interrupt::is_requested() {
            break;
        }
        let label = format!("{} · {}", cells[turn.cell].label, arms[turn.arm]);
        progress.begin(&label, turn.round + 1, options.rounds());
        match experiment.measure(turn, &mut |operations| progress.show(operations)) {
            Ok(sample) => {
                progress.end(experiment.metrics(), &sample);
                if sample.failures > 0 {
                    let count = sample.failures;
                    let example = sample.failure_examples.first().map_or("", String::as_str);
                    failures.push(format!("{label}: {count} wrong, first: {example}"));
                }
                samples.push((turn, sample));
            }
            Err(error) => {
                progress.fail(&label, &error);
                failures.push(format!("{label}: {error}"));
                // What stopped one round will stop the next: do not wait for it each time.
                if failures.len() >= 10 {
                    break;
                }
            }
        }
    }
    progress.close();
    (samples, failures)
}

/// What samples have to say, each thing once.
fn notes(samples: &[(Turn, Sample)], cells: &[Cell], arms: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    for (turn, sample) in samples {
        for note in &sample.notes {
            let note = format!("{} · {}: {note}", cells[turn.cell].label, arms[turn.arm]);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

/// The order of measurements: cell by cell, round by round, the arms in alternating order.
pub fn plan(cells: usize, arms: usize, rounds: u32, seed: u64) -> Vec<Turn> {
    let mut random = Random::new(seed);
    let mut turns = Vec::with_capacity(cells * arms * rounds as usize);
    for cell in 0..cells {
        let mut order: Vec<usize> = (0..arms).collect();
        random.shuffle(&mut order);
        for round in 0..rounds {
            turns.extend(order.iter().map(|&arm| Turn { cell, arm, round }));
            order.reverse();
        }
    }
    turns
}

fn shared_caveats(environment: &Environment, options: &Common) -> Vec<String> {
    let mut caveats = Vec::new();
    if environment.is_shared() {
        let pinning = match &options.pin {
            Some(cores) => format!("the load generator is pinned to core {:?}", cores.0),
            None => "nothing is pinned".into(),
        };
        caveats.push(format!(
            "Client and servers share this machine ({} cores; {pinning}): the load generator can \
             be the wall. Compare server CPU per operation, not throughput alone.",
            environment.cores
        ));
    }
    if environment.build == "debug" {
        caveats.push("The load generator was built without optimisation (debug).".into());
    }
    let load = environment.load_average.split(' ').next().and_then(|load| load.parse::<f64>().ok());
    if load.is_some_and(|load| load > environment.cores as f64 / 4.0) {
        caveats.push(format!(
            "The machine was not idle: its load average was {} at the start. Throughput and \
             latencies suffer from that, CPU per operation less.",
            environment.load_average
        ));
    }
    // The null server keeps nothing by nature.
    let servers: Vec<_> = environment.servers.iter().filter(|s| s.name != "null").collect();
    if servers.windows(2).any(|pair| pair[0].persistence != pair[1].persistence) {
        let list: Vec<String> = servers
            .iter()
            .map(|server| format!("{}: {}", server.name, server.persistence))
            .collect();
        caveats.push(format!("The arms differ in what they keep on disk: {}.", list.join("; ")));
    }
    if options.rounds() < 5 {
        let rounds = options.rounds();
        caveats.push(format!(
            "Few rounds ({rounds}): enough to see a difference of ten percent, not one of two. \
             Use --rounds 10 for a claim."
        ));
    }
    caveats
}

fn row(turn: Turn, sample: &Sample) -> Row {
    Row {
        cell: turn.cell,
        arm: turn.arm,
        round: turn.round,
        values: sample.values.clone(),
        checked: sample.checked,
        failures: sample.failures,
    }
}

fn entries(samples: &[(Turn, Sample)], cells: usize, arms: usize, baseline: usize) -> Vec<Entry> {
    let mut entries = Vec::new();
    for cell in 0..cells {
        for arm in 0..arms {
            let of_entry = || samples.iter().filter(move |(t, _)| t.cell == cell && t.arm == arm);
            // An arm may have nothing to do with a cell.
            if of_entry().all(|(_, sample)| sample.values.is_empty() && sample.checked == 0) {
                continue;
            }
            let keys: Vec<&'static str> =
                of_entry().flat_map(|(_, sample)| sample.values.keys().copied()).collect();
            let mut summaries = BTreeMap::new();
            let mut versus_baseline = BTreeMap::new();
            for key in keys {
                let values: Vec<f64> =
                    of_entry().filter_map(|(_, s)| s.values.get(key).copied()).collect();
                if let Some(summary) = Summary::of(&values) {
                    summaries.insert(key, summary);
                }
                if arm != baseline {
                    let (theirs, ours) = paired(samples, cell, baseline, arm, key);
                    if let Some(comparison) = Comparison::paired(&theirs, &ours) {
                        versus_baseline.insert(key, comparison);
                    }
                }
            }
            entries.push(Entry {
                cell,
                arm,
                summaries,
                versus_baseline,
                checked: of_entry().map(|(_, sample)| sample.checked).sum(),
                failures: of_entry().map(|(_, sample)| sample.failures).sum(),
                curves: curves(of_entry().map(|(_, sample)| sample)),
                items: items(of_entry().map(|(_, sample)| sample)),
            });
        }
    }
    entries
}

fn items<'a>(samples: impl Iterator<Item = &'a Sample>) -> Vec<Item> {
    let mut all: Vec<Histogram<u64>> = Vec::new();
    for sample in samples {
        for (number, latency) in sample.items.iter().enumerate() {
            match all.get_mut(number) {
                Some(known) => *known += latency,
                None => all.push(latency.clone()),
            }
        }
    }
    all.iter().map(Item::of).collect()
}

/// Values of two arms in the rounds that both have finished.
fn paired(
    samples: &[(Turn, Sample)],
    cell: usize,
    first: usize,
    second: usize,
    key: &str,
) -> (Vec<f64>, Vec<f64>) {
    let value = |arm, round| {
        let of_turn = |(turn, _): &&(Turn, Sample)| *turn == Turn { cell, arm, round };
        samples.iter().find(of_turn).and_then(|(_, sample)| sample.values.get(key).copied())
    };
    let rounds = samples.iter().map(|(turn, _)| turn.round + 1).max().unwrap_or(0);
    (0..rounds).filter_map(|round| value(first, round).zip(value(second, round))).unzip()
}

fn curves<'a>(samples: impl Iterator<Item = &'a Sample>) -> Vec<Curve> {
    let mut merged: Vec<(&'static str, Histogram<u64>)> = Vec::new();
    for (name, histogram) in samples.flat_map(|sample| &sample.histograms) {
        match merged.iter_mut().find(|(other, _)| other == name) {
            Some((_, all)) => *all += histogram,
            None => merged.push((name, histogram.clone())),
        }
    }
    merged
        .into_iter()
        .map(|(name, histogram)| Curve { name, points: percentile_points(&histogram) })
        .collect()
}

/// Points of a latency curve: evenly spread over the logarithm of 1 / (1 - p), as far as there
/// are samples for it.
pub fn percentile_points(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    const POINTS_PER_DECADE: u32 = 10;
    let decades = (histogram.len().max(1) as f64).log10();
    let last = (decades * f64::from(POINTS_PER_DECADE)).floor() as u32;
    (0..=last)
        .map(|index| {
            let beyond = 10_f64.powf(-f64::from(index) / f64::from(POINTS_PER_DECADE));
            let percentile = 100.0 * (1.0 - beyond);
            (percentile, histogram.value_at_percentile(percentile) as f64 / 1000.0)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(value: f64) -> Sample {
        Sample { values: BTreeMap::from([("x", value)]), checked: 1, ..Sample::default() }
    }

    #[test]
    fn order_alternates_and_covers_everything() {
        let turns = plan(2, 2, 3, 42);
        assert_eq!(turns.len(), 12);
        let arms: Vec<usize> = turns[..6].iter().map(|turn| turn.arm).collect();
        let (a, b) = (arms[0], arms[1]);
        assert_ne!(a, b);
        assert_eq!(arms, [a, b, b, a, a, b]);
        assert!(turns[..6].iter().all(|turn| turn.cell == 0));
        assert_eq!(turns, plan(2, 2, 3, 42));
    }

    #[test]
    fn unfinished_rounds_are_left_out_of_pairs() {
        let turn = |arm, round| Turn { cell: 0, arm, round };
        let samples =
            vec![(turn(0, 0), sample(10.0)), (turn(1, 0), sample(5.0)), (turn(1, 1), sample(1.0))];
        let entries = entries(&samples, 1, 2, 0);
        assert_eq!(entries.len(), 2);
        assert!(entries[0].versus_baseline.is_empty());
        let comparison = &entries[1].versus_baseline["x"];
        assert_eq!((comparison.ratio.count, comparison.ratio.mean), (1, 0.5));
        assert_eq!(entries[1].summaries["x"].count, 2);
        assert_eq!(entries[1].checked, 2);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_samples() {
        let mut histogram = crate::load::new_histogram();
        let mut values: Vec<u64> = (1..=10_000).map(|i| i * 1000).collect();
        Random::new(5).shuffle(&mut values);
        values.iter().for_each(|&value| histogram.saturating_record(value));
        let points = percentile_points(&histogram);
        for (percentile, microseconds) in &points {
            let exact = (percentile / 100.0 * 10_000.0).max(1.0);
            let error = (microseconds - exact).abs();
            assert!(error <= exact * 0.002 + 1.0, "{percentile}: {microseconds} for {exact}");
        }
        let last = points.last().unwrap();
        assert!((last.0 - 99.99).abs() < 1e-6);
        assert!(points.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    }
}
