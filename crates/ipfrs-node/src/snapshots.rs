//! Snapshots of the repo, from which a backup is copied.
//!
//! A snapshot is a directory below `<store>/snapshots` with a second name for each pack, the pins and the root of the
//! mutable files of one moment. Linking copies nothing, and gc cannot remove what has another name. So a backup of any
//! length delays neither writes nor gc, and works on files that no longer change.
//!
//! **The moment.** While the pins do not change and no root of the mutable files is written, the writer links all packs
//! between two groups. Blocks below a pin are stored before it, and are not removed as long as it exists; the same
//! applies to the root. Hence each block below a pin of the snapshot is in its packs.
//!
//! **The end.** The daemon locks the file [`LOCK`] of a snapshot until it is complete. Its user then locks it, writes
//! its process ID into it, and removes the directory afterwards. Snapshots whose user was killed are removed at the
//! next start, gc or snapshot.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_store::LinkedPack;
use rustix::fs::{FlockOperation, flock};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::mutable_files::RootFile;
use crate::{Node, off_workers};

/// Name of the directory of snapshots in that of the store.
const DIRECTORY: &str = "snapshots";

/// File in a snapshot that its user locks.
const LOCK: &str = "in-use";

/// Maximum number of snapshots. Each may occupy the disk space of packs that were removed since.
const MAX_SNAPSHOTS: usize = 4;

/// Time in which the user of a new snapshot must lock it.
const CLAIM_TIME: Duration = Duration::from_secs(60);

/// A snapshot of the repo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Directory with the packs, `pins.redb` and, if they were used, `mutable-files.root` and `filestore.redb`.
    pub directory: PathBuf,
    /// File in it to lock with flock(2) while it is used, and to write a process ID to.
    pub lock: PathBuf,
    /// Directory of the store.
    pub store: PathBuf,
    /// Packs, by number. Bytes behind their counted length do not belong to the snapshot.
    pub packs: Vec<LinkedPack>,
}

impl Node {
    /// Takes a snapshot of blocks, pins and mutable files. The caller must lock its file within a minute, keep the lock
    /// while it uses the snapshot, and remove the directory at the end.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`] if the repo is open read-only; [`ErrorKind::Unsupported`] if it has no packs, or its
    /// file system no hard links; [`ErrorKind::Conflict`] if there are too many snapshots; otherwise errors of the
    /// store.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.check_writable()?;
        let Some(pack) = self.inner.pack.clone() else {
            return Err(Error::unsupported(
                "only a store in packs has snapshots: back up a custom engine by its own means",
            ));
        };
        let store = pack.directory().to_owned();
        let created = off_workers(move || {
            let store = fs::canonicalize(&store).map_err(|e| cannot("find", &store, e))?;
            let (directory, lock) = create(&store)?;
            Ok((store, directory, lock))
        });
        let (store, directory, lock) = created.await?;
        let taken = match self.fill(&directory).await {
            // The time to claim it starts now, however long the pins took to copy.
            Ok(packs) => match lock.set_modified(SystemTime::now()) {
                Ok(()) => Ok(packs),
                Err(e) => Err(cannot("write to", &directory.join(LOCK), e)),
            },
            Err(error) => Err(error),
        };
        drop(lock);
        match taken {
            Ok(packs) => Ok(Snapshot { lock: directory.join(LOCK), directory, store, packs }),
            Err(error) => {
                // The next start removes it otherwise.
                let _ =
                    off_workers(move || fs::remove_dir_all(&directory).map_err(|e| cannot("remove", &directory, e)))
                        .await;
                Err(error)
            }
        }
    }

    async fn fill(&self, directory: &Path) -> Result<Vec<LinkedPack>> {
        let (node, runtime, place) = (self.clone(), Handle::current(), directory.to_owned());
        let link = move || {
            let linked = runtime.block_on(node.link_while_root_is_kept(&place))?;
            // References that were removed in between are below no pin.
            let references = node.inner.references.as_ref().map(|references| references.filestore.moment());
            Ok((linked, references.transpose()?))
        };
        let ((root, packs), references) = self.inner.pins.save(directory, link).await?;
        if let Some(save) = references {
            let directory = directory.to_owned();
            off_workers(move || save(&directory)).await?;
        }
        if let Some(root) = root {
            let directory = directory.to_owned();
            off_workers(move || RootFile::new(&directory).write(&root, &[], None)).await?;
        }
        Ok(packs)
    }

    async fn link_while_root_is_kept(&self, directory: &Path) -> Result<(Option<ipfrs_core::Cid>, Vec<LinkedPack>)> {
        let Some(pack) = &self.inner.pack else { return Err(Error::internal("the store has no packs")) };
        let durable = self.inner.mutable_files.durable_root().await;
        Ok((durable.root(), pack.link_packs(directory).await?))
    }

    /// Removes snapshots whose users have ended without removing them.
    pub(crate) async fn remove_unused_snapshots(&self) {
        if let Some(pack) = &self.inner.pack {
            let store = pack.directory().to_owned();
            // They only occupy disk space. The next call tries again.
            let _ = spawn_blocking(move || remove_unused(&store, CLAIM_TIME)).await;
        }
    }
}

/// Creates an empty snapshot and locks it, so that no gc removes it before it is complete. Blocks on the disk.
fn create(store: &Path) -> Result<(PathBuf, File)> {
    let all = store.join(DIRECTORY);
    let remaining = remove_unused(store, CLAIM_TIME);
    if remaining >= MAX_SNAPSHOTS {
        let message =
            format!("{remaining} backups are running: wait until one ends (their snapshots: {})", all.display());
        return Err(Error::new(ErrorKind::Conflict, message));
    }
    fs::create_dir_all(&all).map_err(|e| cannot("create", &all, e))?;
    let directory = tempfile::Builder::new().prefix("").rand_bytes(16).tempdir_in(&all);
    let directory = directory.map_err(|e| cannot("write to", &all, e))?.keep();
    let lock = directory.join(LOCK);
    let file = File::create(&lock).map_err(|e| cannot("create", &lock, e))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|e| cannot("lock", &lock, e.into()))?;
    Ok((directory, file))
}

/// Removes each snapshot that no process has locked, unless it is younger than `min_age`. Returns the number of those
/// that remain. Blocks on the disk.
pub(crate) fn remove_unused(store: &Path, min_age: Duration) -> usize {
    let all = store.join(DIRECTORY);
    let Ok(entries) = fs::read_dir(&all) else { return 0 };
    let mut remaining = 0;
    for directory in entries.flatten().map(|entry| entry.path()) {
        match is_unused(&directory, min_age) {
            true => match fs::remove_dir_all(&directory) {
                Ok(()) => {
                    tracing::info!(path = %directory.display(), "removed the snapshot of a backup that ended early")
                }
                Err(error) => {
                    remaining += 1;
                    tracing::warn!(path = %directory.display(), %error, "cannot remove a snapshot: remove it by hand");
                }
            },
            false => remaining += 1,
        }
    }
    if remaining == 0 {
        // Another process may be creating one at this moment, and the directory is then not empty.
        let _ = fs::remove_dir(&all);
    }
    remaining
}

fn is_unused(directory: &Path, min_age: Duration) -> bool {
    let path = directory.join(LOCK);
    let age = |metadata: fs::Metadata| SystemTime::now().duration_since(metadata.modified()?).map_err(io::Error::other);
    let is_old = |metadata| age(metadata).is_ok_and(|age| age >= min_age);
    match File::open(&path) {
        // The lock is released when the file is closed here. A user that comes too late finds no file.
        Ok(lock) => {
            let is_claimed = |metadata: &fs::Metadata| metadata.len() > 0;
            let metadata = lock.metadata();
            let is_old = min_age.is_zero() || metadata.is_ok_and(|metadata| is_claimed(&metadata) || is_old(metadata));
            is_old && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            min_age.is_zero() || fs::metadata(directory).is_ok_and(is_old)
        }
        Err(_) => false,
    }
}

fn cannot(action: &str, path: &Path, error: io::Error) -> Error {
    Error::io(format_args!("cannot {action} {}", path.display()), error)
}
