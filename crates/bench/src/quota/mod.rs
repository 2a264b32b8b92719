//! `forebay bench quota`: a published account of a quota counter, repeated with the same SQL
//! database under every arm.
//!
//! ```text
//! sql              SELECT counter, INSERT record, UPDATE counter      2 commits a record
//! redis            GET counter,    INSERT record, INCR counter        1, and one at the end
//! forebay:sync     POST record                                        1, counter and row in it
//! forebay:group    POST record                                        1 for all who wait
//! forebay:journal  POST record       flushed to a log, SQL follows    1 for many
//! forebay:batch    POST 100 records  as forebay:group                 1 for all who wait
//! ```
//!
//! The account's clients are threads that ask and wait, as its PHP processes did; those of Forebay
//! are connections that one thread drives. What clients cost is told beside what servers cost.
//!
//! The time of a run ends when the database has all: for `redis` after the counter was written
//! back, for `forebay:journal` after the last record has come there.
//!
//! **Invariant:** after every run rows = counter = records accepted, or the experiment fails.

mod arms;
pub(crate) mod http;
mod ledger;
mod sending;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use crate::client::{Client, Protocol};
use crate::environment::{Environment, Server};
use crate::harness::{
    self, Better, Cell, Chart, Experiment, Metric, Place, Sample, Turn, Unit, metric,
};
use crate::measured::PREPARE_TIMEOUT;
use crate::options::{Common, usage_error};
use crate::process::CpuSource;
use crate::target::Target;

use arms::{Arm, BATCH_RECORDS};
use ledger::Ledger;
use sending::{Course, Sent, send};

/// Measure a quota counter in SQL, in Redis and in Forebay, over the same database.
#[derive(clap::Args, Clone, Debug)]
pub struct QuotaArgs {
    /// The database: mysql://user@host/database, postgres://user@host/database. Its tables
    /// counter, storage and quota_* are dropped and made anew.
    #[arg(long, value_name = "ADDRESS")]
    pub sql: String,
    /// A Redis for the arm of that name: redis://host:port. Without it the arm is left out.
    #[arg(long, value_name = "ADDRESS")]
    pub redis: Option<String>,
    /// Arms, by commas.
    #[arg(long, value_delimiter = ',', value_parser = Arm::ALL.map(|arm| arm.name()),
          default_values_t = Arm::ALL.map(|arm| arm.name().to_string()))]
    pub arms: Vec<String>,
    /// Clients, by commas [default: 1,4,20,64; with --quick 1,64].
    #[arg(short = 'c', long, value_name = "COUNTS", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub clients: Vec<u32>,
    /// Organisations, by commas [default: 1,10,1000; with --quick 1]. One client has one.
    #[arg(long, value_name = "COUNTS", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub orgs: Vec<u32>,
    /// Records of a run [default: 5000, as in the account; with --quick 500].
    #[arg(short = 'n', long, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub records: Option<u32>,
    /// Program that is started as Forebay [default: this one].
    #[arg(long, value_name = "PATH")]
    pub server: Option<PathBuf>,
    /// Core that each Forebay is pinned to; it is free to move unless given.
    #[arg(long, value_name = "CORE")]
    pub core: Option<usize>,
    #[command(flatten)]
    common: Common,
}

/// Runs of each arm, as in the account twice over.
const ROUNDS: u32 = 10;

const METRICS: &[Metric] = &[
    metric("whole_us", "whole time", Unit::Microseconds, Better::Lower, Place::Compared),
    metric("records_per_s", "records/s", Unit::PerSecond, Better::Higher, Place::Compared),
    metric("p50_us", "p50", Unit::Microseconds, Better::Lower, Place::Table),
    metric("p99_us", "p99", Unit::Microseconds, Better::Lower, Place::Table),
    metric("commits", "commits/record", Unit::Count, Better::Lower, Place::Table),
    metric("cpu_us", "CPU/record", Unit::Microseconds, Better::Lower, Place::Table),
    metric("client_cpu_us", "client CPU", Unit::Microseconds, Better::Lower, Place::Table),
    metric("stored_us", "storage time", Unit::Microseconds, Better::Lower, Place::File),
    metric("p95_us", "p95", Unit::Microseconds, Better::Lower, Place::File),
    metric("sql_cpu_us", "SQL CPU/record", Unit::Microseconds, Better::Lower, Place::File),
];

/// Runs the experiment.
pub fn run(mut args: QuotaArgs) -> ExitCode {
    args.common.rounds.get_or_insert(if args.common.quick { 2 } else { ROUNDS });
    match prepare(&args) {
        Err(error) => usage_error("quota", &error),
        Ok((mut quota, environment)) => harness::run(&mut quota, &args.common, environment),
    }
}

fn prepare(args: &QuotaArgs) -> Result<(Quota, Environment), String> {
    let ledger = Ledger::open(&args.sql)?;
    let redis = args.redis.as_deref().map(redis_target).transpose()?;
    let named = |arm: &Arm| args.arms.iter().any(|name| name == arm.name());
    let has_server = |arm: &Arm| *arm != Arm::Redis || redis.is_some();
    let arms: Vec<Arm> = Arm::ALL.into_iter().filter(named).filter(has_server).collect();
    if arms.is_empty() {
        return Err("no arm is left: redis needs --redis".into());
    }
    let or = |given: &[u32], quick: &[u32], full: &[u32]| match (given, args.common.quick) {
        ([], true) => quick.to_vec(),
        ([], false) => full.to_vec(),
        (given, _) => given.to_vec(),
    };
    let clients = or(&args.clients, &[1, 64], &[1, 4, 20, 64]);
    let orgs = or(&args.orgs, &[1], &[1, 10, 1000]);
    let mut places = Vec::new();
    for &clients in &clients {
        // One client has one organisation, as in the account.
        let orgs = orgs.iter().filter(|&&orgs| clients > 1 || orgs == 1);
        places.extend(orgs.map(|&orgs| Load { clients, orgs }));
    }
    if places.is_empty() {
        places.push(Load { clients: 1, orgs: 1 });
    }
    let mut environment = Environment::gather(redis.as_slice(), PREPARE_TIMEOUT)?;
    environment.servers.push(Server {
        name: "sql".into(),
        address: ledger.product().into(),
        version: ledger.version.clone(),
        pid: ledger.pid,
        is_local: ledger.pid.is_some(),
        persistence: ledger.durability.clone(),
        threads: None,
    });
    let records = args.records.unwrap_or(if args.common.quick { 500 } else { 5000 });
    if arms.contains(&Arm::Batch) && !records.is_multiple_of(BATCH_RECORDS) {
        return Err(format!("{} needs --records by {BATCH_RECORDS}", Arm::Batch.name()));
    }
    let args = args.clone();
    let server = args.server.clone().map_or_else(std::env::current_exe, Ok);
    let server = server.map_err(|error| format!("cannot find this program: {error}"))?;
    Ok((Quota { args, arms, places, records, ledger, redis, server }, environment))
}

fn redis_target(address: &str) -> Result<Target, String> {
    let address = address.strip_prefix("redis://").unwrap_or(address).trim_end_matches('/');
    let mut target: Target = format!("redis={address}").parse()?;
    target.cpu = target.find_process();
    Ok(target)
}

/// One place of the plan: who sends for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Clients, each with connections of its own.
    pub clients: u32,
    /// Organisations, each with a counter.
    pub orgs: u32,
}

struct Quota {
    args: QuotaArgs,
    arms: Vec<Arm>,
    places: Vec<Load>,
    records: u32,
    ledger: Ledger,
    redis: Option<Target>,
    server: PathBuf,
}

fn cpu_ns(sources: &[Option<CpuSource>]) -> Option<u64> {
    let known: Vec<u64> = sources.iter().flatten().filter_map(|source| source.cpu_ns()).collect();
    if known.is_empty() { None } else { Some(known.iter().sum()) }
}

/// What the clients saw of a run of so many records.
fn sample_of(run: &Sent, records: f64) -> Sample {
    let mut sample = Sample::default();
    let mut note = |key, value: f64| {
        sample.values.insert(key, value);
    };
    note("whole_us", run.whole.as_secs_f64() * 1e6);
    note("stored_us", run.stored_ns as f64 / 1e3);
    note("records_per_s", records / run.whole.as_secs_f64());
    if let Some(cpu_ns) = run.client_cpu_ns {
        note("client_cpu_us", cpu_ns as f64 / 1e3 / records);
    }
    for (key, percentile) in [("p50_us", 50.0), ("p95_us", 95.0), ("p99_us", 99.0)] {
        note(key, run.latencies.value_at_percentile(percentile) as f64 / 1e3);
    }
    sample
}

impl Experiment for Quota {
    fn name(&self) -> &'static str {
        "quota"
    }

    fn title(&self) -> String {
        format!("A quota counter: {} records over {}", self.records, self.ledger.version)
    }

    fn summary(&self) -> String {
        "Each client stores a record and counts it against its organisation's quota, then sends \
         the next one. All arms use the same SQL database; a run ends when it has everything."
            .into()
    }

    fn cell_heading(&self) -> &'static str {
        "clients, organisations"
    }

    fn cells(&self) -> Vec<Cell> {
        let cell = |(index, load): (usize, &Load)| Cell {
            label: format!("{} clients, {} orgs", load.clients, load.orgs),
            position: index as f64 + 1.0,
        };
        self.places.iter().enumerate().map(cell).collect()
    }

    fn arms(&self) -> Vec<String> {
        self.arms.iter().map(|arm| arm.name().to_string()).collect()
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn charts(&self) -> Vec<Chart> {
        vec![
            // As the account drew them: the runs side by side.
            Chart::Runs("whole_us"),
            Chart::Runs("stored_us"),
            Chart::Bars("records_per_s"),
            Chart::Bars("cpu_us"),
            Chart::Bars("commits"),
            Chart::Percentiles,
            Chart::Drift("whole_us"),
        ]
    }

    fn parameters(&self) -> Vec<(String, String)> {
        let cores = |pid: Option<u32>| pid.map_or("unknown cores".into(), cores_of);
        let redis = self.redis.as_ref().and_then(Target::pid);
        let generator = match &self.args.common.pin {
            Some(pinned) => format!("core {:?}", pinned.0),
            None => "any core".into(),
        };
        let forebay = self.args.core.map_or("any core".into(), |core| format!("core {core}"));
        let placement = format!(
            "clients on {generator}, SQL on {}, Redis on {}, Forebay on {forebay}",
            cores(self.ledger.pid),
            cores(redis)
        );
        [
            ("records", self.records.to_string()),
            ("rounds", self.args.common.rounds().to_string()),
            ("database", self.ledger.version.clone()),
            ("durability", self.ledger.durability.clone()),
            ("placement", placement),
            ("seed", self.args.common.seed.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn caveats(&self) -> Vec<String> {
        vec![
            "Deviates from the published account: the clients are compiled, not PHP; the arm redis \
             writes each organisation's counter back once, when all clients have ended; \
             Forebay's clients speak HTTP and are driven by one thread, and their organisations \
             come by chance. Storage time is what clients waited, quota check included, one after \
             the other; of forebay:batch what they waited for requests of 100 records."
                .into(),
            "Not equal in what they promise: redis loses counts when it or its client dies before \
             the end, and admits too much when clients race at the limit, as sql does; Forebay's \
             arms keep rows and counter in one transaction and admit exactly the limit."
                .into(),
            format!("Commits are the database's own count: {}.", self.ledger.counted()),
        ]
    }

    fn measure(&mut self, turn: Turn, live: &mut dyn FnMut(u64)) -> Result<Sample, String> {
        let (arm, load) = (self.arms[turn.arm], self.places[turn.cell]);
        self.ledger.make_anew(load.orgs)?;
        let cores = self.args.common.pin.as_ref().map_or(&[][..], |cores| &cores.0);
        let connect = |target: &Target| {
            Client::connect(target, Protocol::Resp2, PREPARE_TIMEOUT)
                .map_err(|error| error.to_string())
        };
        let stage = arms::Stage {
            arm,
            load,
            sql: &self.args.sql,
            redis: self.redis.as_ref(),
            server: &self.server,
            core: self.args.core,
            connect: &connect,
        };
        let mut scene = stage.set(self.records)?;
        let clients = scene.clients()?;
        let servers = [self.ledger.cpu(), scene.cpu()];
        let commits = self.ledger.commits()?;
        let (cpu, sql_cpu) = (cpu_ns(&servers), cpu_ns(&servers[..1]));
        let records = self.records;
        let course = Course { load, records, cores, seed: self.args.common.seed };
        let mut run = send(clients, &course, arm.records_each(), live)?;
        let sent = Instant::now();
        let ledger = &mut self.ledger;
        scene.settle(ledger, records)?;
        run.whole += sent.elapsed();
        let each = f64::from(records);
        let mut sample = sample_of(&run, each);
        let mut note = |key, value: f64| {
            sample.values.insert(key, value);
        };
        if let (Some(before), Some(after)) = (commits, ledger.commits()?) {
            note("commits", (after - before) as f64 / each);
        }
        for (key, before, after) in
            [("cpu_us", cpu, cpu_ns(&servers)), ("sql_cpu_us", sql_cpu, cpu_ns(&servers[..1]))]
        {
            if let (Some(before), Some(after)) = (before, after) {
                note(key, after.saturating_sub(before) as f64 / 1e3 / each);
            }
        }
        sample.histograms.push(("sent", run.latencies));
        let wrong = scene.check(ledger, records)?;
        sample.checked = u64::from(records);
        sample.failures = wrong.len() as u64;
        sample.failure_examples = wrong;
        Ok(sample)
    }

    fn clean_up(&mut self) -> Result<(), String> {
        self.ledger.drop_all()
    }
}

/// The cores that a process may use.
fn cores_of(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.map_or("unknown cores".into(), |list| format!("core {}", list.trim()))
}
