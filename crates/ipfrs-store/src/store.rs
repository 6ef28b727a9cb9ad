//! The contract that every engine implements.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::task::Poll;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use ipfrs_core::hash::HashFunction;
use ipfrs_core::limits::MAX_BIG_BLOCK_BYTES;
use ipfrs_core::{Block, Cid, Error, ErrorKind, Multihash, Result};

use crate::{BlockBatch, DropStale, Footprint, Mappings, StoreEpoch};

/// Codec of the records with which the pack engine stores deletions, from the private-use range of the multicodec
/// table. Blocks with this codec are rejected, so that no client can forge a deletion.
pub const RESERVED_CODEC: u64 = 0x30_0001;

/// Maximum number of blocks in a batch of [`BlockStore::get_batches`], for engines that do not form batches
/// themselves.
const BATCH_BLOCKS: usize = 16;

/// Size at which such a batch ends, in bytes.
const BATCH_BYTES: usize = 256 * 1024;

/// Number of CIDs that [`BlockStore::scrub`] returns at a time, for engines that do not verify blocks themselves.
const SCRUB_BLOCKS: usize = 1_000;

/// A predicate for the blocks that a deletion must keep: `true` keeps the block. See [`BlockStore::delete_unless`].
pub type Spared = Arc<dyn Fn(&Multihash) -> bool + Send + Sync>;

/// Effect of a block that cannot be stored on the rest of a [`BlockStore::put_many`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PutMode {
    /// All blocks are stored, or none. Blocks that were present before are never removed.
    #[default]
    Atomic,
    /// Every block that can be stored is stored.
    BestEffort,
    /// As [`Self::Atomic`], and the blocks may use 16 MiB that other puts leave free. For a few blocks that must be
    /// stored before space can be freed. What [`BlockStore::compact`] needs stays free.
    Reserved,
}

impl PutMode {
    /// Returns whether all blocks are stored, or none.
    #[must_use]
    pub fn is_atomic(self) -> bool {
        match self {
            Self::Atomic | Self::Reserved => true,
            Self::BestEffort => false,
        }
    }
}

/// Result of storing a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// The block was written.
    New,
    /// The block was already present, or it is an identity block, which is not stored.
    Present,
}

/// Totals of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Number of blocks that can be read.
    pub blocks: u64,
    /// Length of their data, in bytes.
    pub payload_bytes: u64,
    /// Bytes occupied on disk, including framing, index and dead blocks; 0 for engines without a disk.
    pub disk_bytes: u64,
    /// Dead bytes on disk, the most that [`BlockStore::compact`] can free. Does not include tombstones that are still
    /// needed. 0 for engines without a disk.
    pub dead_bytes: u64,
}

/// The disk that an engine writes blocks to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Directory of the store on the disk.
    pub dir: PathBuf,
    /// Device number of the file system (`st_dev`). It is equal for two directories on one file system.
    pub device: u64,
    /// Free bytes on the disk.
    pub free_bytes: u64,
    /// The part of the free bytes that puts leave unused.
    pub reserve: Reserve,
}

impl Disk {
    /// Checks that another `bytes` of blocks can be put.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`], with the disk, its free bytes and the bytes that are kept free.
    pub fn check(&self, bytes: u64) -> Result<()> {
        match self.free_bytes >= bytes.saturating_add(self.reserve.after(bytes)) {
            true => Ok(()),
            false => Err(no_room(&self.dir, self.free_bytes, self.reserve.after(bytes), bytes)),
        }
    }
}

/// Returns the error for a disk without space for `needed` bytes in addition to the `kept` ones.
pub(crate) fn no_room(dir: &Path, free: u64, kept: u64, needed: u64) -> Error {
    let dir = dir.display();
    Error::new(
        ErrorKind::NoSpace,
        format!(
            "the disk of {dir} has {free} bytes free, of which {kept} are reserved for garbage collection, but {needed} \
             are needed: free disk space"
        ),
    )
}

/// Disk space that puts leave free: the space that [`BlockStore::compact`] needs to copy all blocks that may be alive
/// in one pack, at least 16 MiB, and 16 MiB for [`PutMode::Reserved`]. A store that has filled its disk can therefore
/// still be compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reserve {
    /// Length of the longest pack, in bytes.
    pub(crate) longest_pack: u64,
    /// Length at which a pack is full, in bytes; 0 for engines without a disk.
    pub(crate) pack_bytes: u64,
}

/// Options of [`BlockStore::compact`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompactOptions {
    /// Dead share from which a file is rewritten, from 0 to 1: 0.25 is a quarter. At 0, every file with dead bytes is
    /// rewritten, starting with the oldest. The copied blocks of a file need disk space until the file is removed.
    pub min_dead_share: f64,
    /// The same share on a full disk, on which no more blocks can be put. Between a full disk and a disk of which
    /// half is free besides the reserve, the effective share is interpolated.
    pub min_dead_share_if_full: f64,
    /// Size of the store on the disk at which the compaction stops ([`Stats::disk_bytes`]). The files with the largest
    /// dead shares are rewritten first. If set, the compaction does not wait for reads of removed files. `None`
    /// rewrites every file that is worth it.
    pub until_disk_bytes: Option<u64>,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self { min_dead_share: 0.25, min_dead_share_if_full: 0.0, until_disk_bytes: None }
    }
}

impl CompactOptions {
    /// Returns options with the same share for all disks, full or not.
    #[must_use]
    pub const fn from_share(min_dead_share: f64) -> Self {
        Self { min_dead_share, min_dead_share_if_full: min_dead_share, until_disk_bytes: None }
    }

    /// Checks that both shares are from 0 to 1.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] names the share.
    pub fn check(self) -> Result<()> {
        let is_share = |share: &f64| (0.0..=1.0).contains(share);
        match [self.min_dead_share, self.min_dead_share_if_full].into_iter().find(|share| !is_share(share)) {
            None => Ok(()),
            Some(share) => {
                Err(Error::invalid(format!("{share} is not a share of dead bytes: use a number from 0 to 1")))
            }
        }
    }
}

/// Result of [`BlockStore::compact`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compacted {
    /// Number of packs that were removed.
    pub packs: u64,
    /// Bytes copied from these packs to other packs, framing included.
    pub moved_bytes: u64,
    /// Bytes freed on the disk when the call returns, as counted by the file system. Does not include removed packs
    /// of which slices are in use: the file system frees such a pack when the last slice is dropped.
    pub freed_bytes: u64,
    /// Packs that were not removed because they are damaged. Nothing of them was removed, and their readable blocks
    /// stay readable.
    pub damaged: Vec<DamagedPack>,
}

/// Result of a [`BlockStore::scrub`] for some blocks.
#[derive(Debug)]
pub enum Scrubbed {
    /// The blocks were read and compared with their content IDs.
    Read {
        /// Number of blocks.
        blocks: u64,
        /// Length of their data, in bytes.
        bytes: u64,
        /// Blocks that do not match their content IDs, with the reason.
        corrupt: Vec<(Cid, Error)>,
    },
    /// The caller must read and verify these blocks one by one.
    Unread(Vec<Cid>),
}

/// A damaged pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedPack {
    /// Path of the file.
    pub path: PathBuf,
    /// Offset of the first damaged section, in bytes.
    pub offset: u64,
    /// Description of the damage.
    pub reason: String,
}

/// A set of blocks, keyed by multihash: a block put under one codec or CID version is found under every other.
///
/// Every engine implements these contracts, and `testing` (a feature of the crate) tests them:
///
/// * **Durability.** When [`put_many`](Self::put_many) or [`delete_many`](Self::delete_many) returns, its effect
///   survives a crash of the process (and, with the default durability, of the machine).
/// * **Identity blocks** are never stored. They are always present, `get` returns the payload of the CID itself,
///   `iterate` does not list them, and `delete_many` returns `false` for them.
/// * **Rejected blocks.** Blocks with an unknown hash function or with the codec [`RESERVED_CODEC`] are
///   [`Unsupported`](ErrorKind::Unsupported); blocks larger than [`MAX_BIG_BLOCK_BYTES`] are
///   [`TooLarge`](ErrorKind::TooLarge).
/// * **Trust.** Blocks that are put have been verified ([`Block`]). Reads do not verify again.
/// * **No blocking.** Methods never block the polling thread on a disk. Returned bytes are already in memory, or were
///   just loaded by a thread that may block.
/// * **Cancellation.** Dropping a future or stream stops its work soon and leaves the store consistent. A put whose
///   future was dropped may or may not take effect.
#[async_trait]
pub trait BlockStore: Send + Sync + fmt::Debug {
    /// Returns the bytes of a block, or `None` if the store does not have it. The bytes may be a slice of a mapped
    /// file, so cloning and slicing them copies nothing.
    ///
    /// # Errors
    /// Only failures of the store itself.
    async fn get(&self, cid: &Cid) -> Result<Option<Bytes>>;

    /// Returns the bytes of several blocks in the order of `cids`, or `None` for missing blocks. Lookups are batched.
    /// The stream is lazy: it reads nothing before it is polled, and little more than was consumed.
    ///
    /// There is exactly one item for each of `cids`. A block that cannot be read is an error at its position, and the
    /// stream continues with the others.
    fn get_many(&self, cids: Vec<Cid>) -> BoxStream<'static, Result<(Cid, Option<Bytes>)>>;

    /// Like [`get_many`](Self::get_many), for callers that read many small blocks: blocks that are available together
    /// are returned together. No batch is empty. The batches together hold one result for each of `cids`, in order.
    fn get_batches(&self, cids: Arc<[Cid]>) -> BoxStream<'static, BlockBatch> {
        batches_of(self.get_many(cids.to_vec()).map(|found| found.map(|(_, found)| found)))
    }

    /// Stores blocks and returns once they are durable. Returns one outcome per block, in order. With
    /// a mode that [is atomic](PutMode::is_atomic), either all outcomes are `Ok` or all are `Err`.
    ///
    /// # Errors
    /// An outcome is [`ErrorKind::NoSpace`] if the disk has too little space; later puts may succeed without reopening
    /// the store. It is [`ErrorKind::Unavailable`] after a failure of the disk, until the store is opened again, and
    /// after the store was closed. Stores that are read-only return [`ErrorKind::Forbidden`]. A block that is rejected
    /// has the error above; in an atomic put, the other blocks have its kind.
    async fn put_many(&self, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>>;

    /// Returns for each CID the size of its block in bytes, or `None` if the store does not have it.
    ///
    /// # Errors
    /// Only failures of the store itself.
    async fn has_many(&self, cids: &[Cid]) -> Result<Vec<Option<u64>>>;

    /// Removes blocks and returns once the change is durable. Returns for each block whether it was present. Slices
    /// of the blocks that are in use stay valid.
    ///
    /// # Errors
    /// Only failures of the store itself. Some blocks may have been removed by then.
    async fn delete_many(&self, cids: &[Cid]) -> Result<Vec<bool>> {
        self.delete_unless(cids, Arc::new(|_| false)).await
    }

    /// Removes blocks except those that `spared` keeps, and returns once the change is durable. Returns for each
    /// block whether it was present and was removed.
    ///
    /// The engine calls `spared` for each present block when it decides about the block, never before this method is
    /// called. It may call `spared` more than once, and the last result counts. No put can occur between the call and
    /// the removal. A put of the same block either completes before the call, or is decided after the removal and
    /// then stores the block again. Garbage collection therefore loses no block if its users make `spared` return
    /// `true` *before* they put the block.
    ///
    /// The engine calls `spared` on its writer: it must be fast, must not wait or panic, and must not call the store.
    ///
    /// # Errors
    /// Only failures of the store itself. Some blocks may have been removed by then.
    async fn delete_unless(&self, cids: &[Cid], spared: Spared) -> Result<Vec<bool>>;

    /// Returns the CID, as first put, of every block that was present when the stream was created and still is, in no
    /// particular order. Blocks put meanwhile may be listed as well. Memory use is bounded for any size of the store.
    fn iterate(&self) -> BoxStream<'static, Result<Cid>>;

    /// Same as [`iterate`](Self::iterate), from behind a block on, which need not exist any more. The order of two
    /// blocks is always the same. By default, the stream is an error of kind
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind), for engines without an order.
    fn iterate_after(&self, after: &Cid) -> BoxStream<'static, Result<Cid>> {
        let error = Error::unsupported(format!("this store cannot list its blocks from {after} on: list all of them"));
        stream::iter([Err(error)]).boxed()
    }

    /// Visits once every block that is present during the whole call. If the engine has an order in which reading is
    /// faster than block by block, it compares the block with its content ID; otherwise it returns the CID. Memory
    /// use is bounded for any size of the store.
    ///
    /// A block that compaction moves meanwhile is verified by the compaction and may be omitted here. A block that is
    /// put or deleted meanwhile may be included or not.
    fn scrub(&self) -> BoxStream<'static, Result<Scrubbed>> {
        let named = |cids: Vec<Result<Cid>>| cids.into_iter().collect::<Result<_>>().map(Scrubbed::Unread);
        self.iterate().chunks(SCRUB_BLOCKS).map(named).boxed()
    }

    /// Reclaims the disk space of deleted blocks, and returns when everything worth reclaiming is done. Blocks can be
    /// read, put and deleted meanwhile, and reads that take longer than the compaction keep their data. One
    /// compaction runs at a time; a second call waits for the first.
    ///
    /// A crash during a compaction loses nothing but the work. Dropping the future stops the compaction soon, and its
    /// results so far are kept.
    ///
    /// Registered caches ([`watch`](Self::watch)) drop their stale entries whenever files were removed, and before
    /// this returns.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a share that is not from 0 to 1; [`ErrorKind::NoSpace`] if the live blocks of
    /// a file do not fit on the disk, after all files that fit were compacted; otherwise failures of the store
    /// itself. Results up to the error are kept.
    async fn compact(&self, options: CompactOptions) -> Result<Compacted>;

    /// Makes derived state (the index) durable as well, so that the next open is fast.
    ///
    /// # Errors
    /// Only failures of the store itself.
    async fn flush(&self) -> Result<()>;

    /// Returns totals without scanning anything.
    ///
    /// # Errors
    /// Only failures of the store itself.
    async fn stats(&self) -> Result<Stats>;

    /// Returns the store epoch, which changes when blocks are removed and when bytes of slices that were returned turn
    /// out to be missing. While it is unchanged, the store would return the same bytes for blocks read earlier. It
    /// changes before a [`delete_many`](Self::delete_many) that removed a block returns, and when
    /// [`compact`](Self::compact) has removed a file, because slices in caches would keep occupying its disk space.
    fn epoch(&self) -> StoreEpoch;

    /// Returns an epoch that changes at least when [`epoch`](Self::epoch) changes because of the blocks of a footprint,
    /// or because of a file. It changes after [`epoch`](Self::epoch) does.
    fn epoch_of(&self, _footprint: &Footprint) -> StoreEpoch {
        self.epoch()
    }

    /// Notes that blocks were used without being read from the store, because a cache has what is derived from them.
    /// An engine that evicts blocks should count this as a read.
    fn note_use(&self, _cids: &[Cid]) {}

    /// Registers a cache of values derived from blocks, for as long as the cache exists. [`compact`](Self::compact)
    /// makes it drop its stale entries. Engines that return no slices of files may ignore the call.
    fn watch(&self, _cache: Weak<dyn DropStale>) {}

    /// Checks whether blocks can be stored, as far as is known without trying. Cheap enough for health checks.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`], with the reason: a disk that failed, or a store that was closed. Reads may still
    /// succeed.
    fn check(&self) -> Result<()>;

    /// Returns the state of the disk that puts write to, or `None` for engines without a disk and if the file system
    /// does not report its free space. If the last put failed, first writes a small file to test the disk.
    ///
    /// # Errors
    /// The reason why the disk cannot be written now.
    async fn disk(&self) -> Result<Option<Disk>> {
        Ok(None)
    }

    /// Returns the mapped files that returned [`Bytes`] may be slices of, for sockets that can send from a file.
    /// Returns `None` for engines that map no files.
    fn mappings(&self) -> Option<Mappings> {
        None
    }
}

/// Combines blocks that are available together into batches. No batch is empty.
pub(crate) fn batches_of(
    blocks: impl Stream<Item = Result<Option<Bytes>>> + Send + 'static,
) -> BoxStream<'static, BlockBatch> {
    let mut blocks = blocks.fuse().boxed();
    let batches = stream::poll_fn(move |cx| {
        let (mut batch, mut bytes) = (BlockBatch::default(), 0);
        while batch.len() < BATCH_BLOCKS && bytes < BATCH_BYTES {
            match blocks.poll_next_unpin(cx) {
                Poll::Ready(Some(found)) => {
                    bytes += found.iter().flatten().map(Bytes::len).sum::<usize>();
                    batch.push(found);
                }
                Poll::Ready(None) if batch.is_empty() => return Poll::Ready(None),
                Poll::Pending if batch.is_empty() => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Ready(Some(batch))
    });
    batches.boxed()
}

/// Convenience methods for every [`BlockStore`].
#[async_trait]
pub trait BlockStoreExt: BlockStore {
    /// Stores one block; see [`BlockStore::put_many`].
    ///
    /// # Errors
    /// The outcome of [`BlockStore::put_many`].
    async fn put(&self, block: Block) -> Result<Stored> {
        let mut outcomes = self.put_many(vec![block], PutMode::Atomic).await;
        outcomes.pop().unwrap_or_else(|| Err(Error::internal("the store returned no outcome for a block")))
    }

    /// Returns the size of a block in bytes, or `None` if the store does not have it.
    ///
    /// # Errors
    /// Like [`BlockStore::has_many`].
    async fn size(&self, cid: &Cid) -> Result<Option<u64>> {
        Ok(self.has_many(std::slice::from_ref(cid)).await?.pop().flatten())
    }

    /// Returns the bytes of a block that must be present.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], with the name of the block, if the store does not have it; otherwise like
    /// [`BlockStore::get`].
    async fn require(&self, cid: &Cid) -> Result<Bytes> {
        self.get(cid).await?.ok_or_else(|| Error::no_block(cid, format!("block {cid} is not in this store")))
    }
}

impl<S: BlockStore + ?Sized> BlockStoreExt for S {}

/// Action of an engine for a block that it accepts; see [`admit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// None, because the CID contains the data.
    Identity,
    /// Store it.
    Store,
}

/// Decides for an engine whether it accepts a block.
///
/// # Errors
/// [`ErrorKind::Unsupported`] and [`ErrorKind::TooLarge`] for blocks that no engine stores; see [`BlockStore`].
pub fn admit(block: &Block) -> Result<Admission> {
    let (cid, size) = (block.cid(), block.data().len());
    if cid.codec() == RESERVED_CODEC {
        return Err(Error::unsupported(format!(
            "block {cid} has codec 0x{RESERVED_CODEC:x}, which is reserved: use another"
        )));
    }
    match HashFunction::from_code(cid.hash().code())? {
        HashFunction::Identity => Ok(Admission::Identity),
        _ if size > MAX_BIG_BLOCK_BYTES => Err(Error::too_large(format!(
            "block {cid} has {size} bytes, over the limit of {MAX_BIG_BLOCK_BYTES} bytes: add it as a file"
        ))),
        _ => Ok(Admission::Store),
    }
}

/// Returns the outcomes of an atomic put in which some blocks were rejected. Rejected blocks keep their errors; the
/// others get an error that names the first of them.
pub fn refuse_all<T>(admissions: Vec<Result<T>>) -> Vec<Result<Stored>> {
    let rejected = admissions.iter().zip(0..).find_map(|(admission, index)| Some((index, admission.as_ref().err()?)));
    let (kind, why) = match rejected {
        Some((index, error)) => (error.kind(), format!("not stored: block {index} of the batch was rejected: {error}")),
        None => (ErrorKind::Internal, "not stored".to_owned()),
    };
    admissions
        .into_iter()
        .map(|admission| Err(admission.err().unwrap_or_else(|| Error::new(kind, why.clone()))))
        .collect()
}
