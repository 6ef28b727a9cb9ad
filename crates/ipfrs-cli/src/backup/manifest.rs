//! The manifest: what belongs to a backup.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::copier::Sum;
use super::{cannot, replace};

/// Version of the format.
pub(crate) const FORMAT: u32 = 1;
/// Name of the file.
const FILE: &str = "manifest.json";
/// File with the packs that an unfinished run has copied.
const UNFINISHED: &str = "unfinished.json";

/// Content of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub(crate) format: u32,
    /// Program and version that wrote it.
    pub(crate) program: String,
    /// Time of the snapshot in RFC 3339.
    pub(crate) created: String,
    /// Peer ID of the repo.
    pub(crate) peer_id: String,
    /// Directory of the repo.
    pub(crate) repo: String,
    /// Directory of the store, relative to the repo; absolute if it is elsewhere. `None` if it is the repo.
    pub(crate) store: Option<String>,
    /// Whether private keys and API keys are included.
    pub(crate) has_keys: bool,
    pub(crate) packs: Vec<PackEntry>,
    /// Directory of the copied files.
    pub(crate) files_directory: String,
    pub(crate) files: Vec<FileEntry>,
}

/// A copied pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PackEntry {
    pub(crate) number: u32,
    /// Name of the copy, which may be longer.
    pub(crate) file: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    pub(crate) source: Source,
}

/// A copied file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileEntry {
    /// Path in the repo or the store.
    pub(crate) path: String,
    /// Whether the file belongs into the directory of the store.
    pub(crate) in_store: bool,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    /// Permission bits.
    pub(crate) mode: u32,
    pub(crate) source: Source,
}

/// Identity and state of the original: a file that has the same one has not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    device: u64,
    inode: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// The same of the metadata; `None` for packs, which get and lose names.
    changed: Option<(i64, i64)>,
}

impl Source {
    pub(super) fn of_pack(metadata: &fs::Metadata) -> Self {
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Self { device: metadata.dev(), inode: metadata.ino(), modified, changed: None }
    }

    pub(super) fn of_file(metadata: &fs::Metadata) -> Self {
        Self { changed: Some((metadata.ctime(), metadata.ctime_nsec())), ..Self::of_pack(metadata) }
    }
}

/// The file: the manifest with its checksum.
#[derive(Debug, Serialize, Deserialize)]
struct Sealed<T> {
    sha256: String,
    backup: T,
}

/// The field that is read first.
#[derive(Debug, Deserialize)]
struct Format {
    format: u32,
}

impl Manifest {
    /// Reads the manifest of a backup. Returns `None` if no run has ended yet.
    pub(super) fn read(backup: &Path) -> Result<Option<Self>> {
        let path = backup.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(cannot("read", &path, &e)),
        };
        let damaged = || format!("{} is damaged: restore it from a copy, or begin a new backup", path.display());
        let format: Sealed<Format> = serde_json::from_slice(&text).with_context(damaged)?;
        if format.backup.format != FORMAT {
            bail!(
                "the backup in {} has format {}, and this program reads format {FORMAT}: use the version of ipfrs-cli that \
                 wrote it, or a newer one",
                backup.display(),
                format.backup.format
            );
        }
        let sealed: Sealed<Self> = serde_json::from_slice(&text).with_context(damaged)?;
        if sealed.sha256 != Sum::of(&serde_json::to_vec(&sealed.backup)?) {
            bail!("{} (its checksum does not match)", damaged());
        }
        sealed.backup.check().with_context(damaged)?;
        Ok(Some(sealed.backup))
    }

    /// Replaces the manifest of a backup durably.
    pub(super) fn write(&self, backup: &Path) -> Result<()> {
        write(&backup.join(FILE), self)
    }

    /// Whether the backup has a file of the repo with this name.
    pub(crate) fn has_file(&self, name: &str) -> bool {
        self.files.iter().any(|file| file.path == name && !file.in_store)
    }

    /// Returns the total of all bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let packs = self.packs.iter().map(|pack| pack.bytes);
        packs.chain(self.files.iter().map(|file| file.bytes)).sum()
    }

    /// Checks that no name leads out of the directories, and that none occurs twice.
    fn check(&self) -> Result<()> {
        let mut seen = BTreeSet::new();
        let names = self.packs.iter().map(|pack| &pack.file).chain([&self.files_directory]);
        for name in names {
            if !is_inside(name) || name.contains('/') || !seen.insert((None, name.as_str())) {
                bail!("it names {name:?}");
            }
        }
        for FileEntry { path, in_store, .. } in &self.files {
            if !is_inside(path) || !seen.insert((Some(*in_store), path)) {
                bail!("it names {path:?}");
            }
        }
        let numbers: BTreeSet<_> = self.packs.iter().map(|pack| pack.number).collect();
        if numbers.len() != self.packs.len() || numbers.contains(&0) {
            bail!("it has a pack twice");
        }
        match &self.store {
            Some(store) if !Path::new(store).is_absolute() && !is_inside(store) => bail!("it names {store:?}"),
            _ => Ok(()),
        }
    }
}

/// Whether a path consists of names alone.
fn is_inside(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|component| matches!(component, Component::Normal(_)))
}

/// Reads the packs that an unfinished run has copied. A file that cannot be used only costs time.
pub(super) fn read_unfinished(backup: &Path) -> Vec<PackEntry> {
    let text = fs::read(backup.join(UNFINISHED)).unwrap_or_default();
    let Ok(sealed) = serde_json::from_slice::<Sealed<Vec<PackEntry>>>(&text) else { return Vec::new() };
    let is_sound = serde_json::to_vec(&sealed.backup).is_ok_and(|text| Sum::of(&text) == sealed.sha256);
    let packs = if is_sound { sealed.backup } else { Vec::new() };
    packs.into_iter().filter(|pack| is_inside(&pack.file) && !pack.file.contains('/')).collect()
}

pub(super) fn write_unfinished(backup: &Path, packs: &[PackEntry]) -> Result<()> {
    write(&backup.join(UNFINISHED), &packs)
}

pub(super) fn remove_unfinished(backup: &Path) -> io::Result<()> {
    match fs::remove_file(backup.join(UNFINISHED)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn write<T: Serialize>(path: &Path, backup: &T) -> Result<()> {
    let sealed = Sealed { sha256: Sum::of(&serde_json::to_vec(backup)?), backup };
    let mut text = serde_json::to_vec_pretty(&sealed)?;
    text.push(b'\n');
    replace(path, &text)
}
