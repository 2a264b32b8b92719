//! An RDB file that is written from outside of a keyspace: under another name until it is whole.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::snapshot::temporary_beside;
use super::writer::{Header, Options, Writer};

/// A file that is being written; dropped before [`NewFile::finish`], it is gone.
pub struct NewFile {
    /// Takes the entries.
    pub writer: Option<Writer<File>>,
    temporary: PathBuf,
    path: PathBuf,
}

impl NewFile {
    /// Begins a file that will have this name.
    pub fn create(path: &Path, options: Options, header: &Header<'_>) -> io::Result<NewFile> {
        let temporary = temporary_beside(path);
        let writer = Writer::new(File::create(&temporary)?, options, header)?;
        Ok(NewFile { writer: Some(writer), temporary, path: path.to_path_buf() })
    }

    /// Ends the file, makes it safe, and gives it its name.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some(writer) = self.writer.take() {
            writer.finish()?.sync_all()?;
            std::fs::rename(&self.temporary, &self.path)?;
        }
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.writer.is_some() {
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Opens a file to read it; with its length in bytes.
pub fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = File::open(path)?;
    let total = file.metadata()?.len();
    Ok((file, total))
}
