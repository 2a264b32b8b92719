//! `forebay serve`: reads the configuration, starts the server, waits for its end.

use std::process::ExitCode;

use server::options::Options;

/// Runs the server with these words of the command line: a configuration file, and options as
/// `--name value ...`. Exit code 2 with one line for a wrong configuration.
pub fn run(args: &[String]) -> ExitCode {
    tracing_subscriber::fmt().with_target(false).init();
    match start(args) {
        Ok(code) => code,
        Err(text) => {
            eprintln!("forebay: {text}");
            ExitCode::from(2)
        }
    }
}

fn start(args: &[String]) -> Result<ExitCode, String> {
    let options = Options::default();
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    options.set("threads", &[&cores.to_string()])?;
    let mut index = 0;
    while index < args.len() {
        let Some(name) = args[index].strip_prefix("--") else {
            return Err(format!("'{}' is not an option", args[index]));
        };
        let values: Vec<&str> = args[index + 1..]
            .iter()
            .map(String::as_str)
            .take_while(|word| !word.starts_with("--"))
            .collect();
        index += 1 + values.len();
        if Options::row(name).is_some() {
            options.set(name, &values).map_err(|error| format!("--{name}: {error}"))?;
        }
    }
    let mut state = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |time| time.as_nanos() as u64);
    let seed = move || {
        state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ 0x1234_5678;
        state
    };
    let families = [commands::FAMILIES, server::FAMILIES, server::admin::FAMILIES].concat();
    let running = server::start::start(options, &families, seed, String::new())
        .map_err(|error| error.to_string())?;
    for address in &running.addresses {
        println!("listening on {address}");
    }
    running.join();
    Ok(ExitCode::SUCCESS)
}
