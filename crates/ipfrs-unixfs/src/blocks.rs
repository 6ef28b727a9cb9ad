//! Where blocks come from and where they go.

use async_trait::async_trait;
use bytes::Bytes;
use ipfrs_core::{Block, Cid, Result, identity_payload};

/// Something that blocks can be read from.
#[async_trait]
pub trait BlockSource: Send + Sync {
    /// The bytes of a block. They are trusted to be what `cid` names.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) names the CID when the block is absent.
    async fn block(&self, cid: &Cid) -> Result<Bytes>;
}

/// Something that takes the blocks of an import.
#[async_trait]
pub trait BlockSink: Send + Sync {
    /// Takes a batch, and returns once all of its blocks are durable.
    ///
    /// # Errors
    /// When any of them could not be kept; the import then ends with this error.
    async fn put(&self, blocks: Vec<Block>) -> Result<()>;
}

/// The bytes of a block, without asking `source` for what an identity CID carries in itself.
pub(crate) async fn load(source: &dyn BlockSource, cid: &Cid) -> Result<Bytes> {
    match identity_payload(cid) {
        Some(payload) => Ok(Bytes::copy_from_slice(payload)),
        None => source.block(cid).await,
    }
}
