//! Finds what is wrong with a file, and writes anew what of it is sound.
//!
//! An entry whose bytes are damaged inside can be left out alone; where the chain of entries itself
//! is broken, nothing behind it can be found.
//!
//! **Invariant:** the original is never written to: the repaired file is made beside it, synced,
//! and takes its place when the original has its new name.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crc_fast::{CrcAlgorithm, Digest};

use super::decode::{Decoder, Limits};
use super::error::{Error, Why};
use super::format::{self, HEADER_BYTES, Version};
use super::reader::{Batch, Checksum, Frame, Framer, Note};

/// One thing that is wrong.
#[derive(Debug)]
pub struct Damage {
    /// What, and where.
    pub error: Error,
    /// The key it belongs to, with the value's type, if it belongs to one.
    pub key: Option<(Vec<u8>, u8)>,
    /// The database.
    pub db: usize,
}

/// What a file holds and what is wrong with it.
#[derive(Debug, Default)]
pub struct Report {
    /// The version in the header.
    pub version: Option<Version>,
    /// Keys that are sound.
    pub keys: u64,
    /// Those with a time to live.
    pub expires: u64,
    /// Those past their time.
    pub expired: u64,
    /// Keys of each type, by the type's number.
    pub kinds: [u64; 32],
    /// Keys that are whole, of types that this server does not know.
    pub foreign: u64,
    /// Everything between keys, with its offset.
    pub notes: Vec<(u64, Note)>,
    /// Bytes of the file that were looked at.
    pub bytes: u64,
    /// What is wrong; nothing if the file is sound.
    pub damages: Vec<Damage>,
    /// Stretches of the file that are sound: header, entries and all between them, no end.
    pub sound: Vec<Range<u64>>,
}

/// More than this many damages are counted, not kept.
const DAMAGES_MAX: usize = 1000;

impl Report {
    fn damaged(&mut self, error: Error, key: Option<(Vec<u8>, u8)>, db: usize) {
        if self.damages.len() < DAMAGES_MAX {
            self.damages.push(Damage { error, key, db });
        }
    }

    fn keep(&mut self, range: Range<u64>) {
        match self.sound.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ if range.is_empty() => {}
            _ => self.sound.push(range),
        }
    }

    fn frame(&mut self, frame: &Frame, batch: &Batch, decoder: &mut Decoder, now_ms: i64) -> bool {
        let mut cursor = batch.cursor(frame);
        let key = cursor.reading("a key").string(&mut decoder.scratch).map(<[u8]>::to_vec);
        let result = match &key {
            Ok(_) => decoder.value(frame.kind, &mut cursor).map(|_| ()),
            Err(_) => Ok(()),
        };
        match (key, result) {
            (Err(error), _) => {
                self.damaged(error, None, frame.db);
                return false;
            }
            (Ok(_), Err(Error { why: Why::Refused(_), .. })) => self.foreign += 1,
            (Ok(key), Err(error)) => {
                self.damaged(error, Some((key, frame.kind)), frame.db);
                return false;
            }
            (Ok(_), Ok(())) => {}
        }
        self.keys += 1;
        self.kinds[usize::from(frame.kind) % 32] += 1;
        self.expires += u64::from(frame.expire_at.is_some());
        self.expired += u64::from(frame.expire_at.is_some_and(|at| at <= now_ms));
        true
    }

    fn batch(&mut self, batch: &Batch, end: u64, decoder: &mut Decoder, now_ms: i64) {
        let mut from = batch.offset(0);
        for frame in &batch.frames {
            if !self.frame(frame, batch, decoder, now_ms) {
                self.keep(from..batch.offset(frame.start));
                from = batch.offset(frame.end);
            }
        }
        self.keep(from..end.max(from));
    }
}

/// Looks through a file of `total` bytes. `now_ms` in milliseconds since 1970.
pub fn check<R: Read>(source: R, total: u64, now_ms: i64) -> Report {
    let mut report = Report { bytes: total, ..Report::default() };
    let mut framer = match Framer::new(source, Some(total), Checksum::Verify) {
        Ok(framer) => framer,
        Err(error) => {
            report.damaged(error, None, 0);
            return report;
        }
    };
    report.version = Some(framer.version());
    report.keep(0..HEADER_BYTES as u64);
    let mut decoder = Decoder::new(Limits::default(), framer.version());
    let mut batch = Batch::default();
    loop {
        let result = framer.batch(&mut batch);
        report.notes.append(&mut framer.notes);
        report.batch(&batch, batch.sound_end(), &mut decoder, now_ms);
        match result {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                let key = framer.broken_key().filter(|_| !framer.is_done());
                let db = framer.db();
                report.damaged(error, key, db);
                break;
            }
        }
    }
    report
}

/// Looks through the file at `path`.
pub fn check_file(path: &Path, now_ms: i64) -> io::Result<Report> {
    let file = File::open(path)?;
    let total = file.metadata()?.len();
    Ok(check(file, total, now_ms))
}

/// Puts what is sound of the file at `path` in its place; returns the name that the original has
/// from now on.
pub fn fix(path: &Path, report: &Report) -> io::Result<PathBuf> {
    let with = |more: &str| {
        let mut name = path.as_os_str().to_os_string();
        name.push(more);
        PathBuf::from(name)
    };
    let temporary = with(&format!(".fixed-{}", std::process::id()));
    let kept = with(".bak");
    if kept.exists() {
        let text = format!("{} is there already", kept.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    let result = write_sound(path, report, &temporary);
    if result.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    result?;
    std::fs::rename(path, &kept)?;
    std::fs::rename(&temporary, path)?;
    Ok(kept)
}

fn write_sound(path: &Path, report: &Report, temporary: &Path) -> io::Result<()> {
    let mut source = BufReader::new(File::open(path)?);
    let mut out = io::BufWriter::new(File::create(temporary)?);
    let mut digest = Digest::new(CrcAlgorithm::Crc64Redis);
    let mut buffer = vec![0; 128 << 10];
    for range in &report.sound {
        source.seek(SeekFrom::Start(range.start))?;
        let mut left = range.end - range.start;
        while left > 0 {
            let step = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            source.read_exact(&mut buffer[..step])?;
            digest.update(&buffer[..step]);
            out.write_all(&buffer[..step])?;
            left -= step as u64;
        }
    }
    digest.update(&[format::OP_EOF]);
    out.write_all(&[format::OP_EOF])?;
    if report.version.is_none_or(Version::has_checksum) {
        out.write_all(&digest.finalize().to_le_bytes())?;
    }
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdb::reader::Use;
    use crate::rdb::writer::{Header, Options, Writer};
    use keyspace::value::ValueRef;

    fn file() -> Vec<u8> {
        let header = Header { redis_version: "7.0.15", ..Header::default() };
        let mut writer = Writer::new(Vec::new(), Options::default(), &header).expect("a Vec");
        for number in 0..10 {
            let key = format!("key:{number}");
            let value = ValueRef::Bytes(b"some value");
            let expire_at = (number == 3).then_some(5);
            writer.entry(0, key.as_bytes(), value, expire_at, Use::Unknown).expect("a Vec");
        }
        writer.finish().expect("a Vec")
    }

    #[test]
    fn sound_files_are_found_sound() {
        let file = file();
        let report = check(&file[..], file.len() as u64, 10);
        assert!(report.damages.is_empty(), "{:?}", report.damages);
        assert_eq!((report.keys, report.expires, report.expired), (10, 1, 1));
        assert_eq!(report.sound, vec![0..file.len() as u64 - 9]);
    }

    #[test]
    fn every_damaged_byte_is_found() {
        let file = file();
        for at in 0..file.len() {
            let mut wrong = file.clone();
            wrong[at] ^= 0x55;
            let report = check(&wrong[..], wrong.len() as u64, 10);
            assert!(!report.damages.is_empty(), "{at}");
            let report = check(&file[..at], at as u64, 10);
            assert_eq!(report.damages.len(), 1, "cut at {at}");
        }
    }

    #[test]
    fn what_is_sound_is_kept() {
        let path = std::env::temp_dir().join(format!("forebay-fix-{}.rdb", std::process::id()));
        let file = file();
        std::fs::write(&path, &file[..file.len() - 20]).expect("a temporary file");
        let report = check_file(&path, 10).expect("there");
        assert_eq!(report.damages.len(), 1);
        let key = report.damages[0].key.as_ref().map(|(key, _)| &key[..]);
        assert_eq!(key, Some(&b"key:9"[..]));
        let kept = fix(&path, &report).expect("room for it");
        let report = check_file(&path, 10).expect("there");
        assert!(report.damages.is_empty(), "{:?}", report.damages);
        assert_eq!(report.keys, 9);
        assert_eq!(std::fs::read(&kept).expect("kept").len(), file.len() - 20);
        let _ = (std::fs::remove_file(&path), std::fs::remove_file(&kept));
    }
}
