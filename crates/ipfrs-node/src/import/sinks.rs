//! Sinks of the blocks of an import.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use ipfrs_core::{Block, FileOffset, Result};
use ipfrs_stream::StoreSink;
use ipfrs_unixfs::BlockSink;

use crate::gc::RenewedLease;
use crate::{AddOptions, Node};

/// Sink that discards all blocks, for imports that only compute content IDs.
struct Discard;

#[async_trait]
impl BlockSink for Discard {
    async fn put(&self, _blocks: Vec<Block>) -> Result<()> {
        Ok(())
    }
}

/// Returns the sink of an import.
pub(super) fn sink(node: &Node, options: &AddOptions) -> Result<Arc<dyn BlockSink>> {
    if options.nocopy || options.fscache && node.has_filestore() {
        let sink = node.filestore_sink(options.fscache)?;
        return Ok(if options.only_hash { Arc::new(Discard) } else { sink });
    }
    Ok(match options.only_hash {
        true => Arc::new(Discard),
        false => Arc::new(StoreSink(node.inner.served.clone())),
    })
}

/// Sink that counts the blocks that another sink has accepted, and that the lease of the import keeps.
pub(super) struct Counted {
    pub(super) sink: Arc<dyn BlockSink>,
    /// `None` if the other sink stores nothing.
    pub(super) lease: Option<Arc<RenewedLease>>,
    pub(super) blocks: Arc<AtomicU64>,
}

#[async_trait]
impl BlockSink for Counted {
    async fn put(&self, blocks: Vec<Block>) -> Result<()> {
        let count = blocks.len() as u64;
        if let Some(lease) = &self.lease {
            lease.remember(blocks.iter().map(|block| block.cid().hash()));
        }
        self.sink.put(blocks).await?;
        self.blocks.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    async fn put_leaves(&self, leaves: Vec<(Block, FileOffset)>) -> Result<()> {
        let count = leaves.len() as u64;
        if let Some(lease) = &self.lease {
            lease.remember(leaves.iter().map(|(block, _)| block.cid().hash()));
        }
        self.sink.put_leaves(leaves).await?;
        self.blocks.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }
}
