//! Denylist files with the lists that were loaded from them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::list::List;

/// Metadata that identifies one state of a file: device, inode, size, and the times of the last content and status
/// changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Signature {
    dev: u64,
    ino: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Signature {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            dev: metadata.dev(),
            ino: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// A file in its last observed state, and the list that was loaded from it.
#[derive(Debug)]
pub(super) struct Watched {
    /// Index of the source that contains the file.
    pub(super) source: usize,
    pub(super) path: PathBuf,
    /// Signature at the last look; `None` if the file could not be examined.
    pub(super) seen: Option<Signature>,
    /// The rules in force, from this state of the file or an earlier one; `None` if no list has been loaded yet.
    pub(super) list: Option<Arc<List>>,
    /// Why the last attempt to load the file failed.
    pub(super) failure: Option<String>,
}

/// Denylists that were read, to replace those in force.
#[derive(Debug)]
pub struct NewDenylists {
    /// Files and directories, as configured.
    pub(super) sources: Vec<PathBuf>,
    pub(super) watched: Vec<Watched>,
}
