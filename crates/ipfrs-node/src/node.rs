//! The handle itself: what it holds, how it opens and closes.

use std::fs;
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use futures::StreamExt;
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_store::{
    BlockStore, Engine, EpochCache, Mappings, MemoryStore, PackOptions, PackStore, Pins, Stats, StoreConfig,
};
use ipfrs_stream::{Bandwidth, NodeCache};
use prometheus::Registry;
use quick_cache::Weighter;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::config::NodeConfig;
use crate::denylist::{Denylists, Guarded};
use crate::files::{PathCache, path_cache};
use crate::identity::Identity;
use crate::keystore::Keystore;
use crate::limits::Patience;
use crate::metered::Metered;
use crate::metrics::{CacheMeter, Metrics};
use crate::names::Names;
use crate::names::dnslink::Dnslink;
use crate::operations::Operations;
use crate::protection::Protection;
use crate::readiness::Readiness;
use crate::request_memory::MemoryPool;
use crate::tensors::Catalogues;
use crate::uploads::Uploads;

/// Longest that a request waits for others to end.
const TURN_PATIENCE: Duration = Duration::from_secs(30);

/// Most memory for work on what came of requests, in KiB: 512 MiB.
const WORK_KIB: u32 = 512 * 1024;

/// A block store with everything that front-ends do with it. Cheap to clone: clones are the same node.
#[derive(Debug, Clone)]
pub struct Node {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// The engine, metered: for what keeps the store itself.
    pub(crate) store: Arc<dyn BlockStore>,
    /// The same as whoever asks for content sees it: without what is blocked.
    pub(crate) served: Arc<dyn BlockStore>,
    /// What is blocked; `None` where no denylists are configured.
    pub(crate) denylists: Option<Denylists>,
    /// The pack engine, where that is the engine: it has a lock to release at the end.
    pack: Option<PackStore>,
    pub(crate) config: NodeConfig,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) paths: Option<Arc<PathCache>>,
    /// Nodes of files on the way to their leaves.
    pub(crate) nodes: Option<Arc<NodeCache>>,
    /// What tensors files have.
    pub(crate) catalogues: Option<Catalogues>,
    /// One permit for each tensor that is being summed up.
    pub(crate) sums: Arc<Semaphore>,
    /// What is to stay when garbage is collected.
    pub(crate) pins: Pins,
    /// What is about to be pinned.
    pub(crate) protection: Protection,
    /// Held by the collection that is under way.
    pub(crate) collecting: Mutex<()>,
    /// The mapped files of the store.
    mappings: Option<Mappings>,
    /// Whether every block is verified when it is read: then nothing that was read is kept.
    verify_on_read: bool,
    /// Whether nothing is written.
    pub(crate) read_only: bool,
    /// One permit for each import that works at the moment.
    imports: Arc<Semaphore>,
    /// One permit for each KiB that work on requests takes.
    work: Arc<Semaphore>,
    /// For bodies of requests that are whole in memory.
    pub(crate) memory: MemoryPool,
    identity: Identity,
    pub(crate) keystore: Keystore,
    bandwidth: Bandwidth,
    pub(crate) operations: Operations,
    pub(crate) uploads: Uploads,
    /// Whether the disk takes writes.
    readiness: Readiness,
    pub(crate) dnslink: Dnslink,
    /// The records of IPNS names.
    pub(crate) names: Names,
    pub(crate) repo: PathBuf,
}

impl Node {
    /// Opens the repo at `repo`, making it where it does not exist. `holder` says who opens it, for the message that a
    /// second process gets. With `store.read_only` it must be there, and stays as it is: whatever would change it is
    /// [`ErrorKind::Forbidden`].
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) when another process has the repo; else what the file system or
    /// the store says, with the path.
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
        let (path, holder, cache) = (repo.to_owned(), holder.to_owned(), config.cache.clone());
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
                        cache_enabled: cache.enabled,
                        cache_entries: cache.max_entries,
                        verify_on_read,
                        read_only,
                        holder,
                        ..PackOptions::default()
                    };
                    // The store first: its lock is that of the pins as well.
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

    /// A node over an engine of the caller's own, which keeps the contracts of [`BlockStore`]. The repo at `repo`, which is
    /// made where it does not exist, holds everything but the blocks: pins, the key, unfinished uploads.
    ///
    /// # Errors
    /// What the file system and the engine say, with the path; [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) when another
    /// process has the pins.
    pub async fn over(
        engine: Arc<dyn BlockStore>,
        repo: &Path,
        config: NodeConfig,
        registry: &Registry,
    ) -> Result<Self> {
        config.validate()?;
        let metrics = Arc::new(Metrics::register(registry)?);
        let denylists = Denylists::open(repo, &config.denylists, metrics.denylists.clone()).await?;
        // Only asked where it matters: the engine may be far away.
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
                "the store had blocks when its pins (pins.redb) were made, so that older ones may be missing: put pins.redb \
                 back from a copy, or pin what is to stay; nothing is collected but with `repo gc --force`"
            );
        }
        let Repo { path: repo, identity } = repo;
        let patience = Patience::new(config.retrieval.timeout, &metrics.refusals);
        let protection = Protection::default();
        let mappings = engine.mappings();
        let store: Arc<dyn BlockStore> = Arc::new(Metered::new(engine, patience, metrics.clone(), protection.clone()));
        let served: Arc<dyn BlockStore> = match &denylists {
            Some(denylists) => Arc::new(Guarded::new(store.clone(), denylists.clone())),
            None => store.clone(),
        };
        let keeps = config.cache.enabled && !verify_on_read;
        let nodes = || Arc::new(NodeCache::new(served.clone(), config.cache.max_bytes));
        let paths = || path_cache(served.clone(), &config.cache);
        let inner = Inner {
            mappings,
            nodes: keeps.then(nodes),
            paths: keeps.then(paths),
            served,
            denylists,
            store,
            pack,
            catalogues: keeps.then(|| Catalogues::new(&config.cache, metrics.cache_meter("tensor"))),
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
            memory: MemoryPool::new(&config.batch),
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

    /// Makes everything durable and releases the repo. The node is not to be used afterwards.
    ///
    /// # Errors
    /// When the store could not write its index; no acknowledged block is lost by that.
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

    /// The configuration that the node was opened with.
    #[must_use]
    pub fn config(&self) -> &NodeConfig {
        &self.inner.config
    }

    /// The directory that holds the repo, absolute and without symlinks.
    #[must_use]
    pub fn repo(&self) -> &Path {
        &self.inner.repo
    }

    /// The node's key.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    /// The byte counters that the listeners' sockets feed.
    #[must_use]
    pub fn bandwidth(&self) -> Bandwidth {
        self.inner.bandwidth.clone()
    }

    /// The mapped files of the store, for sockets that can send from a file.
    #[must_use]
    pub fn mappings(&self) -> Option<Mappings> {
        self.inner.mappings.clone()
    }

    /// A number that changes when bytes of a stored file turn out to be gone; see [`Mappings::faults`]. What was made of
    /// blocks that were read before may be wrong then.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.inner.mappings.as_ref().map_or(0, Mappings::faults)
    }

    /// Whether every block is verified when it is read (`store.verify_on_read`). Then nobody keeps what was read, nor what
    /// was made of it, for the next reader.
    #[must_use]
    pub fn verifies_reads(&self) -> bool {
        self.inner.verify_on_read
    }

    /// Refuses what would change a repo that is open read-only.
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

    /// Where files without a name go that hold what does not fit in memory.
    pub(crate) fn scratch_dir(&self) -> PathBuf {
        if self.inner.read_only { std::env::temp_dir() } else { self.inner.repo.clone() }
    }

    /// Checks whether blocks can be stored: for health checks. The disk is looked at fifty times a second at most.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] for a store that takes no more writes, [`ErrorKind::NoSpace`] for a full disk,
    /// [`ErrorKind::Timeout`] for one that does not respond; else what the disk fails with.
    pub async fn check(&self) -> Result<()> {
        self.inner.store.check()?;
        // Nothing is written there, whatever the disk says.
        if self.inner.read_only { Ok(()) } else { self.inner.readiness.check(&self.inner.store).await }
    }

    /// A number that changes when blocks go away from the store (see `BlockStore::removals`), and when other denylists are
    /// in force: what was given out before may not be given again.
    #[must_use]
    pub fn removals(&self) -> u64 {
        self.inner.served.removals()
    }

    /// Returns an empty cache for what a front-end makes of content, which expects `entries` and takes entries of
    /// `weight` together at most. Its values do not count any more once [`Self::removals`] has changed.
    #[must_use]
    pub fn epoch_cache<K, V, W>(&self, entries: usize, weight: u64, weighter: W) -> Arc<EpochCache<K, V, W>>
    where
        K: Eq + Hash + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
        W: Weighter<K, V> + Clone + Send + Sync + 'static,
    {
        EpochCache::new(self.inner.served.clone(), entries, weight, weighter)
    }

    /// The metrics of a cache that a front-end keeps, by the cache's name.
    #[must_use]
    pub fn cache_meter(&self, cache: &'static str) -> CacheMeter {
        self.inner.metrics.cache_meter(cache)
    }

    /// Totals of the store. The gauges that show them are brought up to date at the same time.
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
            (&metrics.location_hits, stats.cache_hits),
            (&metrics.location_misses, stats.cache_misses),
            (&metrics.node_hits, node_hits),
            (&metrics.node_misses, node_misses),
            (&metrics.store_faults, self.faults()),
        ];
        for (counter, total) in totals {
            counter.inc_by(total.saturating_sub(counter.get()));
        }
        metrics.cache_size.with_label_values(&["location"]).set(gauge(stats.cache_bytes));
        metrics.cache_size.with_label_values(&["node"]).set(gauge(node_bytes));
        self.inner.dnslink.measure();
        if let Some(paths) = &self.inner.paths {
            metrics.cache_size.with_label_values(&["path"]).set(gauge(paths.weight()));
        }
        Ok(stats)
    }

    /// Waits for a turn to import; the turn ends when the permit is dropped. Uploads take as long as their clients like, so
    /// nobody waits for one for ever.
    pub(crate) async fn turn(&self) -> Result<OwnedSemaphorePermit> {
        let turn = timeout(TURN_PATIENCE, self.inner.imports.clone().acquire_owned()).await;
        let busy = |_| {
            let (most, waited) = (self.inner.config.concurrency.max_concurrent_tasks, TURN_PATIENCE.as_secs());
            let what = format!(
                "{most} imports are under way (concurrency.max_concurrent_tasks), and none ended in {waited} s"
            );
            Error::new(ErrorKind::RateLimited, format!("{what}: try again later"))
        };
        turn.map_err(busy)?.map_err(|e| Error::internal("the node is closed").with_source(e))
    }

    /// Waits for memory for work that takes at most `bytes`; it is free again when the permit is dropped. Only for work
    /// that no client can delay: for everything else there is [`Self::request_memory`].
    ///
    /// # Errors
    /// [`ErrorKind::RateLimited`] when there is no room for too long.
    pub(crate) async fn room(&self, bytes: usize) -> Result<Room> {
        let kibibytes = u32::try_from(bytes.div_ceil(1_024)).unwrap_or(u32::MAX).min(WORK_KIB);
        let room = timeout(TURN_PATIENCE, self.inner.work.clone().acquire_many_owned(kibibytes)).await;
        let full = |_| Error::new(ErrorKind::RateLimited, "too many large requests at the same time: try again later");
        let room = room.map_err(full)?.map_err(|e| Error::internal("the node is closed").with_source(e))?;
        Ok(Room { _permit: room })
    }
}

/// What a node is put together of.
struct Opened {
    engine: Arc<dyn BlockStore>,
    /// The engine once more, where it is this one.
    pack: Option<PackStore>,
    pins: Pins,
    repo: Repo,
    verify_on_read: bool,
    read_only: bool,
}

/// What a repo holds beside blocks and pins.
struct Repo {
    /// Absolute, and without symlinks.
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
    fs::create_dir_all(path).map_err(|e| Error::io(format_args!("cannot make the repo {}", path.display()), e))
}

/// Memory for work on a request; see [`Node::room`].
#[derive(Debug)]
pub(crate) struct Room {
    _permit: OwnedSemaphorePermit,
}
