//! Blocks that the server sends.

use async_trait::async_trait;
use bytes::Bytes;
use ipfrs_core::{Cid, Result};

/// The blocks that peers may fetch from this node.
///
/// A block that peers must not fetch, such as a denylisted one, is reported as missing.
#[async_trait]
pub trait BlockProvider: Send + Sync {
    /// Returns the bytes of a block, or `None` if it is missing.
    ///
    /// # Errors
    /// Any failure to read the block. Peers are told that the block is missing.
    async fn get(&self, cid: &Cid) -> Result<Option<Bytes>>;

    /// Returns the size of a block in bytes, or `None` if it is missing.
    ///
    /// # Errors
    /// As [`Self::get`].
    async fn size(&self, cid: &Cid) -> Result<Option<u64>>;
}

/// Provides no blocks.
pub(crate) struct NoBlocks;

#[async_trait]
impl BlockProvider for NoBlocks {
    async fn get(&self, _: &Cid) -> Result<Option<Bytes>> {
        Ok(None)
    }

    async fn size(&self, _: &Cid) -> Result<Option<u64>> {
        Ok(None)
    }
}
