//! The files of an append-only file: its folder, its manifest, and the changes that a start and a
//! rewrite make to them, each safe against a crash at any point.
//!
//! ```text
//! appendonlydir/appendonly.aof.manifest      which files, replaced whole: temp file, sync, rename
//!              /appendonly.aof.1.base.rdb    named in the manifest only once it is whole and safe
//!              /appendonly.aof.1.incr.aof    named before the first byte is written to it
//! ```
//!
//! **Invariant:** what the manifest on disk names, read in order, is every acknowledged write: the
//! manifest changes only after the files it will name are safe.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::log::Target;
use super::manifest::{Manifest, ManifestError, Member, Part};
use crate::disk::{Disk, Open};

/// The increment that gathers what is written until the first rewrite is done.
const TEMP_INCREMENT: &str = "temp-";

/// See the module.
pub struct Files {
    disk: Arc<dyn Disk>,
    /// The server's folder, where old single files lie.
    dir: PathBuf,
    folder: PathBuf,
    file_name: String,
    manifest: Manifest,
}

/// Why the files cannot be used.
#[derive(Debug)]
pub enum FilesError {
    /// The manifest makes no sense.
    Manifest(ManifestError),
    /// The system refused something.
    Io(String, io::Error),
}

impl std::fmt::Display for FilesError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FilesError::Manifest(error) if error.line_number > 0 => {
                let ManifestError { text, line_number, line } = error;
                write!(f, "{text} (the manifest's line {line_number}: '{line}')")
            }
            FilesError::Manifest(error) => f.write_str(error.text),
            FilesError::Io(what, error) => write!(f, "{what}: {}", error_text(error)),
        }
    }
}

/// The system's words for an error, without its number.
fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

fn io_error(what: String) -> impl FnOnce(io::Error) -> FilesError {
    move |error| FilesError::Io(what, error)
}

/// Where writes have gone since the instant of a rewrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// Nowhere: the log is off.
    Nowhere,
    /// To the last increment.
    Increment,
    /// To an increment that gets its number only now.
    Unnumbered,
}

impl Files {
    /// Reads the manifest, if there is one; an old single file becomes the base. Nothing is made
    /// yet where nothing is there.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        folder_name: &str,
        file_name: &str,
    ) -> Result<Files, FilesError> {
        let mut files = Files {
            disk,
            dir: dir.to_path_buf(),
            folder: dir.join(folder_name),
            file_name: file_name.to_string(),
            manifest: Manifest::default(),
        };
        let path = files.manifest_path();
        let found = match files.disk.read(&path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                let what = format!("can't open the AOF manifest file {}", path.display());
                return Err(FilesError::Io(what, error));
            }
        };
        if let Some(bytes) = found {
            files.manifest = Manifest::parse(&bytes).map_err(FilesError::Manifest)?;
        }
        files.adopt_single_file()?;
        Ok(files)
    }

    /// Moves a file of the time before manifests into the folder, as Redis 7 does
    /// (`aofUpgradePrepare`), also where that was interrupted.
    fn adopt_single_file(&mut self) -> Result<(), FilesError> {
        let old = self.dir.join(&self.file_name);
        let is_there = self.disk.len(&old).is_ok() && !old.is_dir();
        let is_interrupted = self.manifest.increments.is_empty()
            && self.manifest.base.as_ref().is_some_and(|base| base.name == self.file_name)
            && self.disk.len(&self.folder.join(&self.file_name)).is_err();
        if !is_there || !(self.manifest.is_empty() || is_interrupted) {
            return Ok(());
        }
        self.make_folder()?;
        if self.manifest.is_empty() {
            let mut manifest = self.manifest.clone();
            manifest.adopt_base(&self.file_name);
            self.save(manifest)?;
        }
        let new = self.folder.join(&self.file_name);
        let what = format!("Error trying to move the old AOF file {} into dir", old.display());
        self.disk.rename(&old, &new).map_err(io_error(what))?;
        self.sync_folder()?;
        tracing::info!(
            "Successfully migrated an old-style AOF file ({}) into the AOF directory ({}).",
            self.file_name,
            self.folder.display()
        );
        Ok(())
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Where a file lies.
    pub fn path(&self, member: &Member) -> PathBuf {
        self.folder.join(&member.name)
    }

    /// Where a temporary file lies.
    pub fn temp_path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Where the manifest lies.
    pub fn manifest_path(&self) -> PathBuf {
        self.folder.join(format!("{}.manifest", self.file_name))
    }

    /// The file system.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The bytes of the files to load.
    pub fn total_bytes(&self) -> u64 {
        let sizes = self.manifest.live().map(|one| self.disk.len(&self.path(one)).unwrap_or(0));
        sizes.sum()
    }

    /// Makes the folder, if it is not there.
    pub fn make_folder(&self) -> Result<(), FilesError> {
        let what = format!("Can't open or create append-only dir {}", self.folder.display());
        self.disk.make_folder(&self.folder).map_err(io_error(what))
    }

    fn sync_folder(&self) -> Result<(), FilesError> {
        let what = format!("Fail to fsync AOF directory {}", self.folder.display());
        self.disk.sync_folder(&self.folder).map_err(io_error(what))
    }

    /// Puts another manifest in place, on disk first.
    fn save(&mut self, manifest: Manifest) -> Result<(), FilesError> {
        let path = self.manifest_path();
        let temp = self.folder.join(format!("{TEMP_INCREMENT}{}.manifest", self.file_name));
        let what = || format!("Error trying to write the AOF manifest file {}", path.display());
        self.write_file(&temp, &manifest.text()).map_err(io_error(what()))?;
        self.disk.rename(&temp, &path).map_err(io_error(what()))?;
        // From here on readers see the new one, whether or not the folder can be synced.
        self.manifest = manifest;
        self.sync_folder()
    }

    fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = self.disk.open(path, Open::Create)?;
        file.write_all_at(bytes, 0)?;
        file.sync()
    }

    /// At start: makes the base, whose contents `empty_base` are, if there is nothing yet; opens
    /// the last increment, or makes one.
    pub fn open_at_start(
        &mut self,
        suffix: &str,
        empty_base: impl FnOnce() -> Vec<u8>,
    ) -> Result<Target, FilesError> {
        self.make_folder()?;
        let mut manifest = self.manifest.clone();
        if self.manifest.is_empty() {
            let name = manifest.new_base(&self.file_name, suffix).name.clone();
            let path = self.folder.join(&name);
            tracing::info!("Creating AOF base file {name} on server start");
            let what = format!("Can't write the AOF base file {}", path.display());
            self.write_file(&path, &empty_base()).map_err(io_error(what))?;
        }
        if let Some(last) = manifest.increments.last() {
            let path = self.path(last);
            let what = format!("Can't open the append-only file {}", path.display());
            tracing::info!("Opening AOF incr file {} on server start", last.name);
            let file = self.disk.open(&path, Open::Update).map_err(io_error(what.clone()))?;
            let len = file.len().map_err(io_error(what))?;
            return Ok(Target { file, len });
        }
        let member = manifest.new_increment(&self.file_name).clone();
        tracing::info!("Creating AOF incr file {} on server start", member.name);
        let target = self.create(&self.path(&member))?;
        self.save(manifest)?;
        Ok(target)
    }

    fn create(&self, path: &Path) -> Result<Target, FilesError> {
        let what = format!("Can't open the append-only file {}", path.display());
        let file = self.disk.open(path, Open::Create).map_err(io_error(what.clone()))?;
        file.sync().map_err(io_error(what))?;
        Ok(Target { file, len: 0 })
    }

    /// A rewrite begins: the increment that takes what is written from its instant on.
    pub fn begin_increment(&mut self) -> Result<Target, FilesError> {
        self.make_folder()?;
        let mut manifest = self.manifest.clone();
        let member = manifest.new_increment(&self.file_name).clone();
        let target = self.create(&self.path(&member))?;
        self.save(manifest)?;
        tracing::info!("Creating AOF incr file {} on background rewrite", member.name);
        Ok(target)
    }

    fn temp_increment(&self) -> PathBuf {
        self.folder.join(format!("{TEMP_INCREMENT}{}.incr", self.file_name))
    }

    /// The first rewrite begins, at run time: its increment has no number before it is done.
    pub fn begin_temp_increment(&mut self) -> Result<Target, FilesError> {
        self.make_folder()?;
        self.create(&self.temp_increment())
    }

    /// Removes that increment.
    pub fn drop_temp_increment(&self) {
        let path = self.temp_increment();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        tracing::info!("Removing the temp incr aof file {name} in the background");
        let _ = self.disk.remove(&path);
    }

    /// A rewrite is done: its base, safe under a temporary name, becomes the base; what came before
    /// its instant becomes history. `log` is where writes have gone since that instant.
    pub fn finish_rewrite(
        &mut self,
        temp_base: &Path,
        suffix: &str,
        log: Since,
    ) -> Result<(), FilesError> {
        let mut manifest = self.manifest.clone();
        let base = manifest.new_base(&self.file_name, suffix).clone();
        let path = self.path(&base);
        let what = format!(
            "Error trying to rename the temporary AOF base file {} into {}",
            temp_base.display(),
            path.display()
        );
        self.disk.rename(temp_base, &path).map_err(io_error(what))?;
        if log == Since::Unnumbered {
            let member = manifest.new_increment(&self.file_name).clone();
            let (from, to) = (self.temp_increment(), self.path(&member));
            let what = "Error trying to rename the temporary AOF incr file".to_string();
            let renamed = self.disk.rename(&from, &to).map_err(io_error(what));
            if let Err(error) = renamed {
                let _ = self.disk.remove(&path);
                return Err(error);
            }
        }
        // What has not been logged since is not in the increments: then they all are of the past,
        // and the last one, too, would be replayed on top of what came later.
        manifest.retire_increments(usize::from(log != Since::Nowhere));
        self.save(manifest)?;
        tracing::info!("Successfully renamed the temporary AOF base file into {}", base.name);
        Ok(())
    }

    /// Removes the files of the past.
    pub fn remove_history(&mut self) -> Result<(), FilesError> {
        if self.manifest.history.is_empty() {
            return Ok(());
        }
        let history = self.manifest.history.clone();
        let mut manifest = self.manifest.clone();
        manifest.history.clear();
        self.save(manifest)?;
        for member in history {
            tracing::info!("Removing the history file {} in the background", member.name);
            let removed = self.disk.remove(&self.path(&member));
            if let Err(error) = removed
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!("cannot remove {}: {}", member.name, error_text(&error));
            }
        }
        Ok(())
    }

    /// Removes what rewrites that did not come to their end have left.
    pub fn remove_leftovers(&self) {
        let Ok(names) = self.disk.list(&self.folder) else { return };
        let is_ours = |name: &String| {
            name.starts_with("temp-rewriteaof-")
                || *name == format!("{TEMP_INCREMENT}{}.incr", self.file_name)
                || *name == format!("{TEMP_INCREMENT}{}.manifest", self.file_name)
        };
        for name in names.iter().filter(|name| is_ours(name)) {
            let _ = self.disk.remove(&self.folder.join(name));
        }
    }
}

/// Whether a member is the last of those to load.
pub fn is_last(manifest: &Manifest, member: &Member) -> bool {
    manifest.live().last() == Some(member) && member.part != Part::History
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("forebay-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the temporary folder can be written");
        path
    }

    fn text(files: &Files) -> String {
        String::from_utf8(std::fs::read(files.manifest_path()).expect("it is there")).expect("text")
    }

    #[test]
    fn a_rewrite_retires_what_it_replaces() {
        let dir = folder("rewrite");
        let open = || Files::open(Arc::new(RealDisk), &dir, "d", "a.aof").expect("it can be read");
        let mut files = open();
        files.open_at_start("rdb", Vec::new).expect("it can be written");
        assert_eq!(
            text(&files),
            "file a.aof.1.base.rdb seq 1 type b\nfile a.aof.1.incr.aof seq 1 type i\n"
        );
        files.begin_increment().expect("it can be written");
        let temp = files.temp_path("temp-rewriteaof-bg-1.aof");
        std::fs::write(&temp, b"x").expect("it can be written");
        files.finish_rewrite(&temp, "aof", Since::Increment).expect("it can be renamed");
        let mut again = open();
        assert_eq!(again.manifest().history.len(), 2);
        again.remove_history().expect("they can be removed");
        let want = "file a.aof.2.base.aof seq 2 type b\nfile a.aof.2.incr.aof seq 2 type i\n";
        assert_eq!(text(&again), want);
        let mut names = RealDisk.list(&dir.join("d")).expect("it is there");
        names.sort();
        assert_eq!(names, ["a.aof.2.base.aof", "a.aof.2.incr.aof", "a.aof.manifest"]);
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }

    #[test]
    fn an_old_file_moves_in() {
        let dir = folder("old");
        std::fs::write(dir.join("a.aof"), b"*1\r\n$8\r\nFLUSHALL\r\n").expect("it can be written");
        let mut files = Files::open(Arc::new(RealDisk), &dir, "d", "a.aof").expect("it is read");
        files.open_at_start("rdb", || unreachable!("there is a base")).expect("it can be written");
        assert_eq!(text(&files), "file a.aof seq 1 type b\nfile a.aof.1.incr.aof seq 1 type i\n");
        assert!(!dir.join("a.aof").exists() && dir.join("d/a.aof").exists());
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }
}
