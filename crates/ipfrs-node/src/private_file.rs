//! Files with private keys and other secrets, which only their owner can read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ipfrs_core::{Error, Result};
use ipfrs_store::sync_directory;
use zeroize::Zeroizing;

/// Maximum size of a file. Key files are far smaller; 10,000 API keys with their names take less.
pub const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;

/// Extension of a file that is being written.
const DRAFT: &str = "new";

/// Permission bits of the group and of others.
const OTHERS: u32 = 0o077;

/// Policy for a secret that users other than its owner can access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposed {
    /// Refuse to use it, as ssh does.
    Refuse,
    /// Log a warning.
    Warn,
}

/// Reads a file with a secret. Returns `None` if it does not exist. Blocks on the disk.
///
/// # Errors
/// [`ErrorKind::Internal`](ipfrs_core::ErrorKind::Internal) if other users can access it and `exposed` is
/// [`Exposed::Refuse`], because no right of a caller would change that; otherwise the error of the file system.
pub fn read_private(path: &Path, exposed: Exposed) -> Result<Option<Zeroizing<Vec<u8>>>> {
    let cannot = |e| Error::io(format_args!("cannot read {}", path.display()), e);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(cannot(e)),
    };
    let metadata = file.metadata().map_err(cannot)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & OTHERS != 0 {
        let file = path.display();
        if exposed == Exposed::Refuse {
            // Clients receive this message, so it must not reveal the location of the repo.
            let name = path.file_name().unwrap_or_default().display();
            let what = format!("{name} in the repo is a secret that other users can access (mode {mode:04o})");
            return Err(Error::internal(format!("{what}, and is not used: run chmod 600 on it")));
        }
        tracing::warn!(%file, mode = format!("{mode:04o}"), "other users can access a private key: run chmod 600");
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(metadata.len().min(MAX_FILE_BYTES) as usize));
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(Error::corrupt(format!("{} has more than {MAX_FILE_BYTES} bytes", path.display())));
    }
    Ok(Some(bytes))
}

/// Writes a file with a secret, durably and atomically. Only its owner can read it. Blocks on the disk.
///
/// # Errors
/// The error of the file system. The file is as it was, or has the new content although that may not be durable.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_with_mode(path, bytes, 0o600)
}

/// Same as [`write_private`], with another mode.
pub(crate) fn write_with_mode(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".");
    draft.push(DRAFT);
    // A draft that a crash left behind could have another mode.
    match fs::remove_file(&draft) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // A secret must not stay there.
        let _ = fs::remove_file(&draft);
    }
    written.and_then(|()| sync_parent(path))
}

/// Removes what writes to a directory that a crash ended have left, and which may be secrets. Blocks on the disk.
#[cfg(feature = "keys")]
pub(crate) fn remove_drafts(directory: &Path) {
    // There may be no such directory, and a draft that stays is tried again at the next start.
    for path in fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == DRAFT) {
            let _ = fs::remove_file(path);
        }
    }
}

pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync_directory)
}
