//! What the handles of a store and its writer have in common.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::{Mutex, RwLock};

use super::PackOptions;
use super::cache::LocationCache;
use super::changes::PackUse;
use super::file::Pack;
use super::group::again;
use super::in_order::LongReads;
use super::index::{Index, Totals};
use super::lock::StoreLock;
use super::recovery::INDEX;
use crate::epoch_cache::Caches;
use crate::mapping::{Claimed, wait_until};
use crate::{Mappings, Stats};

/// How long a compaction waits for reads that are about to end: they hold files that it has removed.
const RELEASE_PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Shared {
    /// The store's directory.
    pub(super) dir: PathBuf,
    /// As given to open.
    pub(super) options: PackOptions,
    /// Where recently used blocks lie.
    pub(super) cache: LocationCache,
    /// Which memory is a view of which pack.
    pub(super) mappings: Mappings,
    /// How much that lies side by side comes from the disk.
    pub(super) long_reads: LongReads,
    /// For [`Stats`].
    pub(super) totals: StoredTotals,
    /// Held by the one compaction that may run.
    pub(super) compaction: tokio::sync::Mutex<()>,
    /// Caches of values that were made of blocks.
    pub(super) caches: Caches,
    /// For [`BlockStore::removals`](crate::BlockStore::removals).
    removals: AtomicU64,
    /// Packs that were removed and may be open yet.
    removed: Mutex<Vec<RemovedPack>>,
    /// Why nothing can be written any more.
    failed: OnceLock<Error>,
    /// Whether the last write to a pack failed, so that the next may fail as well.
    is_doubtful: AtomicBool,
    packs: RwLock<BTreeMap<u32, Arc<Pack>>>,
    /// `None` once closed.
    open: RwLock<Option<Open>>,
}

/// A pack without a name, whose space the disk has back once nothing holds the file open.
#[derive(Debug)]
struct RemovedPack {
    claimed: Claimed,
    allocated_bytes: u64,
}

/// How much of the disk the packs take, and how much of it is new.
#[derive(Debug, Clone, Copy)]
pub(super) struct DiskUse {
    /// Bytes that the file system has allocated for packs, those that were removed and are open yet among them.
    allocated: u64,
    /// Bytes that calls have written since the store was opened; copies of a compaction are none of them.
    written: u64,
}

impl DiskUse {
    /// Returns how many bytes the disk has back since `before`, other than what was written meanwhile.
    pub(super) fn freed_since(self, before: Self) -> u64 {
        let written = self.written.saturating_sub(before.written);
        (before.allocated + written).saturating_sub(self.allocated)
    }
}

/// What another process may have once this one has closed the store.
#[derive(Debug)]
struct Open {
    index: Index,
    _lock: StoreLock,
}

/// The parts of [`Stats`] that the writer keeps up to date.
#[derive(Debug, Default)]
pub(super) struct StoredTotals {
    blocks: AtomicU64,
    payload_bytes: AtomicU64,
    pack_bytes: AtomicU64,
    index_bytes: AtomicU64,
    /// For [`DiskUse::written`].
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
    ) -> Self {
        let totals = StoredTotals::default();
        totals.set_index_bytes(index.file_bytes());
        totals.add_pack_bytes(packs.values().map(|pack| u64::from(pack.end())).sum());
        let shared = Self {
            cache: LocationCache::new(options.cache_enabled, options.cache_entries),
            dir,
            options,
            mappings,
            long_reads: LongReads::default(),
            totals,
            compaction: tokio::sync::Mutex::default(),
            caches: Caches::default(),
            removals: AtomicU64::new(0),
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

    /// Takes over totals: the store's, and those of some packs.
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

    /// Reads or writes the index; waits for the disk.
    pub(super) fn with_index<T>(&self, run: impl FnOnce(&Index) -> Result<T>) -> Result<T> {
        match &*self.open.read() {
            Some(open) => run(&open.index),
            None => Err(self.closed()),
        }
    }

    /// For [`BlockStore::check`](crate::BlockStore::check).
    pub(super) fn check(&self) -> Result<()> {
        if let Some(why) = self.failed() {
            return Err(again(why));
        }
        self.with_index(|_| Ok(()))
    }

    /// Refuses every change to a store that is open read-only.
    pub(super) fn check_writable(&self) -> Result<()> {
        if !self.options.read_only {
            return Ok(());
        }
        let dir = self.dir.display();
        let message = format!("the block store in {dir} is open read-only (store.read_only): nothing can be changed");
        Err(Error::read_only(message))
    }

    /// Why nothing can be written any more.
    pub(super) fn failed(&self) -> Option<&Error> {
        self.failed.get()
    }

    /// Nothing is to be written any more. The first reason is kept.
    pub(super) fn set_failed(&self, why: Error) {
        let _ = self.failed.set(why);
    }

    /// Notes whether the last write to a pack failed, for [`Self::disk`].
    pub(super) fn note_write(&self, is_ok: bool) {
        self.is_doubtful.store(!is_ok, Ordering::Relaxed);
    }

    /// Returns whether the last write to a pack failed.
    pub(super) fn is_doubtful(&self) -> bool {
        self.is_doubtful.load(Ordering::Relaxed)
    }

    /// Lets the index and the lock go. Slices that are in use stay valid.
    pub(super) fn close(&self) {
        let open = self.open.write().take();
        self.packs.write().clear();
        self.long_reads.close();
        self.cache.clear();
        drop(open);
    }

    /// The error of everything that is asked of a closed store.
    pub(super) fn closed(&self) -> Error {
        Error::new(ErrorKind::Unavailable, format!("the block store in {} is closed", self.dir.display()))
    }

    /// The error of a call that the writer dropped.
    pub(super) fn unanswered(&self) -> Error {
        if self.open.read().is_none() {
            return self.closed();
        }
        let dir = self.dir.display();
        Error::new(
            ErrorKind::Unavailable,
            format!("the block store in {dir} failed while it wrote this: it may be stored or not (see the log)"),
        )
    }

    /// The pack with this number; `None` when compaction has removed it since its number was looked up.
    pub(super) fn pack(&self, number: u32) -> Result<Option<Arc<Pack>>> {
        let packs = self.packs.read();
        // Who has a location has read it from the index of an open store, which has a pack then.
        if packs.is_empty() { Err(self.closed()) } else { Ok(packs.get(&number).cloned()) }
    }

    /// The error of an index that names a pack which compaction has not removed, and which is not there.
    pub(super) fn lacks_pack(&self, number: u32) -> Error {
        Error::corrupt(format!(
            "the index names pack {number}, which is not in {}: stop the program, put the file back or delete {}, and \
             start again",
            self.packs_dir().display(),
            self.index_path().display()
        ))
    }

    /// All packs, by number.
    pub(super) fn packs(&self) -> Vec<Arc<Pack>> {
        self.packs.read().values().cloned().collect()
    }

    /// Makes a new pack readable.
    pub(super) fn add_pack(&self, pack: Arc<Pack>) {
        self.totals.add_pack_bytes(u64::from(pack.end()));
        self.packs.write().insert(pack.number(), pack);
    }

    /// Lets a pack go whose file is gone. Slices of it that are in use stay valid.
    pub(super) fn remove_pack(&self, number: u32) {
        if let Some(pack) = self.packs.write().remove(&number) {
            self.totals.pack_bytes.fetch_sub(u64::from(pack.end()), Ordering::Relaxed);
            let (claimed, allocated_bytes) = (pack.claim().watch(), pack.allocated_bytes());
            self.removed.lock().push(RemovedPack { claimed, allocated_bytes });
        }
        self.long_reads.retain(|kept| kept != number);
        // Whoever keeps slices of it is to let them go: they keep the room on the disk.
        self.count_removal();
    }

    /// Returns how much of the disk removed packs take that something holds open.
    fn held_bytes(&self) -> u64 {
        let mut removed = self.removed.lock();
        removed.retain(|pack| pack.claimed.is_open());
        removed.iter().map(|pack| pack.allocated_bytes).sum()
    }

    /// Waits a moment for the disk to get back the space of removed packs: reads that are about to end hold them open.
    pub(super) fn wait_for_removed(&self) {
        wait_until(|| self.held_bytes() == 0, RELEASE_PATIENCE);
    }

    /// Returns how much of the disk the packs take; asks the file system about each.
    pub(super) fn disk_use(&self) -> DiskUse {
        let written = self.totals.written_bytes.load(Ordering::Relaxed);
        let allocated = self.packs().iter().map(|pack| pack.allocated_bytes()).sum::<u64>() + self.held_bytes();
        DiskUse { allocated, written }
    }

    /// How often blocks have gone away, or bytes of slices that were given out.
    pub(super) fn removals(&self) -> u64 {
        // Neither ever shrinks: the sum changes when one of them does.
        self.removals.load(Ordering::Acquire) + self.mappings.faults()
    }

    /// Blocks have gone away; to be called before anybody is told so.
    pub(super) fn count_removal(&self) {
        self.removals.fetch_add(1, Ordering::Release);
    }

    pub(super) fn stats(&self) -> Stats {
        let (cache_hits, cache_misses, cache_bytes) = self.cache.counts();
        let load = |total: &AtomicU64| total.load(Ordering::Relaxed);
        Stats {
            blocks: load(&self.totals.blocks),
            payload_bytes: load(&self.totals.payload_bytes),
            disk_bytes: load(&self.totals.pack_bytes) + load(&self.totals.index_bytes) + self.held_bytes(),
            dead_bytes: self.dead().into_iter().map(|(_, dead)| dead).sum(),
            cache_hits,
            cache_misses,
            cache_bytes,
        }
    }

    /// Every pack, by number, and how many bytes of it hold nothing any more.
    pub(super) fn dead(&self) -> Vec<(Arc<Pack>, u64)> {
        let mut tombstones_count = false;
        let dead = |pack: Arc<Pack>| {
            let known = pack.known();
            let blocks = known.dead_block_bytes();
            // Without a dead block in an older pack, there is nothing that a tombstone could keep from coming back.
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

    /// Counts bytes that a call has written.
    pub(super) fn add_written(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
