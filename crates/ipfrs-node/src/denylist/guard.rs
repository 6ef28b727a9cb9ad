//! A view of the store that hides blocked content.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use ipfrs_core::{Block, Cid, Error, Result};
use ipfrs_store::{BlockBatch, BlockStore, PutMode, Stored, forward_to_store};

use super::Denylists;
use crate::{Footprint, StoreEpoch};

/// A store that neither returns nor accepts blocks that a denylist blocks. Reading or putting one fails with the
/// error of [`Denylists::check_block`], and queries report the block as missing. All other calls are passed on.
#[derive(Debug)]
pub(crate) struct Guarded {
    store: Arc<dyn BlockStore>,
    denylists: Denylists,
}

impl Guarded {
    pub(crate) fn new(store: Arc<dyn BlockStore>, denylists: Denylists) -> Self {
        Self { store, denylists }
    }
}

#[deny(clippy::missing_trait_methods, reason = "a default would bypass the inner store")]
#[async_trait]
impl BlockStore for Guarded {
    async fn get(&self, cid: &Cid) -> Result<Option<Bytes>> {
        self.denylists.check_block(cid)?;
        self.store.get(cid).await
    }

    /// Checks each block when the stream yields it. New rules therefore apply at once, and a long stream has no
    /// initial cost.
    fn get_many(&self, cids: Vec<Cid>) -> BoxStream<'static, Result<(Cid, Option<Bytes>)>> {
        let denylists = self.denylists.clone();
        let blocks = self.store.get_many(cids);
        blocks.map(move |item| item.and_then(|(cid, data)| denylists.check_block(&cid).map(|()| (cid, data)))).boxed()
    }

    /// Checks each batch when the stream yields it.
    fn get_batches(&self, cids: Arc<[Cid]>) -> BoxStream<'static, BlockBatch> {
        let (denylists, batches) = (self.denylists.clone(), self.store.get_batches(Arc::clone(&cids)));
        let mut yielded = 0;
        let guarded = move |mut batch: BlockBatch| {
            for (index, cid) in cids.iter().skip(yielded).take(batch.len()).enumerate() {
                // A block that already failed keeps its own error.
                let refused = batch.section(index).is_ok().then(|| denylists.check_block(cid).err()).flatten();
                refused.into_iter().for_each(|error| batch.refuse(index, error));
            }
            yielded += batch.len();
            batch
        };
        batches.map(guarded).boxed()
    }

    async fn put_many(&self, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>> {
        let checked: Vec<_> = blocks.iter().map(|block| self.denylists.check_block(block.cid())).collect();
        let Some((kind, message)) = checked.iter().find_map(|checked| {
            let error = checked.as_ref().err()?;
            Some((error.kind(), format!("not stored: another block of the batch was rejected: {error}")))
        }) else {
            return self.store.put_many(blocks, mode).await;
        };
        if mode.is_atomic() {
            let rejection = |checked: Result<()>| checked.err().unwrap_or_else(|| Error::new(kind, message.clone()));
            return checked.into_iter().map(|checked| Err(rejection(checked))).collect();
        }
        let admitted = blocks.into_iter().zip(&checked).filter_map(|(block, checked)| checked.is_ok().then_some(block));
        let mut stored = self.store.put_many(admitted.collect(), mode).await.into_iter();
        let missing = || Err(Error::internal("the store returned no outcome for a block"));
        checked.into_iter().map(|checked| checked.and_then(|()| stored.next().unwrap_or_else(missing))).collect()
    }

    async fn has_many(&self, cids: &[Cid]) -> Result<Vec<Option<u64>>> {
        let sizes = self.store.has_many(cids).await?;
        let given = |(cid, size): (&Cid, Option<u64>)| size.filter(|_| self.denylists.check_block(cid).is_ok());
        Ok(cids.iter().zip(sizes).map(given).collect())
    }

    /// Returns a number that also changes when other denylists take effect, because a block that was returned before
    /// may now be blocked.
    fn epoch(&self) -> StoreEpoch {
        // Both numbers only grow, so their sum changes whenever one of them does.
        self.store.epoch().combined_with(self.denylists.generation())
    }

    fn epoch_of(&self, footprint: &Footprint) -> StoreEpoch {
        self.store.epoch_of(footprint).combined_with(self.denylists.generation())
    }

    forward_to_store!(
        store: delete_many, delete_unless, iterate, iterate_after, scrub, compact, flush, stats, note_use, watch, check,
        disk, mappings
    );
}
