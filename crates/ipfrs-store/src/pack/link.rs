//! Links to all packs at one moment, for backups.

use std::fs;
use std::io;
use std::path::Path;

use ipfrs_core::{Error, Result};

use super::PackStore;
use super::file::path_of;
use super::lock::cannot;
use super::shared::Shared;

/// A pack with a second name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkedPack {
    /// Number of the pack.
    pub number: u32,
    /// Bytes that it had at the moment of the link. The newest pack may grow meanwhile.
    pub bytes: u32,
}

impl PackStore {
    /// Links all packs into `directory`, which must be empty and on the file system of the packs, under their own
    /// names. The bytes that the result counts are the content of the store at one moment. They neither change nor
    /// disappear while the links exist, whatever gc and compaction do; the disk space of removed packs is occupied for
    /// that time.
    ///
    /// # Errors
    /// [`Unsupported`](ipfrs_core::ErrorKind) if the file system has no hard links, or the directory is on another
    /// one; otherwise those of the file system. Some packs may be linked by then.
    pub async fn link_packs(&self, directory: &Path) -> Result<Vec<LinkedPack>> {
        self.queue.link(&self.shared, directory.to_owned()).await
    }

    /// Returns the directory of the store.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.shared.dir
    }
}

/// Implements [`PackStore::link_packs`] on the writer thread, so that no pack grows or is removed meanwhile.
pub(super) fn link_packs(shared: &Shared, directory: &Path) -> Result<Vec<LinkedPack>> {
    // A store that was closed has no packs, and neither has a new one.
    shared.with_index(|_| Ok(()))?;
    let packs = shared.packs();
    let mut linked = Vec::with_capacity(packs.len());
    for pack in packs {
        let to = path_of(directory, pack.number());
        match fs::hard_link(pack.path(), &to) {
            Ok(()) => linked.push(LinkedPack { number: pack.number(), bytes: pack.end() }),
            Err(error) if has_no_links(&error) => {
                return Err(Error::unsupported(format!(
                    "{} cannot be linked into {}: the file system has no hard links, or the packs are on another one",
                    pack.path().display(),
                    directory.display()
                )));
            }
            Err(error) => return Err(cannot("link", pack.path(), error)),
        }
    }
    Ok(linked)
}

fn has_no_links(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::CrossesDevices | io::ErrorKind::Unsupported)
        || matches!(error.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP))
}
