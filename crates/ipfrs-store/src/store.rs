//! The contract that every engine keeps.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use ipfrs_core::hash::HashFunction;
use ipfrs_core::limits::MAX_BLOCK_BYTES;
use ipfrs_core::{Block, Cid, Error, ErrorKind, Multihash, Result};

use crate::{BlockBatch, DropStale, Mappings};

/// The codec, from the private-use range of the multicodec table, of the records with which the pack engine notes
/// deletions. No block may have it, so that no client can forge a deletion.
pub const RESERVED_CODEC: u64 = 0x30_0001;

/// Most blocks of a batch of [`BlockStore::get_batches`] for engines that make none of their own.
const BATCH_BLOCKS: usize = 16;

/// Blocks that [`BlockStore::scrub`] names at a time, for engines that have no order of their own.
const SCRUB_BLOCKS: usize = 1_000;

/// Says which blocks a deletion must spare: `true` keeps the block. See [`BlockStore::delete_unless`].
pub type Spared = Arc<dyn Fn(&Multihash) -> bool + Send + Sync>;

/// What happens to the rest of a [`BlockStore::put_many`] when one of its blocks cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PutMode {
    /// All of the blocks are stored or none; what was there before is never removed.
    #[default]
    Atomic,
    /// Each block that can be stored is.
    BestEffort,
}

/// How a block came to be in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// It was written now.
    New,
    /// It was there before, or it is an identity block, which needs no store.
    Present,
}

/// Totals of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Blocks that can be read.
    pub blocks: u64,
    /// Their payload, in bytes.
    pub payload_bytes: u64,
    /// Bytes taken on disk, framing, index and dead blocks included; 0 for engines without a disk.
    pub disk_bytes: u64,
    /// Bytes on disk that hold nothing any more: what [`BlockStore::compact`] can give back at most. Deletions that must
    /// be remembered are not counted; 0 for engines without a disk.
    pub dead_bytes: u64,
    /// Lookups answered from the in-memory location cache since the store was opened.
    pub cache_hits: u64,
    /// Lookups that had to read the index since the store was opened.
    pub cache_misses: u64,
    /// Approximate size of the location cache, in bytes.
    pub cache_bytes: u64,
}

/// Disk that an engine writes blocks to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Directory of the store on it.
    pub dir: PathBuf,
    /// Number of its file system (`st_dev`): equal for two directories on one file system.
    pub device: u64,
    /// Bytes that can be written to it.
    pub free_bytes: u64,
    /// Bytes of them that puts leave free.
    pub reserve: Reserve,
}

impl Disk {
    /// Checks that another `bytes` of blocks can be put.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] names the disk, and says how much is free and how much is kept free.
    pub fn check(&self, bytes: u64) -> Result<()> {
        match self.free_bytes >= bytes.saturating_add(self.reserve.after(bytes)) {
            true => Ok(()),
            false => Err(no_room(&self.dir, self.free_bytes, self.reserve.after(bytes), bytes)),
        }
    }
}

/// Returns the error of a disk that lacks room for `needed` bytes besides the `kept` ones.
pub(crate) fn no_room(dir: &Path, free: u64, kept: u64, needed: u64) -> Error {
    let dir = dir.display();
    Error::new(
        ErrorKind::NoSpace,
        format!(
            "the disk of {dir} has {free} bytes left, of which {kept} are kept free for collecting garbage, and {needed} \
             are needed: make room"
        ),
    )
}

/// How much of the disk puts leave free: what [`BlockStore::compact`] needs to move all that may be alive in one pack, at
/// least 16 MiB. So a store that has filled its disk can be emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reserve {
    /// Length of the longest pack, in bytes.
    pub(crate) longest_pack: u64,
    /// Length at which a pack is full, in bytes; 0 for engines without a disk.
    pub(crate) pack_bytes: u64,
}

/// What [`BlockStore::compact`] is to look at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompactOptions {
    /// Files are rewritten of which at least this share is dead: 0.25 is a quarter. At 0, all are of which anything is,
    /// from the oldest on. What is rewritten of a file needs room on the disk until the file is removed.
    pub min_dead_share: f64,
    /// The same on a disk that is full, where no more blocks can be put. Between that and a disk of which half is free,
    /// the share that counts is between the two.
    pub min_dead_share_if_full: f64,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self { min_dead_share: 0.25, min_dead_share_if_full: 0.0 }
    }
}

impl CompactOptions {
    /// Returns options with one share for all disks, full or not.
    #[must_use]
    pub const fn from_share(min_dead_share: f64) -> Self {
        Self { min_dead_share, min_dead_share_if_full: min_dead_share }
    }

    /// Refuses what is no share.
    pub(crate) fn check(self) -> Result<()> {
        let is_share = |share: &f64| (0.0..=1.0).contains(share);
        match [self.min_dead_share, self.min_dead_share_if_full].into_iter().find(|share| !is_share(share)) {
            None => Ok(()),
            Some(share) => Err(Error::invalid(format!("{share} is no share of dead bytes: give one from 0 to 1"))),
        }
    }
}

/// What [`BlockStore::compact`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compacted {
    /// Packs that were removed.
    pub packs: u64,
    /// Bytes of them that were needed and are in other packs now, framing included.
    pub moved_bytes: u64,
    /// How much less of the disk is taken when this returns, in bytes, by the file system's count. A removed pack
    /// is not counted while slices of it are in use: the file system frees it when the last of them is dropped.
    pub freed_bytes: u64,
    /// Packs that would have been removed, but are not what the store has written. Nothing of them was removed, and the
    /// blocks that can be read still are.
    pub damaged: Vec<DamagedPack>,
}

/// What became of some blocks in a [`BlockStore::scrub`].
#[derive(Debug)]
pub enum Scrubbed {
    /// They were read and compared with their content IDs.
    Read {
        /// How many.
        blocks: u64,
        /// Their payload, in bytes.
        bytes: u64,
        /// Those that are not what their content IDs say, and why.
        corrupt: Vec<(Cid, Error)>,
    },
    /// They are for the caller to get and to compare, one by one.
    Unread(Vec<Cid>),
}

/// A pack in which something is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedPack {
    /// The file.
    pub path: PathBuf,
    /// Where the first section begins that is not sound, in bytes.
    pub offset: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// A set of blocks, keyed by multihash: a block put under one codec or CID version is found under every other.
///
/// Contracts that hold for every engine, and that the conformance suite checks:
///
/// * **Durable.** When [`put_many`](Self::put_many) or [`delete_many`](Self::delete_many) returns, its effect survives a
///   crash of the process (and of the machine, with the default durability).
/// * **Identity blocks** are never stored: they are always present, `get` gives the payload of the CID itself, `iterate`
///   does not list them, and `delete_many` answers `false` for them.
/// * **Refused.** Blocks whose hash function is unknown here or whose codec is [`RESERVED_CODEC`] are
///   [`Unsupported`](ErrorKind::Unsupported); blocks over [`MAX_BLOCK_BYTES`] are [`TooLarge`](ErrorKind::TooLarge).
/// * **Trust.** Blocks that are put have been verified ([`Block`]); reading does not verify again.
/// * **No waiting on a worker.** Methods never block the thread that polls them on a disk: bytes that are returned are in
///   memory, or have just been brought there by a thread that may wait.
/// * **Dropping a future or stream** stops its work soon and leaves the store consistent; a put whose future was dropped
///   may or may not have happened.
#[async_trait]
pub trait BlockStore: Send + Sync + fmt::Debug {
    /// The bytes of a block, or `None` when it is not here. The bytes may be a slice of a mapped file: cloning and
    /// slicing them copies nothing.
    ///
    /// # Errors
    /// Only for failures of the store itself.
    async fn get(&self, cid: &Cid) -> Result<Option<Bytes>>;

    /// The bytes of many blocks, in the order of `cids`; `None` for those that are not here. Lookups are made in
    /// batches. Lazy: nothing is read before the stream is polled, and little beyond what was taken.
    ///
    /// There is exactly one item for each of `cids`, always: a block that cannot be read is an error in its place, and
    /// the stream goes on with the others.
    fn get_many(&self, cids: Vec<Cid>) -> BoxStream<'static, Result<(Cid, Option<Bytes>)>>;

    /// [`get_many`](Self::get_many) for whoever asks for many small blocks: what can be had together comes together. No batch
    /// is empty, and the answers of all of them are, one after the other, one for each of `cids`.
    fn get_batches(&self, cids: Arc<[Cid]>) -> BoxStream<'static, BlockBatch> {
        let batch = |answers: Vec<Result<(Cid, Option<Bytes>)>>| {
            let mut batch = BlockBatch::default();
            answers.into_iter().for_each(|answer| batch.push(answer.map(|(_, found)| found)));
            batch
        };
        self.get_many(cids.to_vec()).ready_chunks(BATCH_BLOCKS).map(batch).boxed()
    }

    /// Stores blocks and returns once they are durable: one outcome per block, in order. In
    /// [`PutMode::Atomic`] either all outcomes are `Ok` or all are `Err`.
    async fn put_many(&self, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>>;

    /// For each CID, the size of its block in bytes when it is here.
    ///
    /// # Errors
    /// Only for failures of the store itself.
    async fn has_many(&self, cids: &[Cid]) -> Result<Vec<Option<u64>>>;

    /// Removes blocks and returns once that is durable: for each, whether it was there. Slices of the block that are in
    /// use stay valid.
    ///
    /// # Errors
    /// Only for failures of the store itself; then some may have been removed.
    async fn delete_many(&self, cids: &[Cid]) -> Result<Vec<bool>> {
        self.delete_unless(cids, Arc::new(|_| false)).await
    }

    /// Removes blocks but those that `spared` keeps, and returns once that is durable: for each, whether it was there
    /// and was removed.
    ///
    /// `spared` is asked about blocks that are there, when the engine decides about each, which is not before this is
    /// called and may be more than once: the last answer counts. Nothing can be put in between. A put of the block is
    /// either answered before the question, or decided after the removal, and then stores it anew. So a collector of
    /// garbage loses nothing if whoever needs a block makes `spared` say so *before* putting it.
    ///
    /// `spared` is called where the engine writes: it must be quick, must neither wait nor panic, and must not call the
    /// store.
    ///
    /// # Errors
    /// Only for failures of the store itself; then some may have been removed.
    async fn delete_unless(&self, cids: &[Cid], spared: Spared) -> Result<Vec<bool>>;

    /// The CID, as it was first put, of every block that was there when the stream was made and still is; in no order.
    /// Blocks that are put meanwhile may be listed as well. Memory is bounded whatever the size of the store.
    fn iterate(&self) -> BoxStream<'static, Result<Cid>>;

    /// Every block that is there throughout, once: compared with its content ID where the engine knows an order in which that
    /// is quicker than one by one, else named. Memory is bounded whatever the size of the store.
    ///
    /// A block that compaction moves meanwhile is verified by that, and may be left out here; one that is put or deleted
    /// meanwhile may be here or not.
    fn scrub(&self) -> BoxStream<'static, Result<Scrubbed>> {
        let named = |cids: Vec<Result<Cid>>| cids.into_iter().collect::<Result<_>>().map(Scrubbed::Unread);
        self.iterate().chunks(SCRUB_BLOCKS).map(named).boxed()
    }

    /// Gives the disk space of deleted blocks back, and returns when all that is worth it was done. Blocks can be read, put
    /// and deleted meanwhile; who reads slower than this runs keeps what is being read. One compaction runs at a time,
    /// and a second waits for the first.
    ///
    /// A crash in the middle costs nothing but the work. Dropping the future stops soon; what was done stays done.
    ///
    /// Caches that [`watch`](Self::watch) drop what is stale in them, before it returns and whenever files were
    /// removed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a share that is none; [`ErrorKind::NoSpace`] when what is needed of a file does
    /// not fit on the disk, after all those were removed of which it did; failures of the store itself. What was
    /// done before stays done.
    async fn compact(&self, options: CompactOptions) -> Result<Compacted>;

    /// Makes derived state (the index) durable too, so that the next open is quick.
    ///
    /// # Errors
    /// Only for failures of the store itself.
    async fn flush(&self) -> Result<()>;

    /// Totals. Cheap: nothing is scanned.
    ///
    /// # Errors
    /// Only for failures of the store itself.
    async fn stats(&self) -> Result<Stats>;

    /// A number that changes when blocks go away: bytes that were read before are still what the store would give as
    /// long as it is the same. It changes before a [`delete_many`](Self::delete_many) that removed something returns, and
    /// when [`compact`](Self::compact) has removed a file: slices that are kept would keep its room on the disk.
    fn removals(&self) -> u64;

    /// Registers a cache that holds what was made of blocks, for as long as the cache exists.
    /// [`compact`](Self::compact) has it drop what is stale. Engines that give no slices of files may ignore it.
    fn watch(&self, _cache: Weak<dyn DropStale>) {}

    /// Whether blocks can be stored, as far as is known without trying. Cheap: for health checks.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] gives the reason for which nothing can be stored: a disk that failed, or a store that
    /// was closed. Blocks may be read all the same.
    fn check(&self) -> Result<()>;

    /// Looks at the disk that puts write to; `None` for engines without one, and where the file system does not tell
    /// its free space. A disk that failed the last put is tried with a small file first.
    ///
    /// # Errors
    /// The reason for which nothing can be written now.
    async fn disk(&self) -> Result<Option<Disk>> {
        Ok(None)
    }

    /// The mapped files that returned [`Bytes`] may lie in, for sockets that can send from a file; `None` for engines
    /// that map nothing.
    fn mappings(&self) -> Option<Mappings> {
        None
    }
}

/// Sugar over [`BlockStore`].
#[async_trait]
pub trait BlockStoreExt: BlockStore {
    /// Stores one block; see [`BlockStore::put_many`].
    ///
    /// # Errors
    /// As the one outcome of `put_many`.
    async fn put(&self, block: Block) -> Result<Stored> {
        let mut outcomes = self.put_many(vec![block], PutMode::Atomic).await;
        outcomes.pop().unwrap_or_else(|| Err(Error::internal("the store gave no outcome for a block")))
    }

    /// The size of a block in bytes, or `None` when it is not here.
    ///
    /// # Errors
    /// As [`BlockStore::has_many`].
    async fn size(&self, cid: &Cid) -> Result<Option<u64>> {
        Ok(self.has_many(std::slice::from_ref(cid)).await?.pop().flatten())
    }

    /// The bytes of a block that must be here.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] names the block.
    async fn require(&self, cid: &Cid) -> Result<Bytes> {
        self.get(cid).await?.ok_or_else(|| Error::no_block(cid, format!("block {cid} is not in this store")))
    }
}

impl<S: BlockStore + ?Sized> BlockStoreExt for S {}

/// What is to be done with a block that may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Nothing: its CID carries its bytes.
    Identity,
    /// Store it.
    Store,
}

/// Refuses what no engine keeps.
pub(crate) fn admit(block: &Block) -> Result<Admission> {
    let (cid, size) = (block.cid(), block.data().len());
    if cid.codec() == RESERVED_CODEC {
        return Err(Error::unsupported(format!(
            "block {cid} has codec 0x{RESERVED_CODEC:x}, which is reserved: use another"
        )));
    }
    match HashFunction::from_code(cid.hash().code())? {
        HashFunction::Identity => Ok(Admission::Identity),
        _ if size > MAX_BLOCK_BYTES => Err(Error::too_large(format!(
            "block {cid} has {size} bytes, over the limit of {MAX_BLOCK_BYTES} bytes: add it as a file"
        ))),
        _ => Ok(Admission::Store),
    }
}

/// The outcomes of an atomic put of which some blocks were refused: those keep their error, the others name it.
pub(crate) fn refuse_all<T>(admissions: Vec<Result<T>>) -> Vec<Result<Stored>> {
    let refused = admissions.iter().zip(0..).find_map(|(admission, index)| Some((index, admission.as_ref().err()?)));
    let (kind, why) = match refused {
        Some((index, error)) => (error.kind(), format!("not stored: block {index} of the batch was refused: {error}")),
        None => (ErrorKind::Internal, "not stored".to_owned()),
    };
    admissions
        .into_iter()
        .map(|admission| Err(admission.err().unwrap_or_else(|| Error::new(kind, why.clone()))))
        .collect()
}
