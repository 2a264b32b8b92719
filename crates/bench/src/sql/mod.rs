//! `forebay bench sql`: SQL behind a socket beside SQLite called in process.
//!
//! It climbs the ladder of a published account: PING, SQLite in process with text, with a prepared
//! statement, with a batch of them, then the same insertion as a command. Every reply is checked,
//! and after every measurement the rows are counted.
//!
//! ```text
//! core 0   SQLite in process  |  the server       in turns
//! core 1                      |  the load
//! ```

mod beside;
pub mod in_process;
mod readers;
pub mod rungs;

use std::process::ExitCode;
use std::time::Duration;

use crate::client::{Client, Protocol};
use crate::environment::Environment;
use crate::harness::{
    self, Better, Cell, Chart, Experiment, Metric, Place, Sample, Turn, Unit, metric,
};
use crate::load::{self, Limit, Pace, Plan};
use crate::measured::{self, PREPARE_TIMEOUT};
use crate::options::{Common, Cores, usage_error};
use crate::own_server::{self, OwnServer};
use crate::target::Target;
use crate::workload::{self, Workload};

use rungs::{Kind, RUNGS, Rung};

/// Measure SQL commands beside SQLite in process; starts a server of its own.
#[derive(clap::Args, Clone, Debug)]
pub struct SqlArgs {
    /// Connections.
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clients: u32,
    /// Only rungs whose name holds one of these, by commas.
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    pub only: Vec<String>,
    /// A server silent for so long has failed.
    #[arg(long, value_name = "TIME", default_value = "20s",
          value_parser = crate::options::parse_duration)]
    pub timeout: Duration,
    #[command(flatten)]
    common: Common,
}

/// What the server that the experiment starts is called.
const OWN: &str = "forebay";
/// The arm that calls SQLite.
const IN_PROCESS: &str = "sqlite";
/// Keys that are read beside a query.
const GET_KEYS: u64 = 10_000;

/// The quantities.
const METRICS: &[Metric] = &[
    metric("ops_per_s", "ops/s", Unit::PerSecond, Better::Higher, Place::Compared),
    metric("server_cpu_us", "CPU/op", Unit::Microseconds, Better::Lower, Place::Compared),
    metric("p50_us", "p50", Unit::Microseconds, Better::Lower, Place::Table),
    metric("p99_us", "p99", Unit::Microseconds, Better::Lower, Place::Table),
    metric("idle_p99_us", "idle p99", Unit::Microseconds, Better::Lower, Place::Table),
    metric("idle_ratio", "p99 / idle", Unit::Count, Better::Lower, Place::Table),
    metric("writes_per_s", "writes/s", Unit::PerSecond, Better::Higher, Place::Table),
    metric("generator_busy", "gen busy", Unit::Percent, Better::Neither, Place::Table),
    metric("server_busy", "server busy", Unit::Percent, Better::Neither, Place::File),
    metric("p999_us", "p99.9", Unit::Microseconds, Better::Lower, Place::File),
    metric("max_us", "max", Unit::Microseconds, Better::Lower, Place::File),
];

/// How long things take.
#[derive(Clone, Copy, Debug)]
struct Times {
    warmup: Duration,
    measured: Duration,
    /// GETs without a query, and beside one.
    idle: Duration,
    beside: Duration,
}

impl Times {
    fn of(common: &Common, turns: usize, besides: usize) -> Times {
        let (whole, idle, beside) = match common.quick {
            true => (Duration::from_secs(34), Duration::from_millis(400), Duration::from_secs(1)),
            false => (Duration::from_secs(150), Duration::from_secs(2), Duration::from_secs(6)),
        };
        let rest = whole.saturating_sub((idle + beside) * besides as u32);
        let each = (rest / turns.max(1) as u32).min(Duration::from_secs(3));
        // What is not measured: emptying tables, connecting.
        Times { warmup: each / 10, measured: each * 7 / 10, idle, beside }
    }
}

/// Runs the experiment.
pub fn run(mut args: SqlArgs) -> ExitCode {
    let (core, load_cores) = cores(&args.common);
    if !load_cores.is_empty() {
        args.common.pin = Some(Cores(load_cores));
    }
    match prepare(&args, core) {
        Err(error) => usage_error("sql", &error),
        Ok((mut ladder, environment)) => harness::run(&mut ladder, &args.common, environment),
    }
}

/// The cores of server and load: the first and the second, where there are two.
fn cores(common: &Common) -> (Option<usize>, Vec<usize>) {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    match &common.pin {
        Some(cores) => (Some(0), cores.0.clone()),
        None if count > 1 => (Some(0), vec![1]),
        None => (None, Vec::new()),
    }
}

fn prepare(args: &SqlArgs, core: Option<usize>) -> Result<(Ladder, Environment), String> {
    let is_wanted = |rung: &&Rung| {
        args.only.is_empty() || args.only.iter().any(|text| rung.name.contains(text.as_str()))
    };
    let rungs: Vec<&'static Rung> = RUNGS.iter().filter(is_wanted).collect();
    if rungs.is_empty() {
        return Err("no rung has such a name".into());
    }
    if args.common.null {
        return Err("the null server knows no SQL".into());
    }
    let mut targets = match args.common.targets.is_empty() {
        true => Vec::new(),
        false => args.common.resolve_targets()?,
    };
    if targets.iter().any(|target| target.name == IN_PROCESS) {
        return Err(format!("{IN_PROCESS} is SQLite in process and cannot be a target's name"));
    }
    let start = |core: Option<usize>, options: &[&str]| {
        OwnServer::start(OWN, core, options).map_err(|error| format!("own server: {error}"))
    };
    let (mut own, mut wide) = (None, None);
    if !targets.iter().any(|target| target.name == OWN) {
        let server = start(core, &["--threads", "1"])?;
        targets.insert(0, server.target.clone());
        own = Some(server);
        if rungs.iter().any(|rung| rung.kind == Kind::Readers) {
            wide = Some(start(None, &[])?);
        }
    }
    let environment = Environment::gather(&targets, args.timeout)?;
    let of = |wanted: &dyn Fn(&Kind) -> bool| rungs.iter().filter(|r| wanted(&r.kind)).count();
    let besides = of(&|kind| matches!(kind, Kind::Beside(_))) * targets.len();
    let others = of(&|kind| !matches!(kind, Kind::Beside(_))) * (targets.len() + 1);
    let rounds = args.common.rounds() as usize;
    let times = Times::of(&args.common, others * rounds, besides * rounds);
    let ladder = Ladder { args: args.clone(), rungs, targets, times, core, own, wide };
    Ok((ladder, environment))
}

struct Ladder {
    args: SqlArgs,
    rungs: Vec<&'static Rung>,
    /// All arms but the first, which is SQLite.
    targets: Vec<Target>,
    times: Times,
    core: Option<usize>,
    own: Option<OwnServer>,
    /// A second server, on all cores.
    wide: Option<OwnServer>,
}

/// Makes the tables if need be, and empties what is inserted into.
fn set_up(client: &mut Client, rung: &Rung) -> Result<(), String> {
    let text = |error: crate::client::Error| error.to_string();
    let exists = client.command(&["EXISTS", rung.db]).map_err(text)?.as_integer() == Some(1);
    let (db, exec) = (rung.db, "REDISQL.EXEC");
    if !exists {
        let mut create = vec!["REDISQL.CREATE_DB", db];
        if db == rungs::FILE {
            create.push("fbench-sql.db");
        }
        client.command(&create).map_err(text)?;
        client.command(&[exec, db, rungs::TABLES]).map_err(text)?;
        client.command(&[exec, db, rungs::FILL]).map_err(text)?;
        let statements = [("insert", rungs::INSERT), ("point", rungs::POINT), ("sum", rungs::SUM)];
        for (name, statement) in statements {
            let words = ["REDISQL.CREATE_STATEMENT", db, name, statement];
            client.command(&words).map_err(text)?;
        }
    }
    client.command(&[exec, db, "DELETE FROM t"]).map_err(text)?;
    Ok(())
}

/// Whether a server knows a command.
fn has(client: &mut Client, command: &str) -> Result<bool, String> {
    let reply = client.command(&["COMMAND", "INFO", command]).map_err(|error| error.to_string())?;
    let first = reply.as_elements().and_then(|all| all.first());
    Ok(first.is_some_and(|one| one.as_elements().is_some_and(|words| !words.is_empty())))
}

/// Counts the rows that a run has left.
fn count_rows(client: &mut Client, rung: &Rung, wanted: u64, sample: &mut Sample) {
    sample.checked += 1;
    let reply = client.command(&["REDISQL.EXEC", rung.db, rungs::COUNT]);
    let found = reply
        .as_ref()
        .ok()
        .and_then(|rows| rows.as_elements()?.first()?.as_elements()?.first()?.as_integer());
    if found.and_then(|rows| u64::try_from(rows).ok()) != Some(wanted) {
        sample.failures += 1;
        let example = format!("there are {reply:?} rows, expected {wanted}");
        sample.failure_examples.push(example);
    }
}

impl Ladder {
    fn connect(&self, target: &Target) -> Result<Client, String> {
        let connected = Client::connect(target, Protocol::Resp2, PREPARE_TIMEOUT);
        connected.map_err(|error| error.to_string())
    }

    /// A plan for the load generator.
    fn plan<'a>(
        &'a self,
        target: &'a Target,
        workload: &'a Workload,
        turn: Turn,
    ) -> Plan<'a, Workload> {
        Plan {
            target,
            workload,
            clients: self.args.clients as usize,
            threads: 1,
            pipeline: self.rungs[turn.cell].pipeline,
            limit: Limit::Time(self.times.measured),
            pace: Pace::Closed,
            warmup: self.times.warmup,
            timeout: self.args.timeout,
            cores: self.args.common.pin.as_ref().map_or(&[], |cores| &cores.0),
            seed: self.args.common.seed.wrapping_add(u64::from(turn.round) << 32),
        }
    }

    fn in_process(&self, rung: &Rung) -> Result<Sample, String> {
        let Some(way) = rung.way else { return Ok(Sample::default()) };
        if rung.db != rungs::FILE {
            return in_process::measure(way, None, self.core, self.times.measured);
        }
        let folder = own_server::new_folder().map_err(|error| error.to_string())?;
        let file = folder.join("sqlite.db");
        let sample = in_process::measure(way, Some(&file), self.core, self.times.measured);
        let _ = std::fs::remove_dir_all(&folder);
        sample
    }

    fn load(
        &self,
        turn: Turn,
        target: &Target,
        live: &mut dyn FnMut(u64),
    ) -> Result<Sample, String> {
        let rung = self.rungs[turn.cell];
        let mut client = self.connect(target)?;
        set_up(&mut client, rung)?;
        let workload = Workload::new(&[rung.test], rungs::KEYS, 3);
        let plan = self.plan(target, &workload, turn);
        let outcome = load::run(&plan, live).map_err(|error| error.to_string())?;
        let mut sample = measured::sample_of(&outcome, &plan);
        if rung.rows > 0 {
            count_rows(&mut client, rung, outcome.sent_in_all * rung.rows, &mut sample);
            per_row(&mut sample, rung.rows as f64);
        }
        Ok(sample)
    }
}

/// Operations are rows, where a request has several.
fn per_row(sample: &mut Sample, rows: f64) {
    for (key, factor) in [("ops_per_s", rows), ("server_cpu_us", 1.0 / rows)] {
        if let Some(value) = sample.values.get_mut(key) {
            *value *= factor;
        }
    }
}

impl Experiment for Ladder {
    fn name(&self) -> &'static str {
        "sql"
    }

    fn title(&self) -> String {
        format!("SQL: {}", self.arms().join(" · "))
    }

    fn summary(&self) -> String {
        "Rows of three integers inserted, and rows read, by commands and by SQLite called in \
         process, in turns on the same core. Every reply is checked, and the rows are counted \
         after each measurement."
            .into()
    }

    fn cell_heading(&self) -> &'static str {
        "rung"
    }

    fn cells(&self) -> Vec<Cell> {
        let cell = |(index, rung): (usize, &&Rung)| Cell {
            label: rung.name.to_owned(),
            position: index as f64,
        };
        self.rungs.iter().enumerate().map(cell).collect()
    }

    fn arms(&self) -> Vec<String> {
        let targets = self.targets.iter().map(|target| target.name.clone());
        std::iter::once(IN_PROCESS.to_owned()).chain(targets).collect()
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn charts(&self) -> Vec<Chart> {
        vec![
            Chart::Bars("ops_per_s"),
            Chart::Bars("server_cpu_us"),
            Chart::Percentiles,
            Chart::Drift("ops_per_s"),
        ]
    }

    fn parameters(&self) -> Vec<(String, String)> {
        let args = &self.args;
        let any = || "any".to_owned();
        let core = self.core.map_or_else(any, |core| core.to_string());
        let load = args.common.pin.as_ref().map_or_else(any, Cores::to_string);
        [
            ("clients", args.clients.to_string()),
            ("core of server and SQLite", core),
            ("cores of the load", load),
            ("rounds", args.common.rounds().to_string()),
            ("measured", crate::kv::seconds(self.times.measured)),
            ("beside a query", crate::kv::seconds(self.times.beside)),
            ("seed", args.common.seed.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn caveats(&self) -> Vec<String> {
        let counterpart = |rung: &&&Rung| Some((rung.name, rung.way?, rung.db == rungs::FILE));
        let all = self.rungs.iter().filter_map(|rung| counterpart(&rung));
        let lines = all.map(|(name, way, on_file)| format!("{name}: {}", way.words(on_file)));
        vec![
            format!("What SQLite does in process: {}.", lines.collect::<Vec<_>>().join("; ")),
            "SQLite in process is the one that is in this program: no memory statistics, no mutex, \
             one connection without limits or guard. Debian's, called from Python, inserts less \
             than half as many rows a second."
                .into(),
            "On file: WAL with synchronous=FULL, in process and in the server that is started \
             here."
                .into(),
            "Readers and writer: the server is on all cores, and so is the load; SQLite in process \
             is one thread. GET beside a query: an open loop of 2000 a second; latency from the \
             time each was due."
                .into(),
        ]
    }

    fn measure(&mut self, turn: Turn, live: &mut dyn FnMut(u64)) -> Result<Sample, String> {
        let rung = self.rungs[turn.cell];
        let Some(index) = turn.arm.checked_sub(1) else { return self.in_process(rung) };
        let mut target = &self.targets[index];
        if !has(&mut self.connect(target)?, rung.needs)? {
            return Ok(Sample::default());
        }
        match rung.kind {
            Kind::Load => self.load(turn, target, live),
            Kind::Readers => {
                if let (Some(wide), true) = (&self.wide, target.name == OWN) {
                    target = &wide.target;
                }
                self.readers(turn, target, live)
            }
            Kind::Beside(query) => self.beside(turn, target, query, live),
        }
    }

    fn clean_up(&mut self) -> Result<(), String> {
        // Own servers end with their folders.
        let is_own = |target: &&Target| self.own.is_some() && target.name == OWN;
        for target in self.targets.iter().filter(|target| !is_own(target)) {
            let mut client = self.connect(target)?;
            let words = ["DEL", rungs::MEMORY, rungs::FILE];
            client.command(&words).map_err(|error| error.to_string())?;
            if let Some(get) = workload::test_named("get") {
                workload::clean_up(&mut client, &[get], GET_KEYS).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::in_process::{Way, measure};
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: SqlArgs,
    }

    fn parse(line: &str) -> SqlArgs {
        let words = std::iter::once("sql").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args).unwrap()
    }

    #[test]
    fn sqlite_in_process_has_as_many_rows_as_it_was_told() {
        let folder = own_server::new_folder().unwrap();
        let ways =
            [Way::Text, Way::ChangingText, Way::Prepared, Way::Together, Way::Point, Way::Sum];
        for (index, way) in ways.into_iter().enumerate() {
            let file = folder.join(index.to_string());
            for file in [None, Some(&*file)] {
                let sample = measure(way, file, None, Duration::from_millis(5)).unwrap();
                assert!(sample.checked > 0 && sample.failures == 0, "{way:?}: {sample:?}");
            }
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_whole_fits_into_three_minutes() {
        for (line, most) in [("--quick", 40), ("", 160), ("--rounds 10", 260)] {
            let args = parse(line);
            let rounds = args.common.rounds() as usize;
            let (turns, besides) = ((RUNGS.len() - 2) * 2 * rounds, 2 * rounds);
            let times = Times::of(&args.common, turns, besides);
            let each = (times.warmup + times.measured) * turns as u32;
            let all = each + (times.idle + times.beside) * besides as u32;
            assert!(all <= Duration::from_secs(most), "{line}: {all:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for line in ["--null", "--only nonsense", "--target sqlite=127.0.0.1:1"] {
            assert!(prepare(&parse(line), None).is_err(), "{line}");
        }
    }
}
