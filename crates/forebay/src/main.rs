//! Forebay: one server for keys, SQL, quotas, cached tables and sagas.

mod serve;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().collect();
    let name = args.remove(0);
    let base = name.rsplit('/').next().unwrap_or(&name);
    if matches!(base, "redis-server" | "valkey-server") {
        return serve::run(&args);
    }
    match args.first().map(String::as_str) {
        Some("serve") => serve::run(&args[1..]),
        _ => {
            eprintln!("forebay: say 'forebay serve'");
            ExitCode::from(2)
        }
    }
}
