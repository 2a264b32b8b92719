//! `forebay bench cache --speed`: Forebay beside what it cannot be faster than.
//!
//! ```text
//!   hit, 304   bare: a handler on the same HTTP stack that returns the same bytes
//!   miss       bare: the SQL query and its JSON, in process
//!   write      bare: the UPDATE, in process
//!   entry      memory of a kept answer beside body and key
//! ```
//!
//! Servers run on core 0, the load generator on core 1 (or `--pin`); with one core nothing is
//! pinned.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use services::database::{Database, Statement};

use super::scene::{self, Ours, Process};
use super::stock::{self, Question, Stock, TABLE};
use super::{CacheArgs, TTL_SECONDS, header, traffic};
use crate::environment::Environment;
use crate::harness::{
    self, Better, Cell, Chart, Experiment, Metric, Place, Sample, Turn, Unit, metric,
};
use crate::load::{self, Limit, Pace, Plan, new_histogram};
use crate::measured::{Times, sample_of};
use crate::own_server::new_folder;
use crate::random::Random;
use crate::sys;
use crate::target::Target;

/// Connections of hits.
const CLIENTS: usize = 32;
/// Answers that are kept to see what they weigh.
const ENTRIES: u32 = 20_000;
/// Of these, keys whose size is asked.
const SIZED: u32 = 200;

const METRICS: &[Metric] = &[
    metric("ops_per_s", "ops/s", Unit::PerSecond, Better::Higher, Place::Compared),
    metric("mean_us", "mean", Unit::Microseconds, Better::Lower, Place::Compared),
    metric("p99_us", "p99", Unit::Microseconds, Better::Lower, Place::Compared),
    metric("server_cpu_us", "server CPU/op", Unit::Microseconds, Better::Lower, Place::Compared),
    metric("p50_us", "p50", Unit::Microseconds, Better::Lower, Place::Table),
    metric("entry_bytes", "bytes/entry", Unit::Count, Better::Lower, Place::Table),
    metric("ready_bytes", "if ready", Unit::Count, Better::Lower, Place::Table),
];

const BARE: usize = 0;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    /// Answers of one kind, by the index of their question.
    Hit(usize),
    Known(usize),
    Miss,
    Write,
    Entry,
}

struct Speed {
    args: CacheArgs,
    program: PathBuf,
    whats: Vec<What>,
    questions: Vec<Question>,
    ours: Ours,
    times: Times,
    cores: Vec<usize>,
    database: Box<dyn Database>,
    random: Random,
    stock: Stock,
}

/// Runs the experiment.
pub fn run(args: &CacheArgs) -> Result<ExitCode, String> {
    let mut options = args.common.clone();
    options.rounds.get_or_insert(if options.quick { 2 } else { 5 });
    server_core();
    let program = args.program()?;
    let stock = Stock::fill(args.sql.as_deref(), args.rows())?;
    let questions = stock.questions()?;
    let declaration = stock::declaration(u64::from(TTL_SECONDS) * 1000, "");
    let ours = Ours::start_on(&program, &stock, &declaration, server_core())?;
    let rows = |question: &Question| question.body.len();
    let by = |range: fn(&(usize, usize)) -> usize| {
        let sizes: Vec<(usize, usize)> = questions.iter().map(rows).enumerate().collect();
        sizes.iter().max_by_key(|one| range(one)).map_or(0, |one| one.0)
    };
    let (large, small) = (by(|one| one.1), by(|one| usize::MAX - one.1));
    let whats = vec![
        What::Hit(small),
        What::Hit(large),
        What::Known(large),
        What::Miss,
        What::Write,
        What::Entry,
    ];
    let turns = (whats.len() * 2) * options.rounds() as usize;
    let times = Times::fit(&options, None, None, turns);
    let mut environment = Environment::of(Vec::new());
    environment
        .servers
        .extend(Environment::gather(&[ours.command_target()], scene::START)?.servers);
    let cores = options.pin.as_ref().map(|cores| cores.0.clone());
    let cores = cores.unwrap_or(if server_core().is_some() { vec![1] } else { Vec::new() });
    let database = stock.database()?;
    let (args, random) = (args.clone(), Random::new(options.seed));
    let mut speed =
        Speed { args, program, whats, questions, ours, times, cores, database, random, stock };
    Ok(harness::run(&mut speed, &options, environment))
}

/// Where servers run: away from the load generator, if there is room.
fn server_core() -> Option<usize> {
    // Looked at once: this program's own threads are pinned later.
    static CORES: OnceLock<usize> = OnceLock::new();
    let count = || std::thread::available_parallelism().map_or(1, usize::from);
    (*CORES.get_or_init(count) > 1).then_some(0)
}

impl Speed {
    /// A server that has nothing but one answer, on the same stack.
    fn fixed(&self, answer: &[u8]) -> Result<(Process, Target), String> {
        let folder = new_folder().map_err(|error| error.to_string())?;
        let (file, port) = (folder.join("answer"), scene::free_port()?);
        std::fs::write(&file, answer).map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.program);
        command.args(["bench", "static-server", "--port", &port.to_string()]).arg(file);
        command.args(["--threads", "1"]).stdout(Stdio::null());
        let process = Process::start_on(&mut command, Some(folder), server_core())?;
        scene::wait_for(port)?;
        let mut target = scene::http_target("bare", port);
        target.cpu = Some(process.cpu());
        Ok((process, target))
    }

    /// Hits or 304s of one address.
    fn hits(
        &mut self,
        arm: usize,
        (number, is_known): (usize, bool),
        seed: u64,
        live: &mut dyn FnMut(u64),
    ) -> Result<Sample, String> {
        let question = &self.questions[number];
        let mut connection = scene::wait_for(self.ours.port)?;
        let plain = stock::request(&question.path, "");
        let (_, head, _) = connection.send(&plain)?;
        let tag = header(head, "etag");
        let tag = is_known.then_some(tag);
        let more = tag.as_ref().map_or(String::new(), |tag| format!("if-none-match: {tag}\r\n"));
        let (_, head, body) = connection.send(&stock::request(&question.path, &more))?;
        let answer = [head, body].concat();
        let fixed = (arm == BARE).then(|| self.fixed(&answer)).transpose()?;
        let target = match &fixed {
            Some((_, target)) => target.clone(),
            None => self.ours.target(),
        };
        let traffic = traffic(question, tag.as_ref(), &target)?;
        let plan = Plan {
            target: &target,
            workload: &traffic,
            clients: CLIENTS,
            threads: 1,
            pipeline: 1,
            limit: Limit::Time(self.times.duration),
            pace: Pace::Closed,
            warmup: self.times.warmup,
            timeout: scene::START,
            cores: &self.cores,
            seed,
        };
        let outcome = load::run(&plan, live).map_err(|error| error.to_string())?;
        Ok(sample_of(&outcome, &plan))
    }

    /// Does one thing over and over from one client, on the load generator's core.
    fn one_by_one(
        &mut self,
        live: &mut dyn FnMut(u64),
        mut once: impl FnMut(&mut Speed) -> Result<(), String>,
    ) -> Result<Sample, String> {
        let mut latency = new_histogram();
        let (began, all) = (Instant::now(), self.times.warmup + self.times.duration);
        while began.elapsed() < all {
            let is_counted = began.elapsed() >= self.times.warmup;
            let sent = Instant::now();
            once(self)?;
            if is_counted {
                latency.saturating_record(sent.elapsed().as_nanos() as u64);
            }
        }
        live(latency.len());
        let mut sample = Sample { checked: latency.len(), ..Sample::default() };
        let values = &mut sample.values;
        values.insert("ops_per_s", 1e6 / (latency.mean() / 1e3).max(0.001));
        values.insert("mean_us", latency.mean() / 1e3);
        values.insert("p50_us", latency.value_at_percentile(50.0) as f64 / 1e3);
        values.insert("p99_us", latency.value_at_percentile(99.0) as f64 / 1e3);
        sample.histograms.push(("one client", latency));
        Ok(sample)
    }

    fn miss(&mut self, arm: usize, live: &mut dyn FnMut(u64)) -> Result<Sample, String> {
        let mut connection = scene::wait_for(self.ours.port)?;
        let mut number = 0;
        self.one_by_one(live, |speed| {
            number = (number + 1) % speed.questions.len();
            let question = &speed.questions[number];
            let body = if arm == BARE {
                stock::answer(&speed.stock.table, &mut *speed.database, &question.path)?
            } else {
                // A new answer, kept as after any other miss.
                let request = stock::request(&question.path, "cache-control: no-cache\r\n");
                connection.send(&request)?.2.to_vec()
            };
            match stock::stamps(&question.body, &body) {
                Some(_) => Ok(()),
                None => Err(format!("{}: another body", question.path)),
            }
        })
    }

    fn write(&mut self, arm: usize, live: &mut dyn FnMut(u64)) -> Result<Sample, String> {
        let mut connection = scene::wait_for(self.ours.port)?;
        let (mut stamp, rows) = (0_i64, u64::from(self.args.rows()));
        self.one_by_one(live, |speed| {
            stamp += 1;
            let row = speed.random.below(rows) as i64;
            if arm == BARE {
                let sql = format!("UPDATE {TABLE} SET stamp = ? WHERE id = ?");
                let update = Statement::run(sql, vec![stamp.into(), row.into()]);
                let changed = speed.database.transact(&[update]).map_err(|e| e.to_string())?;
                return if changed == [1] { Ok(()) } else { Err("no row was changed".into()) };
            }
            let body = format!("{{\"stamp\":{stamp}}}");
            let request = format!(
                "PATCH /tables/{TABLE}/{row} HTTP/1.1\r\nhost: bench\r\n\
                 zumo-api-version: 2.0.0\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            );
            let (status, _, answer) = connection.send(&request)?;
            let is_done = String::from_utf8_lossy(answer).contains(&body[1..body.len() - 1]);
            if status == 200 && is_done { Ok(()) } else { Err(format!("a write: {status}")) }
        })
    }

    /// Keeps many small answers; what each weighs beside body and key.
    fn entry(&mut self) -> Result<Sample, String> {
        let declaration = stock::declaration(u64::from(TTL_SECONDS) * 1000, "");
        let mut ours = Ours::start(&self.program, &self.stock, &declaration)?;
        let mut connection = scene::wait_for(ours.port)?;
        let pid = ours.target().pid().ok_or("the server has no process")?;
        let first = stock::request(&format!("/tables/{TABLE}?$filter=id%20eq%200"), "");
        connection.send(&first)?;
        let (memory, resident) = (ours.memory()?, resident_bytes(pid)?);
        let (mut bodies, mut keys) = (0_u64, 0_u64);
        for row in 1..=ENTRIES {
            let row = row % self.args.rows();
            let path = format!("/tables/{TABLE}?$filter=id%20eq%20{row}");
            let (status, _, body) = connection.send(&stock::request(&path, ""))?;
            if status != 200 || !body.starts_with(format!("[{{\"id\":{row},").as_bytes()) {
                return Err(format!("{path}: {status}"));
            }
            bodies += body.len() as u64;
            keys += format!("cache:{TABLE}:2:q:f=(eq id {row})").len() as u64;
        }
        let each = |bytes: u64| (bytes as f64 - (bodies + keys) as f64) / f64::from(ENTRIES);
        let mut sample = Sample { checked: u64::from(ENTRIES), ..Sample::default() };
        let more = ours.memory()?.saturating_sub(memory);
        let resident = resident_bytes(pid)?.saturating_sub(resident);
        sample.values.insert("ready_bytes", each(more.min(resident.max(1))));
        let mut beside = 0.0;
        for row in 1..=SIZED {
            let key = format!("cache:{TABLE}:2:q:f=(eq id {row})");
            let path = format!("/tables/{TABLE}?$filter=id%20eq%20{row}");
            let body = connection.send(&stock::request(&path, ""))?.2.len();
            let resp::reply::Value::Integer(usage) = ours.command(&["MEMORY", "USAGE", &key])?
            else {
                return Err(format!("there is no key {key}"));
            };
            beside += usage as f64 - (key.len() + body) as f64;
        }
        sample.values.insert("entry_bytes", beside / f64::from(SIZED));
        Ok(sample)
    }
}

/// Memory of a process that is in RAM.
fn resident_bytes(pid: u32) -> Result<u64, String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map(|kilobytes| kilobytes * 1024).ok_or_else(|| "the server is gone".into())
}

impl Experiment for Speed {
    fn name(&self) -> &'static str {
        "cache-speed"
    }

    fn title(&self) -> String {
        let version = &self.stock.version;
        format!("Cached tables beside the least that they could cost: {version}")
    }

    fn summary(&self) -> String {
        format!(
            "Hits and 304s by {CLIENTS} connections beside a handler on the same HTTP stack that \
             returns the same bytes; misses and writes by one client beside the bare SQL, with \
             its JSON, in process, over {} rows.",
            self.args.rows()
        )
    }

    fn cell_heading(&self) -> &'static str {
        "what"
    }

    fn cells(&self) -> Vec<Cell> {
        let size = |number: &usize| self.questions[*number].body.len();
        let cell = |(index, what): (usize, &What)| Cell {
            label: match what {
                What::Hit(number) => format!("hit, {} bytes", size(number)),
                What::Known(_) => "304".into(),
                What::Miss => "miss".into(),
                What::Write => "write".into(),
                What::Entry => "entry".into(),
            },
            position: index as f64 + 1.0,
        };
        self.whats.iter().enumerate().map(cell).collect()
    }

    fn arms(&self) -> Vec<String> {
        vec!["bare".into(), "forebay".into()]
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn charts(&self) -> Vec<Chart> {
        vec![Chart::Bars("ops_per_s"), Chart::Percentiles, Chart::Drift("ops_per_s")]
    }

    fn parameters(&self) -> Vec<(String, String)> {
        [
            ("rows", self.args.rows().to_string()),
            ("clients of hits", CLIENTS.to_string()),
            ("measured", format!("{:?}", self.times.duration)),
            ("load generator on cores", format!("{:?}", self.cores)),
            ("servers on core", format!("{:?}", server_core())),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn caveats(&self) -> Vec<String> {
        vec![
            "`bytes/entry` is MEMORY USAGE of a kept answer's key, its body and the key itself \
             left out. `if ready` is how much more memory the process took for each answer that \
             also lies ready to be sent, with its headers and the address that was understood; of \
             those there are as many as tables-hot-bytes has room for."
                .into(),
            "Misses and writes go through HTTP, their bare forms do not: what HTTP costs is in \
             the ratio."
                .into(),
        ]
    }

    fn measure(&mut self, turn: Turn, live: &mut dyn FnMut(u64)) -> Result<Sample, String> {
        let seed = self.args.common.seed.wrapping_add(u64::from(turn.round) << 32);
        if let Some(core) = self.cores.first() {
            sys::pin_current_thread(*core).map_err(|error| error.to_string())?;
        }
        match self.whats[turn.cell] {
            What::Hit(number) => self.hits(turn.arm, (number, false), seed, live),
            What::Known(number) => self.hits(turn.arm, (number, true), seed, live),
            What::Miss => self.miss(turn.arm, live),
            What::Write => self.write(turn.arm, live),
            What::Entry if turn.arm == BARE => Ok(Sample::default()),
            What::Entry => self.entry(),
        }
    }

    fn clean_up(&mut self) -> Result<(), String> {
        self.stock.remove()
    }
}
