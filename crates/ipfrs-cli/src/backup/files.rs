//! Copying of everything except packs: pins, roots, records, keys, configuration, ingested objects.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::copier::{Named, Sum};
use super::manifest::{FileEntry, Source};
use super::{Copier, Destination, cannot, create_directory, create_private};

/// Entries of the repo and of the store that are not copied: what the snapshot has, what is derived from it, and what
/// belongs to the running process. `fetched` does not match older packs. Unfinished uploads begin again.
const LEFT_OUT: [&str; 14] = [
    "packs",
    "index",
    "index.redb",
    "pins.redb",
    "mutable-files.root",
    "mutable-files.root-new",
    "filestore.redb",
    "fetched",
    "snapshots",
    "uploads",
    "lock",
    "api",
    "api-token",
    "gateway",
];

/// Entries of the repo with private keys, API keys and certificates, and the peer ID that such a key belongs to.
const SECRETS: [&str; 7] =
    ["identity.key", "identity.peer-id", "keystore", "auth", "tls", "acme", "pinning-services.json"];

/// Maximum depth of directories in the repo.
const MAX_DEPTH: usize = 16;

/// A file to copy.
#[derive(Debug)]
pub(crate) struct Found {
    path: PathBuf,
    /// Path in the repo or the store.
    name: String,
    in_store: bool,
    bytes: u64,
}

impl Found {
    /// Returns a file of the store, which may lie elsewhere now.
    pub(crate) fn in_store(path: PathBuf, name: &str) -> Result<Option<Self>> {
        match fs::metadata(&path) {
            Ok(metadata) => Ok(Some(Self { path, name: name.to_owned(), in_store: true, bytes: metadata.len() })),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(cannot("find", &path, &e)),
        }
    }

    /// Returns a file that lies elsewhere and is restored to the repo as `name`.
    pub(crate) fn in_repo(path: PathBuf, name: &str) -> Result<Self> {
        let metadata = fs::metadata(&path).map_err(|e| cannot("find", &path, &e))?;
        Ok(Self { path, name: name.to_owned(), in_store: false, bytes: metadata.len() })
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == name
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Outcome of copying files.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    pub(crate) files: Vec<FileEntry>,
    /// Bytes that were written.
    pub(crate) bytes: u64,
}

/// Finds the files of a repo below its entry `only`, or below all entries except `without`. Secrets are left out
/// unless `with_keys`.
pub(crate) fn find(
    repo: &Path,
    store: &Path,
    only: Option<&str>,
    without: &str,
    with_keys: bool,
) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for (name, path) in entries(repo)? {
        let is_chosen = only.map_or(name != without, |only| name == only);
        let is_left_out = LEFT_OUT.contains(&name.as_str()) || name.ends_with(".new");
        // The file is written with those of the store.
        let is_version = name == "version" && repo == store;
        if is_chosen && !is_left_out && !is_version && (with_keys || !SECRETS.contains(&name.as_str())) {
            walk(path, name, store, 0, &mut found)?;
        }
    }
    Ok(found)
}

fn walk(path: PathBuf, name: String, store: &Path, depth: usize, found: &mut Vec<Found>) -> Result<()> {
    let metadata = match fs::metadata(&path) {
        Ok(metadata) => metadata,
        // It was removed meanwhile, or is a symlink to nothing.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(cannot("find", &path, &e)),
    };
    if metadata.is_file() {
        found.push(Found { path, name, in_store: false, bytes: metadata.len() });
    } else if metadata.is_dir() && fs::canonicalize(&path).is_ok_and(|path| path != store) {
        if depth >= MAX_DEPTH {
            bail!("{} is nested more than {MAX_DEPTH} levels deep: move it out of the repo", path.display());
        }
        for (entry, path) in entries(&path)? {
            walk(path, format!("{name}/{entry}"), store, depth + 1, found)?;
        }
    }
    // Sockets and pipes belong to the running process.
    Ok(())
}

fn entries(directory: &Path) -> Result<Vec<(String, PathBuf)>> {
    let failed = |e: &io::Error| cannot("read", directory, e);
    let mut entries = Vec::new();
    let listed = match fs::read_dir(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(entries),
        listed => listed.map_err(|e| failed(&e))?,
    };
    for entry in listed {
        let entry = entry.map_err(|e| failed(&e))?;
        match entry.file_name().into_string() {
            Ok(name) => entries.push((name, entry.path())),
            Err(_) => bail!("the name of {} is not UTF-8: move it out of the repo", entry.path().display()),
        }
    }
    entries.sort_unstable();
    Ok(entries)
}

/// Copies files into the directory `to` of the backup. A file that has not changed since the last run is linked to its
/// copy.
pub(crate) fn copy_files(
    found: Vec<Found>,
    destination: &Destination,
    to: &str,
    copied: &mut Copied,
    copier: &mut Copier,
) -> Result<()> {
    let recorded = destination.manifest().into_iter().flat_map(|manifest| &manifest.files);
    let known: HashMap<_, _> = recorded.map(|entry| ((entry.in_store, entry.path.as_str()), entry)).collect();
    for found in found {
        let metadata = match fs::metadata(&found.path) {
            Ok(metadata) => metadata,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(cannot("find", &found.path, &e)),
        };
        let source = Source::of_file(&metadata);
        let path = destination.path().join(to).join(place(found.in_store, &found.name));
        if let Some(parent) = path.parent() {
            create_directory(parent)?;
        }
        let entry = known.get(&(found.in_store, found.name.as_str())).copied();
        if let Some(entry) = entry.filter(|entry| entry.source == source && links(entry, &path, destination)) {
            copied.files.push(entry.clone());
            continue;
        }
        let mut original = match File::open(&found.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(cannot("open", &found.path, &e)),
        };
        let mut file = create_private(&path).map_err(|e| cannot("create", &path, &e))?;
        let mut sum = Sum::new();
        let (from, into) = (Named { file: &mut original, path: &found.path }, Named { file: &mut file, path: &path });
        let bytes = copier.copy_up_to(from, metadata.len(), &mut sum, Some(into))?;
        copied.bytes += bytes;
        copied.files.push(FileEntry {
            path: found.name,
            in_store: found.in_store,
            bytes,
            sha256: sum.hex(),
            mode: metadata.mode() & 0o777,
            source,
        });
    }
    Ok(())
}

/// Returns the path of a copied file in its directory.
pub(super) fn place(in_store: bool, name: &str) -> PathBuf {
    Path::new(if in_store { "store" } else { "repo" }).join(name)
}

/// Links the copy of the last run to `path`. Returns whether it could.
fn links(entry: &FileEntry, path: &Path, destination: &Destination) -> bool {
    let Some(manifest) = destination.manifest() else { return false };
    let before = destination.path().join(&manifest.files_directory).join(place(entry.in_store, &entry.path));
    fs::metadata(&before).is_ok_and(|copy| copy.len() == entry.bytes) && fs::hard_link(before, path).is_ok()
}
