//! The filestore as a block store.

use std::cmp;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use ipfrs_core::{Block, Cid, Result};

use super::reference::{Position, Reference, ReferenceOrder};
use super::{FileState, Filestore, broken};
use crate::pack::key_of;
use crate::store;
use crate::{
    BlockBatch, BlockStore, CompactOptions, Compacted, Disk, DropStale, Footprint, Mappings, PutMode, Scrubbed, Spared,
    Stats, StoreEpoch, Stored,
};

/// Most blocks of files that are read ahead of the consumer.
const READ_AHEAD: usize = 4;

/// Blocks of files that a scrub verifies at a time.
const SCRUB_BLOCKS: usize = 16;

impl Filestore {
    /// Returns the CIDs of the packs and of the references behind `after`, in the order of their multihashes.
    fn merged(
        &self,
        packs: BoxStream<'static, Result<Cid>>,
        after: Option<Position>,
    ) -> BoxStream<'static, Result<Cid>> {
        if self.is_empty() {
            return packs;
        }
        let files = self.list_after(ReferenceOrder::Hash, after).map(|reference| reference.map(|found| found.cid));
        let both = (packs.peekable(), files.boxed().peekable());
        let merged = stream::unfold(both, |(packs, files)| async move {
            let (mut packs, mut files) = (packs, files);
            let (pack, file) = (Pin::new(&mut packs).peek().await, Pin::new(&mut files).peek().await);
            let order = match (pack, file) {
                (None, None) => return None,
                (Some(Ok(pack)), Some(Ok(file))) => key_of(pack.hash()).cmp(&key_of(file.hash())),
                // Errors come first.
                (_, None) | (Some(Err(_)), _) => cmp::Ordering::Less,
                (None, _) | (_, Some(Err(_))) => cmp::Ordering::Greater,
            };
            let next = match order {
                cmp::Ordering::Less => packs.next().await,
                cmp::Ordering::Equal => {
                    files.next().await;
                    packs.next().await
                }
                cmp::Ordering::Greater => files.next().await,
            };
            next.map(|next| (next, (packs, files)))
        });
        merged.boxed()
    }

    /// Returns what the packs have found, and otherwise the block from its file.
    async fn or_from_file(self, cid: Cid, found: Result<Option<Bytes>>) -> Result<Option<Bytes>> {
        match found? {
            None => self.load(cid).await,
            found => Ok(found),
        }
    }

    /// Verifies some references.
    async fn scrub_references(self, references: Vec<Result<Reference>>) -> Result<Scrubbed> {
        let (mut blocks, mut bytes, mut corrupt) = (0, 0, Vec::new());
        let references: Vec<_> = references.into_iter().collect::<Result<_>>()?;
        let cids: Vec<_> = references.iter().map(|reference| reference.cid).collect();
        let in_packs = self.are_in_packs(&cids).await?;
        // A repair deletes corrupt blocks, so blocks that the packs have are left to their own scrub.
        for (reference, _) in references.into_iter().zip(in_packs).filter(|(_, is_in)| !is_in) {
            match self.verify(&reference).await? {
                FileState::Intact => {}
                state => corrupt.push((reference.cid, broken(&reference.cid, &state))),
            }
            (blocks, bytes) = (blocks + 1, bytes + u64::from(reference.len));
        }
        Ok(Scrubbed::Read { blocks, bytes, corrupt })
    }
}

#[deny(clippy::missing_trait_methods, reason = "a default would bypass the packs")]
#[async_trait]
impl BlockStore for Filestore {
    async fn get(&self, cid: &Cid) -> Result<Option<Bytes>> {
        match self.inner.packs.get(cid).await? {
            None if !self.is_empty() => self.load(*cid).await,
            found => Ok(found),
        }
    }

    fn get_many(&self, cids: Vec<Cid>) -> BoxStream<'static, Result<(Cid, Option<Bytes>)>> {
        let blocks = self.inner.packs.get_many(cids);
        if self.is_empty() {
            return blocks;
        }
        let filestore = self.clone();
        let from_file = move |found: Result<(Cid, Option<Bytes>)>| {
            let filestore = filestore.clone();
            async move {
                let (cid, found) = found?;
                Ok((cid, filestore.or_from_file(cid, Ok(found)).await?))
            }
        };
        blocks.map(from_file).buffered(READ_AHEAD).boxed()
    }

    fn get_batches(&self, cids: Arc<[Cid]>) -> BoxStream<'static, BlockBatch> {
        let batches = self.inner.packs.get_batches(Arc::clone(&cids));
        if self.is_empty() {
            return batches;
        }
        let (filestore, mut returned) = (self.clone(), 0);
        let filled = batches.flat_map(move |batch| {
            let requested: Vec<_> = cids.iter().skip(returned).take(batch.len()).copied().collect();
            returned += batch.len();
            if (0..batch.len()).all(|index| !matches!(batch.section(index), Ok(None))) {
                return stream::iter([batch]).boxed();
            }
            let filestore = filestore.clone();
            let blocks = stream::iter(requested.into_iter().zip(batch.into_answers()));
            let loaded =
                blocks.map(move |(cid, found)| filestore.clone().or_from_file(cid, found)).buffered(READ_AHEAD);
            // A batch of missing blocks may stand for megabytes of files.
            store::batches_of(loaded)
        });
        filled.boxed()
    }

    async fn put_many(&self, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>> {
        self.inner.packs.put_many(blocks, mode).await
    }

    async fn has_many(&self, cids: &[Cid]) -> Result<Vec<Option<u64>>> {
        let mut sizes = self.inner.packs.has_many(cids).await?;
        if self.is_empty() {
            return Ok(sizes);
        }
        let missing = cids.iter().zip(&mut sizes).filter(|(_, size)| size.is_none());
        let (missing, places): (Vec<Cid>, Vec<_>) = missing.map(|(cid, size)| (*cid, size)).unzip();
        if missing.is_empty() {
            return Ok(sizes);
        }
        for (place, reference) in places.into_iter().zip(self.references(&missing).await?) {
            *place = reference.map(|reference| u64::from(reference.len));
        }
        Ok(sizes)
    }

    async fn delete_many(&self, cids: &[Cid]) -> Result<Vec<bool>> {
        self.delete_unless(cids, Arc::new(|_| false)).await
    }

    async fn delete_unless(&self, cids: &[Cid], spared: Spared) -> Result<Vec<bool>> {
        let mut removed = self.inner.packs.delete_unless(cids, Arc::clone(&spared)).await?;
        if !self.is_empty() {
            let hashes: Vec<_> = cids.iter().map(|cid| *cid.hash()).collect();
            let remove = self.blocking(move |inner| {
                inner.remove(&hashes, |index, _| hashes.get(index).is_some_and(|hash| spared(hash)))
            });
            let in_files = remove.await?;
            removed.iter_mut().zip(in_files).for_each(|(removed, in_file)| *removed |= in_file);
        }
        Ok(removed)
    }

    fn iterate(&self) -> BoxStream<'static, Result<Cid>> {
        self.merged(self.inner.packs.iterate(), None)
    }

    fn iterate_after(&self, after: &Cid) -> BoxStream<'static, Result<Cid>> {
        self.merged(self.inner.packs.iterate_after(after), Some(Position(key_of(after.hash()))))
    }

    fn scrub(&self) -> BoxStream<'static, Result<Scrubbed>> {
        let packs = self.inner.packs.scrub();
        if self.is_empty() {
            return packs;
        }
        let filestore = self.clone();
        // In the order of files, which is faster to read.
        let references = self.list(ReferenceOrder::File).chunks(SCRUB_BLOCKS);
        packs.chain(references.then(move |some| filestore.clone().scrub_references(some))).boxed()
    }

    async fn compact(&self, options: CompactOptions) -> Result<Compacted> {
        self.inner.packs.compact(options).await
    }

    async fn flush(&self) -> Result<()> {
        self.inner.packs.flush().await
    }

    /// Returns totals. A block with a reference that is also in the packs counts twice.
    async fn stats(&self) -> Result<Stats> {
        let packs = self.inner.packs.stats().await?;
        let (blocks, bytes) = (self.inner.blocks.load(Ordering::Acquire), self.inner.bytes.load(Ordering::Acquire));
        Ok(Stats { blocks: packs.blocks + blocks, payload_bytes: packs.payload_bytes + bytes, ..packs })
    }

    fn epoch(&self) -> StoreEpoch {
        self.inner.packs.epoch().combined_with(self.inner.removals.load(Ordering::Acquire))
    }

    fn epoch_of(&self, footprint: &Footprint) -> StoreEpoch {
        self.inner.packs.epoch_of(footprint).combined_with(self.inner.removals.load(Ordering::Acquire))
    }

    fn note_use(&self, cids: &[Cid]) {
        self.inner.packs.note_use(cids);
    }

    fn watch(&self, cache: Weak<dyn DropStale>) {
        self.inner.packs.watch(cache);
    }

    fn check(&self) -> Result<()> {
        self.inner.packs.check()
    }

    async fn disk(&self) -> Result<Option<Disk>> {
        self.inner.packs.disk().await
    }

    fn mappings(&self) -> Option<Mappings> {
        self.inner.packs.mappings()
    }
}
