//! The on-disk engine: append-only packs, an index derived from them, and a single writer.
//!
//! * `record` defines the format of a pack, `scan` parses packs without trusting them, and `file` is an open pack.
//! * `index` holds the locations of blocks, and `cache` the recently used ones. `read` looks up one block and `walk`
//!   many; `in_order` reads adjacent blocks sequentially from the disk.
//! * `queue` bounds the calls that wait for the `writer`, which commits them in `group`s. `changes` are their changes
//!   to the index.
//! * `compaction` reclaims the space of dead blocks, and `scrub` verifies live blocks.
//! * `lock` excludes other processes. `recovery` opens a store after a crash and updates the index with `replay`;
//!   `read_only` does so without writing. `shared` is the state common to all of them.
//!
//! **State after a crash.** A put that was acknowledged is present. A put that was not acknowledged, atomic or not,
//! may be partly present: blocks are named by their content, so any block that verifies may be kept. A put that
//! *failed* leaves nothing behind.

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

/// Minimum of [`PackOptions::pack_bytes`].
const MIN_PACK_BYTES: u32 = 64 * 1024;

/// Options of a [`PackStore`].
#[derive(Debug, Clone)]
pub struct PackOptions {
    /// Length at which a pack is full and the next one begins, in bytes; at least 64 KiB. A larger atomic put gets a
    /// pack of its own. On a disk smaller than 64 times this length, the length is reduced to 1/64 of the disk, but
    /// not below 12 MiB. Puts leave as much free space as the longest pack occupies (see
    /// [`Reserve`](crate::Reserve)), so that a store that has filled its disk can be compacted.
    pub pack_bytes: u32,
    /// Durability of acknowledged writes.
    pub durability: Durability,
    /// Whether locations of blocks are cached in memory.
    pub cache_enabled: bool,
    /// Maximum number of cached locations, at about 128 bytes each.
    pub cache_entries: usize,
    /// Whether every read copies the block out of its pack and compares it with its content ID. Costs a hash and a
    /// copy per read. Returned blocks are then never slices of mapped files.
    pub verify_on_read: bool,
    /// Whether the store is opened without changing anything on the disk, for example on a read-only file system. The
    /// store must exist. Several processes may read it at the same time, and none can write it meanwhile. If the
    /// index is missing, damaged or behind the packs, the rebuilt part is kept in memory. Puts and deletions are
    /// [`Forbidden`](ipfrs_core::ErrorKind).
    pub read_only: bool,
    /// Name of this process in the errors of other processes that try to open the store, for example `ipfrs-cli
    /// gateway start`.
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

/// A store that keeps blocks in pack files. Clones share the store.
///
/// If the last handle is dropped without [`close`](Self::close), the writer thread ends shortly afterwards and then
/// releases the store for other processes.
#[derive(Debug, Clone)]
pub struct PackStore {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
}

impl PackStore {
    /// Opens the store in `dir`, creating it if it does not exist. Waits for the disk: content that the index does
    /// not cover yet is read and verified.
    ///
    /// # Errors
    /// [`Conflict`](ipfrs_core::ErrorKind), with the process that has the store open; [`Unsupported`] for a store
    /// with a newer format; [`InvalidInput`] for an option that is out of range; otherwise an error with the path and
    /// the cause.
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

    /// Whether the store has no blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.stats().blocks == 0
    }

    /// Closes the store: pending writes are completed, the index is made durable, and other processes may open the
    /// store. Bytes that were read stay valid. All other operations on any handle return
    /// [`Unavailable`](ipfrs_core::ErrorKind) from now on.
    ///
    /// # Errors
    /// If the index could not be made durable. The store is closed nevertheless, and the next start replays more.
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
        // With `verify_on_read`, returned blocks are copies.
        (!self.shared.options.verify_on_read).then(|| self.shared.mappings.clone())
    }
}
