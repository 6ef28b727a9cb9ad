//! The directory of a backup.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use rustix::fs::{FlockOperation, flock};

use super::manifest::{PackEntry, read_unfinished, remove_unfinished, write_unfinished};
use super::{MARKER, Manifest, PACKS, cannot, create_directory, create_private, sync_directory};

/// Beginning of the names of directories with copied files.
const FILES: &str = "files-";

/// A backup that this process has locked.
pub(crate) struct Destination {
    path: PathBuf,
    _lock: File,
    /// The backup of the last run that ended.
    manifest: Option<Manifest>,
    /// Packs that a run has copied since.
    unfinished: Vec<PackEntry>,
}

impl Destination {
    /// Returns the absolute path of a directory that can hold a backup of a repo with the directories `originals`.
    /// Changes nothing.
    pub(crate) fn examine(path: &Path, originals: &[PathBuf]) -> Result<PathBuf> {
        let absolute = match fs::canonicalize(path) {
            Ok(absolute) => absolute,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let name =
                    path.file_name().ok_or_else(|| anyhow!("{} is not the path of a directory", path.display()))?;
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
                let parent = fs::canonicalize(parent).map_err(|_| {
                    let parent = parent.display();
                    anyhow!("there is no directory {parent}: create it, or mount the disk for the backup")
                })?;
                parent.join(name)
            }
            Err(e) => return Err(cannot("find", path, &e)),
        };
        if let Some(original) = originals.iter().find(|original| absolute.starts_with(original)) {
            bail!(
                "{} is inside the repo {}, whose loss it would not survive: use a directory on another disk",
                absolute.display(),
                original.display()
            );
        }
        let is_store = |path: &&Path| path.join("packs").is_dir() && path.join("version").is_file();
        if let Some(store) = absolute.ancestors().find(is_store) {
            bail!("{} is inside the store {}: use a directory on another disk", absolute.display(), store.display());
        }
        match fs::read_dir(&absolute) {
            Ok(mut entries) => {
                if !absolute.join(MARKER).exists() && entries.next().is_some() {
                    bail!("{} is not empty and holds no backup: use an empty directory", absolute.display());
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(cannot("read", &absolute, &e)),
        }
        Ok(absolute)
    }

    /// Locks the backup in a directory that was examined, and creates it if it does not exist.
    pub(crate) fn open(path: PathBuf) -> Result<Self> {
        create_directory(&path)?;
        let marker = path.join(MARKER);
        if !marker.exists() {
            create_private(&marker).map_err(|e| cannot("create", &marker, &e))?;
        }
        let lock = lock(&path, FlockOperation::NonBlockingLockExclusive)?;
        let manifest = Manifest::read(&path)?;
        create_directory(&path.join(PACKS))?;
        let unfinished = read_unfinished(&path);
        Ok(Self { path, _lock: lock, manifest, unfinished })
    }

    /// Locks an existing backup for reading. The lock is that of the file.
    pub(super) fn read(path: &Path) -> Result<(Manifest, File)> {
        if !path.join(MARKER).is_file() {
            bail!("{} holds no backup: give the directory that `repo backup` wrote", path.display());
        }
        let lock = lock(path, FlockOperation::NonBlockingLockShared)?;
        match Manifest::read(path)? {
            Some(manifest) => Ok((manifest, lock)),
            None => bail!("the backup in {} was never finished: run `repo backup` again", path.display()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the backup of the last run that ended.
    pub(crate) fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// Returns the path of a copied pack.
    pub(super) fn pack(&self, file: &str) -> PathBuf {
        self.path.join(PACKS).join(file)
    }

    /// Returns the latest copy of a pack.
    pub(super) fn known(&self, number: u32) -> Option<&PackEntry> {
        let recorded = self.manifest.iter().flat_map(|manifest| &manifest.packs);
        self.unfinished.iter().chain(recorded).find(|pack| pack.number == number)
    }

    /// Returns a name for a new copy of a pack, which no other copy has.
    pub(super) fn new_name(&self, number: u32) -> String {
        let recorded = self.manifest.iter().flat_map(|manifest| &manifest.packs);
        let taken: HashSet<_> = self.unfinished.iter().chain(recorded).map(|pack| pack.file.as_str()).collect();
        let first = format!("{number:08}.car");
        let others = (2_u32..).map(|copy| format!("{number:08}.{copy}.car"));
        std::iter::once(first.clone()).chain(others).find(|name| !taken.contains(name.as_str())).unwrap_or(first)
    }

    /// Records a pack that was copied, for a run that continues this one.
    pub(super) fn record(&mut self, pack: &PackEntry) -> Result<()> {
        self.unfinished.retain(|other| other.number != pack.number);
        self.unfinished.push(pack.clone());
        write_unfinished(&self.path, &self.unfinished)
    }

    /// Creates an empty directory for files, and returns its name. Removes those of runs that did not end.
    pub(crate) fn begin_files(&self) -> Result<String> {
        let current = self.manifest.as_ref().map(|manifest| manifest.files_directory.as_str());
        self.remove_others(&self.path, |name| name.starts_with(FILES) && Some(name) != current)?;
        let number = |name: &str| name.strip_prefix(FILES)?.parse::<u64>().ok();
        let next = current.and_then(number).unwrap_or(0).wrapping_add(1);
        let name = format!("{FILES}{next}");
        create_directory(&self.path.join(&name))?;
        Ok(name)
    }

    /// Ends the run: makes all copies durable, replaces the manifest, and removes what it no longer names.
    pub(crate) fn finish(&mut self, manifest: Manifest) -> Result<()> {
        super::sync_below(&self.path)?;
        manifest.write(&self.path)?;
        // From here on, the backup is complete. What cannot be removed only occupies space, and the next run tries
        // again.
        let packs: HashSet<_> = manifest.packs.iter().map(|pack| pack.file.as_str()).collect();
        self.remove_others(&self.path.join(PACKS), |name| !packs.contains(name))?;
        self.remove_others(&self.path, |name| name.starts_with(FILES) && name != manifest.files_directory)?;
        remove_unfinished(&self.path).map_err(|e| cannot("clean", &self.path, &e))?;
        sync_directory(&self.path).map_err(|e| cannot("sync", &self.path, &e))?;
        self.manifest = Some(manifest);
        Ok(())
    }

    fn remove_others(&self, directory: &Path, is_other: impl Fn(&str) -> bool) -> Result<()> {
        let failed = |e: &io::Error| cannot("clean", directory, e);
        for entry in fs::read_dir(directory).map_err(|e| failed(&e))? {
            let entry = entry.map_err(|e| failed(&e))?;
            let name = entry.file_name();
            if name.to_str().is_some_and(&is_other) {
                let path = entry.path();
                let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                removed.map_err(|e| cannot("remove", &path, &e))?;
            }
        }
        Ok(())
    }
}

fn lock(backup: &Path, operation: FlockOperation) -> Result<File> {
    let marker = backup.join(MARKER);
    let file = File::open(&marker).map_err(|e| cannot("open", &marker, &e))?;
    match flock(&file, operation) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!("another process uses the backup in {}: wait until it has ended", backup.display())
        }
        Err(e) => Err(cannot("lock", &marker, &e.into())),
    }
}
