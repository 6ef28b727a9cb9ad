//! Fetched blocks: blocks from other nodes, which are kept within `store.max_bytes` and evicted when space is short.
//! Content that users add or pin is never evicted.
//!
//! * `ledger` knows which blocks were fetched. Its `table` is in memory, its `log` of `record`s on the disk.
//! * `queues` decides which blocks are evicted (S3-FIFO).
//! * `puts` makes fetched blocks permanent when a user puts or pins them.
//! * `eviction` stores fetched blocks, and deletes them in the background as the `budget` requires.
//!
//! `docs/design/fetched.md` describes the log and the states of a block.

mod budget;
mod eviction;
mod ledger;
mod log;
mod metrics;
mod puts;
mod queues;
mod record;
mod segment;
mod table;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ipfrs_core::{Cid, Error, ErrorKind, Result};
use ipfrs_store::Durability;
use tokio::sync::{Notify, RwLock};

pub(crate) use self::eviction::Eviction;
use self::ledger::Ledger;
pub(crate) use self::metrics::FetchedMetrics;
pub(crate) use self::puts::Claims;
use self::record::Heads;
use crate::off_workers;

/// Directory of the ledger's log, in the directory of the store.
const DIRECTORY: &str = "fetched";

/// Part of the limit after which a user's puts start eviction: a 256th.
const WRITTEN_PART: u64 = 256;

/// Which blocks of the store were fetched.
#[derive(Debug)]
pub(crate) struct Fetched {
    ledger: Ledger,
    /// Limit of the store in bytes (`store.max_bytes`); 0 for none.
    max_bytes: u64,
    /// Whether the store has, or may get, fetched blocks.
    is_used: AtomicBool,
    /// Held by puts of users that began before the first fetched block.
    unaware: RwLock<()>,
    /// Number of batches of deletions that eviction has begun, and ended.
    batches_begun: AtomicU64,
    batches_ended: AtomicU64,
    /// Bytes that users have put since eviction was last woken.
    written: AtomicU64,
    /// Wakes the eviction.
    wake: Notify,
    is_closed: AtomicBool,
    metrics: FetchedMetrics,
}

impl Fetched {
    /// Opens the ledger of the store in `dir`, or one in memory. Returns it with the heads of its queues. If the ledger
    /// is damaged, all blocks count as added by users. Waits for the disk.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn open(
        dir: Option<&Path>,
        durability: Durability,
        max_bytes: u64,
        metrics: FetchedMetrics,
    ) -> Result<(Self, FetchedHeads)> {
        let (ledger, heads) = match dir.map(|dir| dir.join(DIRECTORY)) {
            None => (Ledger::in_memory(), Heads::default()),
            Some(dir) => {
                let is_synced = durability == Durability::Fsync;
                match Ledger::open(&dir, is_synced) {
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        tracing::warn!(
                            %error,
                            "the list of fetched blocks is damaged: all blocks count as added by users from now on; \
                             `repo gc` removes those that are not pinned"
                        );
                        discard(&dir)?;
                        Ledger::open(&dir, is_synced)?
                    }
                    opened => opened?,
                }
            }
        };
        let is_used = !ledger.log.is_empty();
        let this = Self {
            ledger,
            max_bytes,
            is_used: AtomicBool::new(is_used),
            unaware: RwLock::default(),
            batches_begun: AtomicU64::new(0),
            batches_ended: AtomicU64::new(0),
            written: AtomicU64::new(0),
            wake: Notify::new(),
            is_closed: AtomicBool::new(false),
            metrics,
        };
        Ok((this, FetchedHeads(heads)))
    }

    fn is_used(&self) -> bool {
        self.is_used.load(Ordering::SeqCst)
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Counts a read of a block, so that it is evicted later. Takes no lock that a reader waits for. The first read of
    /// a block does not count, because it is the one that the block was fetched for. A caller that sends a fetched
    /// block without reading it from the store should call this, too.
    pub(crate) fn touched(&self, cid: &Cid) {
        if self.max_bytes > 0 {
            self.ledger.touch(cid.hash());
        }
    }

    /// Returns the limit of the store in bytes (`store.max_bytes`); 0 for none.
    pub(crate) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Whether fetched blocks are evicted (`store.max_bytes`).
    pub(crate) fn evicts(&self) -> bool {
        self.max_bytes > 0
    }

    /// Notes that users have put blocks with this many bytes.
    pub(crate) fn note_written(&self, bytes: u64) {
        if self.max_bytes > 0
            && self.written.fetch_add(bytes, Ordering::Relaxed) + bytes > self.max_bytes / WRITTEN_PART
        {
            self.written.store(0, Ordering::Relaxed);
            self.wake.notify_one();
        }
    }

    /// Forgets blocks that were removed from the store.
    pub(crate) async fn removed(self: &Arc<Self>, cids: impl Iterator<Item = &Cid>) {
        if self.ledger.removed(cids.map(Cid::hash))
            && let Err(error) = self.write(true).await
        {
            tracing::warn!(%error, "cannot record the removal of fetched blocks: the next removal tries again");
        }
    }

    /// Writes the ledger's log. If `is_durable`, also waits for the disk.
    async fn write(self: &Arc<Self>, is_durable: bool) -> Result<()> {
        let this = Arc::clone(self);
        off_workers(move || this.ledger.write(is_durable)).await
    }
}

/// Heads of the queues when the ledger was opened.
#[derive(Debug)]
pub(crate) struct FetchedHeads(Heads);

/// Removes a damaged log, completely or not at all.
fn discard(dir: &Path) -> Result<()> {
    let aside = dir.with_extension("damaged");
    let cannot = |error| Error::io(format_args!("cannot remove {}", dir.display()), error);
    if aside.exists() {
        fs::remove_dir_all(&aside).map_err(cannot)?;
    }
    fs::rename(dir, &aside).map_err(cannot)?;
    fs::File::open(dir.parent().unwrap_or(dir)).and_then(|parent| parent.sync_all()).map_err(cannot)?;
    fs::remove_dir_all(&aside).map_err(cannot)
}
