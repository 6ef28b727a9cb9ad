//! The pack store as a block store.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use ipfrs_core::{Block, Cid, Error, Result};

use super::errors::again;
use super::pack_store::PackStore;
use super::record::{Key, key_of};
use super::shared::Shared;
use super::walk::Walk;
use crate::store::{self, Admission};
use crate::{
    BlockBatch, BlockStore, CompactOptions, Compacted, Disk, DropStale, Footprint, Mappings, PutMode, Scrubbed, Spared,
    Stats, StoreEpoch, Stored,
};

impl PackStore {
    /// Returns the blocks behind the one with the key `after`, in the order of the keys.
    fn blocks_after(&self, after: Option<Key>) -> BoxStream<'static, Result<Cid>> {
        let pages = stream::try_unfold((self.clone(), after), |(store, after)| async move {
            let (cids, last) = store.blocking(move |shared| shared.page(after.as_deref())).await?;
            Ok::<_, Error>(last.map(|last| (stream::iter(cids), (store, Some(last)))))
        });
        futures::TryStreamExt::try_flatten(pages).boxed()
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
        if mode.is_atomic() && admissions.iter().any(Result::is_err) {
            return store::refuse_all(admissions);
        }
        let is_stored = |admission: &Result<Admission>| matches!(admission, Ok(Admission::Store));
        let stored = blocks.into_iter().zip(&admissions).filter(|(_, admission)| is_stored(admission));
        let stored = stored.map(|(block, _)| block).collect();
        let mut outcomes = self.queue.put(&self.shared, stored, mode).await.into_iter();
        let missing = || Err(Error::internal("the store returned no outcome for a block"));
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

    fn epoch(&self) -> StoreEpoch {
        self.shared.epoch()
    }

    fn epoch_of(&self, footprint: &Footprint) -> StoreEpoch {
        self.shared.epoch_of(footprint)
    }

    fn watch(&self, cache: Weak<dyn DropStale>) {
        self.shared.caches.register(cache);
    }

    fn iterate(&self) -> BoxStream<'static, Result<Cid>> {
        self.blocks_after(None)
    }

    fn iterate_after(&self, after: &Cid) -> BoxStream<'static, Result<Cid>> {
        self.blocks_after(Some(key_of(after.hash())))
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
