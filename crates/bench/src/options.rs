//! The options that every experiment has, and those of every experiment that generates load.
//!
//! An experiment's own `clap` struct flattens [`Common`], and [`LoadOptions`] where it drives
//! connections, so that the same thing is called the same everywhere.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use crate::client::Protocol;
use crate::process::CpuSource;
use crate::target::{Target, TargetKind};

/// Exit code of bad arguments.
pub const EXIT_USAGE: u8 = 2;

/// Options of every experiment.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Every experiment")]
pub struct Common {
    /// Server to measure, repeatable: NAME=HOST:PORT, NAME=/unix/socket, NAME=PASSWORD@...,
    /// NAME=USER:PASSWORD@... [default: server=127.0.0.1:6379]
    #[arg(long = "target", value_name = "NAME=ADDRESS")]
    pub targets: Vec<Target>,
    /// Also measure the built-in null server, which parses nothing and answers +OK.
    #[arg(long)]
    pub null: bool,
    /// Process of a target, where it is not found by its address.
    #[arg(long = "pid", value_name = "NAME=PID", value_parser = parse_pid)]
    pub pids: Vec<(String, u32)>,
    /// Target that the others are compared with [default: the first].
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<String>,
    /// How often everything is measured; the order of the targets alternates (A B, B A, ...)
    /// [default: 3].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Seed of the random keys and of the order.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Finish in under a minute, with shorter measurements.
    #[arg(long)]
    pub quick: bool,
    /// Write results.json to standard output and the table to standard error.
    #[arg(long)]
    pub json: bool,
    /// Where report.html and results.json go [default: bench-out/EXPERIMENT].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Cores of the load generator's threads, in turn: 1 or 1,2 or 4-7.
    #[arg(long, value_name = "CORES")]
    pub pin: Option<Cores>,
}

impl Common {
    /// How many rounds to measure.
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(3)
    }

    /// The targets, their processes found; or what is wrong with the arguments.
    pub fn resolve_targets(&self) -> Result<Vec<Target>, String> {
        let mut targets = self.targets.clone();
        if targets.is_empty() {
            targets.push("server=127.0.0.1:6379".parse()?);
        }
        for (index, target) in targets.iter().enumerate() {
            let is_taken = targets[..index].iter().any(|other| other.name == target.name);
            if is_taken || (self.null && target.name == "null") {
                return Err(format!("two targets are called {}", target.name));
            }
        }
        for (name, _) in &self.pids {
            if !targets.iter().any(|target| target.name == *name) {
                return Err(format!("--pid names {name}, which is no target"));
            }
        }
        if let Some(baseline) = &self.baseline {
            let is_null = self.null && baseline == "null";
            if !is_null && !targets.iter().any(|target| target.name == *baseline) {
                return Err(format!("--baseline names {baseline}, which is no target"));
            }
        }
        for target in &mut targets {
            let given = self.pids.iter().find(|(name, _)| *name == target.name);
            target.cpu = match given {
                Some(&(_, pid)) => Some(CpuSource::Process(pid)),
                None => target.find_process(),
            };
            debug_assert!(target.kind == TargetKind::Server);
        }
        Ok(targets)
    }
}

/// Options of every experiment that drives connections.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Load")]
pub struct LoadOptions {
    /// Threads of the load generator [default: half of the cores, 4 at most].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Option<u32>,
    /// Requests per measurement, instead of a time.
    #[arg(short = 'n', long, value_name = "COUNT", conflicts_with = "duration",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Time per measurement: 3s, 500ms, 1m [default: 3s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Time of sending before each measurement [default: 1s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub warmup: Option<Duration>,
    /// Size of values in bytes.
    #[arg(short = 'd', long, value_name = "BYTES", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(0..=512 << 20))]
    pub data_size: u32,
    /// Speak RESP3.
    #[arg(short = '3', long)]
    pub resp3: bool,
    /// A server silent for so long has failed.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Leave the test keys in the servers.
    #[arg(long)]
    pub keep: bool,
}

impl LoadOptions {
    /// The protocol to speak.
    pub fn protocol(&self) -> Protocol {
        if self.resp3 { Protocol::Resp3 } else { Protocol::Resp2 }
    }

    /// How many threads drive the connections: half of the cores, the servers need the rest.
    pub fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or((cores / 2).clamp(1, 4), |threads| threads as usize)
    }
}

/// Cores to run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(pub Vec<usize>);

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&words.join(","))
    }
}

impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const CORES_MAX: usize = 1024;
        let number = |text: &str| -> Result<usize, String> {
            let core = text.trim().parse().map_err(|_| format!("{text:?} is no core"))?;
            if core < CORES_MAX { Ok(core) } else { Err(format!("there is no core {core}")) }
        };
        let mut cores = Vec::new();
        for part in text.split(',') {
            match part.split_once('-') {
                None => cores.push(number(part)?),
                Some((first, last)) => cores.extend(number(first)?..=number(last)?),
            }
        }
        if cores.is_empty() { Err("no cores".into()) } else { Ok(Cores(cores)) }
    }
}

/// Reads `3`, `3s`, `500ms`, `1.5m`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const SECONDS_MAX: f64 = 86_400.0;
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let seconds_each = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("unit {unit:?} is not us, ms, s, m or h")),
    };
    let number: f64 = number.trim().parse().map_err(|_| format!("{text:?} is no time"))?;
    let seconds = number * seconds_each;
    if !(0.0..=SECONDS_MAX).contains(&seconds) {
        return Err("a time is 0 to 24 hours".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn parse_pid(text: &str) -> Result<(String, u32), String> {
    let (name, pid) = text.split_once('=').ok_or("want name=pid")?;
    let pid = pid.parse().map_err(|_| format!("{pid:?} is no process number"))?;
    Ok((name.to_owned(), pid))
}

/// The command line for the report, with logins left out.
pub fn command_line() -> String {
    let words: Vec<String> = std::env::args().enumerate().map(shown_word).collect();
    words.join(" ")
}

fn shown_word((index, word): (usize, String)) -> String {
    if index == 0 {
        // Where the program lies is nobody's business.
        return word.rsplit('/').next().unwrap_or_default().to_owned();
    }
    let Some((name, rest)) = word.split_once('=') else { return word };
    // `--target=a=secret@host` and `a=secret@host`: a login ends at the last @.
    match rest.rsplit_once('@') {
        Some((login, address)) => match login.split_once('=') {
            Some((target, _)) if name.starts_with("--") => format!("{name}={target}=***@{address}"),
            _ => format!("{name}=***@{address}"),
        },
        None => word,
    }
}

/// Says in one line what is wrong with the arguments.
pub fn usage_error(experiment: &str, what: &str) -> ExitCode {
    eprintln!("forebay bench {experiment}: {what}");
    ExitCode::from(EXIT_USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_durations() {
        assert_eq!(parse_duration("3"), Ok(Duration::from_secs(3)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        for text in ["", "x", "3d", "-1s", "1e9s", "nan", "inf"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn command_line_hides_logins() {
        let shown = |word: &str| shown_word((1, word.to_owned()));
        assert_eq!(shown("a=pw@h:1"), "a=***@h:1");
        assert_eq!(shown("--target=a=u:p=w@h:1"), "--target=a=***@h:1");
        assert_eq!(shown("a=h:1"), "a=h:1");
        assert_eq!(shown_word((0, "/x/y/forebay".into())), "forebay");
    }

    #[test]
    fn reads_cores() {
        assert_eq!("1".parse(), Ok(Cores(vec![1])));
        assert_eq!("0,2-4".parse(), Ok(Cores(vec![0, 2, 3, 4])));
        for text in ["", "a", "1-", "3-1", "9999"] {
            assert!(text.parse::<Cores>().is_err(), "{text}");
        }
    }
}
