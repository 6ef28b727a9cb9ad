//! Blocks of the tree that are not in the store yet.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
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
    /// The blocks, with their numbers.
    blocks: HashMap<Cid, (u64, Bytes)>,
    bytes: usize,
    /// Number of the next block.
    next: u64,
}

impl Unstored {
    pub(super) fn extend(&self, new: Vec<Block>) {
        let blocks = &mut *self.0.lock();
        for block in new {
            let (cid, data) = block.into_parts();
            let (len, number) = (data.len(), blocks.next);
            if let Entry::Vacant(entry) = blocks.blocks.entry(cid) {
                entry.insert((number, data));
                blocks.bytes += len;
                blocks.next += 1;
            }
        }
    }

    /// Returns all blocks, which stay until [`Self::remove`], in the order in which they were added.
    pub(super) fn all(&self) -> Vec<Block> {
        let blocks = self.0.lock();
        let mut all: Vec<_> = blocks.blocks.iter().map(|(cid, (number, data))| (*number, *cid, data.clone())).collect();
        drop(blocks);
        all.sort_unstable_by_key(|(number, ..)| *number);
        all.into_iter().map(|(_, cid, data)| Block::trusted(cid, data)).collect()
    }

    /// Returns the content IDs of all blocks.
    pub(super) fn cids(&self) -> Vec<Cid> {
        self.0.lock().blocks.keys().copied().collect()
    }

    /// Removes blocks that have been stored.
    pub(super) fn remove(&self, stored: &[Cid]) {
        let mut blocks = self.0.lock();
        for cid in stored {
            if let Some((_, data)) = blocks.blocks.remove(cid) {
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
        self.0.lock().blocks.get(cid).map(|(_, data)| data.clone())
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

#[cfg(test)]
mod tests {
    use ipfrs_core::codec;
    use ipfrs_core::hash::HashFunction;

    use super::*;

    #[test]
    fn blocks_keep_the_order_in_which_they_were_added_first() {
        let block = |number: u8| Block::hash(1, codec::RAW, HashFunction::Sha2_256, vec![number; 10].into()).unwrap();
        let unstored = Unstored::default();
        unstored.extend((0..20).map(block).collect());
        unstored.remove(&[*block(3).cid(), *block(5).cid()]);
        unstored.extend(vec![block(7), block(20), block(3)]);
        let cids = |numbers: &[u8]| numbers.iter().map(|number| *block(*number).cid()).collect::<Vec<_>>();
        let expected: Vec<_> = (0..=20).filter(|number| ![3, 5].contains(number)).chain([3]).collect();
        assert_eq!(unstored.all().iter().map(|block| *block.cid()).collect::<Vec<_>>(), cids(&expected));
        assert_eq!(unstored.bytes(), 200);
    }
}
