//! The in-memory engine.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use ipfrs_core::{Block, Cid, Multihash, Result, identity_payload};
use parking_lot::RwLock;

use crate::epoch_cache::Caches;
use crate::store::{self, Admission};
use crate::{BlockStore, CompactOptions, Compacted, DropStale, PutMode, Spared, Stats, StoreEpoch, Stored};

/// Number of CIDs that [`BlockStore::iterate`] copies at a time.
const PAGE: usize = 1_000;

/// A store in memory: its blocks are lost when the process ends. Clones share the store.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    contents: Arc<RwLock<Contents>>,
    caches: Caches,
}

#[derive(Debug, Default)]
struct Contents {
    blocks: BTreeMap<Multihash, (Cid, Bytes)>,
    payload_bytes: u64,
    /// Number of removed blocks.
    removed: u64,
}

impl Contents {
    fn insert(&mut self, block: Block) -> Stored {
        let (cid, data) = block.into_parts();
        match self.blocks.entry(*cid.hash()) {
            Entry::Occupied(_) => Stored::Present,
            Entry::Vacant(entry) => {
                self.payload_bytes += data.len() as u64;
                entry.insert((cid, data));
                Stored::New
            }
        }
    }

    fn remove_unless(&mut self, hash: &Multihash, spared: &Spared) -> bool {
        if self.blocks.contains_key(hash) && spared(hash) {
            return false;
        }
        let removed = self.blocks.remove(hash);
        self.removed += u64::from(removed.is_some());
        self.payload_bytes -= removed.as_ref().map_or(0, |(_, data)| data.len() as u64);
        removed.is_some()
    }

    fn page(&self, after: Option<Multihash>) -> Vec<Cid> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.blocks.range((start, Bound::Unbounded)).take(PAGE).map(|(_, (cid, _))| *cid).collect()
    }
}

impl MemoryStore {
    /// Returns the blocks behind the one with the hash `after`, in the order of the hashes.
    fn blocks_after(&self, after: Option<Multihash>) -> BoxStream<'static, Result<Cid>> {
        let contents = Arc::clone(&self.contents);
        stream::unfold(after, move |after| {
            let page = contents.read().page(after);
            async move { page.last().map(|last| *last.hash()).map(|last| (page, Some(last))) }
        })
        .map(|page| stream::iter(page.into_iter().map(Ok)))
        .flatten()
        .boxed()
    }
}

#[async_trait]
impl BlockStore for MemoryStore {
    async fn get(&self, cid: &Cid) -> Result<Option<Bytes>> {
        if let Some(payload) = identity_payload(cid) {
            return Ok(Some(Bytes::copy_from_slice(payload)));
        }
        Ok(self.contents.read().blocks.get(cid.hash()).map(|(_, data)| data.clone()))
    }

    fn get_many(&self, cids: Vec<Cid>) -> BoxStream<'static, Result<(Cid, Option<Bytes>)>> {
        let this = self.clone();
        stream::iter(cids)
            .then(move |cid| {
                let this = this.clone();
                async move { Ok((cid, this.get(&cid).await?)) }
            })
            .boxed()
    }

    async fn put_many(&self, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>> {
        let admissions: Vec<_> = blocks.iter().map(store::admit).collect();
        if mode.is_atomic() && admissions.iter().any(Result::is_err) {
            return store::refuse_all(admissions);
        }
        let mut contents = self.contents.write();
        let outcomes = blocks.into_iter().zip(admissions).map(|(block, admission)| match admission? {
            Admission::Identity => Ok(Stored::Present),
            Admission::Store => Ok(contents.insert(block)),
        });
        outcomes.collect()
    }

    async fn has_many(&self, cids: &[Cid]) -> Result<Vec<Option<u64>>> {
        let contents = self.contents.read();
        let size = |cid: &Cid| match identity_payload(cid) {
            Some(payload) => Some(payload.len() as u64),
            None => contents.blocks.get(cid.hash()).map(|(_, data)| data.len() as u64),
        };
        Ok(cids.iter().map(size).collect())
    }

    async fn delete_unless(&self, cids: &[Cid], spared: Spared) -> Result<Vec<bool>> {
        let mut contents = self.contents.write();
        Ok(cids.iter().map(|cid| contents.remove_unless(cid.hash(), &spared)).collect())
    }

    fn epoch(&self) -> StoreEpoch {
        StoreEpoch::new(self.contents.read().removed)
    }

    fn watch(&self, cache: Weak<dyn DropStale>) {
        self.caches.register(cache);
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn iterate(&self) -> BoxStream<'static, Result<Cid>> {
        self.blocks_after(None)
    }

    fn iterate_after(&self, after: &Cid) -> BoxStream<'static, Result<Cid>> {
        self.blocks_after(Some(*after.hash()))
    }

    async fn compact(&self, options: CompactOptions) -> Result<Compacted> {
        options.check()?;
        self.caches.drop_stale();
        Ok(Compacted::default())
    }

    async fn flush(&self) -> Result<()> {
        Ok(())
    }

    async fn stats(&self) -> Result<Stats> {
        let contents = self.contents.read();
        Ok(Stats { blocks: contents.blocks.len() as u64, payload_bytes: contents.payload_bytes, ..Stats::default() })
    }
}
