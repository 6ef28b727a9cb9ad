//! Imports of DAGs from CARs.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use ipfrs_core::limits::MAX_BIG_BLOCK_BYTES;
use ipfrs_core::{Block, Cid, Error, Result};
use ipfrs_store::{PutMode, RESERVED_CODEC};
use ipfrs_stream::car::{CarLimits, CarReader};
use ipfrs_unixfs::{MAX_GATHERING, SpareBatch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use crate::gc::RenewedLease;
use crate::metrics::Active;
use crate::node::ImportPermit;
use crate::{ContentPath, Node, PinOptions, RequestContext, current_context, with_context};

/// Size of the batches that the store receives, in bytes and in blocks: one commit each.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
const BATCH_BLOCKS: usize = 4_096;

/// Number of batches that the store writes concurrently.
const MAX_BATCHES: usize = 4;

/// Maximum number of roots of one import.
const MAX_ROOTS: usize = 65_536;

/// Options of [`Node::import_dags`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DagImportOptions {
    /// Whether [`DagImport::finish`] pins the roots that the CARs name recursively. gc keeps the imported blocks until
    /// then.
    pub pin_roots: bool,
    /// Whether blocks may have up to [`MAX_BIG_BLOCK_BYTES`] bytes. Many peers do not accept them.
    pub allows_big_blocks: bool,
}

/// One import of CARs. Every block is verified. Dropping it ends the import; blocks that were already written are
/// kept.
pub struct DagImport {
    node: Node,
    /// Protects the imported blocks from gc until the roots are pinned; `None` if they are not to be pinned.
    lease: Option<Arc<RenewedLease>>,
    limits: CarLimits,
    batch: Vec<Block>,
    batch_bytes: usize,
    /// When the first block of the batch arrived; `None` if the batch is empty.
    gathering_since: Option<Instant>,
    puts: JoinSet<Result<()>>,
    roots: Vec<Cid>,
    seen: HashSet<Cid>,
    blocks: u64,
    bytes: u64,
    _active: Active,
    _import_permit: ImportPermit,
}

/// Result of an import.
#[derive(Debug)]
pub struct ImportedDags {
    /// Roots that the CARs name, each once, with the error that prevented the pin, if any. Empty if no pins were
    /// requested.
    pub roots: Vec<(Cid, Option<Error>)>,
    /// Number of blocks in the CARs, including duplicates.
    pub blocks: u64,
    /// Payload bytes of these blocks.
    pub bytes: u64,
}

impl Node {
    /// Begins an import of CARs.
    ///
    /// # Errors
    /// [`ErrorKind::RateLimited`](ipfrs_core::ErrorKind) if no import permit becomes free in time;
    /// [`ErrorKind::Forbidden`](ipfrs_core::ErrorKind) if the repo is open read-only.
    pub async fn import_dags(&self, options: DagImportOptions) -> Result<DagImport> {
        self.check_writable()?;
        let import_permit = self.import_permit().await?;
        let mut limits = CarLimits::default();
        if options.allows_big_blocks {
            limits.max_block = MAX_BIG_BLOCK_BYTES;
        }
        Ok(DagImport {
            node: self.clone(),
            lease: options.pin_roots.then(|| self.inner.protection.renewed_lease()),
            limits,
            batch: Vec::new(),
            batch_bytes: 0,
            gathering_since: None,
            puts: JoinSet::new(),
            roots: Vec::new(),
            seen: HashSet::new(),
            blocks: 0,
            bytes: 0,
            _active: Active::begin(&self.inner.metrics.uploads_active),
            _import_permit: import_permit,
        })
    }
}

impl DagImport {
    /// Imports a CAR of version 1 or 2.
    ///
    /// # Errors
    /// [`Error::large_block`] for a block over the limit; if the CAR is malformed, with the offset of the faulty
    /// section; or if the content stream or the store fails. Blocks before the error may have been stored.
    pub async fn car(&mut self, mut content: impl Stream<Item = Result<Bytes>> + Unpin) -> Result<()> {
        let mut reader = CarReader::new(&mut content, self.limits);
        for root in reader.header().await? {
            if self.seen.insert(*root) {
                self.roots.push(*root);
            }
        }
        if self.roots.len() > MAX_ROOTS {
            return Err(Error::too_large(format!("an import has at most {MAX_ROOTS} roots: split it")));
        }
        loop {
            let next = {
                let mut next = pin!(reader.next());
                let in_time = match self.gathering_since {
                    Some(since) => timeout_at(since + MAX_GATHERING, &mut next).await.ok(),
                    None => Some((&mut next).await),
                };
                match in_time {
                    Some(next) => next,
                    // A slow client must not keep the batch in memory.
                    None => {
                        self.send().await?;
                        next.await
                    }
                }
            };
            let Some(block) = next.transpose()? else { break };
            // A pack of another store has sections that are no content.
            if block.cid().codec() == RESERVED_CODEC {
                continue;
            }
            let len = block.data().len();
            if self.batch_bytes + len > BATCH_BYTES || self.batch.len() == BATCH_BLOCKS {
                self.send().await?;
            }
            if let Some(lease) = &self.lease {
                lease.remember([block.cid().hash()].into_iter());
            }
            self.blocks += 1;
            self.batch_bytes += len;
            self.gathering_since.get_or_insert_with(Instant::now);
            self.batch.push(block);
        }
        // The index of a CARv2 follows its blocks. It is read and discarded so that the client can finish sending.
        while content.next().await.transpose()?.is_some() {}
        Ok(())
    }

    /// Returns the roots that the CARs named so far, each once.
    #[must_use]
    pub fn roots(&self) -> &[Cid] {
        &self.roots
    }

    /// Waits until every block is durable, then pins the roots if the import was begun with `pin_roots`. A root is
    /// not pinned if a block below it is missing. The import does not wait for peers that may have that block later.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn finish(mut self) -> Result<ImportedDags> {
        self.send().await?;
        while let Some(put) = self.puts.join_next().await {
            stored(put)?;
        }
        let mut roots = Vec::new();
        if self.lease.is_some() {
            for root in self.roots {
                // An import may have thousands of incomplete roots, and holds a permit.
                let context = RequestContext { waits_for_peers: false, ..current_context() };
                let (path, options) = (ContentPath::new(root, Vec::new())?, PinOptions::default());
                let pinned = with_context(context, self.node.pin(&[path], &options, |_| {})).await;
                roots.push((root, pinned.err()));
            }
        }
        Ok(ImportedDags { roots, blocks: self.blocks, bytes: self.bytes })
    }

    /// Hands the batch to the store, and waits while [`MAX_BATCHES`] are being written.
    async fn send(&mut self) -> Result<()> {
        self.gathering_since = None;
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.batch_bytes) as u64;
        self.bytes += bytes;
        self.node.inner.metrics.upload_bytes.inc_by(bytes);
        // A failed batch ends the import before more data is read.
        while let Some(put) = self.puts.try_join_next() {
            stored(put)?;
        }
        let mut spare = None;
        while !self.puts.is_empty() {
            spare = if self.puts.len() < MAX_BATCHES { SpareBatch::take() } else { None };
            if spare.is_some() {
                break;
            }
            self.puts.join_next().await.map_or(Ok(()), stored)?;
        }
        let store = self.node.inner.served.clone();
        let put = async move {
            let _spare = spare;
            store.put_many(batch, PutMode::Atomic).await.into_iter().try_for_each(|put| put.map(drop))
        };
        self.puts.spawn(put.in_current_span());
        Ok(())
    }
}

fn stored(put: Result<Result<()>, tokio::task::JoinError>) -> Result<()> {
    put.unwrap_or_else(|e| Err(Error::internal("a task that stores blocks failed").with_source(e)))
}
