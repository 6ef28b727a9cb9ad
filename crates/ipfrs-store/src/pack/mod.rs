//! The engine that keeps blocks on disk: append-only packs, an index that is derived from them, one writer.
//!
//! * `record` is the bytes of a pack, `scan` reads them with suspicion, `file` is an open pack.
//! * `index` says where blocks are, `cache` remembers what it said, `read` goes from a CID to bytes,
//!   `walk` from many CIDs to theirs; `in_order` is how much that lies side by side comes from the disk.
//! * `queue` bounds what waits for the `writer`, which commits `group`s; `changes` are what they change.
//! * `compaction` gives the room of dead blocks back, `scrub` verifies the others.
//! * `lock` keeps other processes away, `recovery` opens what a crash may have left and has the
//!   index told of it by `replay`, `read_only` does so without a write, `shared` is what all of them see.
//!
//! **What a crash can leave.** A put that was acknowledged is there afterwards. One that was not, atomic or not, may be
//! there in part: blocks are named by their content, so whatever verifies may be kept. A put that *failed* leaves
//! nothing behind.

mod cache;
mod changes;
mod compaction;
#[cfg(test)]
mod crashes;
mod file;
mod group;
mod in_order;
mod index;
#[cfg(test)]
mod instants;
mod lock;
mod queue;
mod read;
mod read_only;
mod record;
mod recovery;
mod replay;
mod room;
mod scan;
mod scrub;
mod shared;
mod verified;
mod walk;
mod writer;

use std::path::Path;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use ipfrs_core::{Block, Cid, Error, Result};

use self::group::again;
use self::queue::Queue;
use self::shared::Shared;
use self::walk::Walk;
use self::writer::Writer;
use crate::store::{self, Admission};
use crate::{
    BlockBatch, BlockStore, CompactOptions, Compacted, Disk, DropStale, Durability, Mappings, PutMode, Scrubbed,
    Spared, Stats, Stored,
};

/// Smallest [`PackOptions::pack_bytes`].
const MIN_PACK_BYTES: u32 = 64 * 1024;

/// How a [`PackStore`] works.
#[derive(Debug, Clone)]
pub struct PackOptions {
    /// Length at which a pack is full and the next one begins, in bytes; at least 64 KiB. An atomic put that is larger
    /// gets a pack of its own. On a disk of less than 64 times that, it is a 64th of the disk, or 12 MiB. Puts leave as much
    /// room as the longest pack takes (see [`Reserve`](crate::Reserve)), so that a store that has filled its disk can be compacted.
    pub pack_bytes: u32,
    /// What "acknowledged" means.
    pub durability: Durability,
    /// Whether locations of blocks are cached in memory.
    pub cache_enabled: bool,
    /// How many locations are cached, at about 128 bytes each.
    pub cache_entries: usize,
    /// Whether every block is copied out of its pack and compared with its content ID when it is read. Costs a hash and a
    /// copy for each read; blocks are never slices of mapped files then.
    pub verify_on_read: bool,
    /// Whether the store is opened without changing anything on the disk, from a file system that cannot be written for
    /// example. It must be there; several processes may read it, and none can write it meanwhile. What an index is missing
    /// or damaged in, or is behind with, is kept in memory. Puts and deletions are
    /// [`Forbidden`](ipfrs_core::ErrorKind).
    pub read_only: bool,
    /// What another process that wants the store is told about this one, e.g. `ipfrs-cli gateway start`.
    pub holder: String,
}

impl Default for PackOptions {
    fn default() -> Self {
        Self {
            pack_bytes: 1024 * 1024 * 1024,
            durability: Durability::default(),
            cache_enabled: true,
            cache_entries: 256 * 1024,
            verify_on_read: false,
            read_only: false,
            holder: "a program with a block store".to_owned(),
        }
    }
}

/// Keeps blocks in pack files. Cloning gives another handle of the same store.
///
/// When the last handle is dropped without [`close`](Self::close), the writer ends on its own a moment later, and frees
/// the store for other processes then.
#[derive(Debug, Clone)]
pub struct PackStore {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
}

impl PackStore {
    /// Opens the store in `dir`, making one where there is none. Waits for the disk: what the index does not know yet
    /// is read and verified.
    ///
    /// # Errors
    /// [`Conflict`](ipfrs_core::ErrorKind) names the process that has the store open, [`Unsupported`] the format of a
    /// newer one, [`InvalidInput`] an option that is out of range; else the path and what is wrong with it.
    ///
    /// [`Unsupported`]: ipfrs_core::ErrorKind
    /// [`InvalidInput`]: ipfrs_core::ErrorKind
    pub fn open(dir: &Path, options: PackOptions) -> Result<Self> {
        if options.pack_bytes < MIN_PACK_BYTES {
            return Err(Error::invalid(format!(
                "packs of {} bytes are too small: give {MIN_PACK_BYTES} to {}",
                options.pack_bytes,
                u32::MAX
            )));
        }
        let recovered = recovery::open(dir, options)?;
        let shared = Arc::clone(&recovered.shared);
        let (queue, jobs) = Queue::new();
        let writer = Writer::new(recovered, jobs);
        std::thread::Builder::new()
            .name("ipfrs-store".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| Error::io("cannot start the thread that writes blocks", error))?;
        Ok(Self { shared, queue: Arc::new(queue) })
    }

    /// Whether no block can be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.stats().blocks == 0
    }

    /// Ends the store: what was submitted before is written, the index is made durable, and other processes may open
    /// it. Bytes that were read stay valid; everything else that is asked of any handle is
    /// [`Unavailable`](ipfrs_core::ErrorKind) from now on.
    ///
    /// # Errors
    /// When the index could not be made durable. The store is closed all the same, and the next start replays more.
    pub async fn close(&self) -> Result<()> {
        self.queue.close(&self.shared).await
    }
}

#[async_trait]
impl BlockStore for PackStore {
    async fn get(&self, cid: &Cid) -> Result<Option<Bytes>> {
        self.get_block(cid).await
    }

    fn get_many(&self, cids: Vec<Cid>) -> BoxStream<'static, Result<(Cid, Option<Bytes>)>> {
        Walk::new(self.clone(), cids.into()).blocks()
    }

    fn get_batches(&self, cids: Arc<[Cid]>) -> BoxStream<'static, BlockBatch> {
        Walk::new(self.clone(), cids).batches()
    }

    async fn put_many(&self, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>> {
        if let Err(error) = self.shared.check_writable() {
            return blocks.iter().map(|_| Err(again(&error))).collect();
        }
        let admissions: Vec<_> = blocks.iter().map(store::admit).collect();
        if mode == PutMode::Atomic && admissions.iter().any(Result::is_err) {
            return store::refuse_all(admissions);
        }
        let is_stored = |admission: &Result<Admission>| matches!(admission, Ok(Admission::Store));
        let stored = blocks.into_iter().zip(&admissions).filter(|(_, admission)| is_stored(admission));
        let stored = stored.map(|(block, _)| block).collect();
        let mut outcomes = self.queue.put(&self.shared, stored, mode).await.into_iter();
        let missing = || Err(Error::internal("the store gave no outcome for a block"));
        let outcome = |admission| match admission? {
            Admission::Identity => Ok(Stored::Present),
            Admission::Store => outcomes.next().unwrap_or_else(missing),
        };
        admissions.into_iter().map(outcome).collect()
    }

    async fn has_many(&self, cids: &[Cid]) -> Result<Vec<Option<u64>>> {
        self.sizes(cids).await
    }

    async fn delete_unless(&self, cids: &[Cid], spared: Spared) -> Result<Vec<bool>> {
        self.shared.check_writable()?;
        self.queue.delete(&self.shared, cids, &spared).await
    }

    fn removals(&self) -> u64 {
        self.shared.removals()
    }

    fn watch(&self, cache: Weak<dyn DropStale>) {
        self.shared.caches.register(cache);
    }

    fn iterate(&self) -> BoxStream<'static, Result<Cid>> {
        let pages = stream::try_unfold((self.clone(), None), |(store, after)| async move {
            let (cids, last) = store.blocking(move |shared| shared.page(after.as_deref())).await?;
            Ok::<_, Error>(last.map(|last| (stream::iter(cids), (store, Some(last)))))
        });
        futures::TryStreamExt::try_flatten(pages).boxed()
    }

    fn scrub(&self) -> BoxStream<'static, Result<Scrubbed>> {
        self.scrub_packs()
    }

    async fn compact(&self, options: CompactOptions) -> Result<Compacted> {
        self.shared.check_writable()?;
        self.compact_packs(options).await
    }

    async fn flush(&self) -> Result<()> {
        self.queue.flush(&self.shared).await
    }

    async fn stats(&self) -> Result<Stats> {
        Ok(self.shared.stats())
    }

    fn check(&self) -> Result<()> {
        self.shared.check()
    }

    async fn disk(&self) -> Result<Option<Disk>> {
        self.blocking(Shared::disk).await
    }

    fn mappings(&self) -> Option<Mappings> {
        // Of what is verified, copies are given out.
        (!self.shared.options.verify_on_read).then(|| self.shared.mappings.clone())
    }
}
