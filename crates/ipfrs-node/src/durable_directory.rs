//! Directories in the repo that are created when they are first needed.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::private_file::sync_parent;

/// A directory that may not exist yet. Clones share what is known of it.
#[derive(Debug, Clone)]
pub(crate) struct DurableDirectory {
    path: Arc<Path>,
    mode: u32,
    is_durable: Arc<OnceLock<()>>,
}

impl DurableDirectory {
    pub(crate) fn new(path: PathBuf, mode: u32) -> Self {
        Self { path: path.into(), mode, is_durable: Arc::default() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the directory durably if it does not exist. Blocks on the disk.
    ///
    /// # Errors
    /// The error of the file system.
    pub(crate) fn ensure(&self) -> io::Result<()> {
        if self.is_durable.get().is_some() && self.path.is_dir() {
            return Ok(());
        }
        match DirBuilder::new().mode(self.mode).create(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            // Another task, or a process that crashed, may have created it without making that durable.
            _ => sync_parent(&self.path)?,
        }
        self.is_durable.get_or_init(|| ());
        Ok(())
    }
}
