//! `forebay bench`: experiments that measure servers side by side and check every reply.
//!
//! ```text
//!   kv, http, ...       the experiments: what is measured             (one file each)
//!        |
//!   harness             rounds, order, statistics, report             (shared by all)
//!        |
//!   load                threads, sockets, latencies                   (shared by those that
//!   traffic             what a protocol does for it: workload (RESP),  generate load)
//!                       http_message (HTTP)
//! ```
//!
//! The binary calls [`run`]; everything else is public so that experiments which live elsewhere
//! can use the harness.

pub mod cache;
pub mod client;
pub mod connection;
pub mod crash;
pub mod environment;
pub mod harness;
pub mod http;
pub mod http_message;
pub mod interrupt;
pub mod kv;
pub mod load;
pub mod measured;
pub mod null_server;
pub mod options;
pub mod own_server;
pub mod pipeline;
pub mod process;
pub mod progress;
pub mod quota;
pub mod random;
pub mod report;
pub mod saga;
pub mod sql;
pub mod static_server;
pub mod stats;
pub mod sys;
pub mod target;
pub mod traffic;
pub mod workload;

use std::process::ExitCode;

/// Measure servers side by side, with every reply checked.
#[derive(clap::Args, Clone, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    experiment: Command,
}

/// The experiments, and the null server.
#[derive(clap::Subcommand, Clone, Debug)]
enum Command {
    Kv(kv::KvArgs),
    Http(http::HttpArgs),
    Pipeline(pipeline::PipelineArgs),
    Saga(saga::SagaArgs),
    Sql(sql::SqlArgs),
    Crash(crash::CrashArgs),
    Quota(Box<quota::QuotaArgs>),
    Cache(Box<cache::CacheArgs>),
    #[command(hide = true)]
    StaticServer(static_server::StaticServerArgs),
    NullServer(null_server::NullServerArgs),
}

/// Runs an experiment. Exit code 0: all is well; 1: a reply was wrong or a server failed; 2: the
/// arguments cannot be.
pub fn run(args: BenchArgs) -> ExitCode {
    match args.experiment {
        Command::Kv(args) => kv::run(args),
        Command::Http(args) => http::run(args),
        Command::Pipeline(args) => pipeline::run(args),
        Command::Saga(args) => saga::run(args),
        Command::Sql(args) => sql::run(args),
        Command::Crash(args) => crash::run(args),
        Command::Quota(args) => quota::run(*args),
        Command::Cache(args) => cache::run(*args),
        Command::StaticServer(args) => static_server::run(&args),
        Command::NullServer(args) => null_server::run(&args),
    }
}

/// One plain line for arguments that clap refuses, for the binary to print before it exits with
/// [`options::EXIT_USAGE`]. Help and version are not errors and are left to clap.
pub fn usage_line(error: &clap::Error) -> String {
    use clap::error::ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, MissingSubcommand};
    if matches!(error.kind(), DisplayHelpOnMissingArgumentOrSubcommand | MissingSubcommand) {
        return "a command is missing; --help lists them".into();
    }
    // The message ends at the first blank line; hints and usage follow.
    let text = error.to_string();
    let message = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let message = message.collect::<Vec<_>>().join(" ");
    message.strip_prefix("error: ").unwrap_or(&message).to_owned()
}
