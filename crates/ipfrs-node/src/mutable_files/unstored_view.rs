//! A view of the store with the blocks of the tree that are not stored yet. The tree can be read although the disk has
//! no space for them.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use ipfrs_core::{Cid, Error, Result};
use ipfrs_store::{BlockBatch, BlockStore, forward_to_store};

use super::unstored::Unstored;
use crate::Node;
use crate::denylist::Guarded;

impl Node {
    /// Returns the store for reading below `root`. If that block is not stored yet, as in a tree with changes that
    /// were not flushed, the store also has the other blocks of the tree.
    pub(crate) fn store_below(&self, root: &Cid) -> Arc<dyn BlockStore> {
        let unstored = &self.inner.mutable_files.unstored;
        match unstored.contains(root) {
            true => Arc::new(UnstoredView { unstored: unstored.clone(), store: self.inner.store.clone() }),
            false => self.inner.store.clone(),
        }
    }

    /// Returns a view of a store that hides what the denylists block.
    pub(crate) fn guarded(&self, store: Arc<dyn BlockStore>) -> Arc<dyn BlockStore> {
        match &self.inner.denylists {
            Some(denylists) => Arc::new(Guarded::new(store, denylists.clone())),
            None => store,
        }
    }
}

/// The view. Only reads of blocks differ from the store: what it adds is not durable.
#[derive(Debug)]
struct UnstoredView {
    unstored: Unstored,
    store: Arc<dyn BlockStore>,
}

#[deny(clippy::missing_trait_methods, reason = "a default would bypass the inner store")]
#[async_trait]
impl BlockStore for UnstoredView {
    async fn get(&self, cid: &Cid) -> Result<Option<Bytes>> {
        match self.unstored.get(cid) {
            Some(data) => Ok(Some(data)),
            None => self.store.get(cid).await,
        }
    }

    fn get_many(&self, cids: Vec<Cid>) -> BoxStream<'static, Result<(Cid, Option<Bytes>)>> {
        let found: Vec<_> = cids.into_iter().map(|cid| (cid, self.unstored.get(&cid))).collect();
        let missing = found.iter().filter(|(_, data)| data.is_none()).map(|(cid, _)| *cid);
        let stored = self.store.get_many(missing.collect());
        let next = |(mut found, mut stored): (std::vec::IntoIter<_>, BoxStream<'static, _>)| async move {
            let item = match found.next()? {
                (_, None) => stored.next().await.unwrap_or_else(|| Err(Error::internal("the store ended early"))),
                (cid, data) => Ok((cid, data)),
            };
            Some((item, (found, stored)))
        };
        stream::unfold((found.into_iter(), stored), next).boxed()
    }

    fn get_batches(&self, cids: Arc<[Cid]>) -> BoxStream<'static, BlockBatch> {
        if !cids.iter().any(|cid| self.unstored.contains(cid)) {
            return self.store.get_batches(cids);
        }
        let alone = |found: Result<(Cid, Option<Bytes>)>| {
            let mut batch = BlockBatch::default();
            batch.push(found.map(|(_, data)| data));
            batch
        };
        self.get_many(cids.to_vec()).map(alone).boxed()
    }

    async fn has_many(&self, cids: &[Cid]) -> Result<Vec<Option<u64>>> {
        // Before the store is asked: a block is removed from here after it was stored.
        let sizes: Vec<_> = cids.iter().map(|cid| Some(self.unstored.get(cid)?.len() as u64)).collect();
        let stored = self.store.has_many(cids).await?;
        Ok(stored.into_iter().zip(sizes).map(|(stored, size)| stored.or(size)).collect())
    }

    forward_to_store!(
        store: put_many, delete_many, delete_unless, iterate, iterate_after, scrub, compact, flush, stats, epoch,
        epoch_of, note_use, watch, check, disk, mappings
    );
}
