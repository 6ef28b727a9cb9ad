//! Adapters between a block store and the UnixFS code.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use ipfrs_core::{Block, Cid, Result};
use ipfrs_store::{BlockStore, BlockStoreExt, PutMode, StoreEpoch};
use ipfrs_unixfs::{BlockSink, BlockSource, DirectoryIndex, MAX_MEASURED_PARTS};

use crate::node_cache::NodeCache;

/// A block source that reads the blocks of a UnixFS DAG from a store.
#[derive(Debug, Clone)]
pub struct BlockStoreSource(pub Arc<dyn BlockStore>);

#[async_trait]
impl BlockSource for BlockStoreSource {
    async fn block(&self, cid: &Cid) -> Result<Bytes> {
        self.0.require(cid).await
    }
}

/// Most parts of files without sizes that one reader or walk reads to find the sizes. A file may be measured again on
/// each of its levels.
pub const MEASURED_PARTS: usize = 8 * MAX_MEASURED_PARTS;

/// A block source like [`BlockStoreSource`], for a store that is borrowed.
pub(crate) struct StoreRef<'a>(pub(crate) &'a dyn BlockStore);

#[async_trait]
impl BlockSource for StoreRef<'_> {
    async fn block(&self, cid: &Cid) -> Result<Bytes> {
        self.0.require(cid).await
    }
}

/// A block source like [`BlockStoreSource`] that keeps indexes of directories which are searched repeatedly.
#[derive(Debug)]
pub struct IndexingSource {
    store: Arc<dyn BlockStore>,
    nodes: Option<Arc<NodeCache>>,
    epoch: StoreEpoch,
}

impl IndexingSource {
    /// Creates a source for one resolution. `nodes` must be a cache over `store`.
    #[must_use]
    pub fn new(store: Arc<dyn BlockStore>, nodes: Option<Arc<NodeCache>>) -> Self {
        let epoch = store.epoch();
        Self { store, nodes, epoch }
    }
}

#[async_trait]
impl BlockSource for IndexingSource {
    async fn block(&self, cid: &Cid) -> Result<Bytes> {
        self.store.require(cid).await
    }

    fn directory(&self, cid: &Cid) -> Option<Arc<DirectoryIndex>> {
        self.nodes.as_ref()?.directory(cid)
    }

    fn searched(&self, cid: &Cid, block: &Bytes) {
        if let Some(nodes) = &self.nodes {
            nodes.keep_directory(cid, block, self.epoch);
        }
    }
}

/// A block sink that writes the blocks of an import to a store. Each call stores all of its blocks or none.
#[derive(Debug, Clone)]
pub struct StoreSink(pub Arc<dyn BlockStore>);

#[async_trait]
impl BlockSink for StoreSink {
    async fn put(&self, blocks: Vec<Block>) -> Result<()> {
        for outcome in self.0.put_many(blocks, PutMode::Atomic).await {
            outcome?;
        }
        Ok(())
    }
}
