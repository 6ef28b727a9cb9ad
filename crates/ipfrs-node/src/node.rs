//! The [`Node`] handle: its components.

use std::hash::Hash;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::turns::{Turn, Turns};
use ipfrs_core::{Error, ErrorKind, Result};
#[cfg(feature = "retrieval")]
use ipfrs_retrieval::Retriever;
use ipfrs_store::{BlockStore, EpochCache, Mappings, PackStore, Pins, RepoLock, Stats, StoreEpoch};
use ipfrs_stream::{Bandwidth, NodeCache};
use quick_cache::Weighter;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::config::NodeConfig;
use crate::content::node_memory::DecodedNodes;
use crate::denylist::Denylists;
use crate::events::Events;
use crate::fetched::{Eviction, Fetched};
use crate::filestore::References;
use crate::gc::Protection;
use crate::ingest::Ingestion;
use crate::keys::Identity;
#[cfg(feature = "keys")]
use crate::keys::Keystore;
use crate::metrics::{CacheMeter, Metrics};
use crate::mutable_files::MutableFiles;
use crate::names::Names;
use crate::names::dnslink::Dnslink;
use crate::operations::Operations;
#[cfg(feature = "pinning")]
use crate::pin_requests::PinRequests;
use crate::readiness::{self, Readiness};
use crate::refusals::Limit;
#[cfg(feature = "pinning")]
use crate::remote_pins::PinningServices;
use crate::retrieval::current_client;
use crate::tensors::Catalogues;
use crate::uploads::Uploads;

/// Maximum time that a request waits for a permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Memory limit for work on the data of requests, in KiB: 512 MiB.
pub(crate) const WORK_KIB: u32 = 512 * 1024;

/// Space on the disk of the repo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSpace {
    /// Size of the file system, in bytes.
    pub total: u64,
    /// Bytes that the daemon can write.
    pub free: u64,
    /// Type of the file system in hexadecimal, as Linux numbers it.
    pub file_system: String,
}

/// Block store with all operations that front-ends offer. Clones are cheap and refer to the same node.
#[derive(Debug, Clone)]
pub struct Node {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// The engine with metrics, for tasks that maintain the store itself.
    pub(crate) store: Arc<dyn BlockStore>,
    /// The same store for requests for content, without blocked blocks.
    pub(crate) served: Arc<dyn BlockStore>,
    /// Fetches missing blocks; `None` without sources.
    #[cfg(feature = "retrieval")]
    pub(crate) retriever: Option<Retriever>,
    /// Connections to peers; `None` if they are not enabled.
    #[cfg(feature = "bitswap")]
    pub(crate) exchange: Option<ipfrs_bitswap::Bitswap>,
    /// Denylists; `None` if none are configured.
    pub(crate) denylists: Option<Denylists>,
    /// The pack engine, if the node uses it. It holds a lock that [`Node::close`] releases.
    pub(crate) pack: Option<PackStore>,
    /// References to blocks that stay in files; `None` unless they are enabled.
    pub(crate) references: Option<References>,
    pub(crate) config: NodeConfig,
    pub(crate) metrics: Arc<Metrics>,
    /// Cache of inner nodes of files.
    pub(crate) nodes: Option<Arc<NodeCache>>,
    /// Cache of the tensor catalogues of files.
    pub(crate) catalogues: Option<Catalogues>,
    /// One place for each piece of a tensor that is being summed up.
    pub(crate) sums: Turns<Option<IpAddr>>,
    /// One place for each key that is being made.
    #[cfg(feature = "keys")]
    pub(crate) making_keys: Turns<Option<IpAddr>>,
    /// Pins, which gc keeps.
    pub(crate) pins: Pins,
    /// Mutable files, which gc keeps.
    pub(crate) mutable_files: MutableFiles,
    pub(crate) ingestion: Ingestion,
    /// Which blocks were fetched; `None` if the repo is open read-only.
    pub(crate) fetched: Option<Arc<Fetched>>,
    /// Eviction of fetched blocks; `None` if the repo is open read-only.
    pub(crate) eviction: Option<Arc<Eviction>>,
    /// Blocks that clients are about to pin.
    pub(crate) protection: Protection,
    /// Held while the list of bootstrap peers changes.
    pub(crate) bootstrap_changes: Arc<Mutex<()>>,
    /// Held while gc runs.
    pub(crate) collecting: Mutex<()>,
    /// Held while all blocks are verified, which uses all cores.
    pub(crate) verifying: Mutex<()>,
    /// Mapped files of the store.
    pub(crate) mappings: Option<Mappings>,
    /// Whether every block is verified on each read. If so, blocks that were read are not cached.
    pub(crate) verify_on_read: bool,
    /// Whether the repo is open read-only.
    pub(crate) read_only: bool,
    /// One place for each running import.
    pub(crate) imports: Turns<Option<IpAddr>>,
    /// One permit for each KiB of memory that work on requests uses.
    pub(crate) work: Arc<Semaphore>,
    /// Memory of the decoded nodes that requests hold.
    pub(crate) decoded_nodes: Arc<DecodedNodes>,
    pub(crate) identity: Identity,
    #[cfg(feature = "keys")]
    pub(crate) keystore: Keystore,
    pub(crate) bandwidth: Bandwidth,
    /// Events for those who watch.
    pub(crate) events: Events,
    pub(crate) operations: Operations,
    pub(crate) uploads: Uploads,
    /// Health check of the store's disk.
    pub(crate) readiness: Readiness,
    pub(crate) dnslink: Dnslink,
    /// Records of IPNS names.
    pub(crate) names: Names,
    #[cfg(feature = "pinning")]
    pub(crate) pinning_services: PinningServices,
    #[cfg(feature = "pinning")]
    pub(crate) pin_requests: PinRequests,
    pub(crate) repo: PathBuf,
    /// Lock of the repo, which [`Node::close`] releases; `None` if the lock of the store is that of the repo.
    pub(crate) repo_lock: parking_lot::Mutex<Option<RepoLock>>,
}

/// The turn of a client to import.
pub(crate) type ImportPermit = Turn<Option<IpAddr>>;

impl Node {
    /// Makes everything durable and releases the repo. The node must not be used afterwards.
    ///
    /// # Errors
    /// If the store cannot write its index, which loses nothing, or if changes of the mutable files without a flush
    /// cannot be stored, which loses those.
    pub async fn close(&self) -> Result<()> {
        if let Some(denylists) = &self.inner.denylists {
            denylists.close();
        }
        #[cfg(feature = "bitswap")]
        if let Some(exchange) = &self.inner.exchange {
            exchange.shutdown().await;
        }
        self.inner.uploads.close().await;
        self.inner.ingestion.close().await;
        let files = self.flush_at_last().await;
        if let Err(error) = &files {
            tracing::error!(%error, "changes of the mutable files without a flush are lost");
        }
        self.inner.names.close().await;
        #[cfg(feature = "pinning")]
        self.inner.pin_requests.close().await;
        if let Some(eviction) = &self.inner.eviction {
            eviction.close().await;
        }
        // Clients of a flush may have left before its end.
        self.inner.mutable_files.close().await;
        let pins = self.inner.pins.close().await;
        let references = match &self.inner.references {
            Some(references) => references.filestore.close().await,
            None => Ok(()),
        };
        let pins = files.and(pins).and(references);
        let closed = match &self.inner.pack {
            Some(pack) => pack.close().await.and(pins),
            None => pins,
        };
        drop(self.inner.repo_lock.lock().take());
        closed
    }

    /// Returns the configuration that the node was opened with.
    #[must_use]
    pub fn config(&self) -> &NodeConfig {
        &self.inner.config
    }

    /// Returns the directory of the repo, absolute and without symlinks.
    #[must_use]
    pub fn repo(&self) -> &Path {
        &self.inner.repo
    }

    /// Returns the limit of the store in bytes (`store.max_bytes`); 0 for none, and if the store cannot be written.
    #[must_use]
    pub fn store_limit(&self) -> u64 {
        self.inner.fetched.as_ref().map_or(0, |fetched| fetched.max_bytes())
    }

    /// Returns the space on the disk of the repo.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](ipfrs_core::ErrorKind) if the system does not report it.
    pub async fn disk_space(&self) -> Result<DiskSpace> {
        let repo = self.inner.repo.clone();
        let query = move || -> std::io::Result<_> { Ok((rustix::fs::statvfs(&*repo)?, rustix::fs::statfs(&*repo)?)) };
        let failed = || Error::internal("the space on the disk of the repo is not known");
        let queried = tokio::task::spawn_blocking(query).await.map_err(|e| failed().with_source(e))?;
        let (space, system) = queried.map_err(|e| failed().with_source(e))?;
        Ok(DiskSpace {
            total: space.f_blocks.saturating_mul(space.f_frsize),
            free: space.f_bavail.saturating_mul(space.f_frsize),
            file_system: format!("{:x}", system.f_type),
        })
    }

    /// Returns the identity of the node.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    /// Returns the byte counters that the sockets of the listeners update.
    #[must_use]
    pub fn bandwidth(&self) -> Bandwidth {
        self.inner.bandwidth.clone()
    }

    /// Whether bytes of a block are in memory and the file still has them; see [`Mappings::is_resident`].
    #[must_use]
    pub fn is_resident(&self, bytes: &[u8]) -> bool {
        self.inner.mappings.as_ref().is_none_or(|mappings| mappings.is_resident(bytes))
    }

    /// Whether the file of a block still has these bytes; see [`Mappings::is_whole`].
    #[must_use]
    pub fn is_whole(&self, bytes: &[u8]) -> bool {
        self.inner.mappings.as_ref().is_none_or(|mappings| mappings.is_whole(bytes))
    }

    /// Returns the mapped files of the store, for sockets that can send from a file.
    #[must_use]
    pub fn mappings(&self) -> Option<Mappings> {
        self.inner.mappings.clone()
    }

    /// Returns a number that changes when bytes of a stored file turn out to be missing; see [`Mappings::faults`].
    /// Data derived from blocks that were read before the change may be wrong.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.inner.mappings.as_ref().map_or(0, Mappings::faults)
    }

    /// Returns whether every block is verified on each read (`store.verify_on_read`). If so, neither blocks nor data
    /// derived from them may be cached.
    #[must_use]
    pub fn verifies_reads(&self) -> bool {
        self.inner.verify_on_read
    }

    /// Checks that the repo is not open read-only.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`] names the repo and the setting.
    pub fn check_writable(&self) -> Result<()> {
        if !self.inner.read_only {
            return Ok(());
        }
        let repo = self.inner.repo.display();
        let message = format!("the repo {repo} is open read-only (store.read_only): nothing can be added or removed");
        Err(Error::read_only(message))
    }

    /// Returns the directory for temporary files without a name, which hold data that does not fit in memory.
    pub(crate) fn scratch_dir(&self) -> PathBuf {
        if self.inner.read_only { std::env::temp_dir() } else { self.inner.repo.clone() }
    }

    /// Checks for health probes that blocks can be found and stored. The disk is examined at most fifty times a second.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the store accepts no more writes, [`ErrorKind::Corrupt`] if part of its index
    /// cannot be read, [`ErrorKind::NoSpace`] if the disk is full, [`ErrorKind::Timeout`] if the disk does not respond;
    /// otherwise the error of the disk.
    pub async fn check(&self) -> Result<()> {
        self.inner.store.check()?;
        if let Some(pack) = &self.inner.pack {
            readiness::in_time(pack.check_index()).await??;
        }
        // A read-only node writes nothing, so the state of the disk does not matter.
        if self.inner.read_only { Ok(()) } else { self.inner.readiness.check(&self.inner.store).await }
    }

    /// Returns the store epoch, which changes when blocks are removed from the store, when bytes of stored files turn
    /// out to be missing, and when the denylists change. Content that was sent before the change may have to be refused
    /// after it.
    #[must_use]
    pub fn epoch(&self) -> StoreEpoch {
        self.inner.served.epoch()
    }

    /// Creates an empty cache for data that a front-end derives from content. It is sized for `entries` entries and
    /// limited to a total weight of `weight`. Its entries become stale when one of their blocks is removed or blocked.
    #[must_use]
    pub fn epoch_cache<K, V, W>(&self, entries: usize, weight: u64, weighter: W) -> Arc<EpochCache<K, V, W>>
    where
        K: Eq + Hash + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
        W: Weighter<K, V> + Clone + Send + Sync + 'static,
    {
        EpochCache::new(self.inner.served.clone(), entries, weight, weighter)
    }

    /// Creates an empty cache within the limits of `[cache]`, or none if that is disabled or each read is verified; see
    /// [`epoch_cache`](Self::epoch_cache).
    #[must_use]
    pub fn configured_cache<K, V, W>(&self, weighter: W) -> Option<Arc<EpochCache<K, V, W>>>
    where
        K: Eq + Hash + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
        W: Weighter<K, V> + Clone + Send + Sync + 'static,
    {
        let config = &self.config().cache;
        let cache = || EpochCache::bounded(self.inner.served.clone(), config.max_entries, config.max_bytes, weighter);
        (config.enabled && !self.verifies_reads()).then(cache)
    }

    /// Returns the metrics of a front-end's cache with this name.
    #[must_use]
    pub fn cache_meter(&self, cache: &'static str) -> CacheMeter {
        self.inner.metrics.cache_meter(cache)
    }

    /// Counts that a limit which a front-end enforces was exceeded.
    pub fn count_refusal(&self, limit: Limit) {
        self.inner.metrics.refusals.counter(limit).inc();
    }

    /// Returns the totals of the store and updates the gauges that export them.
    ///
    /// # Errors
    /// As [`BlockStore::stats`].
    pub async fn stats(&self) -> Result<Stats> {
        let stats = self.inner.store.stats().await?;
        let metrics = &self.inner.metrics;
        let gauge = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        metrics.store_blocks.set(gauge(stats.blocks));
        metrics.store_disk_bytes.set(gauge(stats.disk_bytes));
        // A file that cannot be read is no end of an alert.
        let losses = self.losses().await.map_or(1, |losses| losses.len() as u64);
        metrics.store_losses.set(gauge(losses));
        metrics.pins.set(gauge(self.inner.pins.count().await?));
        #[cfg(feature = "pinning")]
        for (state, count) in self.inner.pin_requests.counts() {
            metrics.pin_requests.with_label_values(&[state.name()]).set(gauge(count));
        }
        let (node_hits, node_misses, node_bytes) = self.inner.nodes.as_ref().map_or((0, 0, 0), |nodes| nodes.counts());
        let totals = [
            (&metrics.node_hits, node_hits),
            (&metrics.node_misses, node_misses),
            (&metrics.store_faults, self.faults()),
        ];
        for (counter, total) in totals {
            counter.inc_by(total.saturating_sub(counter.get()));
        }
        metrics.cache_size.with_label_values(&["node"]).set(gauge(node_bytes));
        #[cfg(feature = "dns")]
        self.inner.dnslink.measure();
        Ok(stats)
    }

    /// Starts the periodic work of a daemon: it deletes unfinished uploads after `upload.expires_after_seconds`,
    /// republishes IPNS records, pins what clients of the pinning service API request, and moves what failed clients
    /// have left in journals into their objects. A node that runs a single command leaves all of these as they are.
    /// Must be called within the runtime.
    pub fn start_maintenance(&self) {
        self.start_upload_expiry();
        self.start_journal_recovery();
        #[cfg(feature = "keys")]
        self.start_republishing();
        #[cfg(feature = "pinning")]
        self.start_pinning();
    }

    /// Waits for the turn of the current client to import, which ends when it is dropped. The wait is limited, because
    /// clients may keep uploads open as long as they like.
    pub(crate) async fn import_permit(&self) -> Result<ImportPermit> {
        let permit = timeout(PERMIT_TIMEOUT, self.inner.imports.take(current_client())).await;
        permit.map_err(|_| {
            let (most, waited) = (self.inner.config.concurrency.max_concurrent_tasks, PERMIT_TIMEOUT.as_secs());
            let what = format!(
                "as many imports of this client are in progress as are left for all others, of {most} \
                 (concurrency.max_concurrent_tasks), and none ended in {waited} s"
            );
            Error::new(ErrorKind::RateLimited, format!("{what}: try again later"))
        })
    }

    /// Reserves memory for work that uses at most `bytes` and waits if necessary. Dropping the result releases the
    /// memory. Use it only for work that no client can delay; a request body has memory of its own.
    ///
    /// # Errors
    /// [`ErrorKind::RateLimited`] if the memory does not become free in time.
    pub(crate) async fn work_memory(&self, bytes: usize) -> Result<WorkMemory> {
        let kibibytes = u32::try_from(bytes.div_ceil(1_024)).unwrap_or(u32::MAX).min(WORK_KIB);
        let work_memory = timeout(PERMIT_TIMEOUT, self.inner.work.clone().acquire_many_owned(kibibytes)).await;
        let full = |_| Error::new(ErrorKind::RateLimited, "too many large requests at the same time: try again later");
        let work_memory =
            work_memory.map_err(full)?.map_err(|e| Error::internal("the node is closed").with_source(e))?;
        Ok(WorkMemory { _permit: work_memory })
    }
}

/// Reserved memory for work on a request; see [`Node::work_memory`].
#[derive(Debug)]
pub(crate) struct WorkMemory {
    _permit: OwnedSemaphorePermit,
}
