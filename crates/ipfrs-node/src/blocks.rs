//! Single blocks and batches of blocks.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use ipfrs_core::hash::HashFunction;
use ipfrs_core::limits::{MAX_BIG_BLOCK_BYTES, MAX_BLOCK_BYTES};
use ipfrs_core::{Block, Cid, Error, Result, check_block_size, codec, hash, new_cid};
use ipfrs_store::{BlockBatch, BlockStoreExt, PutMode, Stored};

use crate::{ContentPath, Node, PinOptions};

/// Size up to which a block is hashed on the calling thread, in bytes. Hashing a larger one would block a runtime
/// worker.
const INLINE_HASH_BYTES: usize = 32 * 1024;

/// Parameters of the content ID of a new block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockFormat {
    /// CID version, 0 or 1.
    pub version: u64,
    /// Multicodec code.
    pub codec: u64,
    /// Hash function.
    pub hash: HashFunction,
    /// Length of the digest in bytes, if it is truncated.
    pub digest_bytes: Option<usize>,
}

impl Default for BlockFormat {
    fn default() -> Self {
        Self { version: 1, codec: codec::RAW, hash: HashFunction::Sha2_256, digest_bytes: None }
    }
}

/// Block to store, with the content ID that it must have, or the format of a new content ID.
#[derive(Debug, Clone)]
pub struct PutBlock {
    /// Bytes of the block.
    pub data: Bytes,
    /// The content ID that the sender expects; the data is verified against it.
    pub cid: Option<Cid>,
    /// How the content ID is computed if `cid` is `None`.
    pub format: BlockFormat,
}

/// Options of [`Node::put_block_with`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PutBlockOptions {
    /// Whether the block is pinned recursively. All blocks below it must be in the store then.
    pub pin: bool,
    /// Whether the block may have up to [`MAX_BIG_BLOCK_BYTES`] bytes instead of [`MAX_BLOCK_BYTES`]. Many peers do not
    /// accept such a block.
    pub allows_big: bool,
}

impl PutBlockOptions {
    fn max_bytes(self) -> usize {
        if self.allows_big { MAX_BIG_BLOCK_BYTES } else { MAX_BLOCK_BYTES }
    }
}

impl PutBlock {
    fn into_block(self, max_bytes: usize) -> Result<Block> {
        check_block_size(self.data.len(), max_bytes)?;
        let cid = match self.cid {
            Some(cid) => {
                hash::verify(&cid, &self.data)?;
                cid
            }
            None => {
                let BlockFormat { version, codec, hash, digest_bytes } = self.format;
                let digest = match digest_bytes {
                    Some(bytes) => hash.truncated_digest(&self.data, bytes)?,
                    None => hash.digest(&self.data)?,
                };
                new_cid(version, codec, digest)?
            }
        };
        Ok(Block::trusted(cid, self.data))
    }
}

/// Block of a batch to store.
#[derive(Debug, Clone)]
pub enum BatchItem {
    /// Block that has not been verified.
    Put(PutBlock),
    /// Block that was verified when it was received, such as a block of a CAR.
    Verified(Block),
}

impl BatchItem {
    fn into_block(self) -> Result<Block> {
        match self {
            Self::Put(put) => put.into_block(MAX_BLOCK_BYTES),
            Self::Verified(block) => Ok(block),
        }
    }
}

/// Batch of blocks to store. An item that could not be parsed (bad base64, bad CID) is represented by its error, so
/// that the other items keep their index.
#[derive(Debug)]
pub struct BatchPut {
    /// Items, in the order of the request.
    pub items: Vec<Result<BatchItem>>,
    /// Whether the batch is stored atomically or each item by itself.
    pub mode: PutMode,
}

/// Outcome of a batch as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStatus {
    /// Every item is stored.
    Committed,
    /// Best effort: some items are stored.
    PartialSuccess,
    /// No item is stored.
    RolledBack,
}

/// Outcome of each item of a batch.
#[derive(Debug)]
pub struct BatchPutOutcome {
    /// Outcome of the batch as a whole.
    pub status: TransactionStatus,
    /// Index, content ID and size in bytes of each stored item.
    pub stored: Vec<(usize, Cid, usize)>,
    /// Index and error of each item that is not stored. In an atomic batch, these are the invalid items, or all items
    /// if the store failed.
    pub errors: Vec<(usize, Error)>,
}

impl Node {
    /// Returns the bytes of a block.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) if the block is not in the store; the error names it.
    pub async fn get_block(&self, cid: &Cid) -> Result<Bytes> {
        self.single_store().require(cid).await
    }

    /// Returns the size of a block in bytes.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) if the block is not in the store; the error names it.
    pub async fn block_size(&self, cid: &Cid) -> Result<u64> {
        self.check_block(cid)?;
        match self.inner.store.size(cid).await? {
            Some(size) => Ok(size),
            // The store may be able to retrieve it.
            None => self.single_store().get(cid).await?.map(|data| data.len() as u64).ok_or_else(|| absent(cid)),
        }
    }

    /// Stores one block durably and returns its content ID and its size in bytes. The block is not pinned: gc removes
    /// it unless a pin or a mutable file leads to it. If the future is dropped, the block may or may not be stored.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the data does not match the expected content ID;
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) above the size limit; otherwise those of
    /// [`BlockStore::put_many`](ipfrs_store::BlockStore::put_many).
    pub async fn put_block(&self, block: PutBlock) -> Result<(Cid, usize)> {
        self.put_block_with(block, PutBlockOptions::default()).await
    }

    /// Same as [`put_block`](Self::put_block), with options.
    ///
    /// # Errors
    /// As [`put_block`](Self::put_block) and [`pin`](Self::pin); in the latter case the block is stored without a pin.
    pub async fn put_block_with(&self, block: PutBlock, options: PutBlockOptions) -> Result<(Cid, usize)> {
        let _lease = options.pin.then(|| self.inner.protection.lease());
        let (cid, size) = self.put_block_within(block, options.max_bytes()).await?;
        if options.pin {
            self.pin(&[ContentPath::new(cid, Vec::new())?], &PinOptions::default(), |_| {}).await?;
        }
        Ok((cid, size))
    }

    async fn put_block_within(&self, block: PutBlock, max_bytes: usize) -> Result<(Cid, usize)> {
        let block = if block.data.len() <= INLINE_HASH_BYTES {
            block.into_block(max_bytes)
        } else {
            let hashed = tokio::task::spawn_blocking(move || block.into_block(max_bytes));
            hashed.await.map_err(|e| Error::internal("hashing a block failed").with_source(e))?
        };
        let block = block.inspect_err(|_| self.inner.metrics.block_errors.refused())?;
        let stored = (*block.cid(), block.data().len());
        self.inner.served.put(block).await?;
        Ok(stored)
    }

    /// Stores verified blocks that were fetched from other nodes and returns one outcome for each. They are evicted
    /// when the store exceeds `store.max_bytes`, unless a user adds or pins them. Waits for eviction, at most ten
    /// seconds or half of `retrieval.timeout_seconds`. A block that was there before keeps its state.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`](ipfrs_core::ErrorKind) if eviction does not free enough space in time; otherwise errors
    /// of the store. The caller can still send the block to its client.
    pub async fn put_fetched(&self, blocks: Vec<Block>) -> Vec<Result<Stored>> {
        match &self.inner.eviction {
            Some(eviction) => eviction.put(blocks).await,
            None => blocks.iter().map(|_| self.check_writable().map(|()| Stored::Present)).collect(),
        }
    }

    /// Returns the blocks of a batch in the requested order. Blocks are read ahead of the consumer in bounded groups.
    /// A block that is not in the store is an error item.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) when the batch is over `batch.max_batch_size`.
    pub fn batch_get(&self, cids: Vec<Cid>) -> Result<impl Stream<Item = (Cid, Result<Bytes>)> + Send + use<>> {
        let cids: Arc<[Cid]> = cids.into();
        let mut yielded = 0;
        Ok(self.batch_get_together(Arc::clone(&cids))?.flat_map(move |batch| {
            let requested = cids.iter().skip(yielded).take(batch.len()).copied().collect::<Vec<_>>();
            yielded += batch.len();
            let answers = requested.into_iter().zip(batch.into_answers());
            stream::iter(answers.map(|(cid, found)| (cid, found.and_then(|data| data.ok_or_else(|| absent(&cid))))))
        }))
    }

    /// Like [`batch_get`](Self::batch_get), but returns blocks that are available at the same time as one group, as
    /// they are laid out in memory. A block that is not in the store is an error at its index.
    ///
    /// # Errors
    /// As [`batch_get`](Self::batch_get).
    pub fn batch_get_together(&self, cids: Arc<[Cid]>) -> Result<impl Stream<Item = BlockBatch> + Send + use<>> {
        self.check_batch(cids.len())?;
        // This method takes no import permit: a slow client would hold it for a long time, and read-ahead is bounded
        // anyway.
        let timer = self.batch_timer("get", cids.len());
        let mut yielded = 0;
        Ok(self.single_store().get_batches(Arc::clone(&cids)).map(move |mut batch| {
            let _lives_as_long = &timer;
            for (index, cid) in cids.iter().skip(yielded).take(batch.len()).enumerate() {
                if matches!(batch.section(index), Ok(None)) {
                    batch.refuse(index, absent(cid));
                }
            }
            yielded += batch.len();
            batch
        }))
    }

    /// Returns up to `most` content IDs of stored blocks behind `after`, in an order that does not change, and whether
    /// there are more.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) if the engine has no order; also errors of the store.
    pub async fn block_page(&self, after: Option<&Cid>, most: usize) -> Result<(Vec<Cid>, bool)> {
        let store = &self.inner.store;
        let blocks = after.map_or_else(|| store.iterate(), |after| store.iterate_after(after));
        let mut page: Vec<_> = blocks.take(most.saturating_add(1)).try_collect().await?;
        let has_more = page.len() > most;
        page.truncate(most);
        Ok((page, has_more))
    }

    /// Returns the content IDs of all stored blocks, in no particular order.
    #[must_use]
    pub fn stored_blocks(&self) -> BoxStream<'static, Result<Cid>> {
        self.inner.store.iterate()
    }

    /// Stores a batch of blocks durably. The blocks are not pinned, as with [`put_block`](Self::put_block).
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) when the batch is over `batch.max_batch_size`. Errors of single
    /// items are part of the outcome.
    pub async fn batch_put(&self, batch: BatchPut) -> Result<BatchPutOutcome> {
        let BatchPut { items, mode } = batch;
        let count = items.len();
        self.check_batch(count)?;
        let _timer = self.batch_timer("put", count);
        // Hashing megabytes would block a runtime worker.
        let verified = tokio::task::spawn_blocking(move || {
            items.into_iter().map(|item| item.and_then(BatchItem::into_block)).collect::<Vec<_>>()
        });
        let verified = verified.await.map_err(|e| Error::internal("verifying the batch failed").with_source(e))?;
        let (mut blocks, mut errors) = (Vec::with_capacity(count), Vec::new());
        for (index, item) in verified.into_iter().enumerate() {
            match item {
                Ok(block) => blocks.push((index, block)),
                Err(e) => {
                    self.inner.metrics.block_errors.refused();
                    errors.push((index, e));
                }
            }
        }
        if mode.is_atomic() && !errors.is_empty() {
            return Ok(BatchPutOutcome { status: TransactionStatus::RolledBack, stored: Vec::new(), errors });
        }
        let parts: Vec<_> = blocks.iter().map(|(index, block)| (*index, *block.cid(), block.data().len())).collect();
        let outcomes = self.inner.served.put_many(blocks.into_iter().map(|(_, block)| block).collect(), mode).await;
        let mut stored = Vec::with_capacity(parts.len());
        for (part, outcome) in parts.into_iter().zip(outcomes) {
            match outcome {
                Ok(Stored::New | Stored::Present) => stored.push(part),
                Err(e) => errors.push((part.0, e)),
            }
        }
        errors.sort_by_key(|(index, _)| *index);
        let status = match (errors.is_empty(), stored.is_empty()) {
            (true, _) => TransactionStatus::Committed,
            (false, false) => TransactionStatus::PartialSuccess,
            (false, true) => TransactionStatus::RolledBack,
        };
        Ok(BatchPutOutcome { status, stored, errors })
    }

    /// Returns the size in bytes of each block of a batch; `None` for a block that is not in the store.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) when the batch is over `batch.max_batch_size`.
    pub async fn batch_has(&self, cids: &[Cid]) -> Result<Vec<Option<u64>>> {
        self.check_batch(cids.len())?;
        let _timer = self.batch_timer("has", cids.len());
        self.inner.served.has_many(cids).await
    }

    fn check_batch(&self, count: usize) -> Result<()> {
        let limit = self.inner.config.batch.max_batch_size;
        if count > limit {
            return Err(Error::too_large(format!(
                "a batch of {count} blocks is over the limit of {limit} (batch.max_batch_size): send several batches"
            )));
        }
        Ok(())
    }

    fn batch_timer(&self, operation: &'static str, count: usize) -> BatchTimer {
        #[expect(clippy::cast_precision_loss, reason = "batch sizes are far below 2^52")]
        self.inner.metrics.batch_size.with_label_values(&[operation]).observe(count as f64);
        let histogram = self.inner.metrics.batch_duration.with_label_values(&[operation]);
        BatchTimer { histogram, start: Instant::now() }
    }
}

fn absent(cid: &Cid) -> Error {
    Error::no_block(cid, format!("block {cid} is not in this store"))
}

/// Observes the duration of a batch when dropped, whatever its outcome.
struct BatchTimer {
    histogram: prometheus::Histogram,
    start: Instant,
}

impl Drop for BatchTimer {
    fn drop(&mut self) {
        self.histogram.observe(self.start.elapsed().as_secs_f64());
    }
}
