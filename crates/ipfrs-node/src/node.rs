//! The [`Node`] handle: its components, and how it opens and closes a repo.

use std::fs;
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use futures::StreamExt;
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_store::{
    BlockStore, Engine, EpochCache, Mappings, MemoryStore, PackOptions, PackStore, Pins, Stats, StoreConfig, StoreEpoch,
};
use ipfrs_stream::{Bandwidth, NodeCache};
use prometheus::Registry;
use quick_cache::Weighter;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::config::NodeConfig;
use crate::denylist::{Denylists, Guarded};
use crate::gc::Protection;
use crate::keys::{Identity, Keystore};
use crate::metrics::{CacheMeter, Metrics};
use crate::names::Names;
use crate::names::dnslink::Dnslink;
use crate::node_store::{NodeStore, RetrievalTimeout};
use crate::operations::Operations;
use crate::readiness::Readiness;
use crate::refusals::Limit;
use crate::tensors::Catalogues;
use crate::uploads::Uploads;

/// Maximum time that a request waits for a permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Memory limit for work on the data of requests, in KiB: 512 MiB.
const WORK_KIB: u32 = 512 * 1024;

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
    /// Denylists; `None` if none are configured.
    pub(crate) denylists: Option<Denylists>,
    /// The pack engine, if the node uses it. It holds a lock that [`Node::close`] releases.
    pack: Option<PackStore>,
    pub(crate) config: NodeConfig,
    pub(crate) metrics: Arc<Metrics>,
    /// Cache of inner nodes of files.
    pub(crate) nodes: Option<Arc<NodeCache>>,
    /// Cache of the tensor catalogues of files.
    pub(crate) catalogues: Option<Catalogues>,
    /// One permit for each tensor that is being summed up.
    pub(crate) sums: Arc<Semaphore>,
    /// Pins, which gc keeps.
    pub(crate) pins: Pins,
    /// Blocks that clients are about to pin.
    pub(crate) protection: Protection,
    /// Held while gc runs.
    pub(crate) collecting: Mutex<()>,
    /// Mapped files of the store.
    mappings: Option<Mappings>,
    /// Whether every block is verified on each read. If so, blocks that were read are not cached.
    verify_on_read: bool,
    /// Whether the repo is open read-only.
    pub(crate) read_only: bool,
    /// One permit for each running import.
    imports: Arc<Semaphore>,
    /// One permit for each KiB of memory that work on requests uses.
    work: Arc<Semaphore>,
    identity: Identity,
    pub(crate) keystore: Keystore,
    bandwidth: Bandwidth,
    pub(crate) operations: Operations,
    pub(crate) uploads: Uploads,
    /// Health check of the store's disk.
    readiness: Readiness,
    pub(crate) dnslink: Dnslink,
    /// Records of IPNS names.
    pub(crate) names: Names,
    pub(crate) repo: PathBuf,
}

impl Node {
    /// Opens the repo at `repo` and creates it if it does not exist. `holder` names the process in the error message
    /// that a second process gets. With `store.read_only`, the repo must exist and is not changed; operations that
    /// would change it fail with [`ErrorKind::Forbidden`].
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) if another process has the repo open; otherwise errors of the
    /// file system or the store, with the path.
    pub async fn open(
        repo: &Path,
        store: StoreConfig,
        config: NodeConfig,
        holder: &str,
        registry: &Registry,
    ) -> Result<Self> {
        store.validate()?;
        config.validate()?;
        let metrics = Arc::new(Metrics::register(registry)?);
        let denylists = Denylists::open(repo, &config.denylists, metrics.denylists.clone()).await?;
        let (verify_on_read, read_only) = (store.verify_on_read, store.read_only);
        let (path, holder) = (repo.to_owned(), holder.to_owned());
        let opened = tokio::task::spawn_blocking(move || {
            if !read_only {
                make_repo(&path)?;
            }
            let (pack, pins) = match store.engine {
                Engine::Memory => (None, Pins::in_memory()?),
                Engine::Pack => {
                    let dir = store.path.map_or_else(|| path.clone(), |relative| path.join(relative));
                    let options = PackOptions {
                        durability: store.durability,
                        verify_on_read,
                        read_only,
                        holder,
                        ..PackOptions::default()
                    };
                    // The store is opened first, because its lock also protects the pins.
                    let pack = PackStore::open(&dir, options)?;
                    let pins = match read_only {
                        true => Pins::open_read_only(&dir)?,
                        false => Pins::open(&dir, !pack.is_empty())?,
                    };
                    (Some(pack), pins)
                }
            };
            let engine: Arc<dyn BlockStore> = match &pack {
                Some(pack) => Arc::new(pack.clone()),
                None => Arc::new(MemoryStore::default()),
            };
            let repo = Repo::open(&path, read_only)?;
            Ok(Opened { engine, pack, pins, repo, verify_on_read, read_only })
        });
        let opened = opened.await.map_err(|e| Error::internal("opening the repo failed").with_source(e))??;
        Self::assemble(opened, config, metrics, denylists).await
    }

    /// Creates a node over a custom engine, which must satisfy the contracts of [`BlockStore`]. The repo at `repo`
    /// holds everything except the blocks: pins, the key, unfinished uploads. It is created if it does not exist.
    ///
    /// # Errors
    /// Errors of the file system and the engine, with the path; [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) if
    /// another process has the pins open.
    pub async fn over(
        engine: Arc<dyn BlockStore>,
        repo: &Path,
        config: NodeConfig,
        registry: &Registry,
    ) -> Result<Self> {
        config.validate()?;
        let metrics = Arc::new(Metrics::register(registry)?);
        let denylists = Denylists::open(repo, &config.denylists, metrics.denylists.clone()).await?;
        // The engine may be remote, so it is queried only if the pins do not exist.
        let has_blocks = !Pins::exist(repo) && engine.iterate().next().await.transpose()?.is_some();
        let path = repo.to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            make_repo(&path)?;
            let (pins, repo) = (Pins::open(&path, has_blocks)?, Repo::open(&path, false)?);
            Ok(Opened { engine, pack: None, pins, repo, verify_on_read: false, read_only: false })
        });
        let opened = opened.await.map_err(|e| Error::internal("opening the repo failed").with_source(e))??;
        Self::assemble(opened, config, metrics, denylists).await
    }

    async fn assemble(
        opened: Opened,
        config: NodeConfig,
        metrics: Arc<Metrics>,
        denylists: Option<Denylists>,
    ) -> Result<Self> {
        let Opened { engine, pack, pins, repo, verify_on_read, read_only } = opened;
        if pins.are_lost().await? {
            tracing::warn!(
                repo = %repo.path.display(),
                "the store already had blocks when pins.redb was created, so older pins may be missing: restore pins.redb \
                 from a backup, or pin what must be kept; until then, gc runs only with `repo gc --force`"
            );
        }
        let Repo { path: repo, identity } = repo;
        let read_timeout = RetrievalTimeout::new(config.retrieval.timeout, &metrics.refusals);
        let protection = Protection::default();
        let mappings = engine.mappings();
        let store: Arc<dyn BlockStore> =
            Arc::new(NodeStore::new(engine, read_timeout, metrics.clone(), protection.clone()));
        let served: Arc<dyn BlockStore> = match &denylists {
            Some(denylists) => Arc::new(Guarded::new(store.clone(), denylists.clone())),
            None => store.clone(),
        };
        let keeps = config.cache.enabled && !verify_on_read;
        let catalogues = || Catalogues::new(served.clone(), &config.cache, metrics.cache_meter("tensor"));
        let nodes = || Arc::new(NodeCache::new(served.clone(), config.cache.max_bytes));
        let inner = Inner {
            mappings,
            nodes: keeps.then(nodes),
            catalogues: keeps.then(catalogues),
            served,
            denylists,
            store,
            pack,
            sums: Arc::new(Semaphore::new(available_parallelism().map_or(1, usize::from))),
            verify_on_read,
            read_only,
            pins,
            protection,
            collecting: Mutex::new(()),
            names: Names::new(&repo, &config.ipns, config.cache.enabled),
            dnslink: Dnslink::new(&config.dnslink, &config.dns, metrics.dnslink.clone())?,
            imports: Arc::new(Semaphore::new(config.concurrency.max_concurrent_tasks)),
            work: Arc::new(Semaphore::new(WORK_KIB as usize)),
            config,
            metrics,
            identity,
            keystore: Keystore::new(&repo),
            bandwidth: Bandwidth::default(),
            operations: Operations::default(),
            uploads: Uploads::new(&repo),
            readiness: Readiness::default(),
            repo,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Makes everything durable and releases the repo. The node must not be used afterwards.
    ///
    /// # Errors
    /// If the store cannot write its index. No acknowledged block is lost then.
    pub async fn close(&self) -> Result<()> {
        if let Some(denylists) = &self.inner.denylists {
            denylists.close();
        }
        self.inner.uploads.close().await;
        self.inner.names.close().await;
        let pins = self.inner.pins.close().await;
        match &self.inner.pack {
            Some(pack) => pack.close().await.and(pins),
            None => pins,
        }
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
    pub(crate) fn check_writable(&self) -> Result<()> {
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

    /// Checks for health probes that blocks can be stored. The disk is examined at most fifty times a second.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the store accepts no more writes, [`ErrorKind::NoSpace`] if the disk is full,
    /// [`ErrorKind::Timeout`] if the disk does not respond; otherwise the error of the disk.
    pub async fn check(&self) -> Result<()> {
        self.inner.store.check()?;
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
    /// limited to a total weight of `weight`. Its entries become stale when [`Self::epoch`] changes.
    #[must_use]
    pub fn epoch_cache<K, V, W>(&self, entries: usize, weight: u64, weighter: W) -> Arc<EpochCache<K, V, W>>
    where
        K: Eq + Hash + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
        W: Weighter<K, V> + Clone + Send + Sync + 'static,
    {
        EpochCache::new(self.inner.served.clone(), entries, weight, weighter)
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
        metrics.pins.set(gauge(self.inner.pins.count().await?));
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
        self.inner.dnslink.measure();
        Ok(stats)
    }

    /// Waits for an import permit, which is released when it is dropped. The wait is limited, because clients may
    /// keep uploads open as long as they like.
    pub(crate) async fn import_permit(&self) -> Result<OwnedSemaphorePermit> {
        let import_permit = timeout(PERMIT_TIMEOUT, self.inner.imports.clone().acquire_owned()).await;
        let busy = |_| {
            let (most, waited) = (self.inner.config.concurrency.max_concurrent_tasks, PERMIT_TIMEOUT.as_secs());
            let what = format!(
                "{most} imports are in progress (concurrency.max_concurrent_tasks), and none ended in {waited} s"
            );
            Error::new(ErrorKind::RateLimited, format!("{what}: try again later"))
        };
        import_permit.map_err(busy)?.map_err(|e| Error::internal("the node is closed").with_source(e))
    }

    /// Reserves memory for work that uses at most `bytes` and waits if necessary. Dropping the result releases the
    /// memory. Use it only for work that no client can delay; a request body has memory of its own.
    ///
    /// # Errors
    /// [`ErrorKind::RateLimited`] if the memory does not become free in time.
    pub(crate) async fn work_memory(&self, bytes: usize) -> Result<Room> {
        let kibibytes = u32::try_from(bytes.div_ceil(1_024)).unwrap_or(u32::MAX).min(WORK_KIB);
        let work_memory = timeout(PERMIT_TIMEOUT, self.inner.work.clone().acquire_many_owned(kibibytes)).await;
        let full = |_| Error::new(ErrorKind::RateLimited, "too many large requests at the same time: try again later");
        let work_memory =
            work_memory.map_err(full)?.map_err(|e| Error::internal("the node is closed").with_source(e))?;
        Ok(Room { _permit: work_memory })
    }
}

/// Opened components of a node.
struct Opened {
    engine: Arc<dyn BlockStore>,
    /// The same engine, if it is the pack engine.
    pack: Option<PackStore>,
    pins: Pins,
    repo: Repo,
    verify_on_read: bool,
    read_only: bool,
}

/// Contents of a repo other than blocks and pins.
struct Repo {
    /// Absolute path without symlinks.
    path: PathBuf,
    identity: Identity,
}

impl Repo {
    fn open(path: &Path, read_only: bool) -> Result<Self> {
        let absolute = fs::canonicalize(path)
            .map_err(|e| Error::io(format_args!("cannot find the repo {}", path.display()), e))?;
        let identity = if read_only { Identity::open_read_only(path)? } else { Identity::open(path)? };
        Ok(Self { path: absolute, identity })
    }
}

fn make_repo(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|e| Error::io(format_args!("cannot create the repo {}", path.display()), e))
}

/// Reserved memory for work on a request; see [`Node::work_memory`].
#[derive(Debug)]
pub(crate) struct Room {
    _permit: OwnedSemaphorePermit,
}
