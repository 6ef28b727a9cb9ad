//! Eviction of fetched blocks in the background, and puts of fetched blocks, which wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ipfrs_core::{Block, Cid, Error, ErrorKind, Multihash, Result, codec};
use ipfrs_store::{BlockStore, CompactOptions, PutMode, Spared, Stored};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::{Instant, sleep, timeout_at};

use super::budget::{Budget, PUT_BYTES};
use super::queues::{Fate, Victim, weight_of};
use super::record::Heads;
use super::{Fetched, FetchedHeads};
use crate::gc::Protection;
use crate::node_store::NodeStore;
use crate::off_workers;

/// Number of blocks that are deleted together. A user's put waits at most for one batch.
const BATCH_BLOCKS: usize = 1_024;

/// Longest time that a put of fetched blocks waits for eviction.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Number of steps in a row without progress after which a round ends.
const MAX_FRUITLESS: usize = 3;

/// Time after a round that ended without progress, as puts that wait begin the next one at once.
const PAUSE: Duration = Duration::from_millis(50);

/// Stores fetched blocks, and evicts them while they exceed their budget.
#[derive(Debug)]
pub(crate) struct Eviction {
    fetched: Arc<Fetched>,
    store: Arc<NodeStore>,
    protection: Protection,
    /// Held while a round runs.
    heads: AsyncMutex<Heads>,
    /// Bytes of puts in progress.
    reserved: Mutex<u64>,
    /// Notified after each step of a round, and after each put.
    freed: Notify,
    /// Time that a put waits for eviction.
    max_wait: Duration,
    has_warned: AtomicBool,
}

/// Bytes that a put may write.
struct Reservation<'a> {
    eviction: &'a Eviction,
    bytes: u64,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        *self.eviction.reserved.lock() -= self.bytes;
        self.eviction.freed.notify_waiters();
    }
}

impl Eviction {
    /// Creates the eviction of a store and starts its background task, which ends with the last handle. `timeout` is
    /// the time limit of retrievals. Puts wait for at most half of it: blocks that wait take memory, so the blocks
    /// after them would seem to have a slow source.
    pub(crate) fn start(
        fetched: Arc<Fetched>,
        store: Arc<NodeStore>,
        protection: Protection,
        heads: FetchedHeads,
        timeout: Duration,
    ) -> Arc<Self> {
        let this = Arc::new(Self {
            fetched,
            store,
            protection,
            heads: AsyncMutex::new(heads.0),
            reserved: Mutex::new(0),
            freed: Notify::new(),
            max_wait: MAX_WAIT.min(timeout / 2),
            has_warned: AtomicBool::new(false),
        });
        let (weak, fetched) = (Arc::downgrade(&this), Arc::clone(&this.fetched));
        tokio::spawn(async move {
            loop {
                fetched.wake.notified().await;
                let Some(this) = weak.upgrade().filter(|this| !this.fetched.is_closed()) else { return };
                let is_complete = this.round().await.unwrap_or_else(|error| {
                    tracing::warn!(%error, "eviction of fetched blocks failed: the store may exceed store.max_bytes");
                    false
                });
                this.freed.notify_waiters();
                drop(this);
                if !is_complete {
                    sleep(PAUSE).await;
                }
            }
        });
        if this.fetched.max_bytes > 0 {
            this.fetched.wake.notify_one();
        }
        this
    }

    /// Stores verified blocks that were fetched from other nodes. They may be evicted later. Waits for eviction if the
    /// store is full. Completes even if the caller is cancelled.
    pub(crate) async fn put(self: &Arc<Self>, blocks: Vec<Block>) -> Vec<Result<Stored>> {
        self.fetched.begin_use().await;
        let mut outcomes = Vec::with_capacity(blocks.len());
        for part in parts(blocks) {
            let (this, count) = (Arc::clone(self), part.len());
            let put = tokio::spawn(async move { this.put_part(part).await });
            let failed = |_| (0..count).map(|_| Err(Error::internal("a task that stores blocks failed"))).collect();
            outcomes.extend(put.await.unwrap_or_else(failed));
        }
        outcomes
    }

    async fn put_part(&self, blocks: Vec<Block>) -> Vec<Result<Stored>> {
        let bytes = blocks.iter().map(|block| block.data().len() as u64).sum();
        let _reservation = match self.reserve(bytes).await {
            Ok(reservation) => reservation,
            Err(error) => {
                self.fetched.metrics.refused.inc_by(blocks.len() as u64);
                return blocks.iter().map(|_| Err(Error::new(error.kind(), error.message().to_owned()))).collect();
            }
        };
        let known: Vec<_> = blocks.iter().map(|block| self.fetched.ledger.known(block.cid().hash())).collect();
        let sizes: Vec<_> = blocks.iter().map(|block| block.data().len() as u32).collect();
        self.fetched.ledger.begin_puts(&known);
        let outcomes = self.store.put_fetched(blocks, PutMode::BestEffort).await;
        let new = outcomes.iter().zip(sizes).map(|(outcome, size)| matches!(outcome, Ok(Stored::New)).then_some(size));
        self.fetched.ledger.end_puts(&known, &new.collect::<Vec<_>>());
        if let Err(error) = self.fetched.write(false).await {
            tracing::warn!(%error, "cannot record fetched blocks: if the process ends now, they count as added by users");
        }
        outcomes
    }

    /// Waits until the store may grow by `bytes`.
    async fn reserve(&self, bytes: u64) -> Result<Reservation<'_>> {
        let deadline = Instant::now() + self.max_wait;
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let budget = self.budget().await?;
            {
                let mut reserved = self.reserved.lock();
                let needed = budget.used + *reserved + bytes;
                // Otherwise a round would free nothing: the put waits for those in progress.
                let is_due = budget.needs_eviction() || budget.needs_compaction();
                if self.fetched.max_bytes > 0 && is_due {
                    self.fetched.wake.notify_one();
                }
                if self.fetched.max_bytes == 0 || needed <= budget.limit || (budget.fetched == 0 && *reserved == 0) {
                    *reserved += bytes;
                    return Ok(Reservation { eviction: self, bytes });
                }
            }
            if timeout_at(deadline, freed).await.is_err() {
                let message = format!(
                    "the store has {} bytes, its limit is {} (store.max_bytes), and eviction did not free {bytes} bytes \
                     in {} s: the block is not kept. Raise the limit, or remove content: `repo gc` removes all that is \
                     not pinned",
                    budget.used,
                    budget.limit,
                    self.max_wait.as_secs_f64()
                );
                return Err(Error::new(ErrorKind::NoSpace, message));
            }
        }
    }

    async fn budget(&self) -> Result<Budget> {
        let stats = self.store.stats().await?;
        let total = self.fetched.ledger.total();
        let metrics = &self.fetched.metrics;
        metrics.bytes.set(i64::try_from(total.bytes).unwrap_or(i64::MAX));
        metrics.blocks.set(i64::try_from(total.blocks).unwrap_or(i64::MAX));
        let budget = Budget::new(self.fetched.max_bytes, &stats, self.fetched.ledger.log.bytes(), total.bytes);
        if self.fetched.max_bytes > 0 && budget.is_exceeded && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                max_bytes = self.fetched.max_bytes,
                store_bytes = budget.used,
                "content added by users leaves too little of store.max_bytes: fetched blocks get a 16th of it in \
                 addition; raise store.max_bytes, or remove content: `repo gc` removes all that is not pinned"
            );
        }
        Ok(budget)
    }

    /// Evicts and compacts until the store is within its budget. Returns false if the last steps freed nothing.
    async fn round(&self) -> Result<bool> {
        let mut heads = self.heads.lock().await;
        let mut fruitless = 0;
        while self.fetched.max_bytes > 0 && fruitless < MAX_FRUITLESS && !self.fetched.is_closed() {
            let budget = self.budget().await?;
            let has_progressed = if budget.needs_eviction() {
                self.evict(&mut heads, &budget, budget.target()).await?
            } else if budget.needs_compaction() {
                let has_freed = self.compact(&budget).await?;
                // Dead bytes may be spread over all packs. More blocks must be evicted then.
                has_freed || self.evict(&mut heads, &budget, budget.fetched.min(budget.target()) / 64 * 63).await?
            } else {
                break;
            };
            fruitless = if has_progressed { 0 } else { fruitless + 1 };
            self.freed.notify_waiters();
        }
        let fetched = Arc::clone(&self.fetched);
        let mut passed = *heads;
        *heads = off_workers(move || {
            fetched.ledger.rewrite_if_stale(&mut passed)?;
            Ok(passed)
        })
        .await?;
        self.budget().await.map(|_| fruitless < MAX_FRUITLESS)
    }

    /// Evicts until the fetched blocks have at most `target` bytes. Returns whether any was evicted.
    async fn evict(&self, heads: &mut Heads, budget: &Budget, target: u64) -> Result<bool> {
        let mut has_evicted = false;
        let mut fruitless = 0;
        while fruitless < MAX_FRUITLESS && !self.fetched.is_closed() {
            // If too many touches were recorded, every block is spared.
            self.protection.check()?;
            let (fetched, capacity, mut passed) = (Arc::clone(&self.fetched), budget.capacity, *heads);
            let selected = off_workers(move || {
                let victims = fetched.ledger.select(&mut passed, capacity, target, BATCH_BLOCKS)?;
                Ok((victims, passed))
            });
            let (victims, passed) = selected.await?;
            *heads = passed;
            let is_done = victims.is_empty() && self.fetched.ledger.total().bytes <= target;
            let fates = self.delete(victims).await;
            let deleted = fates.iter().filter(|(_, fate)| *fate == Fate::Deleted).map(|(victim, _)| *victim);
            let deleted: Vec<_> = deleted.collect();
            let fetched = Arc::clone(&self.fetched);
            let mut passed = *heads;
            let settled = off_workers(move || {
                let settled = fetched.ledger.settle(&mut passed, capacity, &fates);
                Ok((passed, settled))
            });
            let (passed, settled) = settled.await?;
            *heads = passed;
            settled?;
            if is_done {
                break;
            }
            fruitless = if deleted.is_empty() { fruitless + 1 } else { 0 };
            has_evicted |= !deleted.is_empty();
            self.fetched.metrics.evictions.inc_by(deleted.len() as u64);
            self.fetched.metrics.evicted_bytes.inc_by(weight_of(&deleted));
        }
        Ok(has_evicted)
    }

    /// Deletes selected blocks from the store, except those that a request needs.
    async fn delete(&self, victims: Vec<Victim>) -> Vec<(Victim, Fate)> {
        let cids: Vec<Cid> = victims.iter().map(|victim| Cid::new_v1(codec::RAW, victim.hash)).collect();
        if cids.is_empty() {
            return Vec::new();
        }
        let lease = self.protection.lease_of_all();
        let (protection, fetched) = (self.protection.clone(), Arc::clone(&self.fetched));
        let spared: Spared = Arc::new(move |hash: &Multihash| {
            let _lives_as_long = &lease;
            !fetched.ledger.is_selected(hash) || protection.is_touched(hash)
        });
        self.fetched.batches_begun.fetch_add(1, Ordering::SeqCst);
        let deleting = self.protection.deleting().await;
        let deleted = self.store.delete_unless(&cids, spared).await;
        drop(deleting);
        self.fetched.batches_ended.fetch_add(1, Ordering::SeqCst);
        let deleted = deleted.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot evict fetched blocks");
            vec![false; cids.len()]
        });
        // If this fails, the blocks are tried again later.
        let left = self.store.has_many(&cids).await.unwrap_or_else(|_| vec![Some(0); cids.len()]);
        let fate = |(deleted, left): (bool, Option<u64>)| match (deleted, left) {
            (true, _) => Fate::Deleted,
            (false, None) => Fate::Absent,
            (false, Some(_)) => Fate::Kept,
        };
        victims.into_iter().zip(deleted.into_iter().zip(left).map(fate)).collect()
    }

    /// Reclaims the space of evicted blocks. Returns whether it freed any.
    async fn compact(&self, budget: &Budget) -> Result<bool> {
        let until = budget.compact_to.saturating_sub(self.fetched.ledger.log.bytes());
        let options =
            CompactOptions { until_disk_bytes: Some(until), ..CompactOptions::from_share(budget.min_dead_share()) };
        Ok(self.store.compact(options).await?.packs > 0)
    }

    /// Ends the background task after the current step, and makes the ledger durable.
    pub(crate) async fn close(&self) {
        self.fetched.close();
        self.fetched.wake.notify_one();
        let _no_round = self.heads.lock().await;
        if let Err(error) = self.fetched.write(true).await {
            tracing::warn!(%error, "cannot record fetched blocks: some count as added by users from now on");
        }
    }
}

/// Splits blocks into parts of at most [`PUT_BYTES`] or one block.
fn parts(blocks: Vec<Block>) -> Vec<Vec<Block>> {
    let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
    for block in blocks {
        let len = block.data().len();
        if !part.is_empty() && ((bytes + len) as u64 > PUT_BYTES || part.len() == BATCH_BLOCKS) {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
        bytes += len;
        part.push(block);
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}
