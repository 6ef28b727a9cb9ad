//! Sources and sinks of blocks.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use ipfrs_core::{Block, Cid, FileOffset, Result, identity_payload};

use crate::directory_index::DirectoryIndex;

/// A source that blocks can be read from.
#[async_trait]
pub trait BlockSource: Send + Sync {
    /// Returns the bytes of a block. The caller trusts that they match `cid`.
    ///
    /// # Errors
    /// Returns [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) if the block is absent. The message names the CID.
    async fn block(&self, cid: &Cid) -> Result<Bytes>;

    /// Returns the bytes of a block like [`block`](Self::block), for a caller that examines it without entering it.
    ///
    /// # Errors
    /// As [`block`](Self::block).
    async fn peek(&self, cid: &Cid) -> Result<Bytes> {
        self.block(cid).await
    }

    /// Returns the index of a directory block, if the source keeps one. A source that does checks everything that
    /// [`block`](Self::block) checks.
    fn directory(&self, _cid: &Cid) -> Option<Arc<DirectoryIndex>> {
        None
    }

    /// Offers a directory block that was searched. The source may keep its index.
    fn searched(&self, _cid: &Cid, _block: &Bytes) {}
}

/// A sink that stores the blocks of an import.
#[async_trait]
pub trait BlockSink: Send + Sync {
    /// Stores a batch, and returns once all of its blocks are durable.
    ///
    /// # Errors
    /// Returns an error if any of the blocks could not be stored. The import then ends with this error.
    async fn put(&self, blocks: Vec<Block>) -> Result<()>;

    /// Stores a batch of raw leaves that are parts of local files, like [`put`](Self::put). A sink may store references
    /// to the files in place of the blocks.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    async fn put_leaves(&self, leaves: Vec<(Block, FileOffset)>) -> Result<()> {
        self.put(leaves.into_iter().map(|(block, _)| block).collect()).await
    }
}

/// Returns the bytes of a block. For an identity CID, they are in the CID itself and `source` is not queried.
pub(crate) async fn load(source: &dyn BlockSource, cid: &Cid) -> Result<Bytes> {
    match identity_payload(cid) {
        Some(payload) => Ok(Bytes::copy_from_slice(payload)),
        None => source.block(cid).await,
    }
}
