//! The state that all sessions share: sources, limits, and the way to the store.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::turns::Turns;
use ipfrs_core::{Block, Cid, Result};
use ipfrs_store::BlockStore;
use ipfrs_stream::StoreSink;
use ipfrs_unixfs::BlockSink;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::deliveries::Deliveries;
use crate::metrics::RetrievalMetrics;
use crate::peers::Exchange;
use crate::routing::Routers;
use crate::source::Sources;

/// Payload that is stored together, in bytes.
pub(crate) const BATCH_BYTES: usize = 4 << 20;
/// Number of streams that may receive the first block of a batch at the same time, of which one client has at most as
/// many as are free: a source may take half a minute for it. A block has at most 2 MiB.
pub(crate) const FIRST_BLOCKS: usize = 128;
/// Memory for all other blocks between a source and the store, for all sessions, in KiB.
pub(crate) const BUFFER_KIB: u32 = 128 * 1024;

/// Decides whether a block may be fetched and stored.
pub type Admits = Arc<dyn Fn(&Cid) -> bool + Send + Sync>;

/// Receives the sum of each session that has ended.
pub type OnEnd = Arc<dyn Fn(&Ended) + Send + Sync>;

/// Sum of a session that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The root that was fetched, in whole or in part.
    pub root: Cid,
    /// Number of fetched blocks, and their bytes with the overhead of the transfer.
    pub blocks: u64,
    /// See `blocks`.
    pub bytes: u64,
    /// Number of attempts, and of those that did not deliver. Requests to a peer with the same outcome count as one.
    pub attempts: u64,
    /// See `attempts`.
    pub failures: u64,
    /// Time from the begin to the end.
    pub duration: Duration,
}

/// State that all sessions share.
pub(crate) struct Shared {
    pub(crate) sources: Sources,
    pub(crate) routers: Routers,
    /// Exchange of blocks with peers; `None` if it is not enabled.
    pub(crate) exchange: Option<Exchange>,
    pub(crate) metrics: RetrievalMetrics,
    pub(crate) store: Arc<dyn BlockStore>,
    pub(crate) sink: Arc<dyn BlockSink>,
    /// Blocks on their way to the sink.
    pub(crate) deliveries: Arc<Deliveries>,
    pub(crate) admits: Admits,
    pub(crate) on_end: OnEnd,
    pub(crate) timeout: Duration,
    pub(crate) max_bytes: u64,
    /// Whether sources that routers and clients name must have public addresses.
    pub(crate) is_restricted: bool,
    /// Whether clients may name sources.
    pub(crate) takes_hints: bool,
    /// Name of this gateway in `Via` headers.
    pub(crate) name: String,
    /// Places of [`FIRST_BLOCKS`].
    pub(crate) first_blocks: Turns<Option<IpAddr>>,
    pub(crate) buffer: Arc<Semaphore>,
}

impl Shared {
    pub(crate) fn admits(&self, cid: &Cid) -> bool {
        (self.admits)(cid)
    }

    /// Waits for memory for blocks that are received. The permit is returned when they are stored, which no client can
    /// delay.
    pub(crate) async fn buffer(&self, bytes: usize) -> OwnedSemaphorePermit {
        let kibibytes = u32::try_from(bytes / 1024).unwrap_or(BUFFER_KIB).min(BUFFER_KIB);
        loop {
            // The semaphore is never closed.
            if let Ok(permit) = Arc::clone(&self.buffer).acquire_many_owned(kibibytes).await {
                return permit;
            }
        }
    }

    /// Takes memory for more blocks, if there is any.
    pub(crate) fn more_buffer(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kibibytes = u32::try_from(bytes / 1024).unwrap_or(BUFFER_KIB);
        Arc::clone(&self.buffer).try_acquire_many_owned(kibibytes).ok()
    }

    /// Stores verified blocks: as content of users if `is_pinned`, else where they may be evicted. For most requests a
    /// failure only costs another retrieval later.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) async fn store(&self, blocks: Vec<Block>, is_pinned: bool) -> Result<()> {
        if blocks.is_empty() {
            return Ok(());
        }
        let count = blocks.len();
        let stored = match is_pinned {
            true => StoreSink(Arc::clone(&self.store)).put(blocks).await,
            false => self.sink.put(blocks).await,
        };
        stored.inspect_err(|error| tracing::warn!("{count} fetched blocks could not be stored: {error}"))
    }

    /// Returns the value of the `Via` header of a request for content that was requested with `via`.
    pub(crate) fn via(&self, via: &str) -> String {
        let before = if via.is_empty() { String::new() } else { format!("{via}, ") };
        format!("{before}1.1 {}", self.name)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("sources", &self.sources).finish_non_exhaustive()
    }
}
