//! The journal of metered ingest: a file of lines, each with its checksum, flushed to disk before
//! `append` returns.
//!
//! ```text
//! forebay-quota-journal NAME\n
//! 16 hexadecimal digits (CRC-64/NVME of the rest of the line) SPACE line \n
//! ...
//! ```
//!
//! **Invariant:** what does not end in a line feed was never acknowledged, and is cut off; a whole
//! line whose checksum is wrong is damage, and an error.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crc_fast::{CrcAlgorithm, checksum};
use services::quota::journal::Journal;

const HEAD: &str = "forebay-quota-journal";

/// See the module.
pub struct FileJournal {
    path: PathBuf,
    file: File,
    name: String,
    bytes: u64,
    /// Set when a line may have been written in part: nothing can follow it.
    is_torn: bool,
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
        Ok(FileJournal { path, file, name: String::new(), bytes: 0, is_torn: false })
    }

    fn failed(&self, error: &std::io::Error) -> String {
        format!("{}: {error}", self.path.display())
    }

    fn write(&mut self, text: &str) -> std::io::Result<()> {
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
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
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
        self.bytes = 0;
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
        let whole = std::fs::read(&path).expect("a file");
        for cut in start..=whole.len() {
            std::fs::write(&path, &whole[..cut]).expect("a file");
            let mut again = FileJournal::open(&path).expect("a file");
            let count = ends.iter().filter(|end| **end <= cut).count() - 1;
            assert_eq!(again.lines().map(|lines| lines.len()), Ok(count), "{cut}");
            assert_eq!(again.name(), "first");
            again.append("4 {}").expect("it is written");
            assert_eq!(again.lines().map(|lines| lines.len()), Ok(count + 1), "{cut}");
        }
        std::fs::remove_file(&path).expect("it was there");
    }
}
