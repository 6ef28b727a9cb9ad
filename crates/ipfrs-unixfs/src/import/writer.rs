//! Batches of blocks for the sink.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ipfrs_core::{Block, Error, ErrorKind, FileOffset, Result};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::spare::SpareBatch;
use crate::blocks::BlockSink;

/// Size limit of a batch, in bytes. A batch is sent before a block would exceed it.
pub(crate) const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Number of blocks at which a batch is sent.
const MAX_BATCH_BLOCKS: usize = 1024;
/// Most batches that the sink stores concurrently.
const MAX_BATCHES_IN_FLIGHT: usize = 4;

/// A position in an import. It stands for everything that was imported before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mark(u64);

/// A writer that gathers blocks into batches and passes a few batches at a time to the sink.
pub(crate) struct BlockWriter {
    sink: Arc<dyn BlockSink>,
    batch: Vec<Block>,
    /// Blocks of the batch that are parts of local files.
    leaves: Vec<(Block, FileOffset)>,
    batch_bytes: usize,
    /// When the first block of the batch was pushed; `None` if the batch is empty.
    gathering_since: Option<Instant>,
    in_flight: VecDeque<Put>,
    /// Position after the last block that was pushed.
    mark: Mark,
    /// Position after the last batch that was acknowledged and removed from `in_flight`.
    durable: Mark,
    /// The error that ended the import.
    failure: Option<(ErrorKind, String)>,
}

struct Put {
    task: AbortOnDropHandle<Result<()>>,
    end: Mark,
    is_acknowledged: Arc<AtomicBool>,
}

impl BlockWriter {
    pub(crate) fn new(sink: Arc<dyn BlockSink>) -> Self {
        Self {
            sink,
            batch: Vec::new(),
            leaves: Vec::new(),
            batch_bytes: 0,
            gathering_since: None,
            in_flight: VecDeque::new(),
            mark: Mark::default(),
            durable: Mark::default(),
            failure: None,
        }
    }

    /// Adds a block. Waits while the sink has the maximum number of batches. An error may concern an earlier block.
    pub(crate) async fn push(&mut self, block: Block) -> Result<()> {
        self.make_room(&block).await?;
        self.batch.push(block);
        self.end_push().await
    }

    /// Like [`push`](Self::push), for a raw leaf that is a part of a local file.
    pub(crate) async fn push_leaf(&mut self, block: Block, part: FileOffset) -> Result<()> {
        self.make_room(&block).await?;
        self.leaves.push((block, part));
        self.end_push().await
    }

    async fn make_room(&mut self, block: &Block) -> Result<()> {
        self.check()?;
        let len = block.data().len();
        if self.batch_bytes + len > MAX_BATCH_BYTES {
            self.send().await?;
        }
        self.batch_bytes += len;
        self.gathering_since.get_or_insert_with(Instant::now);
        Ok(())
    }

    async fn end_push(&mut self) -> Result<()> {
        self.mark.0 += 1;
        if self.batch.len() + self.leaves.len() >= MAX_BATCH_BLOCKS {
            self.send().await?;
        }
        Ok(())
    }

    /// Waits until every block so far is durable.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        self.check()?;
        self.send().await?;
        while !self.in_flight.is_empty() {
            self.finish_oldest().await?;
        }
        Ok(())
    }

    pub(crate) fn gathering_since(&self) -> Option<Instant> {
        self.gathering_since
    }

    pub(crate) fn mark(&self) -> Mark {
        self.mark
    }

    pub(crate) fn durable(&self) -> Mark {
        let acknowledged = self.in_flight.iter().take_while(|put| put.is_acknowledged.load(Ordering::Acquire));
        acknowledged.last().map_or(self.durable, |put| put.end)
    }

    /// Sends the batch, if it is not empty, and waits while the sink has the maximum number of batches.
    pub(crate) async fn send(&mut self) -> Result<()> {
        while self.in_flight.len() >= MAX_BATCHES_IN_FLIGHT
            || self.in_flight.front().is_some_and(|put| put.task.is_finished())
        {
            self.finish_oldest().await?;
        }
        if self.batch.is_empty() && self.leaves.is_empty() {
            return Ok(());
        }
        let mut spare = None;
        while !self.in_flight.is_empty() {
            spare = SpareBatch::take();
            if spare.is_some() {
                break;
            }
            self.finish_oldest().await?;
        }
        self.batch_bytes = 0;
        self.gathering_since = None;
        let (batch, leaves) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.leaves));
        let sink = Arc::clone(&self.sink);
        let is_acknowledged = Arc::new(AtomicBool::new(false));
        let acknowledge = Arc::clone(&is_acknowledged);
        let put = async move {
            if !leaves.is_empty() {
                sink.put_leaves(leaves).await?;
            }
            if !batch.is_empty() {
                sink.put(batch).await?;
            }
            acknowledge.store(true, Ordering::Release);
            drop(spare);
            Ok(())
        };
        let task = tokio::spawn(put.in_current_span());
        self.in_flight.push_back(Put { task: AbortOnDropHandle::new(task), end: self.mark, is_acknowledged });
        Ok(())
    }

    async fn finish_oldest(&mut self) -> Result<()> {
        let Some(oldest) = self.in_flight.front_mut() else { return Ok(()) };
        let outcome = (&mut oldest.task).await;
        self.durable =
            match outcome.unwrap_or_else(|e| Err(Error::internal("a task that stores blocks failed").with_source(e))) {
                Ok(()) => oldest.end,
                Err(error) => {
                    self.failure = Some((error.kind(), error.message().to_owned()));
                    self.in_flight.clear();
                    self.batch.clear();
                    self.leaves.clear();
                    return Err(error);
                }
            };
        self.in_flight.pop_front();
        Ok(())
    }

    fn check(&self) -> Result<()> {
        match &self.failure {
            Some((kind, message)) => {
                Err(Error::new(*kind, format!("the import ended with an earlier error: {message}")))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use bytes::Bytes;
    use futures::future::join_all;
    use ipfrs_core::hash::HashFunction;
    use ipfrs_core::{Block, Result, codec};

    use super::{BlockWriter, MAX_BATCH_BYTES, MAX_BATCHES_IN_FLIGHT};
    use crate::blocks::BlockSink;

    /// A sink that counts batches and never stores one.
    #[derive(Default)]
    struct Endless(AtomicUsize);

    #[async_trait]
    impl BlockSink for Endless {
        async fn put(&self, _blocks: Vec<Block>) -> Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            std::future::pending().await
        }
    }

    #[tokio::test]
    async fn many_imports_hold_few_batches_more_than_one_each() {
        const IMPORTS: usize = 100;
        let sink = Arc::new(Endless::default());
        let block =
            Block::hash(1, codec::RAW, HashFunction::Sha2_256, Bytes::from(vec![0; MAX_BATCH_BYTES / 2])).unwrap();
        let imports = join_all((0..IMPORTS).map(|_| async {
            let mut writer = BlockWriter::new(sink.clone());
            for _ in 0..4 * MAX_BATCHES_IN_FLIGHT {
                writer.push(block.clone()).await.unwrap();
            }
        }));
        tokio::select! {
            biased;
            _ = imports => unreachable!("no batch is ever stored"),
            // The runtime has one thread, so every task that can run runs before.
            () = async { for _ in 0..10_000 { tokio::task::yield_now().await } } => {}
        }
        let cores = ipfrs_core::cores();
        let batches = sink.0.load(Ordering::Relaxed);
        assert!((IMPORTS..=IMPORTS + cores + 3).contains(&batches), "{batches}");
    }
}
