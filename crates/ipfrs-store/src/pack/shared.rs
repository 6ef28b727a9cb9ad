//! State shared by the handles of a store and its writer.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::{Mutex, RwLock};

use super::PackOptions;
use super::changes::PackUse;
use super::errors::again;
use super::file::Pack;
use super::index::{INDEX, Index, Totals};
use super::lock::StoreLock;
use super::losses::Losses;
use super::readahead::LongReads;
use crate::epoch::Removals;
use crate::epoch_cache::Caches;
use crate::mapping::{Claimed, wait_until};
use crate::{Footprint, Mappings, Stats, StoreEpoch};

/// Time that a compaction waits for reads that are about to end, because they hold files that it has removed.
const RELEASE_PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Shared {
    /// Directory of the store.
    pub(super) dir: PathBuf,
    /// Options passed to open.
    pub(super) options: PackOptions,
    /// The mapped packs.
    pub(super) mappings: Mappings,
    /// Sequential reads of adjacent blocks.
    pub(super) long_reads: LongReads,
    /// Totals for [`Stats`].
    pub(super) totals: StoredTotals,
    /// Held by the running compaction. Only one may run at a time.
    pub(super) compaction: tokio::sync::Mutex<()>,
    /// Caches of values derived from blocks.
    pub(super) caches: Caches,
    /// Removals of blocks and packs, for [`BlockStore::epoch`](crate::BlockStore::epoch).
    pub(super) removals: Removals,
    /// Losses of blocks that were found when the store was opened.
    pub(super) losses: Losses,
    /// Packs that were removed and may still be open.
    removed: Mutex<Vec<RemovedPack>>,
    /// Reason why the store can no longer be written.
    failed: OnceLock<Error>,
    /// Whether the last write to a pack failed, so that the next may fail as well.
    is_doubtful: AtomicBool,
    packs: RwLock<BTreeMap<u32, Arc<Pack>>>,
    /// `None` after the store is closed.
    open: RwLock<Option<Open>>,
}

/// A pack without a name. The disk reclaims its space once no reader holds the file open.
#[derive(Debug)]
struct RemovedPack {
    claimed: Claimed,
    allocated_bytes: u64,
}

/// Disk usage of the packs, and how much of it is new.
#[derive(Debug, Clone, Copy)]
pub(super) struct DiskUse {
    /// Bytes that the file system has allocated for packs, including removed packs that are still open.
    allocated: u64,
    /// Bytes that calls have written since the store was opened, without the copies made by compactions.
    written: u64,
}

impl DiskUse {
    /// Returns the number of bytes freed on the disk since `before`, not counting the writes made meanwhile.
    pub(super) fn freed_since(self, before: Self) -> u64 {
        let written = self.written.saturating_sub(before.written);
        (before.allocated + written).saturating_sub(self.allocated)
    }
}

/// Resources that another process may use once this one has closed the store.
#[derive(Debug)]
struct Open {
    index: Index,
    _lock: StoreLock,
}

/// The part of [`Stats`] that the writer keeps up to date.
#[derive(Debug, Default)]
pub(super) struct StoredTotals {
    blocks: AtomicU64,
    payload_bytes: AtomicU64,
    pack_bytes: AtomicU64,
    index_bytes: AtomicU64,
    /// Total for [`DiskUse::written`].
    written_bytes: AtomicU64,
}

impl Shared {
    pub(super) fn new(
        dir: PathBuf,
        options: PackOptions,
        mappings: Mappings,
        packs: BTreeMap<u32, Arc<Pack>>,
        index: Index,
        lock: StoreLock,
        losses: Losses,
    ) -> Self {
        let totals = StoredTotals::default();
        totals.set_index_bytes(index.file_bytes());
        totals.add_pack_bytes(packs.values().map(|pack| u64::from(pack.end())).sum());
        let shared = Self {
            dir,
            options,
            mappings,
            long_reads: LongReads::default(),
            totals,
            compaction: tokio::sync::Mutex::default(),
            caches: Caches::default(),
            removals: Removals::new(),
            losses,
            removed: Mutex::default(),
            failed: OnceLock::new(),
            is_doubtful: AtomicBool::new(false),
            packs: RwLock::new(packs),
            open: RwLock::new(None),
        };
        shared.take_over(index.totals(), &index.packs());
        *shared.open.write() = Some(Open { index, _lock: lock });
        shared
    }

    /// Sets the totals of the store, and the statistics of some packs.
    pub(super) fn take_over(&self, totals: Totals, known: &BTreeMap<u32, PackUse>) {
        self.totals.set(totals);
        let packs = self.packs.read();
        for (number, known) in known {
            if let Some(pack) = packs.get(number) {
                pack.set_known(*known);
            }
        }
    }

    pub(super) fn packs_dir(&self) -> PathBuf {
        self.dir.join("packs")
    }

    pub(super) fn index_path(&self) -> PathBuf {
        self.dir.join(INDEX)
    }

    /// Reads or writes the index. Waits for the disk.
    pub(super) fn with_index<T>(&self, run: impl FnOnce(&Index) -> Result<T>) -> Result<T> {
        match &*self.open.read() {
            Some(open) => run(&open.index),
            None => Err(self.closed()),
        }
    }

    /// Reads the index without waiting. Returns `None` if `run` does, or if the store is being closed.
    pub(super) fn with_index_at_once<T>(&self, run: impl FnOnce(&Index) -> Result<Option<T>>) -> Result<Option<T>> {
        let Some(open) = self.open.try_read() else { return Ok(None) };
        open.as_ref().map_or_else(|| Err(self.closed()), |open| run(&open.index))
    }

    /// Implements [`BlockStore::check`](crate::BlockStore::check).
    pub(super) fn check(&self) -> Result<()> {
        if let Some(why) = self.failed() {
            return Err(again(why));
        }
        self.with_index(|_| Ok(()))
    }

    /// Rejects changes to a store that is open read-only.
    pub(super) fn check_writable(&self) -> Result<()> {
        if !self.options.read_only {
            return Ok(());
        }
        let dir = self.dir.display();
        let message = format!("the block store in {dir} is open read-only (store.read_only): nothing can be changed");
        Err(Error::read_only(message))
    }

    /// Returns the reason why the store can no longer be written.
    pub(super) fn failed(&self) -> Option<&Error> {
        self.failed.get()
    }

    /// Marks the store as no longer writable. The first reason is kept.
    pub(super) fn set_failed(&self, why: Error) {
        let _ = self.failed.set(why);
    }

    /// Records whether the last write to a pack succeeded, for [`Self::disk`].
    pub(super) fn note_write(&self, is_ok: bool) {
        self.is_doubtful.store(!is_ok, Ordering::Relaxed);
    }

    /// Whether the last write to a pack failed.
    pub(super) fn is_doubtful(&self) -> bool {
        self.is_doubtful.load(Ordering::Relaxed)
    }

    /// Releases the index and the lock. Slices in use stay valid.
    pub(super) fn close(&self) {
        let open = self.open.write().take();
        self.packs.write().clear();
        self.long_reads.close();
        drop(open);
    }

    /// Returns the error for operations on a closed store.
    pub(super) fn closed(&self) -> Error {
        Error::new(ErrorKind::Unavailable, format!("the block store in {} is closed", self.dir.display()))
    }

    /// Returns the error for a call that the writer dropped.
    pub(super) fn unanswered(&self) -> Error {
        if self.open.read().is_none() {
            return self.closed();
        }
        let dir = self.dir.display();
        Error::new(
            ErrorKind::Unavailable,
            format!("the block store in {dir} failed during this write: it may or may not be stored (see the log)"),
        )
    }

    /// Returns the pack with this number, or `None` if compaction has removed it since the number was looked up.
    pub(super) fn pack(&self, number: u32) -> Result<Option<Arc<Pack>>> {
        let packs = self.packs.read();
        // Callers got the number from the index of an open store, and such a store has packs. An empty map means that
        // it was closed.
        if packs.is_empty() { Err(self.closed()) } else { Ok(packs.get(&number).cloned()) }
    }

    /// Returns the error for an index that names a missing pack that compaction has not removed.
    pub(super) fn lacks_pack(&self, number: u32) -> Error {
        Error::corrupt(format!(
            "the index refers to pack {number}, which is not in {}: stop the program, restore the file or delete {}, and \
             start again",
            self.packs_dir().display(),
            self.index_path().display()
        ))
    }

    /// Returns all packs, by number.
    pub(super) fn packs(&self) -> Vec<Arc<Pack>> {
        self.packs.read().values().cloned().collect()
    }

    /// Makes a new pack readable.
    pub(super) fn add_pack(&self, pack: Arc<Pack>) {
        self.totals.add_pack_bytes(u64::from(pack.end()));
        self.packs.write().insert(pack.number(), pack);
    }

    /// Removes a pack whose file was removed. Slices in use stay valid.
    pub(super) fn remove_pack(&self, number: u32) {
        if let Some(pack) = self.packs.write().remove(&number) {
            self.totals.pack_bytes.fetch_sub(u64::from(pack.end()), Ordering::Relaxed);
            let (claimed, allocated_bytes) = (pack.claim().watch(), pack.allocated_bytes());
            self.removed.lock().push(RemovedPack { claimed, allocated_bytes });
        }
        self.long_reads.retain(|kept| kept != number);
        // Caches must drop their slices of the pack, which occupy disk space.
        self.removals.count_file();
    }

    /// Returns the disk space of removed packs that are still open, in bytes.
    fn held_bytes(&self) -> u64 {
        let mut removed = self.removed.lock();
        removed.retain(|pack| pack.claimed.is_open());
        removed.iter().map(|pack| pack.allocated_bytes).sum()
    }

    /// Waits briefly for the disk to reclaim the space of removed packs. Reads that are about to end may hold them
    /// open.
    pub(super) fn wait_for_removed(&self) {
        wait_until(|| self.held_bytes() == 0, RELEASE_PATIENCE);
    }

    /// Returns the disk usage of the packs. Queries the file system for each pack.
    pub(super) fn disk_use(&self) -> DiskUse {
        let written = self.totals.written_bytes.load(Ordering::Relaxed);
        let allocated = self.packs().iter().map(|pack| pack.allocated_bytes()).sum::<u64>() + self.held_bytes();
        DiskUse { allocated, written }
    }

    /// Returns the store epoch. It changes when blocks are removed or bytes of returned slices turn out to be
    /// missing.
    pub(super) fn epoch(&self) -> StoreEpoch {
        self.removals.epoch().combined_with(self.mappings.faults())
    }

    /// Like [`Self::epoch`], but changes only with the removal of blocks that may be in the footprint.
    pub(super) fn epoch_of(&self, footprint: &Footprint) -> StoreEpoch {
        self.removals.epoch_of(footprint).combined_with(self.mappings.faults())
    }

    pub(super) fn stats(&self) -> Stats {
        let load = |total: &AtomicU64| total.load(Ordering::Relaxed);
        Stats {
            blocks: load(&self.totals.blocks),
            payload_bytes: load(&self.totals.payload_bytes),
            disk_bytes: load(&self.totals.pack_bytes) + load(&self.totals.index_bytes) + self.held_bytes(),
            dead_bytes: self.dead().into_iter().map(|(_, dead)| dead).sum(),
        }
    }

    /// Returns all packs by number, each with the number of its dead bytes.
    pub(super) fn dead(&self) -> Vec<(Arc<Pack>, u64)> {
        let mut tombstones_count = false;
        let dead = |pack: Arc<Pack>| {
            let known = pack.known();
            let blocks = known.dead_block_bytes();
            // If no older pack has a dead block, the tombstones are not needed and count as dead.
            let tombstones = if tombstones_count { 0 } else { known.tombstone_bytes };
            tombstones_count |= pack.may_hold_dead_blocks();
            (pack, blocks + tombstones)
        };
        self.packs().into_iter().map(dead).collect()
    }
}

impl StoredTotals {
    pub(super) fn set(&self, totals: Totals) {
        self.blocks.store(totals.blocks, Ordering::Relaxed);
        self.payload_bytes.store(totals.payload_bytes, Ordering::Relaxed);
    }

    pub(super) fn set_index_bytes(&self, bytes: u64) {
        self.index_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_pack_bytes(&self, bytes: u64) {
        self.pack_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds bytes that a call has written.
    pub(super) fn add_written(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
