//! `forebay bench pipeline`: what pipelining is worth, from depth 1 to 512.
//!
//! It repeats a published account: a PHP script that sent 10 000 SET or GET, chosen by a coin, one
//! at a time (11 000 per second) and through a pipeline (40 000). The account's loop as printed
//! never collects its replies. Here replies are what is counted, and each is checked; the keys are
//! filled first, so that a GET is always answered with its value.

use std::collections::HashSet;
use std::process::ExitCode;

use crate::environment::Environment;
use crate::harness::{self, Cell, Chart, Experiment, Metric, Sample, Turn};
use crate::kv::seconds;
use crate::load::{Limit, Pace, Plan};
use crate::measured::{self, METRICS, NULL_SERVER, Times};
use crate::null_server::NullServer;
use crate::options::{Common, LoadOptions, usage_error};
use crate::target::{Target, TargetKind};
use crate::workload::{self, Test};

/// What is sent, in equal parts.
const MIX: [&str; 2] = ["set", "get"];

/// Measure SET and GET, half each, at pipeline depths from 1 to 512.
#[derive(clap::Args, Clone, Debug)]
pub struct PipelineArgs {
    /// Pipeline depths, by commas.
    #[arg(short = 'P', long, value_name = "DEPTHS", value_delimiter = ',',
          default_values_t = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub depths: Vec<u32>,
    /// Connections; the published account has one.
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub clients: u32,
    /// Keys; the published account has 10 000.
    #[arg(short = 'r', long, value_name = "COUNT", default_value_t = 10_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub keyspace: u64,
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    common: Common,
}

/// Runs the experiment.
pub fn run(args: PipelineArgs) -> ExitCode {
    match prepare(&args) {
        Err(error) => usage_error("pipeline", &error),
        Ok((mut ladder, environment)) => harness::run(&mut ladder, &args.common, environment),
    }
}

fn prepare(args: &PipelineArgs) -> Result<(Ladder, Environment), String> {
    let mut depths = args.depths.clone();
    depths.sort_unstable();
    depths.dedup();
    let mut targets = args.common.resolve_targets()?;
    let null_server = match args.common.null {
        true => Some(NullServer::start().map_err(|error| format!("null server: {error}"))?),
        false => None,
    };
    targets.extend(null_server.as_ref().map(NullServer::target));
    let environment = Environment::gather(&targets, args.load.timeout)?;
    let turns = depths.len() * targets.len() * args.common.rounds() as usize;
    let times = Times::of(&args.common, &args.load, turns);
    let tests = MIX.iter().filter_map(|name| workload::test_named(name)).collect();
    let ladder = Ladder {
        args: args.clone(),
        depths,
        tests,
        targets,
        times,
        filled: HashSet::new(),
        _null_server: null_server,
    };
    Ok((ladder, environment))
}

struct Ladder {
    args: PipelineArgs,
    depths: Vec<u32>,
    tests: Vec<&'static Test>,
    targets: Vec<Target>,
    times: Times,
    /// Arms whose keys are filled.
    filled: HashSet<usize>,
    _null_server: Option<NullServer>,
}

impl Ladder {
    fn fill(&mut self, arm: usize) -> Result<(), String> {
        let target = &self.targets[arm];
        if target.kind == TargetKind::Null || !self.filled.insert(arm) {
            return Ok(());
        }
        measured::fill(target, self.tests[0], &self.args.load, self.args.keyspace, None)
    }
}

impl Experiment for Ladder {
    fn name(&self) -> &'static str {
        "pipeline"
    }

    fn title(&self) -> String {
        format!("Pipeline depth: {}", self.arms().join(" · "))
    }

    fn summary(&self) -> String {
        let clients = match self.args.clients {
            1 => "One connection sends".to_owned(),
            count => format!("{count} connections send"),
        };
        format!(
            "{clients} SET or GET, chosen by a coin, so many at a time as the pipeline is deep; \
             the next batch waits for all replies. Counted are replies received, each checked."
        )
    }

    fn cell_heading(&self) -> &'static str {
        "pipeline depth"
    }

    fn cells(&self) -> Vec<Cell> {
        let cell = |&depth| Cell { label: format!("{depth}"), position: f64::from(depth) };
        self.depths.iter().map(cell).collect()
    }

    fn arms(&self) -> Vec<String> {
        self.targets.iter().map(|target| target.name.clone()).collect()
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn charts(&self) -> Vec<Chart> {
        vec![
            Chart::Lines("ops_per_s"),
            Chart::Lines("server_cpu_us"),
            Chart::Lines("p99_us"),
            Chart::Drift("ops_per_s"),
        ]
    }

    fn parameters(&self) -> Vec<(String, String)> {
        let args = &self.args;
        let limit = match args.load.requests {
            Some(requests) => ("requests", requests.to_string()),
            None => ("measured", seconds(self.times.duration)),
        };
        [
            ("mix", "50 % SET, 50 % GET".to_owned()),
            ("clients", args.clients.to_string()),
            ("keyspace", args.keyspace.to_string()),
            ("value", format!("{} B", args.load.data_size)),
            ("threads", args.load.threads().min(args.clients as usize).to_string()),
            ("protocol", if args.load.resp3 { "RESP3" } else { "RESP2" }.into()),
            ("rounds", args.common.rounds().to_string()),
            ("warm-up", seconds(self.times.warmup)),
            limit,
            ("seed", args.common.seed.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn caveats(&self) -> Vec<String> {
        let mut caveats = vec![
            "Deviates from the published account: the client is compiled and not PHP, replies are \
             read and checked, keys exist before they are read, and time is measured instead of a \
             single pass over 10 000 keys."
                .to_owned(),
            "Latency at depth n is that of a whole batch of n: it grows with the depth by design."
                .into(),
        ];
        if self.args.clients == 1 {
            caveats.push(
                "One unpipelined connection measures how fast this machine wakes up a process, \
                 not how fast the server is. Use -c 50 to compare servers at small depths."
                    .into(),
            );
        }
        if self.args.common.null {
            caveats.push(NULL_SERVER.into());
        }
        caveats
    }

    fn measure(&mut self, turn: Turn, live: &mut dyn FnMut(u64)) -> Result<Sample, String> {
        self.fill(turn.arm)?;
        let (args, target) = (&self.args, &self.targets[turn.arm]);
        let load = measured::workload_for(target, &self.tests, &args.load, args.keyspace);
        let plan = Plan {
            target,
            workload: &load,
            clients: args.clients as usize,
            threads: args.load.threads(),
            pipeline: self.depths[turn.cell] as usize,
            limit: args.load.requests.map_or(Limit::Time(self.times.duration), Limit::Requests),
            pace: Pace::Closed,
            warmup: self.times.warmup,
            timeout: args.load.timeout,
            cores: args.common.pin.as_ref().map_or(&[], |cores| &cores.0),
            seed: args.common.seed.wrapping_add(u64::from(turn.round) << 32),
        };
        measured::measure(&plan, None, args.keyspace, live)
    }

    fn clean_up(&mut self) -> Result<(), String> {
        measured::clean_up(&self.targets, &self.tests, &self.args.load, self.args.keyspace)
    }
}
