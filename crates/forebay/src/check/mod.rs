//! `forebay check`: looks through data files without a server, and mends them where asked.

mod rdb;

use std::path::PathBuf;
use std::process::ExitCode;

/// What is checked.
#[derive(clap::Args)]
pub struct CheckArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
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
