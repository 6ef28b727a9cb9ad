//! Blocks of the tree that are not in the store yet.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use ipfrs_core::{Block, Cid, Result};
use ipfrs_store::{BlockStore, BlockStoreExt};
use ipfrs_unixfs::BlockSource;
use parking_lot::Mutex;

/// Total size in bytes above which the blocks are stored at the end of an operation, even without a flush.
pub(super) const MAX_UNSTORED_BYTES: usize = 16 * 1024 * 1024;

/// Blocks that a change created and no flush has stored yet. Clones share the blocks.
#[derive(Debug, Clone, Default)]
pub(super) struct Unstored(Arc<Mutex<Blocks>>);

#[derive(Debug, Default)]
struct Blocks {
    blocks: HashMap<Cid, Bytes>,
    bytes: usize,
}

impl Unstored {
    pub(super) fn extend(&self, new: Vec<Block>) {
        let mut blocks = self.0.lock();
        for block in new {
            let (cid, data) = block.into_parts();
            let len = data.len();
            if blocks.blocks.insert(cid, data).is_none() {
                blocks.bytes += len;
            }
        }
    }

    /// Returns all blocks, which stay until [`Self::remove`].
    pub(super) fn all(&self) -> Vec<Block> {
        self.0.lock().blocks.iter().map(|(cid, data)| Block::trusted(*cid, data.clone())).collect()
    }

    /// Returns the content IDs of all blocks.
    pub(super) fn cids(&self) -> Vec<Cid> {
        self.0.lock().blocks.keys().copied().collect()
    }

    /// Removes blocks that have been stored.
    pub(super) fn remove(&self, stored: &[Cid]) {
        let mut blocks = self.0.lock();
        for cid in stored {
            if let Some(data) = blocks.blocks.remove(cid) {
                blocks.bytes -= data.len();
            }
        }
    }

    pub(super) fn clear(&self) {
        *self.0.lock() = Blocks::default();
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.lock().bytes
    }

    /// Whether a block is not stored yet.
    pub(super) fn contains(&self, cid: &Cid) -> bool {
        self.0.lock().blocks.contains_key(cid)
    }

    pub(super) fn get(&self, cid: &Cid) -> Option<Bytes> {
        self.0.lock().blocks.get(cid).cloned()
    }
}

/// The blocks of the tree: those that are not stored yet, and those of a store.
#[derive(Debug, Clone)]
pub(super) struct TreeSource {
    pub(super) unstored: Unstored,
    pub(super) store: Arc<dyn BlockStore>,
    /// An empty file that is being created and is not in the tree yet.
    pub(super) empty: Option<Block>,
}

#[async_trait]
impl BlockSource for TreeSource {
    async fn block(&self, cid: &Cid) -> Result<Bytes> {
        let new = self.empty.as_ref().filter(|empty| empty.cid() == cid).map(|empty| empty.data().clone());
        match new.or_else(|| self.unstored.get(cid)) {
            Some(data) => Ok(data),
            None => self.store.require(cid).await,
        }
    }
}
