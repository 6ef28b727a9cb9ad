//! A store that can delay individual blocks, like a hanging disk.

use std::collections::HashSet;

use async_trait::async_trait;
use ipfrs_core::{Block, Cid, Multihash, Result, parse_cid};
use ipfrs_node::{BlockStore, MemoryStore, PutMode, Stored};
use ipfrs_store::testing::{AlteredStore, Difference};
use tokio::sync::watch;

/// A store that keeps blocks in memory and delays withheld blocks until they are released.
pub(crate) type Withholding = AlteredStore<Withheld>;

/// Blocks that a store withholds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Withheld {
    withheld: watch::Sender<HashSet<Multihash>>,
    /// Number of reads that have to wait for a withheld block, including cancelled ones.
    waiting: watch::Sender<usize>,
}

impl Withheld {
    /// Withholds a block from now on.
    pub(crate) fn withhold(&self, cid: &str) {
        self.withheld.send_modify(|withheld| {
            withheld.insert(*parse_cid(cid).unwrap().hash());
        });
    }

    /// Releases all blocks, including those that reads are waiting for.
    pub(crate) fn release(&self) {
        self.withheld.send_modify(HashSet::clear);
    }

    /// Waits until the count of `waiting` is at least `least`, and returns the count.
    pub(crate) async fn waiting(&self, least: usize) -> usize {
        *self.waiting.subscribe().wait_for(|waiting| *waiting >= least).await.unwrap()
    }

    /// Whether a read currently waits for a block. Cancelled reads do not count.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.withheld.receiver_count() > 0
    }

    async fn until_released(&self, cid: &Cid) {
        if !self.withheld.borrow().contains(cid.hash()) {
            return;
        }
        self.waiting.send_modify(|waiting| *waiting += 1);
        self.withheld.subscribe().wait_for(|withheld| !withheld.contains(cid.hash())).await.unwrap();
        self.waiting.send_modify(|waiting| *waiting -= 1);
    }
}

#[async_trait]
impl Difference for Withheld {
    async fn before_read(&self, cid: &Cid) -> Result<()> {
        self.until_released(cid).await;
        Ok(())
    }

    async fn store(&self, inside: &MemoryStore, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>> {
        for block in &blocks {
            self.until_released(block.cid()).await;
        }
        inside.put_many(blocks, mode).await
    }
}
