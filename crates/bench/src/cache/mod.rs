//! `forebay bench cache`: a published account of a cache in front of a table API, repeated.
//!
//! ```text
//!   no cache   a mid-tier that asks the database each time           (midtier.rs)
//!   recipe     the account's: GET of the address, else SETEX         (Node, or midtier.rs)
//!   cold       Forebay, nothing kept when an address is asked first
//!   warm       Forebay, every answer kept
//!   304        Forebay, and the client knows the answer already
//! ```
//!
//! The account's four panels: each of 32 addresses is asked n times by c clients. Then what it
//! does not have: addresses by Zipf's law with writes among them, where old answers are counted;
//! and the moment when a hot answer expires under 100 clients, where queries are counted.
//! `--speed` measures Forebay beside what it cannot be faster than (speed.rs).
//!
//! **Invariant:** every body is compared with what the database answered without anything in
//! between.

mod midtier;
mod mixed;
mod scene;
mod speed;
mod stock;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::client::{Client, Protocol};
use crate::environment::{Environment, Server};
use crate::harness::{
    self, Better, Cell, Chart, Experiment, Metric, Place, Results, Sample, Turn, Unit, metric,
};
use crate::http_message::{Ask, HttpTraffic, Wanted};
use crate::load::{self, Limit, Pace, Plan};
use crate::measured::PREPARE_TIMEOUT;
use crate::options::{Common, usage_error};
use crate::process::CpuSource;
use crate::target::Target;

use midtier::Midtier;
use scene::{Ours, Recipe, Redis};
use stock::{Question, Stock};

/// Measure a table API without a cache, with a published recipe, and with Forebay's.
#[derive(clap::Args, Clone, Debug)]
pub struct CacheArgs {
    /// The database: mysql://user@host/database, postgres://user@host/database; its table
    /// bench_item is dropped and made anew [default: an SQLite file of its own].
    #[arg(long, value_name = "ADDRESS")]
    pub sql: Option<String>,
    /// A Redis for the recipe: redis://host:port [default: redis-server, if there is one].
    #[arg(long, value_name = "ADDRESS")]
    pub redis: Option<String>,
    /// Folder with the npm package redis: the recipe runs in Node [default:
    /// tests/node/node_modules if it is there, else the recipe runs in this program].
    #[arg(long, value_name = "DIR")]
    pub node_modules: Option<PathBuf>,
    /// Rows of the table [default: 100000; with --quick 20000].
    #[arg(long, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1000..=10_000_000))]
    pub rows: Option<u32>,
    /// Measure hits, 304s, misses and writes beside a static handler and bare SQL instead.
    #[arg(long)]
    pub speed: bool,
    /// Program that is started as Forebay [default: this one].
    #[arg(long, value_name = "PATH")]
    pub server: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// Where the tests' packages are.
const PACKAGES: &str = "tests/node/node_modules";
/// The account's n and c.
const PANELS: [(u32, u32); 4] = [(10, 1), (10, 10), (20, 4), (100, 20)];
/// The account's time to live, in seconds.
const TTL_SECONDS: u32 = 6 * 3600;

const METRICS: &[Metric] = &[
    metric("mean_us", "mean", Unit::Microseconds, Better::Lower, Place::Compared),
    metric("deviation_us", "sd", Unit::Microseconds, Better::Lower, Place::Table),
    metric("p50_us", "p50", Unit::Microseconds, Better::Lower, Place::Table),
    metric("p99_us", "p99", Unit::Microseconds, Better::Lower, Place::Table),
    metric("ops_per_s", "reads/s", Unit::PerSecond, Better::Higher, Place::Table),
    metric("queries", "SQL queries/1000 reads", Unit::Count, Better::Lower, Place::Table),
    metric("stale", "old answers/1000 reads", Unit::Count, Better::Lower, Place::Table),
    metric("expiry_queries", "SQL queries/expiry", Unit::Count, Better::Lower, Place::Table),
    metric("p95_us", "p95", Unit::Microseconds, Better::Lower, Place::File),
    metric("writes_per_s", "writes/s", Unit::PerSecond, Better::Higher, Place::File),
    metric("write_mean_us", "mean of writes", Unit::Microseconds, Better::Lower, Place::File),
];

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    NoCache,
    Recipe,
    Cold,
    Warm,
    Known,
}

impl Arm {
    const ALL: [Arm; 5] = [Arm::NoCache, Arm::Recipe, Arm::Cold, Arm::Warm, Arm::Known];

    fn name(self) -> &'static str {
        ["no cache", "recipe", "cold", "warm", "304"][self as usize]
    }
}

/// What is asked of the arms.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    /// Each address n times by c clients.
    Panel(u32, u32),
    /// By Zipf's law, so many writes of a hundred requests.
    Mixed(u32),
    /// A hot address expires.
    Storm,
}

/// Runs the experiment.
pub fn run(args: CacheArgs) -> ExitCode {
    if !args.common.targets.is_empty() || args.common.null {
        return usage_error("cache", "the servers are its own: neither --target nor --null");
    }
    let ran = if args.speed { speed::run(&args) } else { run_panels(&args) };
    ran.unwrap_or_else(|error| usage_error("cache", &error))
}

fn run_panels(args: &CacheArgs) -> Result<ExitCode, String> {
    let mut args = args.clone();
    args.common.rounds.get_or_insert(if args.common.quick { 1 } else { 3 });
    let mut cache = Cache::set(&args)?;
    let environment = cache.environment()?;
    Ok(harness::run(&mut cache, &args.common, environment))
}

impl CacheArgs {
    fn program(&self) -> Result<PathBuf, String> {
        let program = self.server.clone().map_or_else(std::env::current_exe, Ok);
        program.map_err(|error| format!("cannot find this program: {error}"))
    }

    fn rows(&self) -> u32 {
        self.rows.unwrap_or(if self.common.quick { 20_000 } else { 100_000 })
    }
}

struct Cache {
    args: CacheArgs,
    arms: Vec<Arm>,
    loads: Vec<Load>,
    questions: Vec<Question>,
    // In the order in which they are to end.
    recipe: Option<Recipe>,
    redis: Option<Redis>,
    bare: Midtier,
    ours: Ours,
    storm: Ours,
    writes: mixed::Writes,
    stock: Stock,
}

impl Cache {
    fn set(args: &CacheArgs) -> Result<Cache, String> {
        let program = args.program()?;
        let stock = Stock::fill(args.sql.as_deref(), args.rows())?;
        let questions = stock.questions()?;
        let bare = Midtier::start(&stock.connect, &stock.table, None)?;
        let kept = stock::declaration(u64::from(TTL_SECONDS) * 1000, "");
        let ours = Ours::start(&program, &stock, &kept)?;
        // The hard case: nothing is renewed before its time, and nothing old is served after it.
        let storm = stock::declaration(mixed::STORM_TTL_MS, ",\"staleMs\":0,\"refreshBeta\":0");
        let storm = Ours::start(&program, &stock, &storm)?;
        let redis = Redis::find(args.redis.as_deref())?;
        let packages = args.node_modules.clone().or_else(|| {
            let packages = PathBuf::from(PACKAGES);
            packages.join("redis").is_dir().then_some(packages)
        });
        let start = |redis: &Redis| {
            Recipe::start(&redis.target, packages.as_deref(), &stock, &bare, TTL_SECONDS)
        };
        let recipe = redis.as_ref().map(start).transpose()?;
        let has_server = |arm: &Arm| *arm != Arm::Recipe || recipe.is_some();
        let arms = Arm::ALL.into_iter().filter(has_server).collect();
        let panels = match args.common.quick {
            true => &PANELS[2..],
            false => &PANELS[..],
        };
        let mut loads: Vec<Load> = panels.iter().map(|&(n, c)| Load::Panel(n, c)).collect();
        loads.extend([Load::Mixed(1), Load::Mixed(5), Load::Storm]);
        let args = args.clone();
        let writes = mixed::Writes::of(&questions);
        Ok(Cache { args, arms, loads, questions, recipe, redis, bare, ours, storm, writes, stock })
    }

    fn environment(&self) -> Result<Environment, String> {
        let redis = self.redis.as_ref().map(|redis| redis.target.clone());
        let mut environment = Environment::gather(redis.as_slice(), PREPARE_TIMEOUT)?;
        let mut add = |name: &str, version: String, cpu: Option<CpuSource>| {
            environment.servers.push(Server {
                name: name.into(),
                address: "this machine".into(),
                version,
                pid: match cpu {
                    Some(CpuSource::Process(pid)) => Some(pid),
                    _ => None,
                },
                is_local: true,
                persistence: "no persistence".into(),
                threads: None,
            });
        };
        let own = self.ours.target();
        add("forebay", format!("forebay {}", env!("CARGO_PKG_VERSION")), own.cpu);
        if let Some(recipe) = &self.recipe {
            let version = match recipe {
                Recipe::Node(..) => "node, npm's redis",
                Recipe::Own(_) => "in this program, a thread a connection",
            };
            add("recipe", version.into(), recipe.cpu());
        }
        add("sql", self.stock.version.clone(), None);
        Ok(environment)
    }

    /// Where an arm listens.
    fn port(&self, arm: Arm) -> Result<u16, String> {
        match arm {
            Arm::NoCache => Ok(self.bare.port),
            Arm::Recipe => Ok(self.recipe.as_ref().ok_or("there is no recipe")?.port()),
            Arm::Cold | Arm::Warm | Arm::Known => Ok(self.ours.port),
        }
    }

    fn target(&self, arm: Arm) -> Result<Target, String> {
        let mut target = scene::http_target(arm.name(), self.port(arm)?);
        target.cpu = match arm {
            Arm::NoCache => None,
            Arm::Recipe => self.recipe.as_ref().and_then(Recipe::cpu),
            _ => self.ours.target().cpu,
        };
        Ok(target)
    }

    /// How many SQL queries an arm has made.
    fn queries(&mut self, arm: Arm) -> Result<u64, String> {
        match (arm, &self.recipe) {
            (Arm::Recipe, Some(Recipe::Own(own))) => Ok(own.queries()),
            (Arm::NoCache | Arm::Recipe, _) => Ok(self.bare.queries()),
            _ => self.ours.count("fills"),
        }
    }

    /// Removes what the recipe has kept.
    fn forget_recipe(&self) -> Result<(), String> {
        let Some(redis) = &self.redis else { return Ok(()) };
        let client = Client::connect(&redis.target, Protocol::Resp2, PREPARE_TIMEOUT);
        let mut client = client.map_err(|error| error.to_string())?;
        for question in &self.questions {
            let deleted = client.command(&["DEL", &midtier::key(&question.path)]);
            deleted.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Asks every address once, so that all answers are kept; their entity tags.
    fn warm(&self, arm: Arm) -> Result<Vec<String>, String> {
        let mut connection = scene::wait_for(self.port(arm)?)?;
        let mut tags = Vec::new();
        for question in &self.questions {
            let (status, head, body) = connection.send(&stock::request(&question.path, ""))?;
            if status != 200 || stock::stamps(&question.body, body).is_none() {
                let body = String::from_utf8_lossy(&body[..body.len().min(200)]);
                return Err(format!("{}: {status} {body}", question.path));
            }
            tags.push(header(head, "etag"));
        }
        Ok(tags)
    }

    fn panel(
        &mut self,
        (arm, count, clients): (Arm, u32, u32),
        seed: u64,
        live: &mut dyn FnMut(u64),
    ) -> Result<Sample, String> {
        let tags = match arm {
            Arm::NoCache | Arm::Cold => Vec::new(),
            Arm::Recipe | Arm::Warm | Arm::Known => self.warm(arm)?,
        };
        let target = self.target(arm)?;
        let before = self.queries(arm)?;
        let mut sample = Sample::default();
        let mut all = load::new_histogram();
        let mut elapsed = Duration::ZERO;
        for number in 0..self.questions.len() {
            if arm == Arm::Cold {
                self.ours.purge()?;
            }
            let question = &self.questions[number];
            let tag = tags.get(number).filter(|_| arm == Arm::Known);
            let traffic = traffic(question, tag, &target)?;
            let plan = Plan {
                target: &target,
                workload: &traffic,
                clients: clients as usize,
                threads: 1,
                pipeline: 1,
                limit: Limit::Requests(u64::from(count)),
                pace: Pace::Closed,
                warmup: Duration::ZERO,
                timeout: scene::START,
                cores: self.args.common.pin.as_ref().map_or(&[], |cores| &cores.0),
                seed,
            };
            let outcome = load::run(&plan, &mut *live).map_err(|error| error.to_string())?;
            sample.checked += outcome.replies;
            sample.failures += outcome.failures;
            sample.failure_examples.extend(outcome.failure_examples);
            elapsed += outcome.elapsed;
            all += &outcome.latency;
            sample.items.push(outcome.latency);
        }
        let queries = self.queries(arm)? - before;
        note(&mut sample, &all, elapsed, queries);
        Ok(sample)
    }
}

/// What a header says.
fn header(head: &[u8], wanted: &str) -> String {
    let head = String::from_utf8_lossy(head);
    let line = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case(wanted).then(|| value.trim().to_owned())
    });
    line.unwrap_or_default()
}

/// Requests for one question.
fn traffic(
    question: &Question,
    known: Option<&String>,
    target: &Target,
) -> Result<HttpTraffic, String> {
    let mut headers = vec![("zumo-api-version".to_owned(), "2.0.0".to_owned())];
    headers.extend(known.map(|tag| ("if-none-match".to_owned(), tag.clone())));
    let ask = Ask {
        method: "GET".into(),
        path: question.path.clone(),
        headers,
        body: None,
        is_kept: true,
    };
    let (statuses, body) = match known {
        Some(_) => ("304", Vec::new()),
        None => ("200", question.body.clone()),
    };
    let statuses = Wanted::statuses(statuses)?;
    let wanted = Wanted { statuses, text: None, body: Some(body) };
    Ok(HttpTraffic::new(&[ask], &target.address.to_string(), 0.0, 1, wanted))
}

/// Puts latencies and the count of queries into a sample.
fn note(
    sample: &mut Sample,
    latency: &hdrhistogram::Histogram<u64>,
    elapsed: Duration,
    queries: u64,
) {
    let reads = latency.len().max(1) as f64;
    let values = &mut sample.values;
    values.insert("mean_us", latency.mean() / 1e3);
    values.insert("deviation_us", latency.stdev() / 1e3);
    for (key, percentile) in [("p50_us", 50.0), ("p95_us", 95.0), ("p99_us", 99.0)] {
        values.insert(key, latency.value_at_percentile(percentile) as f64 / 1e3);
    }
    values.insert("ops_per_s", reads / elapsed.as_secs_f64());
    values.insert("queries", queries as f64 * 1000.0 / reads);
    sample.histograms.push(("closed loop", latency.clone()));
}

impl Experiment for Cache {
    fn name(&self) -> &'static str {
        "cache"
    }

    fn title(&self) -> String {
        format!(
            "A cache in front of a table API: {} rows, {}",
            self.args.rows(),
            self.stock.version
        )
    }

    fn summary(&self) -> String {
        "32 OData addresses, none of which an index helps, asked in the published account's four \
         ways; then by Zipf's law with writes among the reads; then at the moment when a hot \
         answer expires under 100 clients. Every body is compared with the database's."
            .into()
    }

    fn cell_heading(&self) -> &'static str {
        "load"
    }

    fn cells(&self) -> Vec<Cell> {
        let cell = |(index, load): (usize, &Load)| Cell {
            label: match load {
                Load::Panel(n, c) => format!("total {n}, {c} in parallel"),
                Load::Mixed(writes) => format!("Zipf, {writes} % writes"),
                Load::Storm => format!("expiry under {} clients", mixed::STORM_CLIENTS),
            },
            position: index as f64 + 1.0,
        };
        self.loads.iter().enumerate().map(cell).collect()
    }

    fn arms(&self) -> Vec<String> {
        self.arms.iter().map(|arm| arm.name().to_string()).collect()
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn charts(&self) -> Vec<Chart> {
        vec![Chart::Ribbons, Chart::Percentiles, Chart::Drift("mean_us")]
    }

    fn parameters(&self) -> Vec<(String, String)> {
        let recipe = match &self.recipe {
            Some(Recipe::Node(..)) => "Node and npm's redis",
            Some(Recipe::Own(_)) => "in this program",
            None => "left out: there is no redis-server",
        };
        [
            ("rows", self.args.rows().to_string()),
            ("addresses", self.questions.len().to_string()),
            ("indexes", "the primary key only".into()),
            ("recipe", recipe.into()),
            ("rounds", self.args.common.rounds().to_string()),
            ("seed", self.args.common.seed.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn caveats(&self) -> Vec<String> {
        vec![
            "Deviates from the published account: connections are kept and TLS is not spoken, so \
             that 140 ms of each of its samples are missing here; the generator counts in \
             nanoseconds, not in ab's milliseconds."
                .into(),
            "`no cache` is a compiled mid-tier in the load generator's process that does the same \
             SQL and the same JSON with a thread and a connection for each client; it is what \
             stands behind the recipe, too. The account's was Node with Express, which is slower."
                .into(),
            "`recipe` and `warm` have every answer kept before they are measured, as in the \
             account, whose addresses were taken from the cache's own keys. `cold` forgets \
             everything before each address."
                .into(),
            "Writes go through Forebay in all arms. The recipe does not hear of them: its old \
             answers are counted, not failures."
                .into(),
        ]
    }

    fn measure(&mut self, turn: Turn, live: &mut dyn FnMut(u64)) -> Result<Sample, String> {
        let (arm, load) = (self.arms[turn.arm], self.loads[turn.cell]);
        let seed = self.args.common.seed.wrapping_add(u64::from(turn.round) << 32);
        match load {
            Load::Panel(count, clients) => self.panel((arm, count, clients), seed, live),
            // Nothing is asked of these here that the panels have not asked.
            _ if matches!(arm, Arm::Cold | Arm::Known) => Ok(Sample::default()),
            Load::Mixed(writes) => self.mixed(arm, writes, seed, live),
            Load::Storm => self.storm(arm, live),
        }
    }

    fn files(&self, results: &Results) -> Vec<(String, String)> {
        let mut files = Vec::new();
        for entry in &results.entries {
            let Load::Panel(count, clients) = self.loads[entry.cell] else { continue };
            let mut text = String::from("mean sd url\n");
            for (number, item) in entry.items.iter().enumerate() {
                let (mean, deviation) = (item.mean_us / 1e3, item.deviation_us / 1e3);
                text.push_str(&format!("{mean:.4} {deviation:.4} {number}\n"));
            }
            let arm = results.arms[entry.arm].replace(' ', "_");
            files.push((format!("chart_data_{arm}_{count}_{clients}.txt"), text));
        }
        files
    }

    fn clean_up(&mut self) -> Result<(), String> {
        self.forget_recipe()?;
        self.stock.remove()
    }
}
