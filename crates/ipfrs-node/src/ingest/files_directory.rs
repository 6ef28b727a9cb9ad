//! The directory of objects that are files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;

use crate::durable_directory::DurableDirectory;

/// Maximum number of files, so that counting them takes little time.
const MAX_FILES: usize = 100_000;

/// The directory and the size of its files. Clones share it. All methods block on the disk.
#[derive(Debug, Clone)]
pub(super) struct FilesDirectory {
    directory: DurableDirectory,
    max_bytes: u64,
    used: Arc<Mutex<Option<u64>>>,
}

impl FilesDirectory {
    pub(super) fn new(path: PathBuf, max_bytes: u64) -> Self {
        Self { directory: DurableDirectory::new(path, 0o700), max_bytes, used: Arc::default() }
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Creates the directory, readable only by the owner, if it does not exist.
    pub(super) fn create(&self) -> Result<()> {
        let cannot = |e| Error::io(format_args!("cannot create {}", self.path().display()), e);
        self.directory.ensure().map_err(cannot)
    }

    /// Adds to the size of all files.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if that is over the limit, or there are too many files.
    pub(super) fn reserve(&self, bytes: u64) -> Result<()> {
        let mut used = self.used.lock();
        let fits = |used: u64| used.saturating_add(bytes) <= self.max_bytes;
        // Files that someone has removed are noticed when the limit is reached.
        let total = match *used {
            Some(total) if fits(total) => total,
            _ => self.count()?,
        };
        if !fits(total) {
            *used = Some(total);
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!(
                    "the objects in {} would be over {} bytes (ingest.max_files_bytes): remove files there",
                    self.path().display(),
                    self.max_bytes
                ),
            ));
        }
        *used = Some(total + bytes);
        Ok(())
    }

    /// Subtracts from the size of all files.
    pub(super) fn release(&self, bytes: u64) {
        if let Some(used) = self.used.lock().as_mut() {
            *used = used.saturating_sub(bytes);
        }
    }

    /// Returns the size of all files.
    fn count(&self) -> Result<u64> {
        let cannot = |e| Error::io(format_args!("cannot list {}", self.path().display()), e);
        let mut total = 0_u64;
        for (number, entry) in fs::read_dir(self.path()).map_err(cannot)?.enumerate() {
            if number >= MAX_FILES {
                let text = format!("{} has {MAX_FILES} files: remove some", self.path().display());
                return Err(Error::new(ErrorKind::NoSpace, text));
            }
            match entry.map_err(cannot)?.metadata() {
                Ok(metadata) => total = total.saturating_add(metadata.len()),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(cannot(e)),
            }
        }
        Ok(total)
    }
}
