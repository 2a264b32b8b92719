//! `forebay bench crash`: kills a server under load, starts it again, looks for what is missing.
//!
//! ```text
//! connection:  unit 1, unit 2, ... in order, some pipelined; a unit is one SET, or a transaction
//!              that sets the same key, pushes to a list and counts
//! kill -9      at a random moment, sometimes during a rewrite of the append-only file
//! after it:    the last unit there is must be one that was sent; with `always` none that was
//!              acknowledged may be missing, with `everysec` none from more than a second before;
//!              list and counter must be those of exactly the units up to the last
//! ```
//!
//! **Invariant:** a connection's units are applied in order, so what is there afterwards must be a
//! whole number of them: anything else is a torn or a lost write.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::options::usage_error;
use crate::random::Random;

/// Kill a server again and again under load, and look for lost or torn writes.
#[derive(clap::Args, Clone, Debug)]
pub struct CrashArgs {
    /// How often the server is killed for each mode [default: 100, with --quick 5].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: Option<u32>,
    /// Values of appendfsync, by commas.
    #[arg(long, value_delimiter = ',', default_values_t = ["always".to_string(),
          "everysec".to_string()], value_parser = ["always", "everysec"])]
    pub modes: Vec<String>,
    /// Connections that write.
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub clients: u32,
    /// Program that is started as a server [default: this one].
    #[arg(long, value_name = "PATH")]
    pub server: Option<PathBuf>,
    /// Seed of the random choices.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Five rounds.
    #[arg(long)]
    pub quick: bool,
}

/// Load before a kill, at least and at most.
const LOAD_MS: (u64, u64) = (20, 400);
/// Units sent without waiting, at most.
const PIPELINE: u64 = 16;
/// How long a server may take to start.
const START: Duration = Duration::from_secs(30);
/// With `everysec`, what was acknowledged longer ago than this must be there.
const SECOND: Duration = Duration::from_millis(1000);

/// Runs the experiment.
pub fn run(args: CrashArgs) -> ExitCode {
    let program = match args.server.clone().map_or_else(std::env::current_exe, Ok) {
        Ok(program) => program,
        Err(error) => return usage_error("crash", &format!("this program's path: {error}")),
    };
    let rounds = args.rounds.unwrap_or(if args.quick { 5 } else { 100 });
    let mut is_well = true;
    for mode in &args.modes {
        match run_mode(&args, &program, mode, rounds) {
            Ok(sum) => {
                println!("{}", sum.line(mode));
                is_well &= sum.failures.is_empty();
                sum.failures.iter().for_each(|failure| eprintln!("crash: {mode}: {failure}"));
            }
            Err(error) => {
                eprintln!("crash: {mode}: {error}");
                is_well = false;
            }
        }
    }
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What all rounds of a mode came to.
#[derive(Default)]
struct Sum {
    rounds: u32,
    rewrites: u32,
    sent: u64,
    acknowledged: u64,
    unacknowledged_there: u64,
    acknowledged_missing: u64,
    oldest_missing: Duration,
    slowest_start: Duration,
    failures: Vec<String>,
}

impl Sum {
    fn line(&self, mode: &str) -> String {
        format!(
            "{mode}: {} rounds ({} with a rewrite), {} units sent, {} acknowledged, {} of them \
             missing (the oldest {} ms before the kill), {} there without having been \
             acknowledged, {} torn or lost against the promise, slowest start {} ms",
            self.rounds,
            self.rewrites,
            self.sent,
            self.acknowledged,
            self.acknowledged_missing,
            self.oldest_missing.as_millis(),
            self.unacknowledged_there,
            self.failures.len(),
            self.slowest_start.as_millis(),
        )
    }
}

struct Server {
    child: Child,
    socket: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(program: &Path, folder: &Path, mode: &str) -> io::Result<Server> {
        let socket = folder.join("socket");
        let mut command = Command::new(program);
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.contains("-server") {
            command.args(["serve", "--http-port", "0"]);
        }
        let log = std::fs::File::create(folder.join("log"))?;
        command
            .args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", mode])
            .args(["--auto-aof-rewrite-percentage", "0", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(folder)
            .stdin(Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(log);
        let child = command.spawn()?;
        let mut server = Server { child, socket };
        let began = Instant::now();
        while began.elapsed() < START {
            if let Some(status) = server.child.try_wait()? {
                let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
                return Err(io::Error::other(format!("the server ended ({status}): {log}")));
            }
            let answer = Connection::open(&server.socket).and_then(|mut it| it.ask(&["PING"]));
            if answer.is_ok_and(|answer| answer == "+PONG") {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(io::Error::other("the server does not start"))
    }
}

struct Connection(BufReader<UnixStream>);

impl Connection {
    fn open(path: &Path) -> io::Result<Connection> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(START))?;
        Ok(Connection(BufReader::new(stream)))
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// One reply as text, its elements separated by spaces.
    fn reply(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 || !line.ends_with("\r\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_string();
        let count = || line[1..].parse::<i64>().map_err(|_| io::Error::other(line.clone()));
        match line.as_bytes().first() {
            Some(b'$') => {
                let Ok(len) = usize::try_from(count()?) else { return Ok(String::new()) };
                let mut bytes = vec![0; len + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(len);
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Some(b'*') => {
                let elements: io::Result<Vec<String>> =
                    (0..count()?).map(|_| self.reply()).collect();
                Ok(elements?.join(" "))
            }
            Some(b'-') => Err(io::Error::other(line)),
            _ => Ok(line),
        }
    }

    fn ask(&mut self, words: &[&str]) -> io::Result<String> {
        let mut bytes = Vec::new();
        resp::write_request(&mut bytes, words.iter().map(|word| word.as_bytes()));
        self.send(&bytes)?;
        self.reply()
    }
}

/// What one connection did in one round.
struct Writer {
    name: String,
    /// Which units were transactions; unit N is at N - 1.
    transactions: Vec<bool>,
    /// When each unit was acknowledged, from the first on.
    acknowledged: Vec<Instant>,
}

fn request(bytes: &mut Vec<u8>, words: &[&str]) {
    resp::write_request(bytes, words.iter().map(|word| word.as_bytes()));
}

impl Writer {
    fn keys(&self) -> [String; 3] {
        ["last", "list", "count"].map(|what| format!("{}:{what}", self.name))
    }

    /// Writes units until the server is gone.
    fn run(&mut self, socket: &Path, random: &mut Random) -> io::Result<()> {
        let mut connection = Connection::open(socket)?;
        let [last, list, count] = self.keys();
        loop {
            let mut bytes = Vec::new();
            let mut replies = Vec::new();
            for _ in 0..1 + random.below(PIPELINE) {
                let is_transaction = random.below(3) == 0;
                self.transactions.push(is_transaction);
                let number = self.transactions.len().to_string();
                if is_transaction {
                    request(&mut bytes, &["MULTI"]);
                    request(&mut bytes, &["SET", &last, &number]);
                    request(&mut bytes, &["RPUSH", &list, &number]);
                    request(&mut bytes, &["INCR", &count]);
                    request(&mut bytes, &["EXEC"]);
                } else {
                    request(&mut bytes, &["SET", &last, &number]);
                }
                replies.push(if is_transaction { 5 } else { 1 });
            }
            connection.send(&bytes)?;
            for lines in replies {
                for _ in 0..lines {
                    connection.reply()?;
                }
                self.acknowledged.push(Instant::now());
            }
        }
    }

    /// Compares with what is there after the crash.
    fn check(
        &self,
        connection: &mut Connection,
        mode: &str,
        killed: Instant,
        sum: &mut Sum,
    ) -> io::Result<()> {
        let [last, list, count] = self.keys();
        let found: usize = connection.ask(&["GET", &last])?.parse().unwrap_or(0);
        let acknowledged = self.acknowledged.len();
        sum.sent += self.transactions.len() as u64;
        sum.acknowledged += acknowledged as u64;
        sum.unacknowledged_there += found.saturating_sub(acknowledged) as u64;
        let name = &self.name;
        if found > self.transactions.len() {
            sum.failures.push(format!("{name}: unit {found} is there and was never sent"));
            return Ok(());
        }
        if found < acknowledged {
            sum.acknowledged_missing += (acknowledged - found) as u64;
            let age = killed.saturating_duration_since(self.acknowledged[found]);
            sum.oldest_missing = sum.oldest_missing.max(age);
            if mode == "always" || age > SECOND {
                sum.failures.push(format!(
                    "{name}: unit {} was acknowledged {age:?} before the kill and is missing",
                    found + 1
                ));
            }
        }
        let there = self.transactions[..found].iter().enumerate();
        let want: Vec<String> =
            there.filter(|(_, is)| **is).map(|(index, _)| (index + 1).to_string()).collect();
        let listed = connection.ask(&["LRANGE", &list, "0", "-1"])?;
        let counted = connection.ask(&["GET", &count])?;
        if listed != want.join(" ") || counted.parse::<usize>().unwrap_or(0) != want.len() {
            sum.failures.push(format!(
                "{name}: a transaction is torn: up to unit {found} there were {}, the counter \
                 says {counted}, the list has {}: {}",
                want.len(),
                listed.split(' ').count(),
                first_difference(&listed, &want)
            ));
        }
        Ok(())
    }
}

/// Where a list differs from what it should be.
fn first_difference(listed: &str, want: &[String]) -> String {
    let listed: Vec<&str> = listed.split(' ').collect();
    let same = listed.iter().zip(want).take_while(|(one, other)| *one == other).count();
    let around = |list: &[&str]| {
        list[same.min(list.len())..].iter().take(5).copied().collect::<Vec<_>>().join(" ")
    };
    let want: Vec<&str> = want.iter().map(String::as_str).collect();
    format!("from element {same} on {} instead of {}", around(&listed), around(&want))
}

fn run_mode(args: &CrashArgs, program: &Path, mode: &str, rounds: u32) -> Result<Sum, String> {
    let folder = std::env::temp_dir().join(format!("forebay-crash-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let mut random = Random::new(args.seed);
    let mut sum = Sum::default();
    let mut server = Server::start(program, &folder, mode).map_err(|error| error.to_string())?;
    for round in 0..rounds {
        let (writers, killed) = load(args, &mut server, round, &mut random, &mut sum)
            .map_err(|error| format!("round {round}: {error}"))?;
        let began = Instant::now();
        drop(server);
        server = Server::start(program, &folder, mode).map_err(|error| error.to_string())?;
        sum.slowest_start = sum.slowest_start.max(began.elapsed());
        check(&server, &writers, mode, killed, round, &mut sum)
            .map_err(|error| format!("round {round}: {error}"))?;
        sum.rounds += 1;
        if !sum.failures.is_empty() {
            // The files are the evidence.
            break;
        }
    }
    drop(server);
    if sum.failures.is_empty() {
        let _ = std::fs::remove_dir_all(&folder);
    } else {
        sum.failures.push(format!("the files are left in {}", folder.display()));
    }
    Ok(sum)
}

fn load(
    args: &CrashArgs,
    server: &mut Server,
    round: u32,
    random: &mut Random,
    sum: &mut Sum,
) -> io::Result<(Vec<Writer>, Instant)> {
    let wait = Duration::from_millis(LOAD_MS.0 + random.below(LOAD_MS.1 - LOAD_MS.0));
    let rewrites = random.below(3) == 0;
    sum.rewrites += u32::from(rewrites);
    let socket = server.socket.clone();
    let seeds: Vec<u64> = (0..args.clients).map(|_| random.draw()).collect();
    std::thread::scope(|scope| {
        let spawn = |(number, seed): (usize, u64)| {
            let (socket, name) = (&socket, format!("{round}:{number}"));
            scope.spawn(move || {
                let (transactions, acknowledged) = (Vec::new(), Vec::new());
                let mut writer = Writer { name, transactions, acknowledged };
                // It ends when the server does.
                let _ = writer.run(socket, &mut Random::new(seed));
                writer
            })
        };
        let handles: Vec<_> = seeds.into_iter().enumerate().map(spawn).collect();
        if rewrites {
            std::thread::sleep(wait / 2);
            Connection::open(&socket)?.ask(&["BGREWRITEAOF"])?;
            std::thread::sleep(wait / 2);
        } else {
            std::thread::sleep(wait);
        }
        server.child.kill()?;
        let killed = Instant::now();
        server.child.wait()?;
        let joined = handles.into_iter().map(|handle| handle.join());
        let writers: Result<Vec<Writer>, _> = joined.collect();
        Ok((writers.map_err(|_| io::Error::other("a writer panicked"))?, killed))
    })
}

fn check(
    server: &Server,
    writers: &[Writer],
    mode: &str,
    killed: Instant,
    round: u32,
    sum: &mut Sum,
) -> io::Result<()> {
    const ROUNDS_KEPT: u32 = 10;
    let mut connection = Connection::open(&server.socket)?;
    for writer in writers {
        writer.check(&mut connection, mode, killed, sum)?;
    }
    if round % ROUNDS_KEPT == ROUNDS_KEPT - 1 {
        connection.ask(&["FLUSHALL"])?;
    }
    Ok(())
}
