//! The one place that opens data files: what the append-only file and the snapshots need of a file
//! system, the real one, and one that fails on purpose.
//!
//! **Invariant:** positions are given by the caller: no file has a cursor, so a write that failed
//! or fell short can be done again at the same place.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// To be read; it must be there.
    Read,
    /// To be read and written; it must be there.
    Update,
    /// To be read and written; made empty or made anew.
    Create,
}

/// An open data file.
pub trait DataFile: Send + Sync {
    /// Reads at a place, in bytes from the start; 0 at the end.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes at a place; may write less than all.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;
    /// Makes the contents and the length safe (`fdatasync`).
    fn sync(&self) -> io::Result<()>;
    /// Cuts the file to a length, in bytes.
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// Its length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Writes all at a place. `Err` tells how far it came with the reason.
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.write_at(&bytes[done..], at + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A file system, as far as data files need it.
pub trait Disk: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DataFile>>;
    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The names in a folder.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;
    /// Makes a folder, if it is not there.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;
    /// Makes the names in a folder safe.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// A file's length in bytes.
    fn len(&self, path: &Path) -> io::Result<u64>;
    /// The same file system for small readings of whole files.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path, Open::Read)?;
        let mut bytes = vec![0; file.len()? as usize];
        let mut done = 0;
        while done < bytes.len() {
            match file.read_at(&mut bytes[done..], done as u64)? {
                0 => break,
                count => done += count,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }
}

/// The real file system.
#[derive(Debug, Default, Clone, Copy)]
pub struct RealDisk;

struct RealFile(fs::File);

impl DataFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.0.write_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DataFile>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).mode(0o644);
        match how {
            Open::Read => {}
            Open::Update => drop(options.write(true)),
            Open::Create => drop(options.write(true).create(true).truncate(true)),
        }
        Ok(Box::new(RealFile(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.file_name()));
        names.map(|name| Ok(name?.to_string_lossy().into_owned())).collect()
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        match fs::create_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
            other => other,
        }
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        fs::File::open(folder)?.sync_all()
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }
}

/// What may fail in a [`FailingDisk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A file is opened for writing.
    Open,
    /// Bytes are written.
    Write,
    /// A file is made safe.
    Sync,
    /// A file is cut.
    Truncate,
    /// A file gets another name.
    Rename,
    /// A folder is made safe.
    SyncFolder,
}

/// How it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done; the error is this number of the system's.
    Error(i32),
    /// Half of the bytes are written and the call says so.
    Short,
    /// Half of the bytes are written, then the error comes.
    Torn(i32),
}

/// What fails when.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Calls of this kind are counted; `None` counts all.
    pub call: Option<Call>,
    /// The first of them to fail, from 0.
    pub first: u64,
    /// How many fail one after the other.
    pub count: u64,
    /// How.
    pub fault: Fault,
}

#[derive(Debug, Default)]
struct Faults {
    plan: Option<Plan>,
    seen: u64,
    failed: u64,
}

/// A file system that fails as planned, over the real one. For tests.
#[derive(Debug, Clone, Default)]
pub struct FailingDisk {
    faults: std::sync::Arc<Mutex<Faults>>,
}

impl FailingDisk {
    /// Fails by this plan from now on; counting starts anew.
    pub fn set(&self, plan: Option<Plan>) {
        *self.lock() = Faults { plan, seen: 0, failed: 0 };
    }

    /// How many calls have been seen and have failed since [`FailingDisk::set`].
    pub fn counts(&self) -> (u64, u64) {
        let faults = self.lock();
        (faults.seen, faults.failed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn fault(&self, call: Call) -> Option<Fault> {
        let mut faults = self.lock();
        let plan = faults.plan?;
        if plan.call.is_some_and(|planned| planned != call) {
            return None;
        }
        let index = faults.seen;
        faults.seen += 1;
        let hits = index >= plan.first && index - plan.first < plan.count;
        faults.failed += u64::from(hits);
        hits.then_some(plan.fault)
    }

    fn check(&self, call: Call) -> io::Result<()> {
        match self.fault(call) {
            Some(Fault::Error(code) | Fault::Torn(code)) => Err(io::Error::from_raw_os_error(code)),
            Some(Fault::Short) | None => Ok(()),
        }
    }
}

struct FailingFile {
    disk: FailingDisk,
    file: Box<dyn DataFile>,
}

impl DataFile for FailingFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let half = bytes.len() / 2;
        match self.disk.fault(Call::Write) {
            None => self.file.write_at(bytes, at),
            Some(Fault::Error(code)) => Err(io::Error::from_raw_os_error(code)),
            Some(Fault::Short) if half > 0 => self.file.write_at(&bytes[..half], at),
            Some(Fault::Short) => self.file.write_at(bytes, at),
            Some(Fault::Torn(code)) => {
                self.file.write_at(&bytes[..half], at)?;
                Err(io::Error::from_raw_os_error(code))
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.check(Call::Sync)?;
        self.file.sync()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.disk.check(Call::Truncate)?;
        self.file.truncate(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

impl Disk for FailingDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DataFile>> {
        if how != Open::Read {
            self.check(Call::Open)?;
        }
        let file = RealDisk.open(path, how)?;
        Ok(Box::new(FailingFile { disk: self.clone(), file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Call::Rename)?;
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(folder)
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        RealDisk.make_folder(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.check(Call::SyncFolder)?;
        RealDisk.sync_folder(folder)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        RealDisk.len(path)
    }
}
