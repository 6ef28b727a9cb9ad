//! Received blocks and the memory that is reserved for them.

use std::sync::Arc;

use ipfrs_core::Block;
use tokio::sync::OwnedSemaphorePermit;

/// A verified block from a peer.
#[derive(Debug, Clone)]
pub struct Received {
    /// The block.
    pub block: Block,
    /// Memory of the message with the block, which must be kept as long as the block is in memory only.
    pub memory: MessageMemory,
}

/// Memory that is reserved for a message from a peer. It is available to other messages when the last clone is dropped.
/// Meanwhile peers wait.
#[derive(Debug, Clone, Default)]
pub struct MessageMemory {
    _permit: Option<Arc<OwnedSemaphorePermit>>,
}

impl MessageMemory {
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self { _permit: Some(Arc::new(permit)) }
    }
}
