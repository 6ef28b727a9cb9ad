//! The way from callers to the writer: bounded by bytes, answered once durable.

use std::sync::Arc;
use std::sync::mpsc;

use ipfrs_core::{Block, Cid, Error, Result};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use super::compaction::Needed;
use super::group::{Delete, GROUP_BLOCKS, GROUP_BYTES, Keep, Put, Reply, Write, again};
use super::record::MAX_PREFIX_BYTES;
use super::shared::Shared;
use crate::{PutMode, Spared, Stored};

/// Bytes that may wait for the writer. One call may be larger: then it has the queue for itself.
const QUEUE_BYTES: usize = 64 * 1024 * 1024;

/// What a block counts besides its data.
const BLOCK_OVERHEAD_BYTES: usize = 512;

/// Keys of one delete; longer lists are several.
const DELETE_KEYS: usize = 16 * 1024;

/// Largest put that can be atomic, framing included: it must fit in a pack, whose offsets have 32 bits.
const MAX_ATOMIC_BYTES: u64 = u32::MAX as u64 - 4_096;

/// What the writer is asked to do.
pub(super) enum Job {
    /// Store or delete blocks.
    Write(Write),
    /// Make the index durable.
    Flush(Reply<()>),
    /// Write nothing to the pack with this number any more.
    Seal(u32, Reply<()>),
    /// Remove the pack with this number, and say how long it was, unless something in it is alive.
    Retire(u32, Reply<Option<u64>>),
    /// The same, let everything go and end.
    Stop(Reply<()>),
}

/// The callers' end. The channel itself has no bound; the permits do, and every job has one.
#[derive(Debug)]
pub(super) struct Queue {
    /// `None` once closed.
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    admission: Arc<Semaphore>,
}

impl Queue {
    /// A queue, and the writer's end of it.
    pub(super) fn new() -> (Self, mpsc::Receiver<Job>) {
        let (sender, receiver) = mpsc::channel();
        (Self { jobs: Mutex::new(Some(sender)), admission: Arc::new(Semaphore::new(QUEUE_BYTES)) }, receiver)
    }

    /// Stores blocks that may be stored; one outcome for each.
    pub(super) async fn put(&self, shared: &Shared, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>> {
        let parts = match mode {
            _ if blocks.is_empty() => return Vec::new(),
            PutMode::Atomic => vec![blocks],
            PutMode::BestEffort => split(blocks),
        };
        let mut outcomes = Vec::new();
        let mut waiting = Vec::with_capacity(parts.len());
        for part in parts {
            let count = part.len();
            waiting.push((count, self.submit_put(shared, part).await));
        }
        for (count, submitted) in waiting {
            let outcome = match submitted {
                Ok(reply) => answer(shared, reply).await,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(stored) => outcomes.extend(stored.into_iter().map(Ok)),
                Err(error) => outcomes.extend((0..count).map(|_| Err(again(&error)))),
            }
        }
        outcomes
    }

    async fn submit_put(&self, shared: &Shared, blocks: Vec<Block>) -> Result<oneshot::Receiver<Result<Vec<Stored>>>> {
        let data: usize = blocks.iter().map(|block| block.data().len()).sum();
        if (data + blocks.len() * MAX_PREFIX_BYTES) as u64 > MAX_ATOMIC_BYTES {
            return Err(Error::too_large(format!(
                "an atomic put of {} blocks with {data} bytes is over the limit of {MAX_ATOMIC_BYTES} bytes: split it",
                blocks.len()
            )));
        }
        let cost = data + blocks.len() * BLOCK_OVERHEAD_BYTES;
        self.submit(shared, cost, |reply| Job::Write(Write::Put(Put::new(blocks, reply)))).await
    }

    /// Deletes blocks but those that `spared` keeps; for each, whether it was there and is gone.
    pub(super) async fn delete(&self, shared: &Shared, cids: &[Cid], spared: &Spared) -> Result<Vec<bool>> {
        let mut deleted = Vec::with_capacity(cids.len());
        for cids in cids.chunks(DELETE_KEYS) {
            let cost = cids.len() * BLOCK_OVERHEAD_BYTES;
            let job = |reply| Job::Write(Write::Delete(Delete::new(cids, Arc::clone(spared), reply)));
            let reply = self.submit(shared, cost, job).await?;
            deleted.extend(answer(shared, reply).await?);
        }
        Ok(deleted)
    }

    /// Writes again what is `needed` of a part of `pack`; gives how many bytes that took.
    pub(super) async fn keep(&self, shared: &Shared, pack: u32, needed: Needed) -> Result<u64> {
        let data: usize = needed.blocks.iter().map(|block| block.data.len()).sum();
        let cost = data + needed.keys().count() * BLOCK_OVERHEAD_BYTES;
        let job = |reply| Job::Write(Write::Keep(Keep { pack, needed, reply }));
        answer(shared, self.submit(shared, cost, job).await?).await
    }

    /// Sees to it that nothing is written to `pack` any more.
    pub(super) async fn seal(&self, shared: &Shared, pack: u32) -> Result<()> {
        answer(shared, self.submit(shared, 1, |reply| Job::Seal(pack, reply)).await?).await
    }

    /// Removes `pack` and gives its length, or `None` when something in it is alive.
    pub(super) async fn retire(&self, shared: &Shared, pack: u32) -> Result<Option<u64>> {
        answer(shared, self.submit(shared, 1, |reply| Job::Retire(pack, reply)).await?).await
    }

    /// Makes the index durable.
    pub(super) async fn flush(&self, shared: &Shared) -> Result<()> {
        let reply = self.submit(shared, 1, Job::Flush).await?;
        answer(shared, reply).await
    }

    /// Ends the writer after everything that was submitted before. Closing again does nothing.
    pub(super) async fn close(&self, shared: &Shared) -> Result<()> {
        let Some(jobs) = self.jobs.lock().take() else { return Ok(()) };
        let (stop, receiver) = self.job(shared, 1, Job::Stop).await?;
        jobs.send(stop).map_err(|_| shared.closed())?;
        answer(shared, receiver).await
    }

    async fn submit<T>(
        &self,
        shared: &Shared,
        cost: usize,
        job: impl FnOnce(Reply<T>) -> Job,
    ) -> Result<oneshot::Receiver<Result<T>>> {
        let (job, receiver) = self.job(shared, cost, job).await?;
        let jobs = self.jobs.lock();
        let sent = jobs.as_ref().ok_or_else(|| shared.closed())?.send(job);
        sent.map_err(|_| shared.closed())?;
        Ok(receiver)
    }

    /// A job that has its share of the queue, and where its outcome will come.
    async fn job<T>(
        &self,
        shared: &Shared,
        cost: usize,
        job: impl FnOnce(Reply<T>) -> Job,
    ) -> Result<(Job, oneshot::Receiver<Result<T>>)> {
        let permits = cost.clamp(1, QUEUE_BYTES) as u32;
        let permit = Arc::clone(&self.admission).acquire_many_owned(permits).await.map_err(|_| shared.closed())?;
        let (sender, receiver) = oneshot::channel();
        Ok((job(Reply { sender, _permit: permit }), receiver))
    }
}

async fn answer<T>(shared: &Shared, reply: oneshot::Receiver<Result<T>>) -> Result<T> {
    reply.await.unwrap_or_else(|_| Err(shared.unanswered()))
}

/// Parts of at most one group each, so that one that fails takes few others with it.
fn split(blocks: Vec<Block>) -> Vec<Vec<Block>> {
    let mut parts = Vec::new();
    let (mut part, mut bytes) = (Vec::new(), 0);
    for block in blocks {
        let len = block.data().len();
        if !part.is_empty() && (part.len() == GROUP_BLOCKS || bytes + len > GROUP_BYTES) {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
        bytes += len;
        part.push(block);
    }
    parts.push(part);
    parts
}
