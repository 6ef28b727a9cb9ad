//! DAGs that come in as CAR.

use std::collections::HashSet;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use ipfrs_core::{Block, Cid, Error, Result};
use ipfrs_store::PutMode;
use ipfrs_stream::car::{CarLimits, CarReader};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

use crate::metrics::Active;
use crate::protection::Lease;
use crate::{ContentPath, Node, PinOptions};

/// Blocks are handed to the store in batches of about this size, or of this many: one commit's worth.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
const BATCH_BLOCKS: usize = 4_096;

/// Batches that the store works on at once.
const MAX_BATCHES: usize = 4;

/// Most roots of one import.
const MAX_ROOTS: usize = 65_536;

/// One import of CARs. Every block is verified; dropping it ends the import, and blocks that were written stay.
pub struct DagImport {
    node: Node,
    /// Keeps what is imported from being collected until its roots are pinned; `None` where they are not to be.
    lease: Option<Lease>,
    batch: Vec<Block>,
    batch_bytes: usize,
    puts: JoinSet<Result<()>>,
    roots: Vec<Cid>,
    seen: HashSet<Cid>,
    blocks: u64,
    bytes: u64,
    _active: Active,
    _turn: OwnedSemaphorePermit,
}

/// What an import has brought.
#[derive(Debug)]
pub struct ImportedDags {
    /// The roots that the CARs name, each once, and what kept it from being pinned; empty where none were to be pinned.
    pub roots: Vec<(Cid, Option<Error>)>,
    /// Blocks of the CARs, repeated ones included.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Node {
    /// Begins an import of CARs. With `pin_roots`, the roots that they name are pinned in the end, with all that is below
    /// them, and no collection takes away what the import brings until then.
    ///
    /// # Errors
    /// [`ErrorKind::RateLimited`](ipfrs_core::ErrorKind) when too many imports are under way for too long;
    /// [`ErrorKind::Forbidden`](ipfrs_core::ErrorKind) for a repo that is open read-only.
    pub async fn import_dags(&self, pin_roots: bool) -> Result<DagImport> {
        self.check_writable()?;
        let turn = self.turn().await?;
        Ok(DagImport {
            node: self.clone(),
            lease: pin_roots.then(|| self.inner.protection.lease()),
            batch: Vec::new(),
            batch_bytes: 0,
            puts: JoinSet::new(),
            roots: Vec::new(),
            seen: HashSet::new(),
            blocks: 0,
            bytes: 0,
            _active: Active::begin(&self.inner.metrics.uploads_active),
            _turn: turn,
        })
    }
}

impl DagImport {
    /// Takes in a CAR of version 1 or 2.
    ///
    /// # Errors
    /// What is wrong with the CAR, with the offset of the section where it is; what the content stream or the store fails
    /// with. Blocks before that may have been stored.
    pub async fn car(&mut self, mut content: impl Stream<Item = Result<Bytes>> + Unpin) -> Result<()> {
        let mut reader = CarReader::new(&mut content, CarLimits::default());
        for root in reader.header().await? {
            if self.seen.insert(*root) {
                self.roots.push(*root);
            }
        }
        if self.roots.len() > MAX_ROOTS {
            return Err(Error::too_large(format!("an import has at most {MAX_ROOTS} roots: split it")));
        }
        while let Some(block) = reader.next().await {
            let block = block?;
            let len = block.data().len();
            if self.batch_bytes + len > BATCH_BYTES || self.batch.len() == BATCH_BLOCKS {
                self.send().await?;
            }
            self.blocks += 1;
            self.batch_bytes += len;
            self.batch.push(block);
        }
        // What follows the blocks of a CARv2 is its index. It is read over, so that whoever sends it can end.
        while content.next().await.transpose()?.is_some() {}
        Ok(())
    }

    /// The roots that the CARs so far name, each once.
    #[must_use]
    pub fn roots(&self) -> &[Cid] {
        &self.roots
    }

    /// Waits until every block is durable, and pins the roots, where that was asked for. Not all that is below a root need
    /// be here: then it is not pinned.
    ///
    /// # Errors
    /// What the store fails with.
    pub async fn finish(mut self) -> Result<ImportedDags> {
        self.send().await?;
        while let Some(put) = self.puts.join_next().await {
            stored(put)?;
        }
        let mut roots = Vec::new();
        if self.lease.is_some() {
            for root in self.roots {
                let pinned =
                    self.node.pin(&[ContentPath::new(root, Vec::new())?], &PinOptions::default(), |_| {}).await;
                roots.push((root, pinned.err()));
            }
        }
        Ok(ImportedDags { roots, blocks: self.blocks, bytes: self.bytes })
    }

    /// Hands the batch to the store, and waits while that has as many as it may have.
    async fn send(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.batch_bytes) as u64;
        self.bytes += bytes;
        self.node.inner.metrics.upload_bytes.inc_by(bytes);
        // One that has failed ends the import before more is taken in.
        while let Some(put) = self.puts.try_join_next() {
            stored(put)?;
        }
        while self.puts.len() >= MAX_BATCHES {
            self.puts.join_next().await.map_or(Ok(()), stored)?;
        }
        let store = self.node.inner.served.clone();
        self.puts.spawn(async move {
            store.put_many(batch, PutMode::Atomic).await.into_iter().try_for_each(|put| put.map(drop))
        });
        Ok(())
    }
}

fn stored(put: Result<Result<()>, tokio::task::JoinError>) -> Result<()> {
    put.unwrap_or_else(|e| Err(Error::internal("a task that stores blocks failed").with_source(e)))
}
