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
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use ipfrs_interface::sync_directory;
use rustix::process::geteuid;

/// File that marks a backup.
pub(crate) const MARKER: &str = "ipfrs-backup";
/// Directory of copied packs.
const PACKS: &str = "packs";

/// Returns the error for a file operation, with the remedy if one is known.
fn cannot(action: &str, path: &Path, error: &io::Error) -> anyhow::Error {
    let remedy: String = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ": free disk space there and run the command again, which continues; an earlier backup is still valid"
                .into()
        }
        io::ErrorKind::PermissionDenied => permission_remedy(path, geteuid().as_raw()),
        io::ErrorKind::ReadOnlyFilesystem => ": mount it writable, or use another directory".into(),
        _ => String::new(),
    };
    anyhow!("cannot {action} {} ({error}){remedy}", path.display())
}

/// Returns the remedy if `this_user` may not use a path: the user to which it or its directory belongs.
fn permission_remedy(path: &Path, this_user: u32) -> String {
    if this_user == 0 {
        return ": the file system refuses it to root too: use another directory".to_owned();
    }
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let owned =
        |place: &Path| fs::symlink_metadata(place).ok().map(|metadata| (place.display().to_string(), metadata.uid()));
    // A path that does not exist would be created in the directory above it.
    let places = if path.symlink_metadata().is_ok() { 2 } else { 1 };
    let mut existing = path.ancestors().filter_map(owned).take(places);
    match existing.find(|(_, owner)| *owner != this_user) {
        Some((place, 0)) => format!(": {place} belongs to root: run the command as root (sudo)"),
        Some((place, owner)) => {
            format!(": {place} belongs to user {owner}: run the command as that user (sudo -u \\#{owner}), or as root")
        }
        None => ": give this user access (chmod u+rwX), or run the command as root".to_owned(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_for_permissions_names_the_owner() {
        let directory = tempfile::tempdir().unwrap();
        for existing in [Path::new("/"), directory.path()] {
            let owner = fs::metadata(existing).unwrap().uid();
            let path = existing.join("ipfrs-backup-that-does-not-exist");
            let whose = match owner {
                0 => "root: run the command as root (sudo)".to_owned(),
                _ => format!("user {owner}: run the command as that user (sudo -u \\#{owner}), or as root"),
            };
            assert_eq!(permission_remedy(&path, owner + 1), format!(": {} belongs to {whose}", existing.display()));
            let own = permission_remedy(&path, owner);
            assert!(own.contains(if owner == 0 { "another directory" } else { "chmod u+rwX" }), "{own}");
        }
    }
}
