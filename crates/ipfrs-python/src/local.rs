//! The node in the process, called directly through [`Node`] and not over HTTP.

mod files;
mod import;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Cid, Error, ErrorKind, Result, codec, parse_cid};
use ipfrs_interface::{Config, Sources, running_url};
use ipfrs_node::{
    BatchItem, BatchPut, BlockFormat, ContentPath, DagImportOptions, EpochCache, GcOptions, LinkName, Node, PinFilter,
    PinMode, PinOptions, Pinned, PutBlock, PutBlockOptions, PutMode, ResolvedPath,
};
use quick_cache::Weighter;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use crate::backing::{
    AddOptions, Added, Backing, BlockOptions, Content, Entry, Pieces, PinEntry, Progress, Stat, StoreStats,
    TensorBytes, TensorList, TensorStats,
};
use crate::run::{all_of, breathe};

/// Name by which other processes see the holder of the repo.
const HOLDER: &str = "ipfrs (Python)";

/// A repo that is opened on first use.
pub(crate) struct Local {
    place: Arc<Place>,
    state: Arc<RwLock<State>>,
}

/// The repo to open, and its configuration.
struct Place {
    repo: PathBuf,
    config: Config,
}

enum State {
    New,
    Open(OpenNode),
    Closed,
}

/// An open node with a cache of the paths that were resolved last.
struct OpenNode {
    node: Node,
    /// `None` if caching is disabled.
    paths: Option<Arc<EpochCache<ContentPath, Arc<ResolvedPath>, ByMemory>>>,
}

impl OpenNode {
    fn new(node: Node) -> Self {
        let paths = node.configured_cache(ByMemory);
        Self { node, paths }
    }
}

impl Deref for OpenNode {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

#[derive(Debug, Clone)]
struct ByMemory;

impl Weighter<ContentPath, Arc<ResolvedPath>> for ByMemory {
    fn weight(&self, _: &ContentPath, resolved: &Arc<ResolvedPath>) -> u64 {
        resolved.memory_bytes()
    }
}

/// A guard for the open node, which cannot be closed while the guard lives.
type Held = OwnedRwLockReadGuard<State, OpenNode>;

impl Local {
    /// Creates the node of the repo at `path`, `IPFRS_PATH` or `~/.ipfrs`, in this order. It is configured by its
    /// `config.toml`, the environment and `config`, which is TOML. Opens nothing yet.
    ///
    /// # Errors
    /// Returns an error if the configuration is invalid, with the key.
    pub(crate) fn new(path: Option<PathBuf>, config: Option<&str>) -> Result<Self> {
        let repo = repo_at(path)?;
        let file = Some(repo.join("config.toml")).filter(|file| file.exists());
        let sources = Sources { text: config.map(str::to_owned), ..Sources::of_process(file) };
        let place = Arc::new(Place { config: Config::load(&sources)?, repo });
        Ok(Self { place, state: Arc::new(RwLock::new(State::New)) })
    }

    /// Returns the node, and opens it if necessary.
    async fn node(&self) -> Result<Held> {
        loop {
            let state = Arc::clone(&self.state).read_owned().await;
            let open = OwnedRwLockReadGuard::try_map(state, |state| match state {
                State::Open(node) => Some(node),
                State::New | State::Closed => None,
            });
            match open {
                Ok(node) => return Ok(node),
                Err(state) if matches!(*state, State::Closed) => return Err(closed()),
                Err(state) => drop(state),
            }
            let (place, state) = (Arc::clone(&self.place), Arc::clone(&self.state));
            // Spawned, so that opening completes even if the caller is dropped. A half-opened node could not be
            // closed and would hold the repo.
            let opening = tokio::spawn(async move {
                let mut state = state.write().await;
                if matches!(*state, State::New) {
                    *state = State::Open(OpenNode::new(place.open().await?));
                }
                Ok::<_, Error>(())
            });
            opening.await.map_err(|e| Error::internal("opening did not complete").with_source(e))??;
        }
    }
}

impl Place {
    async fn open(&self) -> Result<Node> {
        let (store, config) = (self.config.store.clone(), self.config.node());
        let opened = Node::builder(&self.repo).store(store).config(config).holder(HOLDER).open().await;
        opened.map_err(|error| match running_url(&self.repo) {
            // The store names the holder. Advising the user to stop that process would not help when a notebook cell
            // runs again.
            _ if error.kind() == ErrorKind::Conflict
                && error.message().contains(&format!("process {} ({HOLDER})", std::process::id())) =>
            {
                let repo = self.repo.display();
                let message = format!("{repo} is already open in this process: use that node, or close it first");
                Error::new(ErrorKind::Conflict, message).with_source(error)
            }
            Ok(Some(url)) if error.kind() == ErrorKind::Conflict => {
                let message =
                    format!("{}; use the daemon that may be running there: ipfrs.Client({url:?})", error.message());
                Error::new(ErrorKind::Conflict, message).with_source(error)
            }
            _ => error,
        })
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Conflict, "the node is closed: open another one")
}

/// Returns `path`, or the directory in `IPFRS_PATH`, or `~/.ipfrs`.
///
/// # Errors
/// Returns an error for a file or an empty path, and if there is no home directory.
pub(crate) fn repo_at(path: Option<PathBuf>) -> Result<PathBuf> {
    let repo = path.map_or_else(default_repo, Ok)?;
    if repo.as_os_str().is_empty() {
        return Err(Error::invalid("the path of the repo is empty: give a directory, or None for the default"));
    }
    if repo.is_file() {
        let message = format!("{} is a file: give the directory of the repo", repo.display());
        return Err(Error::invalid(message));
    }
    Ok(repo)
}

fn default_repo() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("IPFRS_PATH").filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(path));
    }
    let none = || Error::invalid("there is no home directory for the repo: give a path, or set IPFRS_PATH");
    Ok(std::env::home_dir().ok_or_else(none)?.join(".ipfrs"))
}

impl BlockOptions {
    fn format(&self) -> Result<BlockFormat> {
        let (codec, hash) = (codec::parse(&self.codec)?, HashFunction::from_name(&self.mhtype)?);
        Ok(BlockFormat { version: 1, codec, hash, digest_bytes: None })
    }
}

fn parse_all(cids: &[String]) -> Result<Vec<Cid>> {
    cids.iter().map(|cid| parse_cid(cid)).collect()
}

#[async_trait]
impl Backing for Local {
    async fn open(&self) -> Result<()> {
        self.node().await.map(drop)
    }

    async fn close(&self) -> Result<()> {
        let state = Arc::clone(&self.state);
        // Spawned, so that closing completes even if the caller is dropped. A half-closed node would hold the repo.
        let closing = tokio::spawn(async move {
            let mut state = state.write().await;
            match std::mem::replace(&mut *state, State::Closed) {
                State::Open(node) => node.close().await,
                State::New | State::Closed => Ok(()),
            }
        });
        closing.await.map_err(|e| Error::internal("closing did not complete").with_source(e))?
    }

    async fn version(&self) -> Result<String> {
        Ok(env!("CARGO_PKG_VERSION").to_owned())
    }

    async fn stats(&self) -> Result<StoreStats> {
        let node = self.node().await?;
        let stats = node.stats().await?;
        Ok(StoreStats { blocks: stats.blocks, bytes: stats.disk_bytes, repo: node.repo().display().to_string() })
    }

    async fn put(&self, data: Bytes, options: BlockOptions) -> Result<String> {
        let block = PutBlock { data, cid: None, format: options.format()? };
        let node = self.node().await?;
        let (cid, _) =
            node.put_block_with(block, PutBlockOptions { pin: options.pin, ..PutBlockOptions::default() }).await?;
        Ok(cid.to_string())
    }

    async fn put_many(&self, blocks: Vec<Bytes>, options: BlockOptions) -> Result<Vec<String>> {
        let format = options.format()?;
        let node = self.node().await?;
        let (bytes, limit) = (blocks.iter().map(Bytes::len).sum::<usize>(), node.config().batch.max_batch_bytes);
        if bytes > limit {
            let message = format!("a batch of {bytes} bytes is over the limit of {limit} (batch.max_batch_bytes)");
            return Err(Error::too_large(format!("{message}: split it into several batches")));
        }
        let items = blocks.into_iter().map(|data| Ok(BatchItem::Put(PutBlock { data, cid: None, format }))).collect();
        let outcome = node.batch_put(BatchPut { items, mode: PutMode::Atomic }).await?;
        if let Some((index, error)) = outcome.errors.into_iter().next() {
            return Err(Error::new(error.kind(), format!("block {index}: {}", error.message())).with_source(error));
        }
        let cids: Vec<_> = outcome.stored.into_iter().map(|(_, cid, _)| cid).collect();
        if options.pin {
            let paths = cids.iter().map(|cid| ContentPath::new(*cid, Vec::new())).collect::<Result<Vec<_>>>()?;
            node.pin(&paths, &PinOptions::default(), |_| {}).await?;
        }
        Ok(cids.iter().map(Cid::to_string).collect())
    }

    async fn get(&self, cid: String) -> Result<Bytes> {
        let cid = parse_cid(&cid)?;
        self.node().await?.get_block(&cid).await
    }

    async fn get_many(&self, cids: Vec<String>) -> Result<Vec<Option<Bytes>>> {
        let cids = parse_all(&cids)?;
        let node = self.node().await?;
        let mut blocks = Vec::with_capacity(cids.len());
        for batch in cids.chunks(node.config().batch.max_batch_size) {
            let found = node.batch_get(batch.to_vec())?.map(|(_, block)| match block {
                Ok(data) => Ok(Some(data)),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            });
            blocks.append(&mut all_of(found).await?);
        }
        Ok(blocks)
    }

    async fn has_many(&self, cids: Vec<String>) -> Result<Vec<bool>> {
        let cids = parse_all(&cids)?;
        let node = self.node().await?;
        let mut has = Vec::with_capacity(cids.len());
        for batch in cids.chunks(node.config().batch.max_batch_size) {
            if !has.is_empty() {
                breathe().await;
            }
            has.extend(node.batch_has(batch).await?.iter().map(Option::is_some));
        }
        Ok(has)
    }

    async fn size(&self, cid: String) -> Result<u64> {
        let cid = parse_cid(&cid)?;
        self.node().await?.block_size(&cid).await
    }

    async fn remove(&self, cids: Vec<String>, force: bool) -> Result<()> {
        let cids = parse_all(&cids)?;
        for (cid, outcome) in self.node().await?.remove_blocks(&cids, force).await? {
            if let Err(error) = outcome {
                let message = format!("cannot remove {cid}: {}", error.message());
                return Err(Error::new(error.kind(), message).with_source(error));
            }
        }
        Ok(())
    }

    async fn add(&self, content: Pieces, options: AddOptions) -> Result<Added> {
        import::add(&*self.node().await?, content, &options).await
    }

    async fn add_path(&self, path: PathBuf, options: AddOptions, progress: Option<Progress>) -> Result<Added> {
        import::add_path(&*self.node().await?, path, &options, progress).await
    }

    async fn read(&self, path: LinkName, offset: u64, length: Option<u64>) -> Result<Content> {
        files::read(&*self.node().await?, &path, offset, length).await
    }

    async fn list(&self, path: LinkName) -> Result<Vec<Entry>> {
        files::list(&*self.node().await?, &path).await
    }

    async fn stat(&self, path: LinkName) -> Result<Stat> {
        files::stat(&*self.node().await?, &path).await
    }

    async fn resolve(&self, path: LinkName) -> Result<String> {
        Ok(files::object(&*self.node().await?, &path).await?.cid.to_string())
    }

    async fn pin(&self, path: LinkName, recursive: bool, name: Option<String>) -> Result<String> {
        let node = self.node().await?;
        let path = node.content_path(&path).await?;
        let options = PinOptions { recursive, name: name.unwrap_or_default() };
        let cids = node.pin(&[path], &options, |_| {}).await?;
        cids.first().map(Cid::to_string).ok_or_else(|| Error::internal("a pin has no content ID"))
    }

    async fn unpin(&self, path: LinkName, recursive: bool) -> Result<()> {
        let node = self.node().await?;
        let path = node.content_path(&path).await?;
        node.unpin(&[path], recursive).await.map(drop)
    }

    async fn pins(&self) -> Result<Vec<PinEntry>> {
        let node = self.node().await?;
        let own = node.pins(PinFilter::Recursive).chain(node.pins(PinFilter::Direct));
        let entry = |(cid, pinned): (Cid, Pinned)| async move {
            Ok(match pinned {
                Pinned::Itself(PinMode::Recursive, name) => Some(pin_entry(&cid, "recursive", name)),
                Pinned::Itself(PinMode::Direct, name) => Some(pin_entry(&cid, "direct", name)),
                Pinned::Through(_) => None,
            })
        };
        all_of(own.try_filter_map(entry)).await
    }

    async fn export_car(&self, path: LinkName) -> Result<Pieces> {
        let node = self.node().await?;
        let path = node.content_path(&path).await?;
        Ok(files::watched(&node, node.export_dag(path).await?.car))
    }

    async fn import_car(&self, car: Pieces, pin_roots: bool) -> Result<Vec<String>> {
        let node = self.node().await?;
        let mut import = node.import_dags(DagImportOptions { pin_roots, allows_big_blocks: false }).await?;
        import.car(car).await?;
        let roots = import.roots().iter().map(Cid::to_string).collect();
        let imported = import.finish().await?;
        match imported.roots.into_iter().find_map(|(_, error)| error) {
            Some(error) => Err(error),
            None => Ok(roots),
        }
    }

    async fn collect(&self, force: bool) -> Result<(u64, u64)> {
        let collected = self.node().await?.gc(GcOptions { force, ..GcOptions::default() }).await?;
        Ok((collected.removed, collected.removed_bytes))
    }

    async fn tensors(&self, path: LinkName) -> Result<TensorList> {
        files::tensors(&*self.node().await?, &path).await
    }

    async fn tensor(&self, path: LinkName, name: String, slice: String) -> Result<TensorBytes> {
        files::tensor(&*self.node().await?, &path, &name, &slice).await
    }

    async fn tensor_stats(&self, path: LinkName, name: String) -> Result<TensorStats> {
        files::tensor_stats(&*self.node().await?, &path, &name).await
    }
}

fn pin_entry(cid: &Cid, kind: &'static str, name: String) -> PinEntry {
    PinEntry { cid: cid.to_string(), kind, name }
}
