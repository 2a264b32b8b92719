//! Forebay: one server for keys, SQL, quotas, cached tables and sagas.

mod allocator;
mod check;
mod cli;
mod families;
mod later;
mod log;
mod metrics;
mod pages;
mod quota;
mod quota_commands;
mod saga;
mod saga_commands;
mod saga_steps;
mod serve;
mod serve_help;
mod systemd;
mod table_commands;
mod tables;
mod transfer;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().collect();
    let name = args.remove(0);
    let base = name.rsplit('/').next().unwrap_or(&name);
    if matches!(base, "redis-server" | "valkey-server") {
        return serve::run(&args, serve::Name::Redis);
    }
    if matches!(base, "redis-check-rdb" | "valkey-check-rdb") {
        return check::as_redis_check_rdb(&args);
    }
    if matches!(base, "redis-check-aof" | "valkey-check-aof") {
        return check::aof::as_redis_check_aof(&args);
    }
    match args.first().map(String::as_str) {
        Some("serve") => serve::run(&args[1..], serve::Name::Forebay),
        _ => parse(),
    }
}

/// Keys, SQL, quotas, cached tables and sagas in one server.
#[derive(clap::Parser)]
#[command(name = "forebay", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Start the server: forebay serve [CONFIG-FILE] [--option value ...]
    Serve,
    /// Talk to a server: forebay cli [COMMAND [WORD ...]]
    Cli(cli::CliArgs),
    /// Measure servers side by side: forebay bench kv | pipeline
    Bench(bench::BenchArgs),
    /// Look after metered ingest: forebay quota verify
    Quota(quota::QuotaArgs),
    /// Look through data files, and mend them: forebay check rdb | aof FILE
    Check(check::CheckArgs),
    /// Fill a server from an RDB file or another server: forebay import FILE | redis://host:port
    Import(transfer::TransferArgs),
    /// Write a server's data to an RDB file or another server: forebay export FILE
    Export(transfer::TransferArgs),
    /// Look at a configuration: forebay config check | print
    Config(pages::ConfigArgs),
    /// Print a shell's completions: forebay completions bash | elvish | fish | powershell | zsh
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page: forebay man | man -l -
    Man,
    /// Print docs/commands.md
    #[command(hide = true)]
    Commands,
}

/// A command's words as the table has them, for the hints of `forebay cli`.
fn usage_of(name: &str) -> Option<String> {
    let families = families::families();
    let mut rows = families.iter().flat_map(|family| family.commands);
    rows.find(|row| row.name.eq_ignore_ascii_case(name)).map(|row| row.usage.to_string())
}

fn run(command: Command) -> ExitCode {
    let program = <Arguments as clap::CommandFactory>::command;
    match command {
        Command::Serve => serve::run(&[], serve::Name::Forebay),
        Command::Cli(args) => cli::run(args, usage_of),
        Command::Bench(args) => bench::run(args),
        Command::Quota(args) => quota::run(args),
        Command::Import(args) => transfer::import(&args),
        Command::Export(args) => transfer::export(&args),
        Command::Check(args) => check::run(args),
        Command::Config(args) => pages::config(args),
        Command::Completions { shell } => pages::completions(program(), shell),
        Command::Man => pages::manual(program()),
        Command::Commands => pages::written(pages::commands()),
    }
}

fn parse() -> ExitCode {
    match <Arguments as clap::Parser>::try_parse() {
        Ok(Arguments { command }) => run(command),
        Err(error) if error.use_stderr() => {
            eprintln!("{}", bench::usage_line(&error));
            ExitCode::from(bench::options::EXIT_USAGE)
        }
        Err(error) => {
            // Help and version: nothing better can be done if standard output is gone.
            let _ = error.print();
            ExitCode::SUCCESS
        }
    }
}
