//! `forebay bench saga`: distributed transactions over dtm's HTTP API, one server of this program
//! for each durability, and a real dtm where one is given.
//!
//! ```text
//!   empty, c = 10 and 50      two steps without addresses, the submitter waits
//!   two branches              both steps are HTTP calls to participants in this process
//!   two own steps             commands on the server's keyspace, statements on its SQLite
//!   1 to 10 steps             without addresses
//! ```
//!
//! It repeats a published account: 10 875 empty sagas a second on twenty cores, counted by a client
//! that opens a connection for each. Here connections are kept, and every answer has to say
//! SUCCESS; the participants' books have to balance after each measurement.

mod lines;
mod own_steps;
mod participants;

use std::net::TcpListener;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::environment::{Environment, Server};
use crate::harness::{self, Cell, Chart, Experiment, Metric, Sample, Turn};
use crate::http_message::{Ask, HttpTraffic, Wanted};
use crate::kv::seconds;
use crate::load::{self, Limit, Pace, Plan};
use crate::measured::{METRICS, Times, sample_of};
use crate::options::{Common, LoadOptions, usage_error};
use crate::own_server::OwnServer;
use crate::target::{Address, Target};

use self::lines::Lines;
use self::own_steps::{Accounts, Own};
use self::participants::{AMOUNT, Participants};

/// Measure sagas: empty ones, with real HTTP branches, with 1 to 10 steps, for each durability.
#[derive(clap::Args, Clone, Debug)]
pub struct SagaArgs {
    /// Durabilities that are measured, by commas.
    #[arg(long, value_delimiter = ',', default_values_t = ["none", "everysec", "always"]
          .map(String::from), value_parser = ["none", "everysec", "always"])]
    pub durability: Vec<String>,
    /// A real dtm on the same load: http://host:port.
    #[arg(long, value_name = "URL")]
    pub dtm: Option<String>,
    /// Connections of empty sagas, by commas.
    #[arg(short = 'c', long, value_delimiter = ',', default_values_t = [10, 50],
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clients: Vec<u32>,
    /// The published account's redis-benchmark lines instead, against this program and each
    /// --target (redis=127.0.0.1:6379, say).
    #[arg(long)]
    pub lines: bool,
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    common: Common,
}

/// How long a saga may take to be finished after its last answer.
const SETTLE: Duration = Duration::from_secs(20);
const STEPS_CLIENTS: usize = 10;
const BRANCHES_CLIENTS: usize = 50;

/// Runs the experiment.
pub fn run(args: SagaArgs) -> ExitCode {
    if args.common.null {
        return usage_error("saga", "the null server knows no sagas");
    }
    let ran = if args.lines { run_lines(&args) } else { run_sagas(&args) };
    ran.unwrap_or_else(|error| usage_error("saga", &error))
}

fn run_lines(args: &SagaArgs) -> Result<ExitCode, String> {
    let own = OwnServer::start("forebay", None, &[]).map_err(|error| error.to_string())?;
    let mut targets = vec![own.target.clone()];
    if !args.common.targets.is_empty() {
        targets.extend(args.common.resolve_targets()?);
    }
    let environment = Environment::gather(&targets, args.load.timeout)?;
    let times = Times::of(&args.common, &args.load, 3 * targets.len() * turns(args));
    let (threads, seed) = (args.load.threads(), args.common.seed);
    let mut lines = Lines { targets, times, threads, seed };
    Ok(harness::run(&mut lines, &args.common, environment))
}

fn turns(args: &SagaArgs) -> usize {
    args.common.rounds() as usize
}

fn run_sagas(args: &SagaArgs) -> Result<ExitCode, String> {
    if !args.common.targets.is_empty() {
        return Err("--target is for --lines; a dtm is given by --dtm".into());
    }
    let participants = Participants::start().map_err(|error| error.to_string())?;
    let (mut targets, mut servers, mut own) = (Vec::new(), Vec::new(), Vec::new());
    let mut accounts = Vec::new();
    if let Some(url) = &args.dtm {
        let host = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
        let mut target: Target = format!("dtm={host}").parse()?;
        target.cpu = target.find_process();
        servers.push(described(&target, "dtm", "as its own store does"));
        accounts.push(None);
        targets.push(target);
    }
    for durability in &args.durability {
        let (server, target) = start(durability).map_err(|error| error.to_string())?;
        let version = format!("forebay {}", env!("CARGO_PKG_VERSION"));
        servers.push(described(&target, &version, durability));
        accounts.push(Some(Accounts::open(&server)?));
        own.push(server);
        targets.push(target);
    }
    let cells = cells(args);
    let times = Times::of(&args.common, &args.load, cells.len() * targets.len() * turns(args));
    let mut sagas =
        Sagas { args: args.clone(), cells, targets, times, participants, accounts, _own: own };
    Ok(harness::run(&mut sagas, &args.common, Environment::of(servers)))
}

fn described(target: &Target, version: &str, persistence: &str) -> Server {
    Server {
        name: target.name.clone(),
        address: target.address.to_string(),
        version: version.into(),
        pid: target.pid(),
        is_local: target.cpu.is_some(),
        persistence: persistence.into(),
        threads: None,
    }
}

/// A server of this program that coordinates sagas, and its HTTP door as a target.
fn start(durability: &str) -> std::io::Result<(OwnServer, Target)> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let port_text = port.to_string();
    let options = [
        "--http-port",
        &port_text,
        "--saga",
        "yes",
        "--saga-durability",
        durability,
        "--saga-keep-max",
        "200000",
        "--saga-local-steps",
        "yes",
    ];
    let server = OwnServer::start(durability, None, &options)?;
    let address = Address::Tcp("127.0.0.1".into(), port);
    let target = Target { address, ..server.target.clone() };
    Ok((server, target))
}

/// What is measured for all arms.
struct Load {
    label: String,
    position: f64,
    clients: usize,
    steps: usize,
    branches: Branches,
}

/// What the steps do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Branches {
    Nothing,
    Calls,
    Own(Own),
}

fn cells(args: &SagaArgs) -> Vec<Load> {
    let empty = |&clients: &u32| Load {
        label: format!("empty, c = {clients}"),
        position: f64::from(clients),
        clients: clients as usize,
        steps: 2,
        branches: Branches::Nothing,
    };
    let mut cells: Vec<Load> = args.clients.iter().map(empty).collect();
    let own = |own| Branches::Own(own);
    for (label, branches) in [
        ("two branches", Branches::Calls),
        ("two Redis steps", own(Own::Keys)),
        ("two SQL steps", own(Own::Rows)),
    ] {
        cells.push(Load {
            label: format!("{label}, c = {BRANCHES_CLIENTS}"),
            position: 2.0,
            clients: BRANCHES_CLIENTS,
            steps: 2,
            branches,
        });
    }
    let sizes: &[usize] = if args.common.quick { &[1, 10] } else { &[1, 2, 3, 5, 7, 10] };
    cells.extend(sizes.iter().map(|&steps| Load {
        label: format!("{steps} steps, c = {STEPS_CLIENTS}"),
        position: steps as f64,
        clients: STEPS_CLIENTS,
        steps,
        branches: Branches::Nothing,
    }));
    cells
}

struct Sagas {
    args: SagaArgs,
    cells: Vec<Load>,
    targets: Vec<Target>,
    times: Times,
    participants: Participants,
    /// Of each target; dtm has none.
    accounts: Vec<Option<Accounts>>,
    _own: Vec<OwnServer>,
}

impl Sagas {
    fn ask(load: &Load, branches: Branches, participants: &str) -> Ask {
        let step = |index: usize| {
            let is_out = index.is_multiple_of(2);
            let path = if is_out { "out" } else { "in" };
            let (action, back) = match branches {
                Branches::Nothing => (String::new(), String::new()),
                Branches::Calls => {
                    (format!("{participants}/{path}"), format!("{participants}/{path}-back"))
                }
                Branches::Own(own) => own_steps::step(own, is_out),
            };
            format!(r#"{{"action":"{action}","compensate":"{back}"}}"#)
        };
        let steps: Vec<String> = (0..load.steps).map(step).collect();
        let payloads = vec![format!(r#""{{\"amount\":{AMOUNT}}}""#); load.steps];
        let body = format!(
            r#"{{"gid":"bench-{{seq}}","trans_type":"saga","steps":[{}],"payloads":[{}],"#,
            steps.join(","),
            payloads.join(",")
        ) + r#""wait_result":true,"protocol":""}"#;
        Ask {
            method: "POST".into(),
            path: "/api/dtmsvr/submit".into(),
            headers: vec![("content-type".into(), "application/json".into())],
            body: Some(body.into_bytes()),
            is_kept: true,
        }
    }

    /// The same for the server's own steps.
    fn check_accounts(
        &self,
        sample: &mut Sample,
        accounts: &Accounts,
        own: Own,
        before: (i64, i64),
        sent: u64,
    ) -> Result<(), String> {
        let until = Instant::now() + SETTLE;
        let wanted = i64::try_from(sent * AMOUNT).unwrap_or(i64::MAX);
        let moved = loop {
            let (left, came) = accounts.balance(own)?;
            let moved = (left - before.0, came - before.1);
            if moved == (wanted, wanted) || Instant::now() >= until {
                break moved;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        sample.checked += 1;
        if moved != (wanted, wanted) {
            sample.failures += 1;
            let (left, came) = moved;
            let text = format!(
                "the accounts do not balance: {left} left, {came} came, {sent} sagas of {AMOUNT}"
            );
            sample.failure_examples.push(text);
        }
        Ok(())
    }

    /// Looks at the books once everything is finished: each saga moved its amount once.
    fn check_books(&self, sample: &mut Sample, sent: u64) {
        let until = Instant::now() + SETTLE;
        let mut balance = self.participants.balance();
        while (balance.left != balance.came || balance.left != sent * AMOUNT)
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(20));
            balance = self.participants.balance();
        }
        sample.checked += 1;
        if balance.left != balance.came || balance.left != sent * AMOUNT {
            sample.failures += 1;
            let text = format!(
                "the books do not balance: {} left, {} came, {} sagas of {AMOUNT}",
                balance.left, balance.came, sent
            );
            sample.failure_examples.push(text);
        }
        let again = balance.calls.saturating_sub(2 * sent);
        if again > 0 {
            sample.notes.push(format!("{again} calls came twice and moved nothing."));
        }
    }
}

impl Experiment for Sagas {
    fn name(&self) -> &'static str {
        "saga"
    }

    fn title(&self) -> String {
        format!("Sagas: {}", self.arms().join(" · "))
    }

    fn summary(&self) -> String {
        "Sagas submitted over dtm's HTTP API on kept connections; the submitter waits for the \
         outcome, which has to be SUCCESS. Closed loop."
            .into()
    }

    fn cell_heading(&self) -> &'static str {
        "saga"
    }

    fn cells(&self) -> Vec<Cell> {
        let cell = |load: &Load| Cell { label: load.label.clone(), position: load.position };
        self.cells.iter().map(cell).collect()
    }

    fn arms(&self) -> Vec<String> {
        self.targets.iter().map(|target| target.name.clone()).collect()
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
        vec![
            ("threads".into(), self.args.load.threads().to_string()),
            ("rounds".into(), self.args.common.rounds().to_string()),
            ("warm-up".into(), seconds(self.times.warmup)),
            ("measured".into(), seconds(self.times.duration)),
            ("seed".into(), self.args.common.seed.to_string()),
        ]
    }

    fn caveats(&self) -> Vec<String> {
        let mut caveats = vec![
            "The participants run in the load generator's process and share the machine.".into(),
            "none and everysec answer when the log is written to the operating system, always \
             when it is on the disk. A dtm on Redis answers when Redis has it in memory."
                .into(),
            "The published account opens a connection for each saga and counts what its client \
             process makes of it; here connections are kept."
                .into(),
        ];
        if self.args.dtm.is_some() {
            caveats.push("dtm's CPU is its own process's: that of its store comes on top.".into());
        }
        caveats
    }

    fn measure(&mut self, turn: Turn, live: &mut dyn FnMut(u64)) -> Result<Sample, String> {
        let (load, target) = (&self.cells[turn.cell], &self.targets[turn.arm]);
        let text = Some(b"SUCCESS".to_vec());
        let wanted = Wanted { statuses: Wanted::statuses("200")?, text, body: None };
        let host = target.address.to_string();
        // Who has no steps of its own does the same by calls.
        let branches = match (load.branches, &self.accounts[turn.arm]) {
            (Branches::Own(_), None) => Branches::Calls,
            (branches, _) => branches,
        };
        let ask = Sagas::ask(load, branches, &self.participants.begin());
        let traffic = HttpTraffic::new(&[ask], &host, 0.0, 1, wanted);
        let before = match (branches, &self.accounts[turn.arm]) {
            (Branches::Own(own), Some(accounts)) => Some((accounts, own, accounts.balance(own)?)),
            _ => None,
        };
        let plan = Plan {
            target,
            workload: &traffic,
            clients: load.clients,
            threads: self.args.load.threads(),
            pipeline: 1,
            limit: match self.args.load.requests {
                Some(requests) => Limit::Requests(requests),
                None => Limit::Time(self.times.duration),
            },
            pace: Pace::Closed,
            warmup: self.times.warmup,
            timeout: self.args.load.timeout,
            cores: self.args.common.pin.as_ref().map_or(&[], |cores| &cores.0),
            seed: self.args.common.seed.wrapping_add(u64::from(turn.round) << 32),
        };
        let outcome = load::run(&plan, live).map_err(|error| error.to_string())?;
        let mut sample = sample_of(&outcome, &plan);
        if branches == Branches::Calls {
            self.check_books(&mut sample, outcome.sent_in_all);
        }
        if branches != load.branches {
            sample.notes.push("It has no steps of its own: two HTTP branches instead.".into());
        }
        if let Some((accounts, own, before)) = before {
            self.check_accounts(&mut sample, accounts, own, before, outcome.sent_in_all)?;
        }
        Ok(sample)
    }

    fn clean_up(&mut self) -> Result<(), String> {
        Ok(())
    }
}
