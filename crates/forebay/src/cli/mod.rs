//! `forebay cli`: talks to a server, one command or many.
//!
//! ```text
//!   mod         options, and which way it runs      words   a line as words, with quotes
//!   connection  sockets, TLS, login, replies        show    a reply as text
//!   prompt      editing, history, streams           hints   the usage of commands
//! ```
//!
//! Three ways to run: one command from the arguments, commands from standard input where that is
//! no terminal, and a prompt. Replies are written for people where standard output is a terminal,
//! and bare (`--raw`) where it is not; `--json` and `--no-raw` decide it otherwise.
//!
//! Options are those of redis-cli where both have them. Two defaults differ: RESP3 is spoken
//! where the server can (`-2` asks for RESP2), and the exit code is 1 when a reply was an error.
//!
//! **Invariant:** a password given by an option or `REDISCLI_AUTH` is never printed, and commands
//! that hold one do not enter the history.

mod connection;
mod hints;
mod prompt;
mod show;
mod words;

use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use resp::reply::Value;

use connection::{Connection, Error, Waiting};
use show::Style;

/// Exit code of arguments that cannot be.
const EXIT_USAGE: u8 = 2;

/// Talk to a server: one command, commands from standard input, or a prompt.
#[derive(clap::Args, Clone, Debug)]
#[command(disable_help_flag = true)]
pub struct CliArgs {
    /// Server's name or number.
    #[arg(short = 'h', long, default_value = "127.0.0.1")]
    pub host: String,
    /// Server's port.
    #[arg(short = 'p', long, default_value_t = 6379)]
    pub port: u16,
    /// Unix socket, instead of host and port.
    #[arg(short = 's', long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Password; the environment's REDISCLI_AUTH keeps it out of the list of processes.
    #[arg(short = 'a', long = "pass", value_name = "PASSWORD")]
    pub password: Option<String>,
    /// User to log in as.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Database number.
    #[arg(short = 'n', long = "db", value_name = "NUMBER", default_value_t = 0)]
    pub database: u32,
    /// Speak RESP2.
    #[arg(short = '2', conflicts_with = "resp3")]
    pub resp2: bool,
    /// Speak RESP3, and fail where the server cannot.
    #[arg(short = '3')]
    pub resp3: bool,
    /// Connect by TLS.
    #[arg(long)]
    pub tls: bool,
    /// Name that the server's certificate is for [default: the host].
    #[arg(long, value_name = "NAME", requires = "tls")]
    pub sni: Option<String>,
    /// Certificates to trust, as PEM [default: the system's].
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub cacert: Option<PathBuf>,
    /// Own certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Key of the own certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Trust any certificate.
    #[arg(long, requires = "tls", conflicts_with = "cacert")]
    pub insecure: bool,
    /// Run the command so often; -1 for ever.
    #[arg(
        short = 'r',
        long,
        value_name = "COUNT",
        default_value_t = 1,
        allow_negative_numbers = true
    )]
    pub repeat: i64,
    /// Wait so many seconds between repetitions.
    #[arg(short = 'i', long, value_name = "SECONDS", default_value_t = 0.0)]
    pub interval: f64,
    /// Take the last word of the command from standard input.
    #[arg(short = 'x')]
    pub last_from_stdin: bool,
    /// Write replies bare.
    #[arg(long, conflicts_with_all = ["json", "no_raw"])]
    pub raw: bool,
    /// Write replies for people, even into a file.
    #[arg(long)]
    pub no_raw: bool,
    /// Write replies as JSON, a line each.
    #[arg(long, conflicts_with = "no_raw")]
    pub json: bool,
    /// Print this help.
    #[arg(long, action = clap::ArgAction::Help)]
    pub help: Option<bool>,
    /// Command with its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Tells the usage of a command, where the server does not.
pub type UsageOf = fn(&str) -> Option<String>;

/// Runs the client; `usage_of` gives hints for commands that the server does not describe.
pub fn run(mut args: CliArgs, usage_of: UsageOf) -> ExitCode {
    if args.password.is_none() {
        args.password = std::env::var("REDISCLI_AUTH").ok().filter(|password| !password.is_empty());
    }
    let interval = match Duration::try_from_secs_f64(args.interval) {
        Ok(interval) => interval,
        Err(_) => {
            eprintln!("forebay cli: {} is no interval in seconds", args.interval);
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let style = match (args.raw, args.json, args.no_raw) {
        (_, true, _) => Style::Json,
        (true, ..) => Style::Raw,
        (_, _, true) => Style::Pretty,
        _ if io::stdout().is_terminal() => Style::Pretty,
        _ => Style::Raw,
    };
    let is_prompt = args.command.is_empty() && io::stdin().is_terminal();
    let result = if is_prompt {
        prompt::run(&args, style, usage_of)
    } else if args.command.is_empty() {
        from_stdin(&args, style)
    } else {
        once(&args, style, interval)
    };
    match result {
        Ok(Success::All) => ExitCode::SUCCESS,
        Ok(Success::NotAll) => ExitCode::FAILURE,
        // Whoever read the output has gone: that is no failure of ours.
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forebay cli: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether any reply was an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Success {
    All,
    NotAll,
}

impl Success {
    fn and(self, value: &Value) -> Success {
        if value.is_error() { Success::NotAll } else { self }
    }
}

/// One command from the arguments, as often as asked.
fn once(args: &CliArgs, style: Style, interval: Duration) -> Result<Success, Error> {
    let mut words: Vec<Vec<u8>> = args.command.iter().map(|word| word.clone().into_vec()).collect();
    if args.last_from_stdin {
        let mut word = Vec::new();
        io::stdin().read_to_end(&mut word).map_err(Error::Output)?;
        words.push(word);
    }
    let mut connection = Connection::open(args, Waiting::ForEver)?;
    let mut success = Success::All;
    let mut left = args.repeat;
    while left != 0 {
        success = call(&mut connection, &words, style, success)?;
        left = if left > 0 { left - 1 } else { left };
        if left != 0 {
            std::thread::sleep(interval);
        }
    }
    Ok(success)
}

/// A command per line of standard input.
fn from_stdin(args: &CliArgs, style: Style) -> Result<Success, Error> {
    let mut connection = Connection::open(args, Waiting::ForEver)?;
    let mut success = Success::All;
    let mut line = Vec::new();
    let mut input = io::stdin().lock();
    let mut number = 0_u64;
    while input.read_until(b'\n', &mut line).map_err(Error::Output)? > 0 {
        number += 1;
        match words::split(&line) {
            None => {
                eprintln!("forebay cli: line {number}: unbalanced quotes");
                success = Success::NotAll;
            }
            Some(words) if words.is_empty() => {}
            Some(words) => success = call(&mut connection, &words, style, success)?,
        }
        line.clear();
    }
    Ok(success)
}

/// Sends a command and writes its reply; of a stream of messages, all of them.
fn call(
    connection: &mut Connection,
    words: &[Vec<u8>],
    style: Style,
    success: Success,
) -> Result<Success, Error> {
    connection.send(words)?;
    if connection::is_stream(words) {
        loop {
            let value = connection.receive()?;
            print(&value, style)?;
            if value.is_error() {
                return Ok(Success::NotAll);
            }
        }
    }
    let value = connection.receive_reply(words, |push| print(push, style))?;
    print(&value, style)?;
    Ok(success.and(&value))
}

/// Writes a reply to standard output, at once.
fn print(value: &Value, style: Style) -> Result<(), Error> {
    let mut text = Vec::new();
    show::write(value, style, &mut text);
    let mut out = io::stdout().lock();
    out.write_all(&text).and_then(|()| out.flush()).map_err(Error::Output)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: CliArgs,
    }

    fn parse(line: &str) -> Result<CliArgs, clap::Error> {
        let words = std::iter::once("cli").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args)
    }

    #[test]
    fn reads_the_options_of_redis_cli() {
        let args = parse("-h db -p 7001 -a pw --user me -n 2 -r -1 -i 0.5 LRANGE l 0 -1").unwrap();
        assert_eq!((args.host.as_str(), args.port, args.database), ("db", 7001, 2));
        assert_eq!((args.repeat, args.interval), (-1, 0.5));
        assert_eq!(args.command, ["LRANGE", "l", "0", "-1"]);
        let args = parse("-s /run/x.sock --json -2 SET k -h").unwrap();
        assert_eq!(args.command, ["SET", "k", "-h"]);
        assert!(args.json && args.resp2 && args.socket.is_some());
        assert!(parse("--tls --sni db.example --cacert ca.pem PING").is_ok());
    }

    #[test]
    fn refuses_options_that_contradict_each_other() {
        for line in ["-2 -3", "--raw --json", "--sni x", "--cert c --tls", "-p 70000"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
