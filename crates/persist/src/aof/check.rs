//! Looks through the files of an append-only file, says what is wrong with them and where, and cuts
//! off a bad end, or all that came after a time.
//!
//! The words are those of redis-check-aof (redis-check-aof.c), which scripts look for; what is
//! more, such as what was expected at an offset, stands in lines of its own.
//!
//! **Invariant:** only the last file is ever cut: what follows a gap must not be replayed.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use keyspace::settings::Settings;

use super::manifest::{Manifest, Part};
use super::reader::{Outcome, Taker, note_seconds, read};
use crate::disk::{DataFile, Disk, Open, RealDisk};
use crate::rdb::decode::Limits;
use crate::rdb::reader::{Checksum, Reader};

/// What is to be done with what is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Only told.
    Tell,
    /// A bad end is cut off.
    Fix,
    /// What was written after this time, in seconds since 1970, is cut off.
    TruncateTo(i64),
}

/// Who hears of it, and is asked before anything is cut.
pub trait Person {
    /// Hears a line.
    fn tell(&mut self, line: &str);
    /// Whether to go on.
    fn agrees(&mut self, question: &str) -> bool;
}

/// It is not sound, and was not mended; the person knows why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsound;

/// What one file came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Valid,
    Empty,
    Cut,
    CutToTime,
}

struct Check<'a> {
    mode: Mode,
    person: &'a mut dyn Person,
}

/// Looks through a manifest and its files, or through one file.
pub fn check(path: &Path, mode: Mode, person: &mut dyn Person) -> Result<(), Unsound> {
    let mut check = Check { mode, person };
    let is_manifest = path.extension().is_some_and(|ending| ending == "manifest");
    if is_manifest || looks_like_manifest(path) {
        return check.manifest(path);
    }
    let name = path.display().to_string();
    check.tell("Start checking Old-Style AOF");
    let found = check.file(path, &name, true)?;
    check.told(found, &format!("AOF {name}"), &name);
    Ok(())
}

/// A first line as manifests have it.
fn looks_like_manifest(path: &Path) -> bool {
    let Ok(file) = RealDisk.open(path, Open::Read) else { return false };
    let mut first = [0; 5];
    file.read_at(&mut first, 0).is_ok_and(|count| &first[..count] == b"file ")
}

/// The system's words for an error, without its number.
fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

/// Cuts at the first note of a later time.
struct Clock<'a> {
    until: Option<i64>,
    person: &'a mut dyn Person,
    is_bad: bool,
}

impl Taker for Clock<'_> {
    fn commands(&mut self, _: &[u8], _: u64) -> Result<(), (u64, String)> {
        Ok(())
    }

    fn note(&mut self, text: &[u8], _: u64) -> ControlFlow<()> {
        let Some(until) = self.until else { return ControlFlow::Continue(()) };
        match note_seconds(text) {
            Some(Ok(seconds)) if seconds > until => ControlFlow::Break(()),
            Some(Err(())) => {
                self.person.tell("Invalid timestamp annotation");
                self.is_bad = true;
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

impl Check<'_> {
    fn tell(&mut self, line: &str) {
        self.person.tell(line);
    }

    fn refuse<T>(&mut self, line: &str) -> Result<T, Unsound> {
        self.person.tell(line);
        Err(Unsound)
    }

    fn manifest(&mut self, path: &Path) -> Result<(), Unsound> {
        self.tell("Start checking Multi Part AOF");
        let shown = path.display();
        let bytes = match RealDisk.read(path) {
            Ok(bytes) => bytes,
            Err(error) => {
                return self.refuse(&format!("Cannot open file {shown}: {}", error_text(&error)));
            }
        };
        let manifest = match Manifest::parse(&bytes) {
            Ok(manifest) => manifest,
            Err(error) => {
                let (line, text) = (error.line_number, error.text);
                return self.refuse(&format!("{text} ({shown}, line {line}: '{}')", error.line));
            }
        };
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let count = manifest.live().count();
        let mut has_told_increments = false;
        for (index, member) in manifest.live().enumerate() {
            let file: PathBuf = folder.join(&member.name);
            let is_last = index + 1 == count;
            let kind = if member.part == Part::Base {
                let form = if is_rdb(&file) { "RDB" } else { "RESP" };
                self.tell(&format!("Start to check BASE AOF ({form} format)."));
                "BASE"
            } else {
                if !std::mem::replace(&mut has_told_increments, true) {
                    self.tell("Start to check INCR files.");
                }
                "INCR"
            };
            let found = self.file(&file, &member.name, is_last)?;
            self.told(found, &format!("{kind} AOF {}", member.name), &member.name);
        }
        self.tell("All AOF files and manifest are valid");
        Ok(())
    }

    fn told(&mut self, found: Found, what: &str, name: &str) {
        let line = match (found, self.mode) {
            (Found::Valid, _) => format!("{what} is valid"),
            (Found::Empty, _) => format!("{what} is empty"),
            (Found::CutToTime, Mode::TruncateTo(time)) => {
                format!("Successfully truncated AOF {name} to timestamp {time}")
            }
            _ => format!("Successfully truncated AOF {name}"),
        };
        self.tell(&line);
    }

    fn file(&mut self, path: &Path, name: &str, is_last: bool) -> Result<Found, Unsound> {
        let how = if self.mode == Mode::Tell { Open::Read } else { Open::Update };
        let opened = RealDisk.open(path, how).and_then(|file| Ok((file.len()?, file)));
        let (size, file) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let text = error_text(&error);
                return self.refuse(&format!("Cannot open file {name}: {text}, aborting..."));
            }
        };
        if size == 0 {
            return Ok(Found::Empty);
        }
        let from = if is_rdb(path) { self.preamble(path, size)? } else { 0 };
        let until = if let Mode::TruncateTo(time) = self.mode { Some(time) } else { None };
        let mut clock = Clock { until, person: &mut *self.person, is_bad: false };
        let result = read(file.as_ref(), from, true, &mut clock);
        if clock.is_bad {
            return Err(Unsound);
        }
        match result {
            Ok(outcome) => self.judge(file.as_ref(), name, is_last, &outcome),
            Err(error) => {
                let text = error_text(&error);
                self.refuse(&format!("Failed to read from AOF {name} ({text}), aborting..."))
            }
        }
    }

    /// Looks through the snapshot that a file begins with; where it ends.
    fn preamble(&mut self, path: &Path, size: u64) -> Result<u64, Unsound> {
        let limits = Limits::of(&Settings::default());
        let end = File::open(path).map_err(|error| error_text(&error)).and_then(|file| {
            let reader = Reader::new(file, Some(size), Checksum::Verify, limits);
            let mut reader = reader.map_err(|error| error.to_string())?;
            while reader.next().map_err(|error| error.to_string())?.is_some() {}
            let (rest, mut file) = reader.into_rest();
            let at = io::Seek::stream_position(&mut file).map_err(|error| error_text(&error))?;
            Ok(at - rest.len() as u64)
        });
        match end {
            Ok(end) => {
                self.tell("RDB preamble is OK, proceeding with AOF tail...");
                Ok(end)
            }
            Err(why) => {
                self.tell(&why);
                self.refuse("RDB preamble of AOF file is not sane, aborting.")
            }
        }
    }

    fn judge(
        &mut self,
        file: &dyn DataFile,
        name: &str,
        is_last: bool,
        outcome: &Outcome,
    ) -> Result<Found, Unsound> {
        if let (Some(at), Mode::TruncateTo(time)) = (outcome.stopped_at, self.mode) {
            return self.cut_to_time(file, name, is_last, at, time);
        }
        if let Some(damage) = &outcome.damage {
            self.tell(&format!("0x{:16x}: {}", damage.offset, damage.what));
            self.tell(&format!("AOF {name} format error"));
        }
        let Outcome { size, valid_to, line, .. } = *outcome;
        let diff = size - valid_to;
        if let (0, Mode::TruncateTo(time)) = (diff, self.mode) {
            self.tell(&format!("Truncate nothing in AOF {name} to timestamp {time}"));
            return Ok(Found::Valid);
        }
        self.tell(&format!(
            "AOF analyzed: filename={name}, size={size}, ok_up_to={valid_to}, \
             ok_up_to_line={line}, diff={diff}"
        ));
        if diff == 0 {
            return Ok(Found::Valid);
        }
        if self.mode != Mode::Fix {
            return self.refuse(&format!(
                "AOF {name} is not valid. Use the --fix option to try fixing it."
            ));
        }
        if !is_last {
            return self
                .refuse(&format!("Failed to truncate AOF {name} because it is not the last file"));
        }
        self.tell(&format!(
            "This will shrink the AOF {name} from {size} bytes, with {diff} bytes, to {valid_to} \
             bytes"
        ));
        if !self.person.agrees("Continue? [y/N]: ") {
            return self.refuse("Aborting...");
        }
        match file.truncate(valid_to).and_then(|()| file.sync()) {
            Ok(()) => Ok(Found::Cut),
            Err(error) => {
                let text = error_text(&error);
                self.refuse(&format!("Failed to truncate AOF {name}: {text}"))
            }
        }
    }

    fn cut_to_time(
        &mut self,
        file: &dyn DataFile,
        name: &str,
        is_last: bool,
        at: u64,
        time: i64,
    ) -> Result<Found, Unsound> {
        if at == 0 {
            return self
                .refuse(&format!("AOF {name} has nothing before timestamp {time}, aborting..."));
        }
        if !is_last {
            self.tell(&format!(
                "Failed to truncate AOF {name} to timestamp {time} to offset {at} because it is \
                 not the last file."
            ));
            return self.refuse(
                "If you insist, please delete all files after this file according to the manifest \
                 file and delete the corresponding records in manifest file manually. Then re-run \
                 redis-check-aof.",
            );
        }
        match file.truncate(at).and_then(|()| file.sync()) {
            Ok(()) => Ok(Found::CutToTime),
            Err(_) => self.refuse(&format!("Failed to truncate AOF {name} to timestamp {time}")),
        }
    }
}

fn is_rdb(path: &Path) -> bool {
    let Ok(file) = RealDisk.open(path, Open::Read) else { return false };
    let mut magic = [0; 5];
    file.read_at(&mut magic, 0).is_ok_and(|count| &magic[..count] == b"REDIS")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Told(Vec<String>);

    impl Person for Told {
        fn tell(&mut self, line: &str) {
            self.0.push(line.to_string());
        }
        fn agrees(&mut self, _: &str) -> bool {
            true
        }
    }

    fn run(path: &Path, mode: Mode) -> (Result<(), Unsound>, String) {
        let mut told = Told::default();
        let result = check(path, mode, &mut told);
        (result, told.0.join("\n"))
    }

    #[test]
    fn a_torn_end_is_found_and_cut() {
        let path = std::env::temp_dir().join(format!("forebay-check-{}.aof", std::process::id()));
        let good = b"*3\r\n$3\r\nset\r\n$3\r\nfoo\r\n$5\r\nhello\r\n";
        std::fs::write(&path, [&good[..], b"!!!"].concat()).expect("it can be written");
        let (result, told) = run(&path, Mode::Tell);
        assert_eq!(result, Err(Unsound));
        assert!(told.contains("ok_up_to=33, ok_up_to_line=8, diff=3"), "{told}");
        assert!(told.contains("is not valid. Use the --fix"), "{told}");
        let (result, told) = run(&path, Mode::Fix);
        assert_eq!(result, Ok(()), "{told}");
        assert!(told.contains("Successfully truncated AOF"), "{told}");
        assert_eq!(std::fs::read(&path).expect("it is there"), good);
        assert_eq!(run(&path, Mode::Tell).0, Ok(()));
        std::fs::remove_file(&path).expect("it is ours");
    }

    #[test]
    fn what_came_after_a_time_is_cut() {
        let path = std::env::temp_dir().join(format!("forebay-time-{}.aof", std::process::id()));
        let command = b"*1\r\n$8\r\nFLUSHALL\r\n";
        let parts: [&[u8]; 4] = [b"#TS:10\r\n", command, b"#TS:20\r\n", command];
        std::fs::write(&path, parts.concat()).expect("it can be written");
        assert!(run(&path, Mode::TruncateTo(30)).1.contains("Truncate nothing"));
        assert!(run(&path, Mode::TruncateTo(5)).1.contains("aborting"));
        let (result, told) = run(&path, Mode::TruncateTo(15));
        assert!(result.is_ok() && told.contains("to timestamp 15"), "{told}");
        assert_eq!(std::fs::read(&path).expect("it is there"), parts[..2].concat());
        std::fs::remove_file(&path).expect("it is ours");
    }
}
