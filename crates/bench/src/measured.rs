//! From a load run to a sample: the metrics that all load experiments print, and one measurement
//! of one workload against one target, with what comes before and after it.

use std::time::Duration;

use crate::client::{Client, Error};
use crate::harness::{Better, Metric, Place, Sample, Unit, metric};
use crate::load::{self, Outcome, Pace, Plan};
use crate::options::{Common, LoadOptions};
use crate::target::{Target, TargetKind};
use crate::workload::{self, Test, Workload};

/// The quantities of a load run.
pub const METRICS: &[Metric] = &[
    metric("ops_per_s", "ops/s", Unit::PerSecond, Better::Higher, Place::Compared),
    metric("server_cpu_us", "CPU/op", Unit::Microseconds, Better::Lower, Place::Compared),
    metric("p50_us", "p50", Unit::Microseconds, Better::Lower, Place::Table),
    metric("p99_us", "p99", Unit::Microseconds, Better::Lower, Place::Table),
    metric("p999_us", "p99.9", Unit::Microseconds, Better::Lower, Place::Table),
    metric("max_us", "max", Unit::Microseconds, Better::Lower, Place::Table),
    metric("generator_busy", "gen busy", Unit::Percent, Better::Neither, Place::Table),
    metric("mean_us", "mean", Unit::Microseconds, Better::Lower, Place::File),
    metric("p90_us", "p90", Unit::Microseconds, Better::Lower, Place::File),
    metric("p95_us", "p95", Unit::Microseconds, Better::Lower, Place::File),
    metric("p9999_us", "p99.99", Unit::Microseconds, Better::Lower, Place::File),
    metric("server_busy", "server busy", Unit::Percent, Better::Neither, Place::File),
    metric("generator_cpu_us", "generator CPU/op", Unit::Microseconds, Better::Lower, Place::File),
    metric("send_p50_us", "p50 from send", Unit::Microseconds, Better::Lower, Place::File),
    metric("send_p99_us", "p99 from send", Unit::Microseconds, Better::Lower, Place::File),
    metric("unsent", "unsent", Unit::Count, Better::Lower, Place::File),
    metric("empty", "empty replies", Unit::Count, Better::Neither, Place::File),
];

/// From this share of its threads' time on, the generator is taken to be the wall.
const GENERATOR_IS_WALL_PERCENT: f64 = 95.0;

/// Servers answer `INFO` and fill keys within this time.
pub const PREPARE_TIMEOUT: Duration = Duration::from_secs(60);

/// What is said beside latencies of a closed loop.
pub const CLOSED_LOOP: &str = "Latencies are those of a closed loop: a client that stops asking \
     while the server stalls. They say nothing of queues under a fixed load (--rate does).";
/// What is said beside the null server's figures.
pub const NULL_SERVER: &str = "The null server runs on one thread inside the load generator's \
     process, parses nothing and answers +OK: it is the kernel's share, not a competitor.";

/// Tests as a target takes them.
pub fn workload_for(
    target: &Target,
    tests: &[&'static Test],
    load: &LoadOptions,
    keyspace: u64,
) -> Workload {
    let workload =
        Workload::new(tests, keyspace, load.data_size as usize).speaking(load.protocol());
    if target.kind == TargetKind::Null { workload.for_null_server() } else { workload }
}

/// Fills the keys that a test needs, for so many requests if it takes from them.
///
/// # Errors
/// In words.
pub fn fill(
    target: &Target,
    test: &'static Test,
    load: &LoadOptions,
    keyspace: u64,
    requests: Option<u64>,
) -> Result<(), String> {
    Client::connect(target, load.protocol(), PREPARE_TIMEOUT)
        .and_then(|mut client| {
            workload::prepare(&mut client, test, keyspace, load.data_size as usize, requests)
        })
        .map_err(|error| format!("cannot fill keys: {error}"))
}

/// Removes the tests' keys from all servers, unless they are to be kept.
///
/// # Errors
/// In words.
pub fn clean_up(
    targets: &[Target],
    tests: &[&'static Test],
    load: &LoadOptions,
    keyspace: u64,
) -> Result<(), String> {
    let servers = targets.iter().filter(|target| target.kind == TargetKind::Server);
    for target in servers.filter(|_| !load.keep) {
        Client::connect(target, load.protocol(), PREPARE_TIMEOUT)
            .and_then(|mut client| workload::clean_up(&mut client, tests, keyspace))
            .map_err(|error| format!("{}: {error}", target.name))?;
    }
    Ok(())
}

/// Prepares a target, runs the plan, and checks what it left behind.
pub fn measure(
    plan: &Plan<'_, Workload>,
    test: Option<&Test>,
    keyspace: u64,
    live: &mut dyn FnMut(u64),
) -> Result<Sample, String> {
    let outcome = load::run(plan, live).map_err(|error| error.to_string())?;
    let mut sample = sample_of(&outcome, plan);
    if let (Some(test), TargetKind::Server) = (test, plan.target.kind) {
        let verified = connect(plan.target, plan).and_then(|mut client| {
            workload::verify_after(&mut client, test, keyspace, outcome.sent_in_all)
        });
        sample.checked += 1;
        if let Err(wrong) = verified.map_err(|error| error.to_string())? {
            sample.failures += 1;
            sample.failure_examples.push(wrong);
        }
    }
    Ok(sample)
}

/// A connection for preparing and checking.
pub fn connect(target: &Target, plan: &Plan<'_, Workload>) -> Result<Client, Error> {
    Client::connect(target, plan.workload.protocol, PREPARE_TIMEOUT)
}

/// What a run came to, as the harness wants it.
pub fn sample_of<T>(outcome: &Outcome, plan: &Plan<'_, T>) -> Sample {
    let seconds = outcome.elapsed.as_secs_f64();
    let latency_us = |percentile| outcome.latency.value_at_percentile(percentile) as f64 / 1e3;
    let mut sample = Sample {
        checked: outcome.replies,
        failures: outcome.failures,
        failure_examples: outcome.failure_examples.clone(),
        ..Sample::default()
    };
    let values = &mut sample.values;
    values.insert("ops_per_s", outcome.replies as f64 / seconds);
    values.insert("mean_us", outcome.latency.mean() / 1e3);
    values.insert("max_us", outcome.latency.max() as f64 / 1e3);
    for (key, percentile) in [
        ("p50_us", 50.0),
        ("p90_us", 90.0),
        ("p95_us", 95.0),
        ("p99_us", 99.0),
        ("p999_us", 99.9),
        ("p9999_us", 99.99),
    ] {
        values.insert(key, latency_us(percentile));
    }
    add_processor_use(&mut sample, outcome, plan);
    if outcome.empty > 0 {
        sample.values.insert("empty", outcome.empty as f64);
        sample.notes.push("ran empty: part of the replies were nil, which is cheaper.".into());
    }
    if let Some(from_send) = &outcome.from_send {
        let values = &mut sample.values;
        values.insert("send_p50_us", from_send.value_at_percentile(50.0) as f64 / 1e3);
        values.insert("send_p99_us", from_send.value_at_percentile(99.0) as f64 / 1e3);
        values.insert("unsent", outcome.unsent as f64);
        // The very last may fall due as the time ends.
        if outcome.unsent > 10 {
            let note = "could not keep up with the rate: requests that were due stayed unsent; \
                        their wait is in the latencies.";
            sample.notes.push(note.into());
        }
        sample.histograms.push(("from the due time", outcome.latency.clone()));
        sample.histograms.push(("from sending", from_send.clone()));
    } else {
        sample.histograms.push(("closed loop", outcome.latency.clone()));
    }
    sample
}

/// What the server and the load generator used of the processor.
fn add_processor_use<T>(sample: &mut Sample, outcome: &Outcome, plan: &Plan<'_, T>) {
    let replies = outcome.replies.max(1) as f64;
    let seconds = outcome.elapsed.as_secs_f64();
    let threads = plan.threads.clamp(1, plan.clients.max(1)) as f64;
    let values = &mut sample.values;
    if let Some(cpu_ns) = outcome.server_cpu_ns {
        values.insert("server_cpu_us", cpu_ns as f64 / 1e3 / replies);
        values.insert("server_busy", cpu_ns as f64 / 1e7 / seconds);
    }
    if let Some(cpu_ns) = outcome.generator_cpu_ns {
        let busy = cpu_ns as f64 / 1e7 / seconds / threads;
        values.insert("generator_cpu_us", cpu_ns as f64 / 1e3 / replies);
        values.insert("generator_busy", busy);
        if busy >= GENERATOR_IS_WALL_PERCENT && plan.pace == Pace::Closed {
            let note = "the load generator's threads were busy all the time: the server may be \
                        faster than this.";
            sample.notes.push(note.into());
        }
    }
}

/// How long to warm up and to measure: as asked, else short enough for all turns to fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// Sending before the measurement.
    pub warmup: Duration,
    /// The measurement, where it is not a count of requests.
    pub duration: Duration,
}

impl Times {
    /// Times for so many measurements.
    pub fn of(common: &Common, load: &LoadOptions, turns: usize) -> Times {
        Times::fit(common, load.warmup, load.duration, turns)
    }

    /// The same from the two that were asked for, if they were.
    pub fn fit(
        common: &Common,
        warmup: Option<Duration>,
        duration: Option<Duration>,
        turns: usize,
    ) -> Times {
        // A quick run has a minute; the rest of it is for filling keys and writing the report.
        const QUICK_BUDGET: Duration = Duration::from_secs(36);
        let each = QUICK_BUDGET / turns.max(1) as u32;
        let (default_warmup, default_duration) = match common.quick {
            true => (each / 6, (each * 5 / 6).min(Duration::from_secs(3))),
            false => (Duration::from_secs(1), Duration::from_secs(3)),
        };
        Times {
            warmup: warmup.unwrap_or(default_warmup),
            duration: duration.unwrap_or(default_duration),
        }
    }
}
