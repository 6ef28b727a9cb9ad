//! A store that can delay individual blocks, like a hanging disk.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use ipfrs_core::{Block, Cid, Multihash, Result, parse_cid};
use ipfrs_node::{
    BlockStore, CompactOptions, Compacted, DropStale, Mappings, MemoryStore, PutMode, Spared, Stats, StoreEpoch, Stored,
};
use tokio::sync::watch;

/// A store that keeps blocks in memory and delays withheld blocks until they are released.
#[derive(Debug, Clone)]
pub(crate) struct Withholding {
    inside: Arc<MemoryStore>,
    withheld: watch::Sender<HashSet<Multihash>>,
    /// Number of reads that have to wait for a withheld block, including cancelled ones.
    waiting: watch::Sender<usize>,
}

impl Withholding {
    pub(crate) fn new() -> Self {
        Self { inside: Arc::default(), withheld: watch::Sender::default(), waiting: watch::Sender::default() }
    }

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

    async fn permission(&self, cid: &Cid) {
        if !self.withheld.borrow().contains(cid.hash()) {
            return;
        }
        self.waiting.send_modify(|waiting| *waiting += 1);
        self.withheld.subscribe().wait_for(|withheld| !withheld.contains(cid.hash())).await.unwrap();
        self.waiting.send_modify(|waiting| *waiting -= 1);
    }
}

#[async_trait]
impl BlockStore for Withholding {
    async fn get(&self, cid: &Cid) -> Result<Option<Bytes>> {
        self.permission(cid).await;
        self.inside.get(cid).await
    }

    fn get_many(&self, cids: Vec<Cid>) -> BoxStream<'static, Result<(Cid, Option<Bytes>)>> {
        let store = self.clone();
        let get = move |cid| {
            let store = store.clone();
            async move { Ok((cid, store.get(&cid).await?)) }
        };
        stream::iter(cids).then(get).boxed()
    }

    async fn put_many(&self, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>> {
        for block in &blocks {
            self.permission(block.cid()).await;
        }
        self.inside.put_many(blocks, mode).await
    }

    async fn has_many(&self, cids: &[Cid]) -> Result<Vec<Option<u64>>> {
        for cid in cids {
            self.permission(cid).await;
        }
        self.inside.has_many(cids).await
    }

    async fn delete_unless(&self, cids: &[Cid], spared: Spared) -> Result<Vec<bool>> {
        self.inside.delete_unless(cids, spared).await
    }

    fn iterate(&self) -> BoxStream<'static, Result<Cid>> {
        self.inside.iterate()
    }

    async fn compact(&self, options: CompactOptions) -> Result<Compacted> {
        self.inside.compact(options).await
    }

    async fn flush(&self) -> Result<()> {
        self.inside.flush().await
    }

    async fn stats(&self) -> Result<Stats> {
        self.inside.stats().await
    }

    fn epoch(&self) -> StoreEpoch {
        self.inside.epoch()
    }

    fn watch(&self, cache: Weak<dyn DropStale>) {
        self.inside.watch(cache);
    }

    fn check(&self) -> Result<()> {
        self.inside.check()
    }

    fn mappings(&self) -> Option<Mappings> {
        self.inside.mappings()
    }
}
