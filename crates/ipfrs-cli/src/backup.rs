//! Backups of a repo: directories to which packs and files are copied, and from which a repo is restored.
//!
//! ```text
//! ipfrs-backup          marks the directory, and is locked while it is read or written
//! manifest.json         what belongs to the backup, with a checksum of each file and of itself
//! unfinished.json       packs that a run has copied since; it ends by removing this
//! packs/00000001.car    copies of packs; a pack that has grown is appended to
//! files-1/              pins, roots, records, keys, configuration: copied anew by each run
//! ```
//!
//! A run changes nothing that the manifest names: it appends behind the counted length of packs, and writes all else
//! under new names. Replacing the manifest ends it, and only then are old files removed. So a backup that is killed
//! leaves the previous one, and the next run continues with the packs that were copied.
//!
//! Copies are made by reading and writing, because every byte is hashed on its way. Neither hard links, which would
//! share the damage of a file, nor `copy_file_range`, which shows no bytes, can do that.

mod copier;
mod destination;
mod files;
mod manifest;
mod packs;
mod restore;
mod snapshot;

pub(crate) use copier::Copier;
pub(crate) use destination::Destination;
pub(crate) use files::{Copied as CopiedFiles, Found, copy_files, find};
pub(crate) use manifest::{FORMAT, Manifest, PackEntry};
pub(crate) use packs::{copy_packs, plan};
pub(crate) use restore::{Target, check, restore, verify};
pub(crate) use snapshot::HeldSnapshot;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use ipfrs_interface::sync_directory;

/// File that marks a backup.
pub(crate) const MARKER: &str = "ipfrs-backup";
/// Directory of copied packs.
const PACKS: &str = "packs";

/// Returns the error for a file operation, with the remedy if one is known.
fn cannot(action: &str, path: &Path, error: &io::Error) -> anyhow::Error {
    let remedy = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ": free disk space there and run the command again, which continues; an earlier backup is still valid"
        }
        io::ErrorKind::PermissionDenied => ": run the command as the user of the daemon, or as root",
        io::ErrorKind::ReadOnlyFilesystem => ": mount it writable, or use another directory",
        _ => "",
    };
    anyhow!("cannot {action} {} ({error}){remedy}", path.display())
}

/// Replaces a file durably and as a whole.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let draft = path.with_extension("new");
    let written = create_private(&draft).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        sync_directory(path.parent().unwrap_or(Path::new(".")))
    });
    written.map_err(|e| cannot("write", path, &e))
}

/// Creates or empties a file that only its owner can read.
fn create_private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Creates a directory that only its owner can read, unless it exists.
fn create_directory(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(|e| cannot("create", path, &e))
}

/// Makes everything below a directory durable.
fn sync_below(path: &Path) -> Result<()> {
    #[cfg(target_os = "linux")]
    let synced = File::open(path).and_then(|directory| Ok(rustix::fs::syncfs(directory)?));
    #[cfg(not(target_os = "linux"))]
    let synced = sync_each(path);
    synced.map_err(|e| cannot("sync", path, &e))
}

#[cfg(not(target_os = "linux"))]
fn sync_each(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => sync_each(&entry.path())?,
            false => File::open(entry.path())?.sync_all()?,
        }
    }
    sync_directory(path)
}

/// Checks that a file system has space for so many bytes.
pub(crate) fn check_space(place: &Path, needed: u64) -> Result<()> {
    let free = rustix::fs::statvfs(place).map(|space| space.f_bavail.saturating_mul(space.f_frsize));
    let free = free.map_err(|e| cannot("inspect", place, &e.into()))?;
    if needed > free {
        let (needed, free) = (indicatif::HumanBytes(needed), indicatif::HumanBytes(free));
        bail!(
            "{} has {free} free and {needed} are needed: free disk space there, or use another disk",
            place.display()
        );
    }
    Ok(())
}
