//! Reads of parts of files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Error, FileOffset, Multihash, Result};

use super::reference::{FileState, Record};

/// Reads the part of a file that `record` names, and compares it with the hash of the block. Waits for the disk.
///
/// # Errors
/// The state of the file, unless it is intact.
pub(super) fn read(root: &Path, record: &Record, hash: &Multihash) -> Result<Bytes, FileState> {
    let shown = record.path.display();
    let file = open(&root.join(&record.path)).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => FileState::NoFile(format!("open {shown}: {e}")),
        _ => FileState::Unreadable(format!("open {shown}: {e}")),
    })?;
    let mut data = vec![0; record.len as usize];
    file.read_exact_at(&mut data, record.offset).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => FileState::Changed(format!("{shown} has become shorter")),
        _ => FileState::Unreadable(format!("read {shown}: {e}")),
    })?;
    let is_it = HashFunction::from_code(hash.code()).and_then(|function| function.matches(hash, &data));
    match is_it {
        Ok(true) => Ok(data.into()),
        Ok(false) => {
            let offset = record.offset;
            Err(FileState::Changed(format!("data in file did not match. {shown} offset {offset}")))
        }
        Err(error) => Err(FileState::Unreadable(error.message().to_owned())),
    }
}

/// Opens a regular file. A pipe or a device could block forever.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// A file from which blocks are added.
pub(super) struct Source {
    path: std::sync::Arc<Path>,
    file: File,
    /// Path relative to the root of the filestore.
    pub(super) relative: PathBuf,
}

impl Source {
    /// Opens the file of a part, unless it is that of `last`. Waits for the disk.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a file that does not exist, is not below `root`, or is
    /// not a regular file.
    pub(super) fn of(part: &FileOffset, last: Option<Self>, root: &Path) -> Result<Self> {
        if let Some(last) = last.filter(|last| last.path == part.path) {
            return Ok(last);
        }
        let cannot = |e: io::Error| {
            let shown = part.path.display();
            Error::invalid(format!(
                "cannot create a filestore reference to {shown}: {e} (nocopy needs the path of the file on the machine of \
                 the daemon)"
            ))
        };
        let outside = || {
            let (root, shown) = (root.display(), part.path.display());
            Error::invalid(format!("cannot add filestore references outside ipfs root ({root}): {shown} is not in it"))
        };
        // The path that is stored neither has links nor leads out of the root. A client does not learn whether a file
        // elsewhere exists.
        let is_inside = || {
            let directory = part.path.parent().and_then(|directory| directory.canonicalize().ok());
            directory.is_some_and(|directory| directory.starts_with(root))
        };
        let path = part.path.canonicalize().map_err(|e| if is_inside() { cannot(e) } else { outside() })?;
        let relative = path.strip_prefix(root).map_err(|_| outside())?;
        let file = open(&path).map_err(cannot)?;
        Ok(Self { path: part.path.clone(), relative: relative.to_owned(), file })
    }

    /// Checks that the file has `data` at `offset`. Waits for the disk.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if it does not.
    pub(super) fn check(&self, data: &[u8], offset: u64) -> Result<()> {
        let mut found = vec![0; data.len()];
        match self.file.read_exact_at(&mut found, offset) {
            Ok(()) if found == data => Ok(()),
            Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => {
                Err(Error::io(format_args!("cannot read {}", self.path.display()), e))
            }
            Ok(()) | Err(_) => Err(Error::invalid(format!(
                "cannot create a filestore reference: {} does not contain at offset {offset} what was sent, so it is \
                 another file on the machine of the daemon, or it is being changed",
                self.path.display()
            ))),
        }
    }
}
