//! `forebay check`: looks through data files without a server, and mends them where asked.

pub mod aof;
mod rdb;

use std::path::PathBuf;
use std::process::ExitCode;

use aof::Consent;
use persist::aof::check::Mode;

/// What is checked.
#[derive(clap::Args)]
pub struct CheckArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Look through an append-only file: forebay check aof FILE|MANIFEST [--fix]
    Aof {
        /// The manifest, or one file
        file: PathBuf,
        /// Cut a bad end off
        #[arg(long)]
        fix: bool,
        /// Cut off what was written after this time, in seconds since 1970
        #[arg(long, conflicts_with = "fix")]
        truncate_to_timestamp: Option<i64>,
        /// Do not ask before a file is cut
        #[arg(long)]
        yes: bool,
    },
    /// Look through an RDB file: forebay check rdb FILE [--fix]
    Rdb {
        /// The file
        file: PathBuf,
        /// Put what is sound in its place; the original gets the ending .bak
        #[arg(long)]
        fix: bool,
    },
}

/// Runs `forebay check`.
pub fn run(args: CheckArgs) -> ExitCode {
    match args.what {
        What::Aof { file, fix, truncate_to_timestamp, yes } => {
            let mode = match truncate_to_timestamp {
                Some(time) => Mode::TruncateTo(time),
                None if fix => Mode::Fix,
                None => Mode::Tell,
            };
            aof::run(&file, mode, if yes { Consent::Given } else { Consent::Ask })
        }
        What::Rdb { file, fix } => rdb::run(&file, fix),
    }
}

/// Runs as `redis-check-rdb` does: with one word, the file.
pub fn as_redis_check_rdb(args: &[String]) -> ExitCode {
    match args {
        [version] if version == "-v" || version == "--version" => {
            println!("redis-check-rdb (forebay {})", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        [file] => rdb::run(&PathBuf::from(file), false),
        _ => {
            eprintln!("Usage: redis-check-rdb <rdb-file-name>");
            ExitCode::FAILURE
        }
    }
}
