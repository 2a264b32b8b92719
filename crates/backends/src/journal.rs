//! The journal of metered ingest: a file of lines, each with its checksum, flushed to disk before
//! `append` returns.
//!
//! ```text
//! forebay-quota-journal NAME\n
//! 16 hexadecimal digits (CRC-64/NVME of the rest of the line) SPACE line \n
//! ...
//! ```
//!
//! The file is longer than its lines: room for more is taken ahead, so that a flush has to write
//! no new length and no new place on the disk. Behind the last line feed there are zeros, or what
//! was written of a line that was never acknowledged.
//!
//! **Invariant:** what does not end in a line feed was never acknowledged, and is cut off; a whole
//! line whose checksum is wrong is damage, and an error.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crc_fast::{CrcAlgorithm, checksum};
use nix::fcntl::posix_fallocate;
use services::quota::journal::Journal;

const HEAD: &str = "forebay-quota-journal";
/// Bytes that are taken ahead.
const ROOM: u64 = 4 << 20;

/// See the module.
pub struct FileJournal {
    path: PathBuf,
    file: File,
    name: String,
    bytes: u64,
    /// The length of the file, where room was taken; 0 where none could be.
    taken: u64,
    /// Set when a line may have been written in part: nothing can follow it.
    is_torn: bool,
}

/// Where the last whole line ends. Of a last line that was not flushed any page may be missing: it
/// has zeros there, which no line has.
fn whole(bytes: &[u8]) -> usize {
    let end = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let last = end(bytes);
    let before = end(&bytes[..last.saturating_sub(1)]);
    if bytes[before..last].contains(&0) { before } else { last }
}

fn sum(line: &str) -> String {
    format!("{:016x}", checksum(CrcAlgorithm::Crc64Nvme, line.as_bytes()))
}

impl FileJournal {
    /// Opens a journal, or makes an empty one.
    pub fn open(path: &Path) -> Result<FileJournal, String> {
        let opened =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| format!("{}: {error}", path.display()))?;
        let path = path.to_path_buf();
        Ok(FileJournal { path, file, name: String::new(), bytes: 0, taken: 0, is_torn: false })
    }

    fn failed(&self, error: &std::io::Error) -> String {
        format!("{}: {error}", self.path.display())
    }

    fn write(&mut self, text: &str) -> std::io::Result<()> {
        let end = self.bytes + text.len() as u64;
        if end > self.taken {
            // Where the disk has no room for it the line may still fit.
            let (from, room) = (self.bytes.max(self.taken), ROOM.max(text.len() as u64));
            let is_taken = posix_fallocate(&self.file, from as i64, room as i64).is_ok();
            self.taken = if is_taken { from + room } else { 0 };
        }
        self.file.seek(SeekFrom::Start(self.bytes))?;
        self.file.write_all(text.as_bytes())?;
        self.file.sync_data()?;
        self.bytes += text.len() as u64;
        Ok(())
    }
}

impl Journal for FileJournal {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn lines(&mut self) -> Result<Vec<String>, String> {
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(0)).map_err(|error| self.failed(&error))?;
        self.file.read_to_end(&mut bytes).map_err(|error| self.failed(&error))?;
        let whole = whole(&bytes);
        let damaged = |number: usize| format!("{}: line {number} is damaged", self.path.display());
        let text = std::str::from_utf8(&bytes[..whole]).map_err(|_| damaged(0))?;
        let mut lines = text.lines();
        match lines.next().map(|head| head.split_once(' ')) {
            None => return Ok(Vec::new()),
            Some(Some((HEAD, name))) => self.name = name.to_string(),
            Some(_) => return Err(damaged(1)),
        }
        let mut all = Vec::new();
        for (index, line) in lines.enumerate() {
            match line.split_once(' ') {
                Some((crc, line)) if crc == sum(line) => all.push(line.to_string()),
                _ => return Err(damaged(index + 2)),
            }
        }
        self.bytes = whole as u64;
        Ok(all)
    }

    fn append(&mut self, line: &str) -> Result<(), String> {
        if self.is_torn {
            // What follows overwrites it: it was never acknowledged.
            self.taken = 0;
            self.file.set_len(self.bytes).map_err(|error| self.failed(&error))?;
        }
        self.is_torn = true;
        let text = format!("{} {line}\n", sum(line));
        self.write(&text).map_err(|error| self.failed(&error))?;
        self.is_torn = false;
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn clear(&mut self, name: &str) -> Result<(), String> {
        (self.bytes, self.taken) = (0, 0);
        self.name = name.to_string();
        let head = format!("{HEAD} {name}\n");
        let done = self.file.set_len(0).and_then(|()| self.write(&head));
        done.and_then(|()| self.file.sync_all()).map_err(|error| self.failed(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_ends_are_cut_off_at_every_byte() {
        let path = std::env::temp_dir().join(format!("forebay-journal-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut journal = FileJournal::open(&path).expect("a file");
        journal.clear("first").expect("it is written");
        let start = journal.bytes() as usize;
        let mut ends = vec![start];
        for line in ["1 {}", "2 {\"a\":\"b c\"}", "3 []"] {
            journal.append(line).expect("it is written");
            ends.push(journal.bytes() as usize);
        }
        let mut whole = std::fs::read(&path).expect("a file");
        let end = ends[3];
        assert!(whole.len() > end && whole[end..].iter().all(|byte| *byte == 0), "room is taken");
        whole.truncate(end);
        for cut in start..=whole.len() {
            std::fs::write(&path, &whole[..cut]).expect("a file");
            let mut again = FileJournal::open(&path).expect("a file");
            let count = ends.iter().filter(|end| **end <= cut).count() - 1;
            assert_eq!(again.lines().map(|lines| lines.len()), Ok(count), "{cut}");
            assert_eq!(again.name(), "first");
            again.append("4 {}").expect("it is written");
            assert_eq!(again.lines().map(|lines| lines.len()), Ok(count + 1), "{cut}");
        }
        // Any part of the last line may be missing; of another one it is damage.
        for (line, is_last) in [(2, true), (1, false)] {
            let mut holed = [whole.as_slice(), &[0; 100]].concat();
            holed[ends[line] + 3..ends[line] + 7].fill(0);
            std::fs::write(&path, &holed).expect("a file");
            let lines = FileJournal::open(&path).expect("a file").lines();
            assert_eq!(lines.map(|lines| lines.len()).ok(), is_last.then_some(2));
        }
        std::fs::remove_file(&path).expect("it was there");
    }
}
