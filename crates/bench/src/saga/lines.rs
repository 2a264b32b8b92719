//! The published account's redis-benchmark lines, `forebay bench saga --lines`: SET, a SET within
//! Lua, ten SETs within Lua, each at pipeline 50.
//!
//! Two of its six lines, as printed, time error replies: one says ARGS for ARGV, one ends `do` with
//! a semicolon. Here both are put right, and every reply is checked.

use std::time::Duration;

use crate::client::{Client, Error, Protocol, Socket};
use crate::harness::{Cell, Chart, Experiment, Metric, Sample, Turn};
use crate::kv::seconds;
use crate::load::{self, Limit, Pace, Plan};
use crate::measured::{METRICS, Times, sample_of};
use crate::random::Random;
use crate::target::Target;
use crate::traffic::{Traffic, Verdict};

const PIPELINE: usize = 50;
const CLIENTS: usize = 50;
const TIMEOUT: Duration = Duration::from_secs(20);

/// Name, words, reply.
const LINES: &[(&str, &[&str], &[u8])] = &[
    ("SET", &["SET", "abc", "def"], b"+OK\r\n"),
    (
        "EVAL of SET",
        &["EVAL", "redis.call('SET', KEYS[1], ARGV[1])", "1", "abc", "def"],
        b"$-1\r\n",
    ),
    (
        "EVAL of ten SETs",
        &["EVAL", "for k=1, 10 do redis.call('SET', KEYS[1], ARGV[1]) end", "1", "abc", "def"],
        b"$-1\r\n",
    ),
];

struct Line {
    request: Vec<u8>,
    reply: &'static [u8],
}

impl Traffic for Line {
    type Sent = ();
    type Reader = ();

    fn connect(&self, target: &Target, timeout: Duration) -> Result<Socket, Error> {
        Ok(Client::connect(target, Protocol::Resp2, timeout)?.into_socket())
    }

    fn append_request(&self, _: &mut Random, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.request);
    }

    fn check(&self, (): (), buffer: &[u8], (): &mut ()) -> Verdict {
        let Some(end) = buffer.windows(2).position(|pair| pair == b"\r\n") else {
            return Verdict::Incomplete;
        };
        match &buffer[..end + 2] {
            reply if reply == self.reply => Verdict::Good(end + 2),
            other => Verdict::Bad(end + 2, other.escape_ascii().to_string()),
        }
    }
}

/// The lines against some servers.
pub struct Lines {
    /// The servers.
    pub targets: Vec<Target>,
    /// How long.
    pub times: Times,
    /// Threads of the load generator.
    pub threads: usize,
    /// See [`crate::options::Common`].
    pub seed: u64,
}

impl Experiment for Lines {
    fn name(&self) -> &'static str {
        "saga"
    }

    fn title(&self) -> String {
        format!("What a saga's store is asked: {}", self.arms().join(" · "))
    }

    fn summary(&self) -> String {
        "The published account's redis-benchmark lines, its two errors put right, 50 connections \
         at pipeline 50; every reply is checked."
            .into()
    }

    fn cell_heading(&self) -> &'static str {
        "line"
    }

    fn cells(&self) -> Vec<Cell> {
        let cell = |(index, line): (usize, &(&str, _, _))| Cell {
            label: line.0.into(),
            position: index as f64,
        };
        LINES.iter().enumerate().map(cell).collect()
    }

    fn arms(&self) -> Vec<String> {
        self.targets.iter().map(|target| target.name.clone()).collect()
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn charts(&self) -> Vec<Chart> {
        vec![Chart::Bars("ops_per_s"), Chart::Bars("server_cpu_us"), Chart::Percentiles]
    }

    fn parameters(&self) -> Vec<(String, String)> {
        vec![
            ("clients".into(), CLIENTS.to_string()),
            ("pipeline".into(), PIPELINE.to_string()),
            ("measured".into(), seconds(self.times.duration)),
        ]
    }

    fn caveats(&self) -> Vec<String> {
        vec!["All requests set one key, as in the account.".into()]
    }

    fn measure(&mut self, turn: Turn, live: &mut dyn FnMut(u64)) -> Result<Sample, String> {
        let (_, words, reply) = LINES[turn.cell];
        let mut request = Vec::new();
        resp::write_request(&mut request, words.iter().map(|word| word.as_bytes()));
        let plan = Plan {
            target: &self.targets[turn.arm],
            workload: &Line { request, reply },
            clients: CLIENTS,
            threads: self.threads,
            pipeline: PIPELINE,
            limit: Limit::Time(self.times.duration),
            pace: Pace::Closed,
            warmup: self.times.warmup,
            timeout: TIMEOUT,
            cores: &[],
            seed: self.seed,
        };
        let outcome = load::run(&plan, live).map_err(|error| error.to_string())?;
        Ok(sample_of(&outcome, &plan))
    }

    fn clean_up(&mut self) -> Result<(), String> {
        for target in &self.targets {
            let client = Client::connect(target, Protocol::Resp2, TIMEOUT);
            let deleted = client.and_then(|mut client| client.command(&["DEL", "abc"]));
            deleted.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
