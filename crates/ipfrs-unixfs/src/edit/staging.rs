//! Blocks of a change that are not stored yet.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use ipfrs_core::{Block, Cid, Result};

use crate::blocks::{BlockSource, load};

/// Content ID of a node and the total size of its blocks: what the node above needs for a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewLink {
    /// Content ID of the node.
    pub cid: Cid,
    /// Total size of all blocks below the node including the node itself, in bytes.
    pub tsize: u64,
}

/// New blocks that are not stored yet, over a source of all others. The caller [takes](Self::take) and stores them.
pub struct Staging {
    source: Arc<dyn BlockSource>,
    blocks: HashMap<Cid, Bytes>,
    /// Content IDs of the blocks, in the order in which they were added.
    order: Vec<Cid>,
    bytes: usize,
}

impl Staging {
    /// Creates an empty staging over `source`.
    #[must_use]
    pub fn new(source: Arc<dyn BlockSource>) -> Self {
        Self { source, blocks: HashMap::new(), order: Vec::new(), bytes: 0 }
    }

    /// Returns the total size of the blocks that are not stored yet, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a block.
    pub fn insert(&mut self, block: Block) {
        let (cid, data) = block.into_parts();
        let len = data.len();
        if self.blocks.insert(cid, data).is_none() {
            self.order.push(cid);
            self.bytes += len;
        }
    }

    /// Removes and returns all blocks, in the order in which they were added: the leaves of a file are read fastest if
    /// they are stored in their order. The caller must make them available in the source before the next load.
    pub fn take(&mut self) -> Vec<Block> {
        self.bytes = 0;
        let mut blocks = mem::take(&mut self.blocks);
        let order = mem::take(&mut self.order).into_iter();
        order.filter_map(|cid| Some(Block::trusted(cid, blocks.remove(&cid)?))).collect()
    }

    /// Returns a block from the staging or the source.
    ///
    /// # Errors
    /// Returns the errors of the source.
    pub async fn load(&self, cid: &Cid) -> Result<Bytes> {
        match self.blocks.get(cid) {
            Some(data) => Ok(data.clone()),
            None => load(self.source.as_ref(), cid).await,
        }
    }
}
