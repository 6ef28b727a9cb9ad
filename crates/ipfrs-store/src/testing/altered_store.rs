//! Stores in memory that wait or fail where a test needs it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use ipfrs_core::{Block, Cid, Result};

use crate::{BlockStore, Disk, MemoryStore, PutMode, Stored, forward_to_store};

/// Difference of a store from the one in memory that holds its blocks.
#[async_trait]
pub trait Difference: Clone + fmt::Debug + Send + Sync + 'static {
    /// Waits until a block may be read. An error is the result of reading the block.
    async fn before_read(&self, _cid: &Cid) -> Result<()> {
        Ok(())
    }

    /// Stores blocks in `inside`.
    async fn store(&self, inside: &MemoryStore, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>> {
        inside.put_many(blocks, mode).await
    }

    /// Returns the state of the disk, if there is one.
    async fn state_of_disk(&self) -> Result<Option<Disk>> {
        Ok(None)
    }
}

/// A store in memory with a difference. Clones are the same store.
#[derive(Debug, Clone, Default)]
pub struct AlteredStore<D> {
    inside: Arc<MemoryStore>,
    difference: D,
}

impl<D: Difference + Default> AlteredStore<D> {
    /// Returns an empty store with the default difference.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<D: Difference> AlteredStore<D> {
    /// Returns an empty store with this difference.
    pub fn with(difference: D) -> Self {
        Self { inside: Arc::default(), difference }
    }
}

impl<D> Deref for AlteredStore<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.difference
    }
}

#[async_trait]
impl<D: Difference> BlockStore for AlteredStore<D> {
    async fn get(&self, cid: &Cid) -> Result<Option<Bytes>> {
        self.difference.before_read(cid).await?;
        self.inside.get(cid).await
    }

    fn get_many(&self, cids: Vec<Cid>) -> BoxStream<'static, Result<(Cid, Option<Bytes>)>> {
        let store = self.clone();
        let get = move |cid| {
            let store = store.clone();
            async move { Ok((cid, store.get(&cid).await?)) }
        };
        stream::iter(cids).then(get).boxed()
    }

    async fn put_many(&self, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>> {
        self.difference.store(&self.inside, blocks, mode).await
    }

    async fn has_many(&self, cids: &[Cid]) -> Result<Vec<Option<u64>>> {
        for cid in cids {
            self.difference.before_read(cid).await?;
        }
        self.inside.has_many(cids).await
    }

    async fn disk(&self) -> Result<Option<Disk>> {
        self.difference.state_of_disk().await
    }

    forward_to_store!(inside: delete_unless, iterate, compact, flush, stats, epoch, watch, check, mappings);
}
