//! The root on the disk: `mutable-files.root`, the content ID of the last flushed root.

use std::fs::{self, File};
use std::io::{ErrorKind as Io, Read, Write};
use std::path::{Path, PathBuf};

use ipfrs_core::{Cid, Error, Result, parse_cid};

/// Name of the file in the directory of the store.
const FILE: &str = "mutable-files.root";
/// Extension of an incomplete file.
const DRAFT: &str = "root-new";
/// Maximum length of the file, in bytes. Longer ones hold something else.
const MAX_BYTES: u64 = 1_024;

/// File with the root. It is replaced atomically. All methods block on the disk.
#[derive(Debug, Clone)]
pub(crate) struct RootFile {
    path: PathBuf,
}

impl RootFile {
    /// Returns the file in the directory of a store.
    pub(crate) fn new(dir: &Path) -> Self {
        Self { path: dir.join(FILE) }
    }

    /// Returns the root, or `None` if none was written.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind) if the file holds no content ID; otherwise the error of the file
    /// system.
    pub(crate) fn read(&self) -> Result<Option<Cid>> {
        let cannot = |e| Error::io(format_args!("cannot read {}", self.path.display()), e);
        let mut text = String::new();
        match File::open(&self.path) {
            Ok(file) => file.take(MAX_BYTES).read_to_string(&mut text).map_err(cannot)?,
            Err(e) if e.kind() == Io::NotFound => return Ok(None),
            Err(e) => return Err(cannot(e)),
        };
        parse_cid(text.trim()).map(Some).map_err(|e| {
            let path = self.path.display();
            let message = format!("{path} is damaged: write the content ID of a directory into it, or remove it");
            Error::corrupt(message).with_source(e)
        })
    }

    /// Writes the root durably. A crash leaves either the old or the new one.
    ///
    /// # Errors
    /// The error of the file system.
    pub(crate) fn write(&self, root: &Cid) -> Result<()> {
        let draft = self.path.with_extension(DRAFT);
        let written = File::create(&draft).and_then(|mut file| {
            writeln!(file, "{root}")?;
            file.sync_all()?;
            fs::rename(&draft, &self.path)
        });
        if written.is_err() {
            // A partial draft is useless.
            let _ = fs::remove_file(&draft);
        }
        let synced = written.and_then(|()| match self.path.parent() {
            Some(dir) => File::open(dir)?.sync_all(),
            None => Ok(()),
        });
        synced.map_err(|e| Error::io(format_args!("cannot write {}", self.path.display()), e))
    }
}
