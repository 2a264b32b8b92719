//! `forebay check rdb`: what an RDB file holds, what is wrong with it, and where.
//!
//! Its lines are those of redis-check-rdb, so that scripts can read either: `[offset N] text`, then
//! `\o/ RDB looks OK! \o/` or `--- RDB ERROR DETECTED ---`, then `[info]` lines. It exits with 0
//! for a sound file, 1 for a damaged one.

use std::path::Path;
use std::process::ExitCode;

use persist::rdb::check::{Damage, Report, check_file, fix};
use persist::rdb::format::type_name;
use persist::rdb::reader::Note;
use server::sys;
use server::worker::now_ms;

/// So many damages are shown.
const SHOWN_MAX: usize = 20;

/// Looks through the file, and mends it if `mends`.
pub fn run(path: &Path, mends: bool) -> ExitCode {
    println!("[offset 0] Checking RDB file {}", path.display());
    let report = match check_file(path, now_ms()) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("forebay check rdb: {}: {}", path.display(), sys::error_text(&error));
            return ExitCode::FAILURE;
        }
    };
    report.notes.iter().for_each(|(offset, note)| show_note(*offset, note));
    if report.damages.is_empty() {
        println!("[offset {}] Checksum OK", report.bytes);
        println!("[offset {}] \\o/ RDB looks OK! \\o/", report.bytes);
        show_statistics(&report);
        return ExitCode::SUCCESS;
    }
    println!("--- RDB ERROR DETECTED ---");
    report.damages.iter().take(SHOWN_MAX).for_each(show_damage);
    if report.damages.len() > SHOWN_MAX {
        println!("[info] {} more", report.damages.len() - SHOWN_MAX);
    }
    show_statistics(&report);
    if mends {
        return mend(path, &report);
    }
    ExitCode::FAILURE
}

fn show_note(offset: u64, note: &Note) {
    match note {
        Note::Aux(name, value) => {
            let (name, value) = (name.escape_ascii(), value.escape_ascii());
            println!("[offset {offset}] AUX FIELD {name} = '{value}'");
        }
        Note::Function(source) => {
            let first = source.split(|byte| *byte == b'\n').next().unwrap_or_default();
            println!("[offset {offset}] FUNCTION {}", first.escape_ascii());
        }
        Note::ModuleAux(name) => println!("[offset {offset}] MODULE AUX for: {name}"),
        Note::Sizes { db, keys, volatile } => {
            println!("[offset {offset}] Selecting DB ID {db}: {keys} keys, {volatile} expire");
        }
    }
}

fn show_damage(damage: &Damage) {
    println!("[offset {}] {}", damage.error.offset, damage.error.why);
    println!("[additional info] While reading: {}", damage.error.reading);
    if let Some((key, kind)) = &damage.key {
        println!("[additional info] Reading key '{}' of DB {}", key.escape_ascii(), damage.db);
        println!("[additional info] Reading type {kind} ({})", type_name(*kind));
    }
}

fn show_statistics(report: &Report) {
    println!("[info] {} keys read", report.keys);
    println!("[info] {} expires", report.expires);
    println!("[info] {} already expired", report.expired);
    if report.foreign > 0 {
        println!("[info] {} of types that this server does not know", report.foreign);
    }
    for (kind, count) in report.kinds.iter().enumerate().filter(|(_, count)| **count > 0) {
        println!("[info] {count} of type {}", type_name(kind as u8));
    }
}

fn mend(path: &Path, report: &Report) -> ExitCode {
    match fix(path, report) {
        Ok(kept) => {
            println!("[info] mended: {} keys are left; before: {}", report.keys, kept.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("forebay check rdb: cannot mend: {}", sys::error_text(&error));
            ExitCode::FAILURE
        }
    }
}
