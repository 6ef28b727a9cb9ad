//! Opening of a [`Node`].

mod engine;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
#[cfg(doc)]
use ipfrs_core::ErrorKind;
use ipfrs_core::turns::Turns;
use ipfrs_core::{Error, Result, cores};
#[cfg(feature = "retrieval")]
use ipfrs_retrieval::{Exchange, Retriever};
use ipfrs_store::{BlockStore, Engine, Filestore, PackStore, Pins, RepoLock, StoreConfig};
use ipfrs_stream::{Bandwidth, NodeCache};
use prometheus::Registry;
use tokio::sync::{Mutex, Semaphore};

use self::engine::OpenedEngine;
use crate::Node;
use crate::config::NodeConfig;
use crate::denylist::{Denylists, Guarded};
use crate::events::Events;
use crate::fetched::{Eviction, Fetched, FetchedHeads, FetchedMetrics};
use crate::filestore::References;
use crate::gc::Protection;
use crate::ingest::Ingestion;
use crate::keys::Identity;
#[cfg(feature = "keys")]
use crate::keys::Keystore;
use crate::metrics::Metrics;
use crate::mutable_files::{MutableFiles, RootFile, SavedRoot, TreeSettings};
use crate::names::Names;
use crate::names::dnslink::Dnslink;
use crate::node::{Inner, WORK_KIB};
#[cfg(feature = "bitswap")]
use crate::node_store::OnStored;
use crate::node_store::{NodeStore, RetrievalTimeout};
use crate::operations::Operations;
#[cfg(feature = "bitswap")]
use crate::peers::exchange;
#[cfg(feature = "pinning")]
use crate::pin_requests::PinRequests;
use crate::readiness::Readiness;
#[cfg(feature = "pinning")]
use crate::remote_pins::PinningServices;
#[cfg(feature = "retrieval")]
use crate::retrieval::retriever;
use crate::tensors::Catalogues;
use crate::uploads::Uploads;

/// Settings with which a [`Node`] is opened; see [`Node::builder`].
pub struct NodeBuilder {
    repo: PathBuf,
    holder: String,
    store: StoreConfig,
    config: NodeConfig,
    engine: Option<Arc<dyn BlockStore>>,
    keeps_pins_in_memory: bool,
    registry: Registry,
}

impl fmt::Debug for NodeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut builder = f.debug_struct("NodeBuilder");
        builder.field("repo", &self.repo).field("store", &self.store).field("config", &self.config);
        builder.finish_non_exhaustive()
    }
}

impl Node {
    /// Opens the repo at `repo` with the default configuration, and creates it if it does not exist.
    ///
    /// # Errors
    /// As [`NodeBuilder::open`].
    pub async fn open_default(repo: impl Into<PathBuf>) -> Result<Self> {
        Self::builder(repo).open().await
    }

    /// Returns the default settings for opening the repo at `repo`.
    pub fn builder(repo: impl Into<PathBuf>) -> NodeBuilder {
        NodeBuilder {
            repo: repo.into(),
            holder: "a program that embeds ipfrs".to_owned(),
            store: StoreConfig::default(),
            config: NodeConfig::default(),
            engine: None,
            keeps_pins_in_memory: false,
            registry: Registry::new(),
        }
    }
}

impl NodeBuilder {
    /// Sets the configuration of the store, `[store]`. With `read_only`, the repo must exist and is not changed;
    /// operations that would change it fail with [`ErrorKind::Forbidden`].
    #[must_use]
    pub fn store(self, store: StoreConfig) -> Self {
        Self { store, ..self }
    }

    /// Sets the configuration of the node.
    #[must_use]
    pub fn config(self, config: NodeConfig) -> Self {
        Self { config, ..self }
    }

    /// Sets the name of this process in the error message that a second process gets when it opens the same repo.
    #[must_use]
    pub fn holder(self, holder: impl Into<String>) -> Self {
        Self { holder: holder.into(), ..self }
    }

    /// Sets the registry that exports the metrics of the node. Each registry takes one node: a second node needs a
    /// registry of its own, with a label that tells the two apart (`Registry::new_custom`). By default, the metrics are
    /// not exported.
    #[must_use]
    pub fn registry(self, registry: &Registry) -> Self {
        Self { registry: registry.clone(), ..self }
    }

    /// Sets a custom engine in place of the configuration of the store. It must satisfy the contracts of
    /// [`BlockStore`], which `engine_tests!` checks (feature `testing`). The repo holds everything except the blocks:
    /// pins, the key, unfinished uploads. A `PackStore` over the directory of the repo must be open for writing,
    /// because its lock is then that of the repo. One that is open read-only, as the engine or beside it, makes
    /// [`open`](Self::open) fail with [`ErrorKind::Conflict`]; it can be the engine of a node with another directory.
    #[must_use]
    pub fn engine(self, engine: Arc<dyn BlockStore>) -> Self {
        Self { engine: Some(engine), ..self }
    }

    /// Keeps the pins of a custom engine in memory, for blocks that are a cache or belong to another program. They are
    /// lost when the process ends. If the engine already has blocks, gc refuses to run without
    /// [`GcOptions::force`](crate::GcOptions).
    #[must_use]
    pub fn pins_in_memory(self) -> Self {
        Self { keeps_pins_in_memory: true, ..self }
    }

    /// Opens the repo, and creates it if it does not exist.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if another process has the repo open, or if the registry has the metrics of another
    /// node; [`ErrorKind::InvalidInput`] for a setting out of range; otherwise errors of the file system or the store,
    /// with the path.
    pub async fn open(self) -> Result<Node> {
        self.store.validate()?;
        self.config.validate()?;
        if self.keeps_pins_in_memory && self.engine.is_none() {
            return Err(Error::invalid(
                "only the pins of a custom engine can be in memory: without them, gc deletes all blocks of the repo",
            ));
        }
        if self.engine.is_some() && (self.store.read_only || self.store.verify_on_read) {
            return Err(Error::invalid(
                "store.read_only and store.verify_on_read have no effect on a custom engine, which decides itself: omit them",
            ));
        }
        let (metrics, registration) = Metrics::register(&self.registry)?;
        let metrics = Arc::new(metrics);
        let denylists = Denylists::open(&self.repo, &self.config.denylists, metrics.denylists.clone()).await?;
        let (config, registry) = (self.config.clone(), self.registry.clone());
        let has_blocks = match &self.engine {
            // The engine may be remote, so it is queried only if the pins do not exist.
            Some(_) if !self.keeps_pins_in_memory && Pins::exist(&self.repo) => false,
            Some(engine) => engine.iterate().next().await.transpose()?.is_some(),
            None => false,
        };
        let fetched = metrics.fetched.clone();
        let opened = tokio::task::spawn_blocking(move || self.open_files(has_blocks, fetched));
        let opened = opened.await.map_err(|e| Error::internal("opening the repo failed").with_source(e))??;
        let node = opened.into_node(config, metrics, denylists, registry).await?;
        node.check_root_notes().await?;
        if !node.inner.read_only {
            node.recover_ingested().await?;
        }
        registration.keep();
        Ok(node)
    }

    /// Opens the engine, the pins and the identity. `has_blocks` says whether a custom engine, for which there may be
    /// no pins yet, has blocks. Waits for the disk.
    fn open_files(self, has_blocks: bool, fetched: FetchedMetrics) -> Result<Opened> {
        let Self { repo: path, holder, store, engine, keeps_pins_in_memory, .. } = self;
        let (verify_on_read, read_only) = match &engine {
            Some(_) => (false, false),
            None => (store.verify_on_read, store.read_only),
        };
        if !read_only {
            make_repo(&path)?;
        }
        let opened = match (engine, store.engine) {
            (Some(engine), _) => OpenedEngine::custom(&path, &holder, engine, keeps_pins_in_memory, has_blocks)?,
            (None, Engine::Memory) => OpenedEngine::memory(&path, &holder, read_only)?,
            (None, Engine::Pack) => OpenedEngine::pack(&path, &holder, &store)?,
        };
        let OpenedEngine { repo_lock, engine, pack, filestore, pins, ledger_dir } = opened;
        #[cfg(feature = "pinning")]
        let pin_requests = PinRequests::open(&path)?;
        #[cfg(feature = "keys")]
        if !read_only {
            Keystore::remove_drafts(&path);
        }
        let identity = if read_only { Identity::open_read_only(&path)? } else { Identity::open(&path)? };
        let root_file = ledger_dir.as_deref().map(RootFile::new);
        let saved_roots = root_file.as_ref().map(RootFile::read).transpose()?.unwrap_or_default();
        let fetched = match read_only {
            true => None,
            false => Some(Fetched::open(ledger_dir.as_deref(), store.durability, store.max_bytes, fetched)?),
        };
        let repo = fs::canonicalize(&path)
            .map_err(|e| Error::io(format_args!("cannot find the repo {}", path.display()), e))?;
        Ok(Opened {
            repo_lock,
            engine,
            pack,
            filestore,
            pins,
            #[cfg(feature = "pinning")]
            pin_requests,
            root_file,
            saved_roots,
            fetched,
            repo,
            identity,
            verify_on_read,
            read_only,
        })
    }
}

/// Opened components of a node.
struct Opened {
    /// `None` if the lock of the store is that of the repo.
    repo_lock: Option<RepoLock>,
    engine: Arc<dyn BlockStore>,
    /// The same engine, if it is the pack engine.
    pack: Option<PackStore>,
    /// The same engine, if blocks can stay in files.
    filestore: Option<Filestore>,
    pins: Pins,
    #[cfg(feature = "pinning")]
    pin_requests: PinRequests,
    /// File with the root of the mutable files; `None` if the blocks are in memory.
    root_file: Option<RootFile>,
    saved_roots: Vec<SavedRoot>,
    /// Ledger of fetched blocks; `None` if the repo is open read-only.
    fetched: Option<(Fetched, FetchedHeads)>,
    /// Absolute path without symlinks.
    repo: PathBuf,
    identity: Identity,
    verify_on_read: bool,
    read_only: bool,
}

/// Components that the stores and the retriever use, too.
struct Shared {
    config: NodeConfig,
    metrics: Arc<Metrics>,
    denylists: Option<Denylists>,
    protection: Protection,
    events: Events,
}

/// The stores of a node, over its engine.
struct Stores {
    store: Arc<dyn BlockStore>,
    served: Arc<dyn BlockStore>,
    references: Option<References>,
    fetched: Option<Arc<Fetched>>,
    eviction: Option<Arc<Eviction>>,
    #[cfg(feature = "bitswap")]
    stored: OnStored,
}

impl Stores {
    fn new(
        engine: Arc<dyn BlockStore>,
        filestore: Option<Filestore>,
        fetched: Option<(Fetched, FetchedHeads)>,
        shared: &Shared,
    ) -> Self {
        let Shared { config, metrics, denylists, protection, events } = shared;
        let read_timeout = RetrievalTimeout::new(config.reads.timeout, &metrics.refusals);
        let (fetched, heads) = fetched.map(|(fetched, heads)| (Arc::new(fetched), heads)).unzip();
        let (has_references, known) = (filestore.is_some(), fetched.clone());
        let (metered, protection) = (Arc::clone(metrics), protection.clone());
        let store =
            NodeStore::new(engine, has_references, read_timeout, metered, protection.clone(), events.clone(), known);
        #[cfg(feature = "bitswap")]
        let stored = store.on_stored();
        let store = Arc::new(store);
        #[cfg(feature = "retrieval")]
        let timeout = Duration::from_secs(config.retrieval.timeout_seconds);
        #[cfg(not(feature = "retrieval"))]
        let timeout = Duration::MAX;
        let evicted = fetched.clone().zip(heads);
        let eviction =
            evicted.map(|(fetched, heads)| Eviction::start(fetched, Arc::clone(&store), protection, heads, timeout));
        let references = filestore.map(|filestore| References { filestore, store: Arc::clone(&store) });
        let store: Arc<dyn BlockStore> = store;
        let served: Arc<dyn BlockStore> = match denylists {
            Some(denylists) => Arc::new(Guarded::new(Arc::clone(&store), denylists.clone())),
            None => Arc::clone(&store),
        };
        Self {
            store,
            served,
            references,
            fetched,
            eviction,
            #[cfg(feature = "bitswap")]
            stored,
        }
    }

    /// Creates the retriever of missing blocks. Returns `None` without sources.
    #[cfg(feature = "retrieval")]
    fn retriever(
        &self,
        shared: &Shared,
        identity: &Identity,
        peers: Option<Exchange>,
        registry: &Registry,
    ) -> Result<Option<Retriever>> {
        let Shared { config, denylists, events, .. } = shared;
        if !config.retrieval.has_sources() {
            return Ok(None);
        }
        let (store, eviction) = (Arc::clone(&self.store), self.eviction.clone());
        retriever(config, store, eviction, denylists.clone(), identity, peers, events.clone(), registry).map(Some)
    }
}

impl Opened {
    async fn into_node(
        self,
        config: NodeConfig,
        metrics: Arc<Metrics>,
        denylists: Option<Denylists>,
        registry: Registry,
    ) -> Result<Node> {
        self.warn_if_pins_are_lost().await?;
        let Self { engine, repo, identity, verify_on_read, read_only, .. } = self;
        let (protection, events) = (Protection::default(), Events::default());
        let shared = Shared { config, metrics, denylists, protection, events };
        let settings = TreeSettings::new(&shared.config.import, &shared.config.mutable_files)?;
        let mutable_files = MutableFiles::open(self.root_file, &self.saved_roots, &engine, settings).await?;
        let mappings = engine.mappings();
        let stores = Stores::new(engine, self.filestore, self.fetched, &shared);
        #[cfg(feature = "bitswap")]
        let exchange =
            exchange(&shared.config.retrieval, &stores.served, &identity, &stores.stored, read_only, &registry).await?;
        #[cfg(feature = "bitswap")]
        let peers = exchange.clone().map(Exchange);
        #[cfg(all(feature = "retrieval", not(feature = "bitswap")))]
        let peers = None;
        #[cfg(feature = "retrieval")]
        let retriever = if read_only { None } else { stores.retriever(&shared, &identity, peers, &registry)? };
        #[cfg(not(feature = "retrieval"))]
        drop(registry);
        let Shared { config, metrics, denylists, protection, events } = shared;
        let Stores { store, served, references, fetched, eviction, .. } = stores;
        let keeps = config.cache.enabled && !verify_on_read;
        let catalogues = || Catalogues::new(served.clone(), &config.cache, metrics.cache_meter("tensor"));
        let nodes = || Arc::new(NodeCache::new(served.clone(), config.cache.max_bytes));
        let cores = cores();
        let inner = Inner {
            mappings,
            nodes: keeps.then(nodes),
            catalogues: keeps.then(catalogues),
            served,
            denylists,
            store,
            #[cfg(feature = "retrieval")]
            retriever,
            #[cfg(feature = "bitswap")]
            exchange,
            pack: self.pack,
            references,
            sums: Turns::new(cores, cores),
            #[cfg(feature = "keys")]
            making_keys: Turns::new(cores, 1),
            verify_on_read,
            read_only,
            pins: self.pins,
            mutable_files,
            ingestion: Ingestion::new(&repo, &config.ingest),
            fetched,
            eviction,
            protection,
            bootstrap_changes: Arc::default(),
            collecting: Mutex::new(()),
            verifying: Mutex::new(()),
            #[cfg(feature = "pinning")]
            pinning_services: PinningServices::new(&repo),
            #[cfg(feature = "pinning")]
            pin_requests: self.pin_requests,
            names: Names::new(&repo, &config.ipns, config.cache.enabled),
            #[cfg(feature = "dns")]
            dnslink: Dnslink::new(&config.dnslink, &config.dns, metrics.dnslink.clone())?,
            #[cfg(not(feature = "dns"))]
            dnslink: Dnslink::new(&config.dnslink)?,
            imports: Turns::new(config.concurrency.max_concurrent_tasks, 1),
            work: Arc::new(Semaphore::new(WORK_KIB as usize)),
            decoded_nodes: Arc::default(),
            config,
            metrics,
            identity,
            #[cfg(feature = "keys")]
            keystore: Keystore::new(&repo),
            bandwidth: Bandwidth::default(),
            operations: Operations::new(events.clone()),
            events,
            uploads: Uploads::new(&repo),
            readiness: Readiness::default(),
            repo,
            repo_lock: self.repo_lock.into(),
        };
        Ok(Node { inner: Arc::new(inner) })
    }

    async fn warn_if_pins_are_lost(&self) -> Result<()> {
        if self.pins.are_lost().await? {
            tracing::warn!(
                repo = %self.repo.display(),
                "the store already had blocks when pins.redb was created, so older pins may be missing: restore pins.redb \
                 from a backup, or pin what must be kept; until then, gc runs only with `repo gc --force`"
            );
        }
        Ok(())
    }
}

fn make_repo(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|e| Error::io(format_args!("cannot create the repo {}", path.display()), e))
}
