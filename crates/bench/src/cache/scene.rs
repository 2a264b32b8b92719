//! The servers that the arms are: Forebay, a Redis, and the recipe's mid-tier in Node.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::client::{Client, Protocol};
use crate::own_server::{OwnServer, new_folder};
use crate::process::CpuSource;
use crate::quota::http::Connection;
use crate::sys;
use crate::target::Target;

use super::midtier::{Kept, Midtier};
use super::stock::{self, Stock};

/// How long a server may take to answer.
pub const START: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);

fn failed(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A port that is free now.
pub fn free_port() -> Result<u16, String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    Ok(listener.local_addr().map_err(failed)?.port())
}

/// Waits until somebody listens.
pub fn wait_for(port: u16) -> Result<Connection, String> {
    let began = Instant::now();
    loop {
        match Connection::to(port) {
            Ok(connection) => return Ok(connection),
            Err(error) if began.elapsed() > START => return Err(error),
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

/// Forebay with the table.
pub struct Ours {
    server: OwnServer,
    client: Client,
    /// Where it speaks HTTP.
    pub port: u16,
}

impl Ours {
    /// Starts one with this declaration of the table.
    pub fn start(program: &Path, stock: &Stock, declaration: &str) -> Result<Ours, String> {
        Self::start_on(program, stock, declaration, None)
    }

    /// The same on a core.
    pub fn start_on(
        program: &Path,
        stock: &Stock,
        declaration: &str,
        core: Option<usize>,
    ) -> Result<Ours, String> {
        let folder = new_folder().map_err(failed)?;
        let file = folder.join("tables.json");
        std::fs::write(&file, declaration).map_err(failed)?;
        let port = free_port()?;
        let (text, file) = (port.to_string(), file.display().to_string());
        let options = [
            "--tables",
            "yes",
            "--tables-file",
            &file,
            "--sql",
            &stock.address,
            "--http-port",
            &text,
            "--http-threads",
            if core.is_some() { "1" } else { "0" },
            "--loglevel",
            "warning",
        ];
        let server = OwnServer::start_program(program, "forebay", core, &options);
        let server = server.map_err(failed)?;
        wait_for(port)?;
        let _ = std::fs::remove_dir_all(folder);
        let client = Client::connect(&server.target, Protocol::Resp2, START).map_err(failed)?;
        Ok(Ours { server, client, port })
    }

    /// Runs a command.
    pub fn command(&mut self, words: &[&str]) -> Result<resp::reply::Value, String> {
        self.client.command(words).map_err(failed)
    }

    /// One of its counts.
    pub fn count(&mut self, name: &str) -> Result<u64, String> {
        let reply = self.command(&["TABLE.STATS"])?;
        let words = reply.as_elements().ok_or("TABLE.STATS answers no list")?;
        let at = words.iter().position(|word| word.as_bytes() == Some(name.as_bytes()));
        match at.and_then(|at| words.get(at + 1)) {
            Some(resp::reply::Value::Integer(count)) => Ok(*count as u64),
            _ => Err(format!("TABLE.STATS has no {name}")),
        }
    }

    /// Removes all kept answers.
    pub fn purge(&mut self) -> Result<(), String> {
        self.command(&["TABLE.PURGE", stock::TABLE]).map(|_| ())
    }

    /// Memory that the allocator has given, in bytes.
    pub fn memory(&mut self) -> Result<u64, String> {
        let reply = self.command(&["INFO", "memory"])?;
        let text = String::from_utf8_lossy(reply.as_bytes().unwrap_or_default()).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("used_memory:"));
        line.and_then(|line| line.trim().parse().ok()).ok_or_else(|| "INFO has no memory".into())
    }

    /// Where it takes commands.
    pub fn command_target(&self) -> Target {
        self.server.target.clone()
    }

    /// What is measured.
    pub fn target(&self) -> Target {
        let mut target = http_target("forebay", self.port);
        target.cpu = self.server.target.cpu;
        target
    }
}

/// An HTTP server of this machine as something to measure.
pub fn http_target(name: &str, port: u16) -> Target {
    Target {
        name: name.into(),
        address: crate::target::Address::Tcp("127.0.0.1".into(), port),
        user: None,
        password: None,
        kind: crate::target::TargetKind::Server,
        cpu: None,
    }
}

/// A child that is ended when dropped, and its folder removed.
pub struct Process {
    child: Child,
    folder: Option<PathBuf>,
}

impl Process {
    /// Starts a program.
    pub fn start(command: &mut Command, folder: Option<PathBuf>) -> Result<Process, String> {
        Self::start_on(command, folder, None)
    }

    /// The same on a core: a process begins on the cores of the thread that starts it.
    pub fn start_on(
        command: &mut Command,
        folder: Option<PathBuf>,
        core: Option<usize>,
    ) -> Result<Process, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null());
        let child = std::thread::scope(|scope| {
            let start = scope.spawn(|| {
                core.map_or(Ok(()), sys::pin_current_thread)?;
                command.spawn()
            });
            start.join().unwrap_or_else(|_| Err(std::io::Error::other("it is not started")))
        });
        Ok(Process { child: child.map_err(|error| format!("{name}: {error}"))?, folder })
    }

    /// Whose CPU time it is.
    pub fn cpu(&self) -> CpuSource {
        CpuSource::Process(self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // What cannot be killed has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.folder.take().map(std::fs::remove_dir_all);
    }
}

/// A Redis: the one that was given, or one of our own.
pub struct Redis {
    /// It.
    pub target: Target,
    _process: Option<Process>,
}

impl Redis {
    /// Takes the one that is given, or starts one if there is a redis-server; none if not.
    pub fn find(given: Option<&str>) -> Result<Option<Redis>, String> {
        if let Some(address) = given {
            let address = address.strip_prefix("redis://").unwrap_or(address);
            let target: Target = format!("redis={}", address.trim_end_matches('/')).parse()?;
            return Ok(Some(Redis { target, _process: None }));
        }
        let version = Command::new("redis-server").arg("--version").output();
        if !version.is_ok_and(|output| output.status.success()) {
            return Ok(None);
        }
        let (folder, port) = (new_folder().map_err(failed)?, free_port()?);
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.arg("--dir").arg(&folder).stdout(Stdio::null());
        let process = Process::start(&mut command, Some(folder))?;
        let target: Target = format!("redis=127.0.0.1:{port}").parse()?;
        let began = Instant::now();
        while Client::connect(&target, Protocol::Resp2, START)
            .and_then(|mut client| client.command(&["PING"]))
            .is_err()
        {
            if began.elapsed() > START {
                return Err("redis-server does not start".into());
            }
            std::thread::sleep(LOOK);
        }
        Ok(Some(Redis { target, _process: Some(process) }))
    }
}

/// The recipe's mid-tier.
pub enum Recipe {
    /// In Node, with the npm package; the tables behind it are the mid-tier without a cache.
    Node(Process, u16),
    /// In this process.
    Own(Midtier),
}

impl Recipe {
    /// Starts it: in Node if the package is there.
    pub fn start(
        redis: &Target,
        packages: Option<&Path>,
        stock: &Stock,
        tables: &Midtier,
        seconds: u32,
    ) -> Result<Recipe, String> {
        let crate::target::Address::Tcp(_, redis_port) = &redis.address else {
            return Err("the recipe wants a Redis with a port".into());
        };
        let Some(packages) = packages else {
            let kept = Some(Kept { redis: redis.clone(), seconds });
            return Midtier::start(&stock.connect, &stock.table, kept).map(Recipe::Own);
        };
        let folder = new_folder().map_err(failed)?;
        let script = folder.join("recipe.mjs");
        std::fs::write(&script, include_str!("recipe.mjs")).map_err(failed)?;
        let packages = packages.canonicalize().map_err(failed)?;
        let mut command = Command::new("node");
        command.arg(script).arg(packages).stdout(Stdio::piped());
        for number in [redis_port.to_string(), tables.port.to_string(), seconds.to_string()] {
            command.arg(number);
        }
        let mut process = Process::start(&mut command, Some(folder))?;
        let out = process.child.stdout.take().ok_or("node has no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).map_err(failed)?;
        let port = line.trim().parse().map_err(|_| format!("node does not start: {line:?}"))?;
        Ok(Recipe::Node(process, port))
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        match self {
            Recipe::Node(_, port) => *port,
            Recipe::Own(own) => own.port,
        }
    }

    /// Whose CPU time it is, if it has a process of its own.
    pub fn cpu(&self) -> Option<CpuSource> {
        match self {
            Recipe::Node(process, _) => Some(process.cpu()),
            Recipe::Own(_) => None,
        }
    }
}
