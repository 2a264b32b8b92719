//! `forebay bench kv`: single commands against one or several servers, in the manner of
//! redis-benchmark, with every reply checked.

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;

use crate::environment::Environment;
use crate::harness::{self, Cell, Chart, Experiment, Metric, Sample, Turn};
use crate::load::{Limit, Pace, Plan};
use crate::measured::{self, CLOSED_LOOP, METRICS, NULL_SERVER, Times};
use crate::null_server::NullServer;
use crate::options::{Common, LoadOptions, usage_error};
use crate::target::{Target, TargetKind};
use crate::workload::{self, Before, Expect, TESTS, Test};

const DEFAULT_TESTS: &str = "set,get,incr,lpush,hset,zadd";

/// Measure single commands: throughput, latency, server CPU per operation, every reply checked.
#[derive(clap::Args, Clone, Debug)]
pub struct KvArgs {
    /// Tests, by commas, or "all": ping set get incr lpush rpush lpop rpop sadd sismember spop
    /// hset hget zadd zscore zpopmin lrange_100 lrange_300 lrange_600 mset mget xadd.
    #[arg(short = 't', long, value_name = "TESTS", default_value = DEFAULT_TESTS)]
    pub tests: String,
    /// Connections.
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub clients: u32,
    /// Requests in flight on each connection.
    #[arg(short = 'P', long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub pipeline: u32,
    /// Keys, and members of each collection.
    #[arg(short = 'r', long, value_name = "COUNT", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub keyspace: u64,
    /// Open loop: send so many requests per second, whatever the server does, and count latency
    /// from when each was due.
    #[arg(long, value_name = "PER_SECOND", value_parser = parse_rate)]
    pub rate: Option<f64>,
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    common: Common,
}

/// Reads requests per second.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "want requests per second".to_owned())?;
    if (0.1..=1e8).contains(&rate) { Ok(rate) } else { Err("a rate is 0.1 to 100000000".into()) }
}

/// Runs the experiment.
pub fn run(args: KvArgs) -> ExitCode {
    match prepare(&args) {
        Err(error) => usage_error("kv", &error),
        Ok((mut kv, environment)) => harness::run(&mut kv, &args.common, environment),
    }
}

fn prepare(args: &KvArgs) -> Result<(Kv, Environment), String> {
    let tests = read_tests(&args.tests)?;
    let mut targets = args.common.resolve_targets()?;
    let null_server = match args.common.null {
        true => Some(NullServer::start().map_err(|error| format!("null server: {error}"))?),
        false => None,
    };
    targets.extend(null_server.as_ref().map(NullServer::target));
    let environment = Environment::gather(&targets, args.load.timeout)?;
    let turns = tests.len() * targets.len() * args.common.rounds() as usize;
    let times = Times::of(&args.common, &args.load, turns);
    let kv = Kv {
        args: args.clone(),
        tests,
        targets,
        times,
        prepared: HashSet::new(),
        _null_server: null_server,
    };
    Ok((kv, environment))
}

fn read_tests(list: &str) -> Result<Vec<&'static Test>, String> {
    if list.eq_ignore_ascii_case("all") {
        return Ok(TESTS.iter().collect());
    }
    let mut tests: Vec<&Test> = Vec::new();
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let test = workload::test_named(name)
            .ok_or_else(|| format!("no test {name:?}; --help lists them"))?;
        if !tests.iter().any(|other| other.name == test.name) {
            tests.push(test);
        }
    }
    if tests.is_empty() { Err("no tests".into()) } else { Ok(tests) }
}

struct Kv {
    args: KvArgs,
    tests: Vec<&'static Test>,
    targets: Vec<Target>,
    times: Times,
    /// Cells and arms whose keys are filled and stay so.
    prepared: HashSet<(usize, usize)>,
    _null_server: Option<NullServer>,
}

impl Kv {
    fn limit(&self) -> Limit {
        match self.args.load.requests {
            Some(requests) => Limit::Requests(requests),
            None => Limit::Time(self.times.duration),
        }
    }

    fn pace(&self) -> Pace {
        self.args.rate.map_or(Pace::Closed, Pace::Open)
    }

    fn fill(&mut self, turn: Turn) -> Result<(), String> {
        let test = self.tests[turn.cell];
        let target = &self.targets[turn.arm];
        let is_drained =
            matches!(test.expect, Expect::Popped | Expect::PoppedMember | Expect::PoppedPair);
        let stays = match test.before {
            Before::Values | Before::List(_) | Before::Nothing => true,
            Before::Members(_) => !is_drained,
            Before::NoCounters | Before::NoList | Before::ListToPop => false,
        };
        let is_filled = !self.prepared.insert((turn.cell, turn.arm));
        if target.kind == TargetKind::Null || (stays && is_filled) {
            return Ok(());
        }
        // Popping needs an element for each request of both phases; how many the warm-up takes
        // is not known, so it gets as many again.
        let requests = self.args.load.requests.map(|requests| requests.saturating_mul(2));
        measured::fill(target, test, &self.args.load, self.args.keyspace, requests)
    }
}

impl Experiment for Kv {
    fn name(&self) -> &'static str {
        "kv"
    }

    fn title(&self) -> String {
        let arms = self.arms().join(" · ");
        format!("Commands: {arms}")
    }

    fn summary(&self) -> String {
        let loop_kind = match self.pace() {
            Pace::Closed => "Closed loop: each connection waits for its replies before it sends \
                             again, which finds the throughput. For latency under a given load \
                             use --rate."
                .to_owned(),
            Pace::Open(rate) => format!(
                "Open loop: {} requests per second fall due whatever the server does; latency \
                 counts from the time a request was due.",
                crate::report::format::si(rate)
            ),
        };
        format!("Single commands over raw sockets; every reply is checked. {loop_kind}")
    }

    fn cell_heading(&self) -> &'static str {
        "test"
    }

    fn cells(&self) -> Vec<Cell> {
        let cell = |(index, test): (usize, &&Test)| Cell {
            label: test.name.to_owned(),
            position: index as f64,
        };
        self.tests.iter().enumerate().map(cell).collect()
    }

    fn arms(&self) -> Vec<String> {
        self.targets.iter().map(|target| target.name.clone()).collect()
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn charts(&self) -> Vec<Chart> {
        match self.pace() {
            Pace::Closed => vec![
                Chart::Bars("ops_per_s"),
                Chart::Bars("server_cpu_us"),
                Chart::Percentiles,
                Chart::Drift("ops_per_s"),
            ],
            // The throughput of an open loop is what was asked for.
            Pace::Open(_) => vec![
                Chart::Percentiles,
                Chart::Bars("p99_us"),
                Chart::Bars("server_cpu_us"),
                Chart::Drift("p99_us"),
            ],
        }
    }

    fn parameters(&self) -> Vec<(String, String)> {
        let args = &self.args;
        let mut list = vec![
            ("clients", args.clients.to_string()),
            ("pipeline", args.pipeline.to_string()),
            ("keyspace", args.keyspace.to_string()),
            ("value", format!("{} B", args.load.data_size)),
            ("threads", args.load.threads().to_string()),
            ("protocol", if args.load.resp3 { "RESP3" } else { "RESP2" }.into()),
            ("rounds", args.common.rounds().to_string()),
            ("warm-up", seconds(self.times.warmup)),
        ];
        list.push(match self.limit() {
            Limit::Requests(requests) => ("requests", requests.to_string()),
            Limit::Time(time) => ("measured", seconds(time)),
        });
        if let Some(rate) = args.rate {
            list.push(("rate", format!("{rate}/s")));
        }
        list.push(("seed", args.common.seed.to_string()));
        list.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn caveats(&self) -> Vec<String> {
        let mut caveats = Vec::new();
        if self.args.rate.is_none() {
            caveats.push(CLOSED_LOOP.into());
        }
        if self.args.common.null {
            caveats.push(NULL_SERVER.into());
        }
        caveats
            .push("Not measured: memory, start-up, behaviour at eviction or while saving.".into());
        caveats
    }

    fn measure(&mut self, turn: Turn, live: &mut dyn FnMut(u64)) -> Result<Sample, String> {
        self.fill(turn)?;
        let (test, target) = (self.tests[turn.cell], &self.targets[turn.arm]);
        let args = &self.args;
        let load = measured::workload_for(target, &[test], &args.load, args.keyspace);
        let plan = Plan {
            target,
            workload: &load,
            clients: args.clients as usize,
            threads: args.load.threads(),
            pipeline: args.pipeline as usize,
            limit: self.limit(),
            pace: self.pace(),
            warmup: self.times.warmup,
            timeout: args.load.timeout,
            cores: args.common.pin.as_ref().map_or(&[], |cores| &cores.0),
            seed: args.common.seed.wrapping_add(u64::from(turn.round) << 32),
        };
        measured::measure(&plan, Some(test), args.keyspace, live)
    }

    fn clean_up(&mut self) -> Result<(), String> {
        measured::clean_up(&self.targets, &self.tests, &self.args.load, self.args.keyspace)
    }
}

/// A time for a heading.
pub fn seconds(time: Duration) -> String {
    format!("{} s", (time.as_secs_f64() * 100.0).round() / 100.0)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: KvArgs,
    }

    fn parse(line: &str) -> Result<KvArgs, String> {
        let words = std::iter::once("kv").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args).map_err(|e| crate::usage_line(&e))
    }

    #[test]
    fn reads_the_options_of_redis_benchmark() {
        let args = parse("-c 10 -n 1000 -P 16 -r 500 -d 64 -t get,SET -3 --seed 7").unwrap();
        assert_eq!((args.clients, args.pipeline, args.keyspace), (10, 16, 500));
        assert_eq!((args.load.requests, args.load.data_size), (Some(1000), 64));
        let names: Vec<&str> = read_tests(&args.tests).unwrap().iter().map(|t| t.name).collect();
        assert_eq!(names, ["get", "set"]);
        let args = parse("--target a=1.2.3.4:5 --target b=/x.sock --rate 5000 --pin 1").unwrap();
        assert_eq!(args.common.targets.len(), 2);
        assert_eq!(args.rate, Some(5000.0));
    }

    #[test]
    fn bad_options_are_one_line_each() {
        for line in [
            "-c 0",
            "-c x",
            "-P 0",
            "-n 0",
            "-n 5 --duration 2s",
            "--rate -1",
            "--rate 0",
            "--target nonsense",
            "--rounds 0",
            "--pin a",
            "--unknown",
        ] {
            let error = parse(line).err().unwrap_or_else(|| panic!("{line} was accepted"));
            assert!(!error.contains('\n') && !error.is_empty(), "{error}");
        }
        assert!(read_tests("get,nope").is_err());
        assert!(read_tests(",").is_err());
        assert_eq!(read_tests("all").unwrap().len(), TESTS.len());
    }

    #[test]
    fn the_help_lists_every_test() {
        use clap::CommandFactory;
        let help = Line::command().render_long_help().to_string();
        for test in TESTS {
            assert!(
                help.split(|c: char| c.is_whitespace() || c == '.').any(|w| w == test.name),
                "{}",
                test.name
            );
        }
    }

    #[test]
    fn names_that_are_no_target_are_refused() {
        for line in ["--pid x=1", "--baseline x", "--target a=h:1 --target a=h:2"] {
            assert!(parse(line).unwrap().common.resolve_targets().is_err(), "{line}");
        }
    }

    #[test]
    fn a_quick_run_fits_in_a_minute() {
        for (rounds, tests) in [(3, DEFAULT_TESTS), (10, "all"), (1, "get")] {
            let args = parse(&format!("--quick --rounds {rounds} -t {tests}")).unwrap();
            let turns = read_tests(&args.tests).unwrap().len() * 3 * rounds;
            let times = Times::of(&args.common, &args.load, turns);
            assert!((times.warmup + times.duration) * turns as u32 <= Duration::from_secs(40));
        }
    }
}
