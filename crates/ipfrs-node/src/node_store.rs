//! Store that counts its operations, limits waits, and protects written blocks from gc.

mod retrieval_timeout;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use ipfrs_core::{Block, Cid, Error, FileOffset, Result};
use ipfrs_store::{
    BlockBatch, BlockStore, CompactOptions, Compacted, Filestore, PutMode, Reference, Scrubbed, Spared, Stored,
    forward_to_store,
};
use tracing::Instrument;

pub use self::retrieval_timeout::ReadConfig;
pub(crate) use self::retrieval_timeout::RetrievalTimeout;
use crate::events::{EventData, Events, Topic};
use crate::fetched::Fetched;
use crate::gc::Protection;
use crate::metrics::Metrics;
use crate::trace::{number, span};

/// Forwards all calls to an engine. It updates the block metrics, protects written blocks from gc, limits the wait for
/// each block, and keeps the ledger of fetched blocks up to date.
#[derive(Debug)]
pub(crate) struct NodeStore {
    inner: Arc<dyn BlockStore>,
    read_timeout: RetrievalTimeout,
    metrics: Arc<Metrics>,
    protection: Protection,
    events: Events,
    /// Which blocks were fetched; `None` if the store is read-only.
    fetched: Option<Arc<Fetched>>,
    on_stored: OnStored,
    /// Whether blocks may stay in files.
    has_references: bool,
}

/// Function that learns about blocks that were not in the store before; it is set once.
pub(crate) type OnStored = Arc<OnceLock<StoredFn>>;

type StoredCids = dyn Fn(&[Cid]) + Send + Sync;

/// Receives the CIDs of new blocks. It must not block.
pub(crate) struct StoredFn(pub(crate) Box<StoredCids>);

impl fmt::Debug for StoredFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredFn(..)")
    }
}

impl NodeStore {
    /// Creates the store over an engine, in which blocks may stay in files if `has_references`.
    pub(crate) fn new(
        inner: Arc<dyn BlockStore>,
        has_references: bool,
        read_timeout: RetrievalTimeout,
        metrics: Arc<Metrics>,
        protection: Protection,
        events: Events,
        fetched: Option<Arc<Fetched>>,
    ) -> Self {
        let on_stored = OnStored::default();
        Self { inner, read_timeout, metrics, protection, events, fetched, on_stored, has_references }
    }

    /// Returns the place of the function that learns about new blocks.
    #[cfg(feature = "bitswap")]
    pub(crate) fn on_stored(&self) -> OnStored {
        Arc::clone(&self.on_stored)
    }

    fn failed<T>(&self, operation: &str, result: &Result<T>) {
        if let Err(error) = result {
            self.metrics.block_errors.failed(operation, error);
        }
    }

    /// Stores blocks and tells those who watch, even if the caller is gone by then: the engine completes what it has
    /// begun.
    async fn put_watched(&self, blocks: Vec<Block>, put: Put) -> Vec<Result<Stored>> {
        let cids: Vec<_> = blocks.iter().map(|block| (*block.cid(), block.data().len() as u64)).collect();
        let (inner, events, on_stored) = (Arc::clone(&self.inner), self.events.clone(), Arc::clone(&self.on_stored));
        let count = blocks.len();
        let put = tokio::spawn(async move {
            let outcomes = put.run(&*inner, blocks).await;
            let new = cids.into_iter().zip(&outcomes).filter(|(_, outcome)| is_new(outcome)).map(|(put, _)| put);
            let new: Vec<_> = new.collect();
            if let Some(on_stored) = on_stored.get() {
                (on_stored.0)(&new.iter().map(|(cid, _)| *cid).collect::<Vec<_>>());
            }
            events.emit(Topic::Blocks, new.into_iter().map(|(cid, size)| EventData::BlockAdded { cid, size }));
            outcomes
        });
        let failed = || Err(Error::internal("a task that stores blocks failed"));
        put.await.unwrap_or_else(|_| (0..count).map(|_| failed()).collect())
    }

    /// Emits the events of a deletion, or counts its failure.
    async fn deleted(&self, cids: &[Cid], result: &Result<Vec<bool>>) {
        self.failed("delete", result);
        let removed = || result.iter().flatten().zip(cids).filter(|(removed, _)| **removed).map(|(_, cid)| cid);
        self.events.emit(Topic::Blocks, removed().map(|cid| EventData::BlockRemoved { cid: *cid }));
        if let Some(fetched) = &self.fetched {
            fetched.removed(removed()).await;
        }
    }

    /// Stores blocks. They are content of users unless the ledger learns otherwise.
    async fn store(&self, blocks: Vec<Block>, put: Put) -> Vec<Result<Stored>> {
        let is_watched = self.events.are_recorded(Topic::Blocks) || self.on_stored.get().is_some();
        let span = span!("write", blocks = number(blocks.len()));
        let outcomes = match is_watched {
            true => self.put_watched(blocks, put).instrument(span).await,
            false => {
                let outcomes = put.run(&*self.inner, blocks).instrument(span).await;
                self.events.count(Topic::Blocks, outcomes.iter().filter(|outcome| is_new(outcome)).count());
                outcomes
            }
        };
        outcomes.iter().for_each(|outcome| self.failed("put", outcome));
        let new = outcomes.iter().filter(|outcome| is_new(outcome)).count();
        self.metrics.blocks_stored.inc_by(new as u64);
        outcomes
    }

    /// Stores blocks that the caller records as fetched.
    pub(crate) async fn put_fetched(&self, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>> {
        if !self.has_references {
            return self.store(blocks, Put::Packed(mode)).await;
        }
        // A block that stays in a file must not become one that was fetched: eviction would delete both.
        let cids: Vec<_> = blocks.iter().map(|block| *block.cid()).collect();
        let sizes = match self.inner.has_many(&cids).await {
            Ok(sizes) => sizes,
            Err(error) => return cids.iter().map(|_| Err(Error::new(error.kind(), error.message()))).collect(),
        };
        let absent = blocks.into_iter().zip(&sizes).filter(|(_, size)| size.is_none()).map(|(block, _)| block);
        let mut stored = self.store(absent.collect(), Put::Packed(mode)).await.into_iter();
        let missing = || Err(Error::internal("the store returned no outcome for a block"));
        let outcome = |size: &Option<u64>| match size {
            Some(_) => Ok(Stored::Present),
            None => stored.next().unwrap_or_else(missing),
        };
        sizes.iter().map(outcome).collect()
    }

    /// Stores references to blocks in files. Each block is content of users from then on.
    pub(crate) async fn put_references(&self, filestore: &Filestore, leaves: Vec<(Block, FileOffset)>) -> Result<()> {
        // As in `put_many`.
        self.protection.touch(leaves.iter().map(|(block, _)| block.cid().hash()));
        // Blocks are looked up before they are put.
        self.protection.settled().await;
        let (blocks, parts): (Vec<_>, Vec<_>) =
            leaves.into_iter().map(|(block, part)| (block.clone(), (*block.cid(), part))).unzip();
        let put = Put::Referenced(filestore.clone(), Arc::new(parts.into_iter().collect()));
        let outcomes = match &self.fetched {
            None => self.store(blocks, put).await,
            Some(fetched) => {
                let store = |blocks| self.store(blocks, put.clone()).boxed();
                fetched.put_user_content(&*self.inner, &self.protection, blocks, PutMode::Atomic, store).await
            }
        };
        outcomes.into_iter().try_for_each(|outcome| outcome.map(drop))
    }

    /// Removes a reference. The file stays.
    pub(crate) async fn remove_reference(&self, filestore: &Filestore, reference: &Reference) -> Result<()> {
        let result = filestore.remove_references(std::slice::from_ref(reference)).await;
        self.deleted(&[reference.cid], &result).await;
        result.map(drop)
    }
}

/// Destination of blocks.
#[derive(Clone)]
enum Put {
    Packed(PutMode),
    /// The blocks stay in files, at the given places.
    Referenced(Filestore, Arc<HashMap<Cid, FileOffset>>),
}

impl Put {
    async fn run(self, inner: &dyn BlockStore, blocks: Vec<Block>) -> Vec<Result<Stored>> {
        let (filestore, parts) = match self {
            Self::Packed(mode) => return inner.put_many(blocks, mode).await,
            Self::Referenced(filestore, parts) => (filestore, parts),
        };
        let count = blocks.len();
        let part = |block: Block| parts.get(block.cid()).cloned().map(|part| (block, part));
        match filestore.put_references(blocks.into_iter().filter_map(part).collect()).await {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            Err(error) => (0..count).map(|_| Err(Error::new(error.kind(), error.message()))).collect(),
        }
    }
}

fn is_new(outcome: &Result<Stored>) -> bool {
    matches!(outcome, Ok(Stored::New))
}

#[deny(clippy::missing_trait_methods, reason = "a default would bypass the inner store")]
#[async_trait]
impl BlockStore for NodeStore {
    async fn get(&self, cid: &Cid) -> Result<Option<Bytes>> {
        let start = Instant::now();
        let wait = self.read_timeout.wait(|| format!("block {cid}"), self.inner.get(cid));
        let result = wait.instrument(span!("read", blocks = 1)).await;
        self.failed("get", &result);
        match result {
            Ok(Some(_)) => {
                if let Some(fetched) = &self.fetched {
                    fetched.touched(cid);
                }
                self.metrics.blocks_retrieved.inc();
                self.metrics.block_retrieval.observe(start.elapsed().as_secs_f64());
            }
            Ok(None) => self.metrics.block_errors.missing(1),
            Err(_) => {}
        }
        result
    }

    fn get_many(&self, cids: Vec<Cid>) -> BoxStream<'static, Result<(Cid, Option<Bytes>)>> {
        let metrics = self.metrics.clone();
        let requested = cids.len();
        // It ends when the stream is dropped.
        let span = span!("read", blocks = number(requested));
        let fetched = self.fetched.clone();
        let count = move |result: &Result<(Cid, Option<Bytes>)>| {
            let _ = &span;
            match result {
                Ok((cid, Some(_))) => {
                    if let Some(fetched) = &fetched {
                        fetched.touched(cid);
                    }
                    metrics.blocks_retrieved.inc();
                }
                Ok((_, None)) => metrics.block_errors.missing(1),
                Err(error) => metrics.block_errors.failed("get", error),
            }
        };
        self.read_timeout.stream(self.inner.get_many(cids), requested, |_| 1).inspect(count).boxed()
    }

    fn get_batches(&self, cids: Arc<[Cid]>) -> BoxStream<'static, BlockBatch> {
        let metrics = self.metrics.clone();
        let requested = cids.len();
        let batches = self.inner.get_batches(Arc::clone(&cids)).map(Ok).boxed();
        let batches = self.read_timeout.stream(batches, requested, BlockBatch::len);
        let (fetched, mut returned) = (self.fetched.clone(), 0);
        let span = span!("read", blocks = number(requested));
        let counted = move |batch: Result<BlockBatch>| {
            let _ = &span;
            let batch = batch.unwrap_or_else(|error| {
                let mut failed = BlockBatch::default();
                failed.push(Err(error));
                failed
            });
            let (mut retrieved, mut missing) = (0, 0);
            for index in 0..batch.len() {
                match batch.section(index) {
                    Ok(Some(_)) => {
                        if let (Some(fetched), Some(cid)) = (&fetched, cids.get(returned + index)) {
                            fetched.touched(cid);
                        }
                        retrieved += 1;
                    }
                    Ok(None) => missing += 1,
                    Err(error) => metrics.block_errors.failed("get", error),
                }
            }
            returned += batch.len();
            metrics.blocks_retrieved.inc_by(retrieved);
            metrics.block_errors.missing(missing);
            batch
        };
        batches.map(counted).boxed()
    }

    async fn put_many(&self, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>> {
        // Blocks must be touched before the engine may find that they exist already.
        self.protection.touch(blocks.iter().map(|block| block.cid().hash()));
        let Some(fetched) = &self.fetched else { return self.store(blocks, Put::Packed(mode)).await };
        fetched.note_written(blocks.iter().map(|block| block.data().len() as u64).sum());
        let put = |blocks| self.store(blocks, Put::Packed(mode)).boxed();
        fetched.put_user_content(&*self.inner, &self.protection, blocks, mode, put).await
    }

    async fn has_many(&self, cids: &[Cid]) -> Result<Vec<Option<u64>>> {
        let what = || format!("the presence of {} blocks", cids.len());
        let result = self.read_timeout.wait(what, self.inner.has_many(cids)).await;
        self.failed("has", &result);
        result
    }

    async fn delete_unless(&self, cids: &[Cid], spared: Spared) -> Result<Vec<bool>> {
        let result = self.inner.delete_unless(cids, spared).await;
        self.deleted(cids, &result).await;
        result
    }

    async fn delete_many(&self, cids: &[Cid]) -> Result<Vec<bool>> {
        let result = self.inner.delete_many(cids).await;
        self.deleted(cids, &result).await;
        result
    }

    fn scrub(&self) -> BoxStream<'static, Result<Scrubbed>> {
        // The number of items is unknown.
        self.read_timeout.stream(self.inner.scrub(), 0, |_| 0).boxed()
    }

    async fn compact(&self, options: CompactOptions) -> Result<Compacted> {
        let result = self.inner.compact(options).await;
        self.failed("compact", &result);
        result
    }

    fn note_use(&self, cids: &[Cid]) {
        if let Some(fetched) = &self.fetched {
            cids.iter().for_each(|cid| fetched.touched(cid));
        }
        self.inner.note_use(cids);
    }

    forward_to_store!(inner: iterate, iterate_after, flush, stats, epoch, epoch_of, watch, check, disk, mappings);
}
