//! What a change must pass, here as in CI. All steps run even when one fails, so that one run tells
//! everything; the last lines name those that failed.

use crate::tidy;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Name, cargo's arguments, and flags for rustdoc.
const STEPS: &[(&str, &[&str], &str)] = &[
    ("format", &["fmt", "--all", "--check"], ""),
    (
        "lints",
        &["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"],
        "",
    ),
    ("tests", &["test", "--quiet", "--workspace", "--no-fail-fast"], ""),
    ("documentation", &["doc", "--quiet", "--workspace", "--no-deps"], "--deny warnings"),
];

/// Runs every step and says whether all went well.
pub fn run(root: &Path) -> bool {
    let mut failed = Vec::new();
    for (name, arguments, rustdoc_flags) in STEPS {
        println!("-- {name}: cargo {}", arguments.join(" "));
        let started = Instant::now();
        if !cargo(root, arguments, rustdoc_flags) {
            failed.push(*name);
        }
        println!("-- {name}: {:.0} s", started.elapsed().as_secs_f64());
    }
    println!("-- tidiness");
    if !tidy::run(root) {
        failed.push("tidiness");
    }
    if !failed.is_empty() {
        eprintln!("failed: {}", failed.join(", "));
    }
    failed.is_empty()
}

fn cargo(root: &Path, arguments: &[&str], rustdoc_flags: &str) -> bool {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(root);
    if !rustdoc_flags.is_empty() {
        command.env("RUSTDOCFLAGS", rustdoc_flags);
    }
    command.status().is_ok_and(|status| status.success())
}
