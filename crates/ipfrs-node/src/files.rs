//! Files and directories: resolves paths to objects, and reads objects as bytes or entries. [`crate::listing`] adds
//! the targets of entries.

use std::any::Any;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use ipfrs_core::{Cid, Error, ErrorKind, Result, identity_payload};
use ipfrs_store::{BlockStore, BlockStoreExt, EpochCache};
use ipfrs_stream::{BlockStoreSource, DagReader, Span};
use ipfrs_unixfs::{
    BlockSource, DirEntry, FileNode, LinkName, Node as UnixFsNode, Resolved, ShardLink, decode_async, roots_before,
};
use quick_cache::Weighter;

use crate::metrics::{Active, Metrics};
use crate::{CacheConfig, ContentPath, Node};

/// Target of a content path.
#[derive(Debug, Clone)]
pub struct Object {
    /// The content ID of the target.
    pub cid: Cid,
    /// Metadata of the path, shared by all requests for it.
    pub facts: Arc<PathFacts>,
    /// The root block of the target.
    pub block: Bytes,
    /// Kind of the target.
    pub kind: ObjectKind,
}

impl Object {
    /// Returns this object if it is a whole block or file.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) when the path leads to a value inside a block.
    pub fn whole(self) -> Result<Self> {
        match self.facts.remainder.as_slice() {
            [] => Ok(self),
            within => Err(Error::unsupported(format!(
                "{} leads to {:?} within block {}: ask for the block, or use dag/get",
                self.facts.path,
                within.join("/"),
                self.cid
            ))),
        }
    }

    /// Returns the error for a caller that needs a file or a directory when this object is [`ObjectKind::Other`]. It
    /// says what the block is instead or why it cannot be decoded. `remedy` tells the client what to request.
    pub async fn not_unixfs(&self, remedy: &str) -> Error {
        let (kind, reason) = match decode_async(self.cid, self.block.clone()).await {
            Ok(_) => (ErrorKind::Unsupported, format!("block {} is neither a file nor a directory", self.cid)),
            Err(reason) => (reason.kind(), reason.to_string()),
        };
        Error::new(kind, format!("{}: {reason}; {remedy}", self.facts.path))
    }
}

/// Metadata that a front-end derives from a path. It is cached between requests, because computing it costs more than
/// sending a small file.
#[derive(Debug)]
pub struct PathFacts {
    /// The content ID of the target as text.
    pub cid: String,
    /// Content IDs of all steps as text, root first and target last, separated by commas.
    pub roots: String,
    /// Segments that lead to a value inside the target's block (dag-cbor or dag-json); otherwise empty.
    pub remainder: Vec<String>,
    /// Content type, once a front-end has determined it.
    pub content_type: OnceLock<String>,
    /// Other data that a front-end derived from the path, up to a few kilobytes.
    pub front_end: OnceLock<Box<dyn Any + Send + Sync>>,
    /// The content path.
    pub path: Arc<ContentPath>,
    /// [`Node::removals`] before anything was read.
    removals: u64,
    /// [`Node::faults`] before anything was read.
    faults: u64,
    /// Generation of the denylists before anything was read.
    rules: u64,
    target: Cid,
    /// Decoded root block. Decoding a root with a thousand links costs more than sending a small range of the file.
    kind: ObjectKind,
}

/// State of a node before a read.
#[derive(Debug, Clone, Copy)]
struct Seen {
    removals: u64,
    faults: u64,
    rules: u64,
}

impl PathFacts {
    fn new(path: Arc<ContentPath>, resolved: Resolved, kind: ObjectKind, seen: Seen) -> Self {
        let cid = resolved.cid.to_string();
        let roots = match resolved.roots.as_slice() {
            [one] if *one == resolved.cid => cid.clone(),
            many => many.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        };
        let (target, remainder) = (resolved.cid, resolved.remainder);
        let Seen { removals, faults, rules } = seen;
        let (content_type, front_end) = (OnceLock::new(), OnceLock::new());
        Self { cid, roots, remainder, content_type, front_end, path, removals, faults, rules, target, kind }
    }
}

/// Kinds of [`Object`]. Cheap to clone.
#[derive(Debug, Clone)]
pub enum ObjectKind {
    /// A UnixFS file, or a raw block.
    File(FileContent),
    /// A UnixFS directory, basic or sharded.
    Directory(Directory),
    /// A UnixFS symlink: its target as stored.
    Symlink(Bytes),
    /// A block whose codec has no UnixFS interpretation.
    Other,
}

/// A UnixFS directory; see [`Node::entries`].
#[derive(Debug, Clone)]
pub struct Directory(pub(crate) Arc<UnixFsNode>);

impl Directory {
    /// Returns the number of entries if the root block contains it. That of a sharded directory does not.
    #[must_use]
    pub fn count(&self) -> Option<usize> {
        match &*self.0 {
            UnixFsNode::Directory { entries, .. } => Some(entries.len()),
            UnixFsNode::HamtShard(_) | UnixFsNode::File(_) | UnixFsNode::Symlink { .. } => None,
        }
    }
}

/// Content of a file: its size and the location of its bytes.
#[derive(Debug, Clone)]
pub struct FileContent(pub(crate) Arc<FileNode>);

impl FileContent {
    /// Returns the size of the file in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// Returns the whole content if it is stored in the root block.
    #[must_use]
    pub fn inline(&self) -> Option<Bytes> {
        self.0.children.is_empty().then(|| self.0.inline.clone())
    }
}

impl Node {
    /// Resolves a path to its object.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) names the missing block or link;
    /// [`ErrorKind::Gone`](ipfrs_core::ErrorKind) and [`ErrorKind::LegalReasons`](ipfrs_core::ErrorKind) name the
    /// path or block that a denylist blocks; otherwise as `ipfrs_unixfs::resolve`.
    pub async fn resolve(&self, path: impl Into<Arc<ContentPath>>) -> Result<Object> {
        self.resolve_in(&BlockStoreSource(self.inner.served.clone()), path.into()).await
    }

    /// Like [`Self::resolve`], but reads the blocks of the store through `source`.
    pub(crate) async fn resolve_in(&self, source: &dyn BlockSource, path: Arc<ContentPath>) -> Result<Object> {
        let rules = self.check_path(&path)?;
        // Taken before anything is read, so that results from removed bytes are not cached.
        let seen = Seen { removals: self.removals(), faults: self.faults(), rules };
        let resolved = ipfrs_unixfs::resolve(source, path.root(), path.segments()).await;
        let roots = match &resolved {
            Ok(resolved) => resolved.roots.as_slice(),
            Err(error) => roots_before(error).unwrap_or_default(),
        };
        // Identity blocks are read without the store, so they are checked here.
        let mut inline = roots.iter().filter(|cid| identity_payload(cid).is_some());
        inline.try_for_each(|cid| self.check_block(cid))?;
        let mut resolved = resolved.inspect_err(|error| self.inner.metrics.refusals.note(error))?;
        let (cid, block) = (resolved.cid, resolved.data.clone());
        let kind = kind(resolved.node.take());
        let facts = Arc::new(PathFacts::new(path, resolved, kind.clone(), seen));
        Ok(Object { cid, facts, block, kind })
    }

    /// Returns the path cache entry that was [stored](Self::remember) under `text`, if it is still valid.
    #[must_use]
    pub fn known(&self, text: &str) -> Option<Arc<PathFacts>> {
        let metrics = &self.inner.metrics;
        let now = (self.removals(), self.faults(), self.denylist_generation());
        let found = self.inner.paths.as_ref()?.get(text);
        let found = found.filter(|facts| (facts.removals, facts.faults, facts.rules) == now);
        if found.is_some() {
            metrics.path_hits.inc()
        } else {
            metrics.path_misses.inc()
        }
        found
    }

    /// Stores a path cache entry under `text`. Paths are immutable, so an entry becomes stale only if bytes of a
    /// stored file were missing when it was read.
    pub fn remember(&self, text: &str, facts: &Arc<PathFacts>) {
        if let Some(paths) = &self.inner.paths {
            paths.insert(text.to_owned(), facts.clone(), facts.removals);
        }
    }

    /// Returns the object of a path cache entry without resolving the path again. Its block is read from the store,
    /// so a deleted block is never served from the cache.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) names the missing block.
    pub async fn revisit(&self, facts: Arc<PathFacts>) -> Result<Object> {
        let block = self.inner.served.require(&facts.target).await?;
        Ok(Object { cid: facts.target, kind: facts.kind.clone(), facts, block })
    }

    /// Returns the file that a path cache entry leads to, without reading the store. This works only for a file whose
    /// bytes are all below its root, and only while no block has been removed since the root was read.
    #[must_use]
    pub fn known_file(&self, facts: &PathFacts) -> Option<FileContent> {
        match &facts.kind {
            ObjectKind::File(file) if facts.remainder.is_empty() && facts.removals == self.removals() => {
                let is_below = file.0.inline.is_empty() && !file.0.children.is_empty();
                is_below.then(|| file.clone())
            }
            _ => None,
        }
    }

    /// Returns a stream of the bytes of a span of a file. It reads only the blocks that the span touches, a bounded
    /// distance ahead of the consumer. Dropping the stream stops the reads.
    pub fn read(&self, file: &FileContent, span: Span) -> impl Stream<Item = Result<Bytes>> + Send + Unpin + use<> {
        self.metered(self.reader(file, span))
    }

    /// Returns a reader of a span of a file that does not count as a download.
    pub(crate) fn reader(&self, file: &FileContent, span: Span) -> DagReader {
        DagReader::new(self.inner.served.clone(), &file.0, span, &self.inner.config.streaming)
            .with_nodes(self.inner.nodes.clone())
    }

    /// Wraps a reader so that it updates the streaming metrics.
    pub(crate) fn metered<S>(&self, reader: S) -> MeteredStream<S> {
        let metrics = self.inner.metrics.clone();
        let active = Active::begin(&metrics.downloads_active);
        MeteredStream { reader, metrics, _active: active }
    }

    /// Returns the first piece of a span of a file, for inspection. It does not count as a download.
    ///
    /// # Errors
    /// As the stream of [`Self::read`].
    pub async fn peek(&self, file: &FileContent, span: Span) -> Result<Bytes> {
        self.reader(file, span).next().await.unwrap_or_else(|| Ok(Bytes::new()))
    }

    /// Checks that a span of a file can be read, which counts as no download.
    ///
    /// # Errors
    /// As the stream of [`Self::read`].
    pub async fn check_beginning(&self, file: &FileContent, span: Span) -> Result<()> {
        let mut pieces = self.reader(file, span);
        while let Some(piece) = pieces.next().await {
            piece?;
        }
        Ok(())
    }

    /// Counts bytes of a file that were sent without a stream.
    pub fn count_download(&self, bytes: usize) {
        self.inner.metrics.download_bytes.inc_by(bytes as u64);
    }

    /// Returns the entries of a directory in stored order, as a stream with bounded memory.
    #[must_use]
    pub fn entries(&self, directory: &Directory) -> BoxStream<'static, Result<DirEntry>> {
        let source = Arc::new(BlockStoreSource(self.inner.served.clone()));
        ipfrs_unixfs::entries(source, directory.0.clone())
    }
}

fn kind(node: Option<UnixFsNode>) -> ObjectKind {
    match node {
        Some(UnixFsNode::File(file)) => ObjectKind::File(FileContent(Arc::new(file))),
        Some(node @ (UnixFsNode::Directory { .. } | UnixFsNode::HamtShard(_))) => {
            ObjectKind::Directory(Directory(Arc::new(node)))
        }
        Some(UnixFsNode::Symlink { target, .. }) => ObjectKind::Symlink(target),
        None => ObjectKind::Other,
    }
}

/// Stream of the bytes of a file that updates the streaming metrics.
pub(crate) struct MeteredStream<S> {
    reader: S,
    metrics: Arc<Metrics>,
    _active: Active,
}

impl<S: Stream<Item = Result<Bytes>> + Unpin> Stream for MeteredStream<S> {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.reader.poll_next_unpin(cx);
        match &polled {
            Poll::Ready(Some(Ok(piece))) => {
                self.metrics.download_bytes.inc_by(piece.len() as u64);
                #[expect(clippy::cast_precision_loss, reason = "pieces are at most 2 MiB")]
                self.metrics.chunk_size.observe(piece.len() as f64);
            }
            Poll::Ready(Some(Err(error))) => self.metrics.refusals.note(error),
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }
}

/// Path cache, keyed by the text of the path.
pub(crate) type PathCache = EpochCache<String, Arc<PathFacts>, ByBytes>;

/// Creates an empty path cache for paths that are read from `store`.
pub(crate) fn path_cache(store: Arc<dyn BlockStore>, config: &CacheConfig) -> Arc<PathCache> {
    EpochCache::new(store, config.max_entries, config.max_bytes, ByBytes)
}

/// Weigher that returns the memory of a path cache entry in bytes.
#[derive(Debug, Clone)]
pub(crate) struct ByBytes;

/// Bytes reserved for the content type, which is determined later, and for the front-end's data.
const FOUND_LATER_BYTES: usize = 512;

/// Further bytes that a front-end stores for a large file: the head of its responses.
const HEAD_BYTES: usize = 2_048;

/// Approximate memory of the name of an entry in a shard, in bytes.
const NAME_BYTES: usize = 32;

impl Weighter<String, Arc<PathFacts>> for ByBytes {
    fn weight(&self, text: &String, facts: &Arc<PathFacts>) -> u64 {
        let names = facts.path.segments().iter().map(LinkName::len).chain(facts.remainder.iter().map(String::len));
        let names: usize = names.map(|len| len + size_of::<String>()).sum();
        // Headers repeat the path and list the roots again.
        let texts = 3 * text.len() + facts.cid.len() + 2 * facts.roots.len() + FOUND_LATER_BYTES;
        let links = match &facts.kind {
            ObjectKind::File(file) if file.0.children.is_empty() => 0,
            ObjectKind::File(file) => HEAD_BYTES + file.0.children.len() * size_of::<ipfrs_unixfs::Child>(),
            ObjectKind::Directory(directory) => match directory.0.as_ref() {
                UnixFsNode::Directory { entries, .. } => {
                    entries.iter().map(|entry| size_of::<DirEntry>() + entry.name.len()).sum()
                }
                UnixFsNode::HamtShard(shard) => shard.slots().len() * (size_of::<ShardLink>() + NAME_BYTES),
                UnixFsNode::File(_) | UnixFsNode::Symlink { .. } => 0,
            },
            ObjectKind::Symlink(_) | ObjectKind::Other => 0,
        };
        (size_of::<String>() + size_of::<ContentPath>() + size_of::<PathFacts>() + names + texts + links) as u64
    }
}
