//! The queue from callers to the writer. It is bounded by bytes, and a call completes once it is durable.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;

use ipfrs_core::{Block, Cid, Error, Result};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use super::errors::again;
use super::group::{Delete, GROUP_BLOCKS, GROUP_BYTES, Keep, Put, Reply, Write};
use super::link::LinkedPack;
use super::needed::Needed;
use super::record::MAX_PREFIX_BYTES;
use super::shared::Shared;
use crate::{PutMode, Spared, Stored};

/// Maximum number of bytes that wait for the writer. A larger call occupies the whole queue.
const QUEUE_BYTES: usize = 64 * 1024 * 1024;

/// Size that a block counts in the queue in addition to its data.
const BLOCK_OVERHEAD_BYTES: usize = 512;

/// Maximum number of keys of one delete call. Longer lists are split.
const DELETE_KEYS: usize = 16 * 1024;

/// Maximum size of an atomic put, framing included. It must fit in a pack, whose offsets have 32 bits.
const MAX_ATOMIC_BYTES: u64 = u32::MAX as u64 - 4_096;

/// A request to the writer.
pub(super) enum Job {
    /// Store or delete blocks.
    Write(Write),
    /// Make the index durable.
    Flush(Reply<()>),
    /// Stop writing to the pack with this number.
    Seal(u32, Reply<()>),
    /// Remove the pack with this number and return its length, unless it contains live blocks.
    Retire(u32, Reply<Option<u64>>),
    /// Link all packs into this directory.
    Link(PathBuf, Reply<Vec<LinkedPack>>),
    /// Make the index durable, release all resources and exit.
    Stop(Reply<()>),
}

/// The callers' side of the queue. The channel itself is unbounded; every job holds permits, which are bounded.
#[derive(Debug)]
pub(super) struct Queue {
    /// `None` after the store is closed.
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    admission: Arc<Semaphore>,
}

impl Queue {
    /// Returns a queue, and the writer's side of it.
    pub(super) fn new() -> (Self, mpsc::Receiver<Job>) {
        let (sender, receiver) = mpsc::channel();
        (Self { jobs: Mutex::new(Some(sender)), admission: Arc::new(Semaphore::new(QUEUE_BYTES)) }, receiver)
    }

    /// Stores blocks that were accepted for storing. Returns one outcome per block.
    pub(super) async fn put(&self, shared: &Shared, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>> {
        let parts = match mode {
            _ if blocks.is_empty() => return Vec::new(),
            _ if mode.is_atomic() => vec![blocks],
            _ => split(blocks),
        };
        let mut outcomes = Vec::new();
        let mut waiting = Vec::with_capacity(parts.len());
        for part in parts {
            let count = part.len();
            waiting.push((count, self.submit_put(shared, part, mode).await));
        }
        for (count, submitted) in waiting {
            let outcome = match submitted {
                Ok(reply) => receive(shared, reply).await,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(stored) => outcomes.extend(stored.into_iter().map(Ok)),
                Err(error) => outcomes.extend((0..count).map(|_| Err(again(&error)))),
            }
        }
        outcomes
    }

    async fn submit_put(
        &self,
        shared: &Shared,
        blocks: Vec<Block>,
        mode: PutMode,
    ) -> Result<oneshot::Receiver<Result<Vec<Stored>>>> {
        let data: usize = blocks.iter().map(|block| block.data().len()).sum();
        if (data + blocks.len() * MAX_PREFIX_BYTES) as u64 > MAX_ATOMIC_BYTES {
            return Err(Error::too_large(format!(
                "an atomic put of {} blocks with {data} bytes is over the limit of {MAX_ATOMIC_BYTES} bytes: split it",
                blocks.len()
            )));
        }
        let cost = data + blocks.len() * BLOCK_OVERHEAD_BYTES;
        self.submit(shared, cost, |reply| Job::Write(Write::Put(Put::new(blocks, mode == PutMode::Reserved, reply))))
            .await
    }

    /// Deletes blocks except those that `spared` keeps. Returns for each block whether it was present and was
    /// deleted.
    pub(super) async fn delete(&self, shared: &Shared, cids: &[Cid], spared: &Spared) -> Result<Vec<bool>> {
        let mut deleted = Vec::with_capacity(cids.len());
        for cids in cids.chunks(DELETE_KEYS) {
            let cost = cids.len() * BLOCK_OVERHEAD_BYTES;
            let job = |reply| Job::Write(Write::Delete(Delete::new(cids, Arc::clone(spared), reply)));
            let reply = self.submit(shared, cost, job).await?;
            deleted.extend(receive(shared, reply).await?);
        }
        Ok(deleted)
    }

    /// Copies the `needed` content of a part of `pack`. Returns the number of bytes written.
    pub(super) async fn keep(&self, shared: &Shared, pack: u32, needed: Needed) -> Result<u64> {
        let data: usize = needed.blocks.iter().map(|block| block.data.len()).sum();
        let cost = data + needed.keys().count() * BLOCK_OVERHEAD_BYTES;
        let job = |reply| Job::Write(Write::Keep(Keep { pack, needed, reply }));
        receive(shared, self.submit(shared, cost, job).await?).await
    }

    /// Stops writing to `pack`.
    pub(super) async fn seal(&self, shared: &Shared, pack: u32) -> Result<()> {
        receive(shared, self.submit(shared, 1, |reply| Job::Seal(pack, reply)).await?).await
    }

    /// Removes `pack` and returns its length, or returns `None` if it contains live blocks.
    pub(super) async fn retire(&self, shared: &Shared, pack: u32) -> Result<Option<u64>> {
        receive(shared, self.submit(shared, 1, |reply| Job::Retire(pack, reply)).await?).await
    }

    /// Links all packs into `directory`.
    pub(super) async fn link(&self, shared: &Shared, directory: PathBuf) -> Result<Vec<LinkedPack>> {
        receive(shared, self.submit(shared, 1, |reply| Job::Link(directory, reply)).await?).await
    }

    /// Makes the index durable.
    pub(super) async fn flush(&self, shared: &Shared) -> Result<()> {
        let reply = self.submit(shared, 1, Job::Flush).await?;
        receive(shared, reply).await
    }

    /// Stops the writer after all jobs submitted before. Closing again does nothing.
    pub(super) async fn close(&self, shared: &Shared) -> Result<()> {
        let Some(jobs) = self.jobs.lock().take() else { return Ok(()) };
        let (stop, receiver) = self.job(shared, 1, Job::Stop).await?;
        jobs.send(stop).map_err(|_| shared.closed())?;
        receive(shared, receiver).await
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

    /// Returns a job that holds its share of the queue, and the receiver of its outcome.
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

async fn receive<T>(shared: &Shared, reply: oneshot::Receiver<Result<T>>) -> Result<T> {
    reply.await.unwrap_or_else(|_| Err(shared.unanswered()))
}

/// Splits blocks into parts of at most one group each, so that a failure affects few other blocks.
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
