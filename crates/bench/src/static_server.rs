//! `forebay bench static-server`: the HTTP stack of Forebay with a handler that answers every
//! request with the bytes of a file; `bench cache --speed` starts it.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;

use forebay_http::fixed::{self, Fixed};

use crate::options::usage_error;

/// Answer every HTTP request with the same bytes.
#[derive(clap::Args, Clone, Debug)]
pub struct StaticServerArgs {
    /// File with the answer: head and body as a server has sent them.
    #[arg(value_name = "FILE")]
    answer: PathBuf,
    /// Port to listen on, on the loopback address.
    #[arg(long, value_name = "PORT")]
    port: u16,
    /// Threads.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    threads: usize,
}

/// Serves until the process is ended.
pub fn run(args: &StaticServerArgs) -> ExitCode {
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => usage_error("static-server", &error),
    }
}

fn serve(args: &StaticServerArgs) -> Result<(), String> {
    let answer = std::fs::read(&args.answer).map_err(|error| error.to_string())?;
    let fixed = Fixed::read(&answer).ok_or("the file holds no answer")?;
    let listener =
        TcpListener::bind(("127.0.0.1", args.port)).map_err(|error| error.to_string())?;
    let _door = fixed::open(listener, fixed, args.threads).map_err(|error| error.to_string())?;
    loop {
        std::thread::park();
    }
}
