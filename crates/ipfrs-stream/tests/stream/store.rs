//! Block stores that record the requests they receive.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use ipfrs_core::{Block, Cid, Result};
use ipfrs_store::{BlockStore, MemoryStore, PutMode, forward_to_store};

/// A wrapper that counts the requests to the store `inside`. If `stalled` is true, no block ever arrives.
#[derive(Debug)]
pub(crate) struct CountingStore<S> {
    pub(crate) inside: S,
    pub(crate) stalled: bool,
    pub(crate) asked: std::sync::Mutex<HashSet<Cid>>,
    /// Number of blocks that were requested, with repetitions.
    pub(crate) looked_up: AtomicUsize,
    /// Number of requests.
    pub(crate) asks: AtomicUsize,
    pub(crate) fetched_bytes: Arc<AtomicU64>,
    /// A token of which each active stream holds a clone.
    pub(crate) under_way: Arc<()>,
}

impl<S: BlockStore + 'static> CountingStore<S> {
    pub(crate) fn new(inside: S) -> Self {
        Self {
            inside,
            stalled: false,
            asked: std::sync::Mutex::default(),
            looked_up: AtomicUsize::default(),
            asks: AtomicUsize::default(),
            fetched_bytes: Arc::default(),
            under_way: Arc::default(),
        }
    }

    pub(crate) fn fetched_bytes(&self) -> u64 {
        self.fetched_bytes.load(Ordering::SeqCst)
    }

    pub(crate) fn asked(&self) -> HashSet<Cid> {
        self.asked.lock().unwrap().clone()
    }
}

pub(crate) async fn memory(blocks: &[Block]) -> Arc<CountingStore<MemoryStore>> {
    let store = MemoryStore::default();
    put(&store, blocks).await;
    Arc::new(CountingStore::new(store))
}

pub(crate) async fn put(store: &dyn BlockStore, blocks: &[Block]) {
    for outcome in store.put_many(blocks.to_vec(), PutMode::Atomic).await {
        outcome.unwrap();
    }
}

#[async_trait]
impl<S: BlockStore + 'static> BlockStore for CountingStore<S> {
    async fn get(&self, cid: &Cid) -> Result<Option<Bytes>> {
        let item = self.get_many(vec![*cid]).next().await.unwrap();
        item.map(|(_, block)| block)
    }

    fn get_many(&self, cids: Vec<Cid>) -> BoxStream<'static, Result<(Cid, Option<Bytes>)>> {
        self.asked.lock().unwrap().extend(&cids);
        self.asks.fetch_add(1, Ordering::SeqCst);
        self.looked_up.fetch_add(cids.len(), Ordering::SeqCst);
        let (guard, fetched_bytes) = (self.under_way.clone(), self.fetched_bytes.clone());
        if self.stalled {
            return futures::stream::pending().map(move |item| (item, &guard).0).boxed();
        }
        let count = move |item: &Result<(Cid, Option<Bytes>)>| {
            let _held = &guard;
            if let Ok((_, Some(block))) = item {
                fetched_bytes.fetch_add(block.len() as u64, Ordering::SeqCst);
            }
        };
        self.inside.get_many(cids).inspect(count).boxed()
    }

    forward_to_store!(
        inside: put_many, has_many, delete_unless, iterate, compact, flush, stats, epoch, watch, check, mappings
    );
}
