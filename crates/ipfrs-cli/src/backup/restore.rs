//! Checking and restoring a backup.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use ipfrs_interface::PACK_HEADER;
use rustix::fs::{FlockOperation, flock};

use super::copier::{Named, Sum};
use super::files::place;
use super::{
    Copier, Destination, Manifest, cannot, check_space, create_directory, create_private, sync_below, sync_directory,
};

/// Extension of the directory in which a repo is built.
const STAGING: &str = "restoring";
/// File in it that shows that this program has made it.
const MARKER: &str = "ipfrs-restore";

/// The place of a restored repo. It is built beside it, and renamed when it is complete.
pub(crate) struct Target {
    repo: PathBuf,
    staging: PathBuf,
    _lock: File,
    /// Owner and permissions of the empty directory that it replaces.
    like: Option<fs::Metadata>,
}

/// Reads all files of a backup and compares their hashes. Returns its manifest.
pub(crate) fn check(backup: &Path, copier: &mut Copier) -> Result<Manifest> {
    let (manifest, _lock) = Destination::read(backup)?;
    verify(backup, &manifest, copier)?;
    Ok(manifest)
}

/// Compares the files of a backup with the hashes in its manifest.
pub(crate) fn verify(backup: &Path, manifest: &Manifest, copier: &mut Copier) -> Result<()> {
    copier.expect(manifest.bytes());
    each_file(backup, manifest, |path, bytes, sha256, _| copy_checked(path, bytes, sha256, None, copier))
}

/// Place of a file in the restored repo.
enum Item<'a> {
    Pack(u32),
    File { in_store: bool, name: &'a str, mode: u32 },
}

fn each_file(
    backup: &Path,
    manifest: &Manifest,
    mut run: impl FnMut(&Path, u64, &str, Item<'_>) -> Result<()>,
) -> Result<()> {
    for pack in &manifest.packs {
        let path = backup.join(super::PACKS).join(&pack.file);
        run(&path, pack.bytes, &pack.sha256, Item::Pack(pack.number))?;
    }
    for file in &manifest.files {
        let path = backup.join(&manifest.files_directory).join(place(file.in_store, &file.path));
        let item = Item::File { in_store: file.in_store, name: &file.path, mode: file.mode };
        run(&path, file.bytes, &file.sha256, item)?;
    }
    Ok(())
}

fn copy_checked(path: &Path, bytes: u64, sha256: &str, to: Option<Named<'_>>, copier: &mut Copier) -> Result<()> {
    let mut file = File::open(path).map_err(|e| cannot("open", path, &e))?;
    let mut sum = Sum::new();
    copier.copy(Named { file: &mut file, path }, bytes, &mut sum, to)?;
    if sum.hex() != sha256 {
        bail!(
            "{} is damaged: its content differs from what was backed up. Use another backup, or `repo backup` to a new \
             directory",
            path.display()
        );
    }
    Ok(())
}

impl Target {
    /// Prepares the place of a repo, at which there must be nothing.
    pub(crate) fn prepare(repo: &Path) -> Result<Self> {
        let like = match fs::metadata(repo) {
            Ok(metadata) => Some(metadata),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(cannot("find", repo, &e)),
        };
        let repo = match like {
            Some(_) => fs::canonicalize(repo).map_err(|e| cannot("find", repo, &e))?,
            None => std::path::absolute(repo).map_err(|e| cannot("find", repo, &e))?,
        };
        let (Some(parent), Some(name)) = (repo.parent().map(Path::to_owned), repo.file_name()) else {
            bail!("{} cannot be a repo: give the path of a directory with --repo", repo.display());
        };
        if let Some(like) = &like {
            let mut entries = fs::read_dir(&repo).map_err(|e| cannot("read", &repo, &e))?;
            if entries.next().is_some() {
                bail!(
                    "{} is not empty: a backup is restored to a new repo. Move the old one away, or give another path with \
                     --repo",
                    repo.display()
                );
            }
            if fs::metadata(&parent).is_ok_and(|parent| parent.dev() != like.dev()) {
                bail!(
                    "{} is where a file system is mounted, and cannot be replaced as a whole: give a directory in it with \
                     --repo",
                    repo.display()
                );
            }
        }
        create_directory(&parent)?;
        let mut staged = name.to_owned();
        staged.push(".");
        staged.push(STAGING);
        let staging = parent.join(staged);
        let marker = staging.join(MARKER);
        if fs::symlink_metadata(&staging).is_ok() && !marker.is_file() {
            bail!("{} exists, and no restore has made it: move it away", staging.display());
        }
        create_directory(&staging)?;
        let lock = create_private(&marker).map_err(|e| cannot("create", &marker, &e))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                bail!("another process restores {}: wait until it has ended", repo.display())
            }
            Err(e) => return Err(cannot("lock", &marker, &e.into())),
        }
        // A restore that was killed leaves this.
        let target = Self { repo, staging, _lock: lock, like };
        remove(&target.built())?;
        Ok(target)
    }

    /// Returns the directory in which the repo is built.
    pub(crate) fn built(&self) -> PathBuf {
        self.staging.join("repo")
    }

    pub(crate) fn repo(&self) -> &Path {
        &self.repo
    }

    /// Removes what was built.
    pub(crate) fn abandon(self) -> Result<()> {
        remove(&self.staging)
    }

    /// Puts the repo, which is complete, into its place.
    pub(crate) fn finish(self) -> Result<()> {
        let built = self.built();
        if let Some(like) = &self.like {
            let mode = fs::Permissions::from_mode(like.mode() & 0o7777);
            fs::set_permissions(&built, mode).map_err(|e| cannot("change", &built, &e))?;
            take_owner(&built, like)?;
        }
        sync_below(&built)?;
        fs::rename(&built, &self.repo).map_err(|e| cannot("create", &self.repo, &e))?;
        let parent = self.repo.parent().unwrap_or(Path::new("/"));
        sync_directory(parent).map_err(|e| cannot("sync", parent, &e))?;
        // The repo is complete. An empty directory beside it does no harm.
        let _ = fs::remove_dir_all(&self.staging);
        Ok(())
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(cannot("remove", path, &e)),
        _ => Ok(()),
    }
}

/// Gives a tree to the owner of the directory that it replaces, if this process belongs to another user.
fn take_owner(tree: &Path, like: &fs::Metadata) -> Result<()> {
    let metadata = fs::symlink_metadata(tree).map_err(|e| cannot("find", tree, &e))?;
    if (metadata.uid(), metadata.gid()) == (like.uid(), like.gid()) {
        return Ok(());
    }
    let mut pending = vec![tree.to_owned()];
    while let Some(path) = pending.pop() {
        lchown(&path, Some(like.uid()), Some(like.gid())).map_err(|e| cannot("change the owner of", &path, &e))?;
        let metadata = fs::symlink_metadata(&path).map_err(|e| cannot("find", &path, &e))?;
        if metadata.is_dir() {
            for entry in fs::read_dir(&path).map_err(|e| cannot("read", &path, &e))? {
                pending.push(entry.map_err(|e| cannot("read", &path, &e))?.path());
            }
        }
    }
    Ok(())
}

/// Copies a backup to the place where a repo is built, and compares the hash of each file. Returns the manifest.
pub(crate) fn restore(backup: &Path, target: &Target, copier: &mut Copier) -> Result<Manifest> {
    let (manifest, _lock) = Destination::read(backup)?;
    check_space(&target.staging, manifest.bytes())?;
    let built = target.built();
    let store = match &manifest.store {
        Some(store) if !Path::new(store).is_absolute() => built.join(store),
        _ => built.clone(),
    };
    let packs = store.join("packs");
    for directory in [&built, &store, &packs] {
        create_directory(directory)?;
    }
    copier.expect(manifest.bytes());
    each_file(backup, &manifest, |path, bytes, sha256, item| {
        let (to, mode) = match item {
            Item::Pack(number) => (packs.join(format!("{number:08}.car")), 0o600),
            Item::File { in_store: true, name, mode } => (store.join(name), mode),
            Item::File { in_store: false, name, mode } => (built.join(renamed(name, &manifest)), mode),
        };
        if let Some(parent) = to.parent() {
            create_directory(parent)?;
        }
        let created = File::options().write(true).create_new(true).open(&to);
        let mut file = created.map_err(|e| cannot("create", &to, &e))?;
        // Before the content, which may be secret.
        let mode = fs::Permissions::from_mode(mode & 0o777);
        file.set_permissions(mode).map_err(|e| cannot("change", &to, &e))?;
        copy_checked(path, bytes, sha256, Some(Named { file: &mut file, path: &to }), copier)
    })?;
    if let Some(newest) = manifest.packs.iter().map(|pack| pack.number).max() {
        // At the end of the newest pack, the store would take damaged blocks for an incomplete write.
        let empty = packs.join(format!("{:08}.car", newest + 1));
        let created = create_private(&empty).and_then(|mut file| file.write_all(PACK_HEADER));
        created.map_err(|e| cannot("create", &empty, &e))?;
    }
    Ok(manifest)
}

/// Returns the name of a restored file. A configuration that names a store elsewhere is not used as it is: the daemon
/// would begin an empty store there.
fn renamed<'a>(name: &'a str, manifest: &Manifest) -> &'a str {
    let is_elsewhere = manifest.store.as_ref().is_some_and(|store| Path::new(store).is_absolute());
    if is_elsewhere && name == "config.toml" { "config.toml.restored" } else { name }
}
