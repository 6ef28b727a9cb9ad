//! Adapters between a block store and the UnixFS code.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use ipfrs_core::{Block, Cid, Result};
use ipfrs_store::{BlockStore, BlockStoreExt, PutMode};
use ipfrs_unixfs::{BlockSink, BlockSource};

/// A block source that reads the blocks of a UnixFS DAG from a store.
#[derive(Debug, Clone)]
pub struct BlockStoreSource(pub Arc<dyn BlockStore>);

#[async_trait]
impl BlockSource for BlockStoreSource {
    async fn block(&self, cid: &Cid) -> Result<Bytes> {
        self.0.require(cid).await
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
