//! `forebay check aof`, also as redis-check-aof: what is wrong with an append-only file, and where;
//! cuts a bad end off where asked. It exits with 0 for a sound or mended file, else with 1.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::ExitCode;

use persist::aof::check::{Mode, Person, check};

/// Before a file is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    /// The person at the terminal is asked.
    Ask,
    /// It has been given.
    Given,
}

struct Terminal(Consent);

impl Person for Terminal {
    fn tell(&mut self, line: &str) {
        println!("{line}");
    }

    fn agrees(&mut self, question: &str) -> bool {
        if self.0 == Consent::Given {
            return true;
        }
        print!("{question}");
        let _ = io::stdout().flush();
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        read.is_ok() && answer.trim_start().to_ascii_lowercase().starts_with('y')
    }
}

/// Looks through a manifest with its files, or through one file.
pub fn run(path: &Path, mode: Mode, consent: Consent) -> ExitCode {
    match check(path, mode, &mut Terminal(consent)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Runs with the words that redis-check-aof takes.
pub fn as_redis_check_aof(args: &[String]) -> ExitCode {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["-v" | "--version"] => {
            println!("redis-check-aof (forebay {})", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        ["--fix", file] => run(Path::new(file), Mode::Fix, Consent::Ask),
        ["--truncate-to-timestamp", time, file] => match time.parse() {
            Ok(time) => run(Path::new(file), Mode::TruncateTo(time), Consent::Ask),
            Err(_) => {
                println!("Invalid timestamp, aborting...");
                ExitCode::FAILURE
            }
        },
        [file] if !file.starts_with('-') => run(Path::new(file), Mode::Tell, Consent::Ask),
        _ => {
            println!(
                "Usage: redis-check-aof [--fix|--truncate-to-timestamp $timestamp] \
                 <file.manifest|file.aof>"
            );
            ExitCode::FAILURE
        }
    }
}
