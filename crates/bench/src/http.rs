//! `forebay bench http`: requests against one or several HTTP servers, in the manner of `ab`, with
//! every answer checked.
//!
//! Each address is measured by itself, or all together with `--mix`. An answer with a status that
//! is not wanted is a failure, and the run ends in exit code 1.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::client::{Client, Error, Protocol, Socket};
use crate::environment::{Environment, Server};
use crate::harness::{self, Cell, Chart, Experiment, Metric, Sample, Turn};
use crate::http_message::{Ask, HttpTraffic, Wanted};
use crate::kv::{parse_rate, seconds};
use crate::load::{self, Limit, Pace, Plan};
use crate::measured::{CLOSED_LOOP, METRICS, Times, sample_of};
use crate::options::{Common, parse_duration, usage_error};
use crate::target::Target;

/// Measure an HTTP server: throughput, latency, CPU per request, every answer's status checked.
#[derive(clap::Args, Clone, Debug)]
pub struct HttpArgs {
    /// Addresses: http://host:port/path, or /path with --target NAME=host:port. In path, headers
    /// and body {seq} is another number in each request, {id} a random one; both have 12 digits.
    #[arg(value_name = "URL", required = true)]
    urls: Vec<String>,
    /// Connections.
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=20_000))]
    clients: u32,
    /// Keep connections for the next request; else each request has its own.
    #[arg(short = 'k', long)]
    keep_alive: bool,
    /// Requests per measurement, instead of a time; without a warm-up unless that is given.
    #[arg(short = 'n', long, value_name = "COUNT", conflicts_with = "duration",
          value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Open loop: send so many requests per second, whatever the server does, and count latency
    /// from when each was due.
    #[arg(long, value_name = "PER_SECOND", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Method [default: GET, or POST with a body].
    #[arg(short = 'm', long, value_name = "METHOD")]
    method: Option<String>,
    /// Header, repeatable.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// Body.
    #[arg(short = 'd', long, value_name = "TEXT", conflicts_with = "body_file")]
    body: Option<String>,
    /// File with the body.
    #[arg(short = 'p', long, value_name = "FILE")]
    body_file: Option<PathBuf>,
    /// Content type of the body.
    #[arg(short = 'T', long, value_name = "TYPE", default_value = "application/json")]
    content_type: String,
    /// Statuses that are wanted, by commas: 200,202 or 2xx,429.
    #[arg(long, value_name = "STATUSES", default_value = "2xx")]
    status: String,
    /// Text that each body has to contain.
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,
    /// Measure all addresses together, chosen by chance.
    #[arg(long)]
    mix: bool,
    /// How uneven the chance is: the n-th address comes as often as 1/n to this power.
    #[arg(long, value_name = "POWER", default_value_t = 0.0, requires = "mix")]
    zipf: f64,
    /// {id} is below this.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    ids: u64,
    /// Threads of the load generator.
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Time per measurement: 3s, 500ms, 1m [default: 3s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Time of sending before each measurement [default: 1s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    warmup: Option<Duration>,
    /// A server silent for so long has failed.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    common: Common,
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("want a name, a colon and a value")?;
    let (name, value) = (name.trim(), value.trim());
    let is_token = |c: char| c.is_ascii_alphanumeric() || "-_.!#$%&'*+^`|~".contains(c);
    if name.is_empty() || !name.chars().all(is_token) || value.contains(['\r', '\n']) {
        return Err("a header is NAME: VALUE in one line".into());
    }
    if ["host", "content-length", "connection"].contains(&name.to_ascii_lowercase().as_str()) {
        return Err(format!("{name} is set by the load generator"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Runs the experiment.
pub fn run(args: HttpArgs) -> ExitCode {
    match prepare(&args) {
        Err(error) => usage_error("http", &error),
        Ok((mut http, environment)) => harness::run(&mut http, &args.common, environment),
    }
}

fn prepare(args: &HttpArgs) -> Result<(Http, Environment), String> {
    if args.common.null {
        return Err("the null server does not speak HTTP".into());
    }
    let (hosts, paths) = split(&args.urls)?;
    let mut common = args.common.clone();
    match (hosts.first(), common.targets.is_empty()) {
        (Some(_), false) => return Err("with --target the addresses are paths: /path".into()),
        (None, true) => return Err("want http://host:port/path, or --target NAME=host:port".into()),
        (Some(host), true) if hosts.iter().all(|other| other == host) => {
            common.targets.push(format!("server={host}").parse()?);
        }
        (Some(_), true) => return Err("addresses of several servers: use --target".into()),
        (None, false) => {}
    }
    let targets = common.resolve_targets()?;
    if let Some(target) = targets.iter().find(|target| target.password.is_some()) {
        return Err(format!(
            "{}: a login goes into a header: -H 'authorization: ...'",
            target.name
        ));
    }
    let asks = asks(args, &paths)?;
    let wanted = Wanted {
        statuses: Wanted::statuses(&args.status)?,
        text: args.contains.clone().map(String::into_bytes),
        body: None,
    };
    let servers = targets.iter().map(|target| describe(target, args.timeout));
    let environment = Environment::of(servers.collect::<Result<_, _>>()?);
    let cells = if args.mix { 1 } else { asks.len() };
    let turns = cells * targets.len() * args.common.rounds() as usize;
    let warmup = args.warmup.or(args.requests.map(|_| Duration::ZERO));
    let times = Times::fit(&args.common, warmup, args.duration, turns);
    Ok((Http { args: args.clone(), asks, wanted, targets, times }, environment))
}

/// Hosts and paths of the addresses; paths alone have no hosts.
fn split(urls: &[String]) -> Result<(Vec<String>, Vec<String>), String> {
    let (mut hosts, mut paths) = (Vec::new(), Vec::new());
    for url in urls {
        if url.bytes().any(|byte| byte <= b' ' || byte == b'#') {
            return Err(format!("{url:?} holds what no address holds"));
        }
        if url.starts_with('/') {
            paths.push(url.clone());
            continue;
        }
        let rest = url.strip_prefix("http://");
        let rest = rest.ok_or_else(|| format!("{url}: want http://host:port/path"))?;
        let slash = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(slash);
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        hosts.push(if has_port { host.to_owned() } else { format!("{host}:80") });
        let lead = if path.starts_with('/') { "" } else { "/" };
        paths.push(format!("{lead}{path}"));
    }
    if !hosts.is_empty() && hosts.len() < paths.len() {
        return Err("either all addresses have a host or none".into());
    }
    Ok((hosts, paths))
}

fn asks(args: &HttpArgs, paths: &[String]) -> Result<Vec<Ask>, String> {
    let body = match (&args.body, &args.body_file) {
        (Some(text), _) => Some(text.clone().into_bytes()),
        (None, Some(path)) => {
            let read = std::fs::read(path);
            Some(read.map_err(|error| format!("{}: {error}", path.display()))?)
        }
        (None, None) => None,
    };
    let default = if body.is_some() { "POST" } else { "GET" };
    let method = args.method.as_deref().unwrap_or(default).to_ascii_uppercase();
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(format!("{method:?} is no method"));
    }
    let mut headers = args.headers.clone();
    let has_type = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    if body.is_some() && !has_type {
        headers.push(("content-type".into(), args.content_type.clone()));
    }
    let ask = |path: &String| Ask {
        method: method.clone(),
        path: path.clone(),
        headers: headers.clone(),
        body: body.clone(),
        is_kept: args.keep_alive,
    };
    Ok(paths.iter().map(ask).collect())
}

/// Asks a server for its name: what it says in the header of that name.
fn describe(target: &Target, timeout: Duration) -> Result<Server, String> {
    let ask = || -> Result<String, Error> {
        let mut socket = Client::connect(target, Protocol::Resp2, timeout)?.into_socket();
        let host = &target.address;
        let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        match &mut socket {
            Socket::Tcp(stream) => stream.take(64 << 10).read_to_end(&mut answer)?,
            Socket::Unix(stream) => stream.take(64 << 10).read_to_end(&mut answer)?,
        };
        let text = String::from_utf8_lossy(&answer);
        let named = |line: &str| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("server").then(|| value.trim().to_owned())
        };
        let named = text.lines().take_while(|line| !line.is_empty()).find_map(named);
        Ok(named.unwrap_or_else(|| "a server without a name".into()))
    };
    let failed = |error| format!("{} at {}: {error}", target.name, target.address);
    Ok(Server {
        name: target.name.clone(),
        address: target.address.to_string(),
        version: ask().map_err(failed)?,
        pid: target.pid(),
        is_local: target.cpu.is_some(),
        persistence: "not asked what it keeps".into(),
        threads: None,
    })
}

struct Http {
    args: HttpArgs,
    asks: Vec<Ask>,
    wanted: Wanted,
    targets: Vec<Target>,
    times: Times,
}

impl Http {
    fn limit(&self) -> Limit {
        self.args.requests.map_or(Limit::Time(self.times.duration), Limit::Requests)
    }

    fn pace(&self) -> Pace {
        self.args.rate.map_or(Pace::Closed, Pace::Open)
    }
}

impl Experiment for Http {
    fn name(&self) -> &'static str {
        "http"
    }

    fn title(&self) -> String {
        format!("HTTP: {}", self.arms().join(" · "))
    }

    fn summary(&self) -> String {
        let kept = match self.args.keep_alive {
            true => "Connections are kept",
            false => "Each request has a connection of its own, which is part of its latency",
        };
        let loop_kind = match self.pace() {
            Pace::Closed => "Closed loop: each connection waits for its answer before it sends \
                             again, which finds the throughput. For latency under a given load \
                             use --rate."
                .to_owned(),
            Pace::Open(rate) => format!(
                "Open loop: {} requests per second fall due whatever the server does; latency \
                 counts from the time a request was due.",
                crate::report::format::si(rate)
            ),
        };
        let statuses = &self.args.status;
        format!("{kept}; an answer that is not {statuses} is a failure. {loop_kind}")
    }

    fn cell_heading(&self) -> &'static str {
        "request"
    }

    fn cells(&self) -> Vec<Cell> {
        let cell = |label: String, index: usize| Cell { label, position: index as f64 };
        if self.args.mix && self.asks.len() > 1 {
            return vec![cell(format!("mix of {}", self.asks.len()), 0)];
        }
        let label = |ask: &Ask| {
            let path: String = ask.path.chars().take(48).collect();
            format!("{} {path}", ask.method)
        };
        self.asks.iter().enumerate().map(|(index, ask)| cell(label(ask), index)).collect()
    }

    fn arms(&self) -> Vec<String> {
        self.targets.iter().map(|target| target.name.clone()).collect()
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn charts(&self) -> Vec<Chart> {
        let first = match self.pace() {
            Pace::Closed => "ops_per_s",
            Pace::Open(_) => "p99_us",
        };
        let cpu = Chart::Bars("server_cpu_us");
        vec![Chart::Bars(first), cpu, Chart::Percentiles, Chart::Drift(first)]
    }

    fn parameters(&self) -> Vec<(String, String)> {
        let args = &self.args;
        let body = self.asks[0].body.as_ref().map_or(0, Vec::len);
        let mut list = vec![
            ("clients", args.clients.to_string()),
            ("connections", if args.keep_alive { "kept" } else { "one a request" }.into()),
            ("body", format!("{body} B")),
            ("threads", args.threads.min(args.clients).to_string()),
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
        if args.mix {
            list.push(("zipf", args.zipf.to_string()));
        }
        list.push(("seed", args.common.seed.to_string()));
        list.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn caveats(&self) -> Vec<String> {
        let mut caveats = Vec::new();
        if self.args.rate.is_none() {
            caveats.push(CLOSED_LOOP.into());
        }
        if self.args.clients == 1 {
            caveats.push(
                "One connection measures how fast this machine wakes up a process as much as the \
                 server."
                    .into(),
            );
        }
        caveats
    }

    fn measure(&mut self, turn: Turn, live: &mut dyn FnMut(u64)) -> Result<Sample, String> {
        let (args, target) = (&self.args, &self.targets[turn.arm]);
        let asks = if args.mix { &self.asks[..] } else { &self.asks[turn.cell..=turn.cell] };
        let host = target.address.to_string();
        let traffic = HttpTraffic::new(asks, &host, args.zipf, args.ids, self.wanted.clone());
        let plan = Plan {
            target,
            workload: &traffic,
            clients: args.clients as usize,
            threads: args.threads as usize,
            pipeline: 1,
            limit: self.limit(),
            pace: self.pace(),
            warmup: self.times.warmup,
            timeout: args.timeout,
            cores: args.common.pin.as_ref().map_or(&[], |cores| &cores.0),
            seed: args.common.seed.wrapping_add(u64::from(turn.round) << 32),
        };
        let outcome = load::run(&plan, live).map_err(|error| error.to_string())?;
        let mut sample = sample_of(&outcome, &plan);
        let statuses = traffic.statuses();
        if statuses.len() > 1 {
            let count = |(status, count): &(usize, u64)| format!("{count} x {status}");
            let counts: Vec<String> = statuses.iter().map(count).collect();
            sample.notes.push(format!("answers, warm-up included: {}.", counts.join(", ")));
        }
        Ok(sample)
    }

    fn clean_up(&mut self) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: HttpArgs,
    }

    fn parse(words: &[&str]) -> Result<HttpArgs, String> {
        let words = std::iter::once(&"http").chain(words);
        Line::try_parse_from(words).map(|line| line.args).map_err(|e| crate::usage_line(&e))
    }

    #[test]
    fn reads_the_options_of_ab() {
        let args = parse(&["-n", "100", "-c", "4", "-k", "-H", "a: b", "http://h:1/x"]).unwrap();
        assert_eq!((args.requests, args.clients, args.keep_alive), (Some(100), 4, true));
        assert_eq!(asks(&args, &["/x".into()]).unwrap()[0].method, "GET");
        let args = parse(&["-d", "{}", "-m", "put", "/x"]).unwrap();
        let ask = &asks(&args, &["/x".into()]).unwrap()[0];
        assert_eq!((&*ask.method, ask.headers.len()), ("PUT", 1));
    }

    #[test]
    fn bad_options_are_one_line_each() {
        for words in [
            &["-c", "0", "/x"][..],
            &["-n", "0", "/x"],
            &["-n", "5", "--duration", "2s", "/x"],
            &["--rate", "0", "/x"],
            &["-H", "novalue", "/x"],
            &["-H", "host: x", "/x"],
            &["--zipf", "1", "/x"],
            &[],
        ] {
            let error = parse(words).err().unwrap_or_else(|| panic!("{words:?} was accepted"));
            assert!(!error.contains('\n') && !error.is_empty(), "{error}");
        }
        for words in [
            &["/x"][..],
            &["http://h:1/x", "http://h:2/x"],
            &["http://h:1/x", "/x"],
            &["http://h:1/x", "--target", "a=h:1"],
            &["https://h:1/x"],
            &["/x y", "--target", "a=h:1"],
            &["/x", "--null", "--target", "a=127.0.0.1:1"],
            &["/x", "--target", "a=pw@127.0.0.1:1"],
            &["/x", "--status", "9", "--target", "a=127.0.0.1:1"],
        ] {
            assert!(prepare(&parse(words).unwrap()).is_err(), "{words:?}");
        }
    }

    #[test]
    fn addresses_are_split() {
        let split_one =
            |url: &str| split(&[url.to_owned()]).map(|(h, p)| (h[0].clone(), p[0].clone()));
        assert_eq!(split_one("http://h:1/x?y=z"), Ok(("h:1".into(), "/x?y=z".into())));
        assert_eq!(split_one("http://h"), Ok(("h:80".into(), "/".into())));
        assert_eq!(split_one("http://[::1]:8?q"), Ok(("[::1]:8".into(), "/?q".into())));
    }
}
