//! Where and against what it was measured: numbers without it mean nothing.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::client::{Client, Error, Protocol};
use crate::target::{Target, TargetKind};

/// The machine and the servers of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// When the run began, UTC.
    pub time: String,
    /// Version of the load generator.
    pub forebay_version: &'static str,
    /// Whether the load generator was built with optimisation.
    pub build: &'static str,
    /// Model of the processor.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory of the machine, in gigabytes.
    pub memory_gigabytes: f64,
    /// Kernel.
    pub kernel: String,
    /// Distribution.
    pub system: String,
    /// Load average at the beginning: 1, 5, 15 minutes.
    pub load_average: String,
    /// The servers.
    pub servers: Vec<Server>,
}

/// A server as it described itself.
#[derive(Clone, Debug, Serialize)]
pub struct Server {
    /// Name of the target.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Product and version.
    pub version: String,
    /// Process whose CPU time is counted.
    pub pid: Option<u32>,
    /// Whether it runs on this machine.
    pub is_local: bool,
    /// What it keeps on disk.
    pub persistence: String,
    /// Threads that serve clients.
    pub threads: Option<String>,
}

impl Environment {
    /// Asks the machine and the servers; an error where a server does not answer.
    pub fn gather(targets: &[Target], timeout: Duration) -> Result<Environment, String> {
        let servers = targets
            .iter()
            .map(|target| {
                describe(target, timeout)
                    .map_err(|error| format!("{} at {}: {error}", target.name, target.address))
            })
            .collect::<Result<_, _>>()?;
        Ok(Environment::of(servers))
    }

    /// This machine with these servers.
    pub fn of(servers: Vec<Server>) -> Environment {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let memory_kb: f64 = after(&read("/proc/meminfo"), "MemTotal:")
            .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .unwrap_or(0.0);
        Environment {
            time: utc_now(),
            forebay_version: env!("CARGO_PKG_VERSION"),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            cpu: after(&read("/proc/cpuinfo"), "model name")
                .map_or("unknown", |rest| rest.trim_start_matches([' ', '\t', ':']))
                .to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gigabytes: (memory_kb / 1_048_576.0 * 10.0).round() / 10.0,
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            system: after(&read("/etc/os-release"), "PRETTY_NAME=")
                .map_or("unknown", |name| name.trim_matches('"'))
                .to_owned(),
            load_average: read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
            servers,
        }
    }

    /// Whether load generator and a server compete for the same cores.
    pub fn is_shared(&self) -> bool {
        self.servers.iter().any(|server| server.is_local)
    }
}

fn describe(target: &Target, timeout: Duration) -> Result<Server, Error> {
    let mut client = Client::connect(target, Protocol::Resp2, timeout)?;
    let mut server = Server {
        name: target.name.clone(),
        address: target.address.to_string(),
        version: "built-in null server".into(),
        pid: target.pid(),
        is_local: target.cpu.is_some(),
        persistence: "none".into(),
        threads: Some("1".into()),
    };
    if target.kind == TargetKind::Null {
        return Ok(server);
    }
    // A server without INFO can still be measured, one that wants a password cannot.
    client.command(&["PING"])?;
    if let Ok(info) = client.command(&["INFO"]) {
        let info = String::from_utf8_lossy(info.as_bytes().unwrap_or_default()).into_owned();
        server.version = version(&info);
    } else {
        server.version = "unknown".into();
    }
    // Nor is CONFIG needed.
    let mut config = |name: &str| -> Option<String> {
        let reply = client.command(&["CONFIG", "GET", name]).ok()?;
        let value = reply.as_elements()?.get(1)?.as_bytes()?.to_vec();
        Some(String::from_utf8_lossy(&value).into_owned())
    };
    let snapshots = match config("save") {
        Some(save) if save.is_empty() => "no snapshots".to_owned(),
        Some(save) => format!("snapshots ({save})"),
        None => "snapshots unknown".to_owned(),
    };
    let log = match config("appendonly").as_deref() {
        Some("yes") => format!("AOF {}", config("appendfsync").unwrap_or_default()),
        Some(_) => "no AOF".into(),
        None => "AOF unknown".into(),
    };
    server.persistence = format!("{log}, {snapshots}");
    server.threads = config("io-threads").or_else(|| config("threads"));
    Ok(server)
}

/// `redis 7.0.15`, `valkey 8.0.1`: the server's own name where it tells one.
fn version(info: &str) -> String {
    let redis = after(info, "redis_version:").unwrap_or("of unknown version");
    for (name, field) in [("forebay", "forebay_version:"), ("valkey", "valkey_version:")] {
        if let Some(version) = after(info, field) {
            return format!("{name} {version}");
        }
    }
    match after(info, "server_name:") {
        Some(name) => format!("{name} (as redis {redis})"),
        None => format!("redis {redis}"),
    }
}

/// The rest of the first line that begins with `key`.
fn after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim_end)
}

fn utc_now() -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    utc(since_epoch.as_secs())
}

/// Date and time of seconds since 1970, by the proleptic Gregorian calendar.
fn utc(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Years are counted from March, so that the leap day ends one: 1970-01-01 is day 719 468.
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (of_day / 3600, of_day % 3600 / 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_by_hand() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_790_000_000), "2026-09-21 14:13 UTC");
    }

    #[test]
    fn versions_of_the_products() {
        assert_eq!(version("# Server\r\nredis_version:7.0.15\r\n"), "redis 7.0.15");
        let valkey = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n";
        assert_eq!(version(valkey), "valkey 8.0.1");
        assert_eq!(version("redis_version:7.2\nserver_name:x\n"), "x (as redis 7.2)");
    }
}
