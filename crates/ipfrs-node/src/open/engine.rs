//! Opening of the storage engine, with its pins and the lock of the repo.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::Result;
use ipfrs_store::{BlockStore, Filestore, MemoryStore, PackOptions, PackStore, Pins, RepoLock, StoreConfig};

use crate::filestore::open_filestore;
use crate::snapshots::remove_unused;

/// The engine, and what is opened with it.
pub(super) struct OpenedEngine {
    /// `None` if the lock of the store is that of the repo.
    pub(super) repo_lock: Option<RepoLock>,
    pub(super) engine: Arc<dyn BlockStore>,
    /// The same engine, if it is the pack engine.
    pub(super) pack: Option<PackStore>,
    /// The same engine, if blocks can stay in files.
    pub(super) filestore: Option<Filestore>,
    pub(super) pins: Pins,
    /// Directory of the ledger of fetched blocks and of the root of the mutable files; `None` if it is in memory, like
    /// the blocks or their pins.
    pub(super) ledger_dir: Option<PathBuf>,
}

impl OpenedEngine {
    /// Opens the pins of a custom engine. `has_blocks` says whether it has blocks, for which there may be no pins yet.
    pub(super) fn custom(
        repo: &Path,
        holder: &str,
        engine: Arc<dyn BlockStore>,
        keeps_pins_in_memory: bool,
        has_blocks: bool,
    ) -> Result<Self> {
        let repo_lock = RepoLock::take_with_engine(repo, holder)?;
        let pins = if keeps_pins_in_memory { Pins::in_memory(has_blocks)? } else { Pins::open(repo, has_blocks)? };
        let ledger_dir = (!keeps_pins_in_memory).then(|| repo.to_owned());
        Ok(Self { repo_lock, engine, pack: None, filestore: None, pins, ledger_dir })
    }

    /// Creates the engine that keeps blocks in memory.
    pub(super) fn memory(repo: &Path, holder: &str, read_only: bool) -> Result<Self> {
        let repo_lock = Some(lock(repo, holder, read_only)?);
        let engine = Arc::new(MemoryStore::default());
        Ok(Self { repo_lock, engine, pack: None, filestore: None, pins: Pins::in_memory(false)?, ledger_dir: None })
    }

    /// Opens the pack engine.
    pub(super) fn pack(repo: &Path, holder: &str, config: &StoreConfig) -> Result<Self> {
        let read_only = config.read_only;
        let dir = config.path.as_ref().map_or_else(|| repo.to_owned(), |relative| repo.join(relative));
        let is_repo = fs::canonicalize(&dir).ok() == fs::canonicalize(repo).ok();
        let repo_lock = if is_repo { None } else { Some(lock(repo, holder, read_only)?) };
        let options = PackOptions {
            pack_bytes: config.pack_bytes(),
            durability: config.durability,
            verify_on_read: config.verify_on_read,
            read_only,
            holder: holder.to_owned(),
        };
        let (pack, pins) = open_pack(&dir, options)?;
        let root = config.filestore_root.as_ref().map(|root| repo.join(root));
        let filestore = open_filestore(&pack, &pins, root.as_deref(), read_only)?;
        let engine: Arc<dyn BlockStore> = match filestore.clone() {
            Some(filestore) => Arc::new(filestore),
            None => Arc::new(pack.clone()),
        };
        Ok(Self { repo_lock, engine, pack: Some(pack), filestore, pins, ledger_dir: Some(dir) })
    }
}

fn lock(repo: &Path, holder: &str, read_only: bool) -> Result<RepoLock> {
    if read_only { RepoLock::share(repo) } else { RepoLock::take(repo, holder) }
}

/// Opens the pack engine and its pins.
fn open_pack(dir: &Path, options: PackOptions) -> Result<(PackStore, Pins)> {
    let read_only = options.read_only;
    // The store is opened first, because its lock also protects the pins.
    let pack = PackStore::open(dir, options)?;
    if read_only {
        return Ok((pack, Pins::open_read_only(dir)?));
    }
    remove_unused(dir, Duration::ZERO);
    let pins = Pins::open(dir, !pack.is_empty())?;
    Ok((pack, pins))
}
