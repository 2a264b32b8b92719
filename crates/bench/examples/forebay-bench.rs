//! The experiments without the server: `cargo run -p forebay-bench --example forebay-bench -- kv`.
//! The `forebay` binary offers the same as `forebay bench`.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "forebay-bench", disable_help_subcommand = true)]
struct Line {
    #[command(flatten)]
    bench: forebay_bench::BenchArgs,
}

fn main() -> ExitCode {
    match Line::try_parse() {
        Ok(line) => forebay_bench::run(line.bench),
        Err(error) if error.use_stderr() => {
            eprintln!("forebay-bench: {}", forebay_bench::usage_line(&error));
            ExitCode::from(forebay_bench::options::EXIT_USAGE)
        }
        Err(error) => error.exit(),
    }
}
