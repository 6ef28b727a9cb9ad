//! The snapshot of a repo while it is copied.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use ipfrs_rpc::types::{RepoSnapshot, SnapshotPack};
use rustix::fs::{FlockOperation, flock};

use super::cannot;

/// A snapshot that this process has locked. Dropping it removes it.
pub(crate) struct HeldSnapshot {
    directory: PathBuf,
    packs: Vec<SnapshotPack>,
    _lock: File,
}

impl HeldSnapshot {
    /// Locks a snapshot that was just taken.
    pub(crate) fn hold(snapshot: RepoSnapshot) -> Result<Self> {
        let directory = PathBuf::from(&snapshot.directory);
        if !directory.is_dir() {
            bail!(
                "the daemon's snapshot {} is not on this machine: run `repo backup` where the daemon runs",
                directory.display()
            );
        }
        let path = Path::new(&snapshot.lock);
        let mut lock = File::options().write(true).open(path).map_err(|e| cannot("open", path, &e))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|e| cannot("lock", path, &e.into()))?;
        writeln!(lock, "{}", std::process::id()).map_err(|e| cannot("write", path, &e))?;
        Ok(Self { directory, packs: snapshot.packs, _lock: lock })
    }

    pub(super) fn packs(&self) -> &[SnapshotPack] {
        &self.packs
    }

    /// Returns the path of a pack.
    pub(super) fn pack(&self, number: u32) -> PathBuf {
        self.directory.join(format!("{number:08}.car"))
    }

    /// Returns the directory, which also has the pins and the root of the mutable files.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for HeldSnapshot {
    fn drop(&mut self) {
        // The daemon removes what is left when gc begins.
        let _ = fs::remove_dir_all(&self.directory);
        if let Some(all) = self.directory.parent() {
            let _ = fs::remove_dir(all);
        }
    }
}
