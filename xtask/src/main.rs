//! The project's own chores, as `cargo xtask CHORE`:
//!
//! - `ci`: everything a change must pass: format, lints, tests, tidiness, documentation;
//! - `tidy`: the house style, as far as a program can see it; `cargo test` runs it too.
//!
//! No dependencies: this is compiled before anything else, on every machine.

mod ci;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let chores: Vec<String> = std::env::args().skip(1).collect();
    let is_done = match chores.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ci"] => ci::run(&root()),
        ["tidy"] => tidy::run(&root()),
        _ => {
            eprintln!("usage: cargo xtask ci | tidy");
            false
        }
    };
    if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The workspace's folder.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the workspace").to_path_buf()
}
