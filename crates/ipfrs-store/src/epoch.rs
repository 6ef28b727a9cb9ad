//! Store epochs: whether something that was derived from blocks still holds.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ipfrs_core::Cid;

use crate::BlockStore;

/// State of a store's content at one point in time; see [`BlockStore::epoch`]. A value that
/// was derived from blocks at one epoch may be wrong at another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreEpoch(u64);

impl StoreEpoch {
    /// Creates an epoch from a number that never decreases.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns an epoch that changes when this one changes and when `number`, which never decreases, does.
    #[must_use]
    pub fn combined_with(self, number: u64) -> Self {
        Self(self.0.wrapping_add(number))
    }
}

/// Most blocks of which a [`Footprint`] consists.
const MAX_BLOCKS: usize = 15;

/// Value of [`Footprint::len`] for unknown blocks.
const UNKNOWN: u8 = u8::MAX;

/// The blocks that a value was derived from, in 32 bytes: for each of them two bytes of its digest. The removal of
/// another block with the same two bytes counts as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    len: u8,
    buckets: [u16; MAX_BLOCKS],
}

impl Footprint {
    /// The footprint of unknown blocks: the removal of any block counts.
    pub const ANY: Self = Self { len: UNKNOWN, buckets: [0; MAX_BLOCKS] };

    /// Returns the footprint of blocks. That of more than 15 blocks is [`ANY`](Self::ANY).
    #[must_use]
    pub fn of<'a>(cids: impl IntoIterator<Item = &'a Cid>) -> Self {
        let mut footprint = Self { len: 0, buckets: [0; MAX_BLOCKS] };
        for cid in cids {
            let place = footprint.buckets.get_mut(usize::from(footprint.len));
            let (Some(place), Some(bucket)) = (place, bucket(cid.hash().digest())) else { return Self::ANY };
            *place = bucket;
            footprint.len += 1;
        }
        footprint
    }

    /// Returns the bucket of each block, or `None` if the blocks are unknown.
    fn buckets(&self) -> Option<&[u16]> {
        self.buckets.get(..usize::from(self.len))
    }
}

/// Returns the bucket of bytes that end with a digest.
fn bucket(digest: &[u8]) -> Option<u16> {
    digest.last_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

/// The blocks that a value was derived from, and the store epoch at which they were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provenance {
    footprint: Footprint,
    /// [`BlockStore::epoch_of`] the footprint.
    epoch: StoreEpoch,
}

impl Provenance {
    /// Returns the provenance of a value that was derived from the blocks of `footprint`, which were read since the
    /// epoch was `since`. Returns `None` if the epoch has changed since then, because one of the blocks may have been
    /// removed.
    #[must_use]
    pub fn new(store: &dyn BlockStore, since: StoreEpoch, footprint: Footprint) -> Option<Self> {
        let epoch = store.epoch_of(&footprint);
        // Read last. A removal changes this epoch first, so it is not only in `epoch`.
        (store.epoch() == since).then_some(Self { footprint, epoch })
    }

    /// Whether the store would still return the same bytes for the blocks.
    #[must_use]
    pub fn is_current(&self, store: &dyn BlockStore) -> bool {
        store.epoch_of(&self.footprint) == self.epoch
    }
}

/// Counts the removals of a store.
#[derive(Debug)]
pub(crate) struct Removals {
    /// Removals of any kind.
    all: AtomicU64,
    /// Removals of files, which may have held any block.
    files: AtomicU64,
    /// Removed blocks, by bucket.
    blocks: Box<[AtomicU32]>,
}

impl Removals {
    pub(crate) fn new() -> Self {
        let blocks = (0..=u16::MAX).map(|_| AtomicU32::new(0)).collect();
        Self { all: AtomicU64::new(0), files: AtomicU64::new(0), blocks }
    }

    /// Counts the removal of blocks with these multihashes. Must be called before any caller learns of it.
    pub(crate) fn count_blocks<'a>(&self, hashes: impl Iterator<Item = &'a [u8]>) {
        // First, so that every thread that sees the removal of a block also sees this; see `Provenance::new`.
        self.all.fetch_add(1, Ordering::Release);
        for bucket in hashes.filter_map(bucket) {
            self.blocks[usize::from(bucket)].fetch_add(1, Ordering::Release);
        }
    }

    /// Counts the removal of a file.
    pub(crate) fn count_file(&self) {
        self.all.fetch_add(1, Ordering::Release);
        self.files.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn epoch(&self) -> StoreEpoch {
        StoreEpoch::new(self.all.load(Ordering::Acquire))
    }

    /// Returns an epoch that changes with the removal of a block of the footprint, and of a file.
    pub(crate) fn epoch_of(&self, footprint: &Footprint) -> StoreEpoch {
        let Some(buckets) = footprint.buckets() else { return self.epoch() };
        let removed = |bucket: &u16| u64::from(self.blocks[usize::from(*bucket)].load(Ordering::Acquire));
        // The numbers only grow, so the sum changes whenever one of them does.
        StoreEpoch::new(self.files.load(Ordering::Acquire) + buckets.iter().map(removed).sum::<u64>())
    }
}
