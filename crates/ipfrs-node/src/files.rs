//! Files and directories: paths to objects, objects to bytes and entries. [`crate::listing`] says what entries point to.

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
    BlockSource, DirEntry, FileNode, LinkName, Node as UnixFsNode, Resolved, Slot, decode_async, roots_before,
};
use quick_cache::Weighter;

use crate::metrics::{Active, Metrics};
use crate::{CacheConfig, ContentPath, Node};

/// What a content path leads to.
#[derive(Debug, Clone)]
pub struct Object {
    /// The content ID of the target.
    pub cid: Cid,
    /// What is known of the path, shared with everybody who asks for it.
    pub facts: Arc<PathFacts>,
    /// The root block of the target.
    pub block: Bytes,
    /// What it is.
    pub kind: ObjectKind,
}

impl Object {
    /// This object, for whoever wants a whole block or file.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) when the path leads to something within a block.
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

    /// The error of whoever needs a file or a directory where this is [`ObjectKind::Other`]: what the block is instead, or
    /// what is wrong with it. `remedy` says what to ask for.
    pub async fn not_unixfs(&self, remedy: &str) -> Error {
        let (kind, reason) = match decode_async(self.cid, self.block.clone()).await {
            Ok(_) => (ErrorKind::Unsupported, format!("block {} is neither a file nor a directory", self.cid)),
            Err(reason) => (reason.kind(), reason.to_string()),
        };
        Error::new(kind, format!("{}: {reason}; {remedy}", self.facts.path))
    }
}

/// What a front-end shows of a path, kept between requests because it costs more to make than a small file to send.
#[derive(Debug)]
pub struct PathFacts {
    /// The content ID of the target as text.
    pub cid: String,
    /// The content ID of each step as text, root first, target last, separated by commas.
    pub roots: String,
    /// The segments that lead to something within the target's block, of dag-cbor or dag-json; else none.
    pub remainder: Vec<String>,
    /// The content type, once a front-end has found it out.
    pub content_type: OnceLock<String>,
    /// What else a front-end has made of the path, up to some kilobytes.
    pub front_end: OnceLock<Box<dyn Any + Send + Sync>>,
    /// The path itself.
    pub path: Arc<ContentPath>,
    /// [`Node::removals`] before anything of this was read.
    removals: u64,
    /// [`Node::faults`] before that.
    faults: u64,
    /// Which denylists were in force before that.
    rules: u64,
    target: Cid,
    /// The decoded root block: a root of a thousand links costs more to decode than a small range of it to send.
    kind: ObjectKind,
}

/// The state of a node before something was read.
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
    /// A block of a codec that has no UnixFS reading.
    Other,
}

/// A UnixFS directory; see [`Node::entries`].
#[derive(Debug, Clone)]
pub struct Directory(pub(crate) Arc<UnixFsNode>);

impl Directory {
    /// How many entries there are, where its root block says so: that of a sharded directory does not.
    #[must_use]
    pub fn count(&self) -> Option<usize> {
        match &*self.0 {
            UnixFsNode::Directory { entries, .. } => Some(entries.len()),
            UnixFsNode::HamtShard(_) | UnixFsNode::File(_) | UnixFsNode::Symlink { .. } => None,
        }
    }
}

/// The content of a file: its size, and where its bytes are.
#[derive(Debug, Clone)]
pub struct FileContent(pub(crate) Arc<FileNode>);

impl FileContent {
    /// Bytes of the file.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// The whole content, where it lies in the root block.
    #[must_use]
    pub fn inline(&self) -> Option<Bytes> {
        self.0.children.is_empty().then(|| self.0.inline.clone())
    }
}

impl Node {
    /// Follows a path to its object.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) names the missing block or link;
    /// [`ErrorKind::Gone`](ipfrs_core::ErrorKind) and [`ErrorKind::LegalReasons`](ipfrs_core::ErrorKind) the path or the block
    /// that a denylist blocks; others as `ipfrs_unixfs::resolve`.
    pub async fn resolve(&self, path: impl Into<Arc<ContentPath>>) -> Result<Object> {
        self.resolve_in(&BlockStoreSource(self.inner.served.clone()), path.into()).await
    }

    /// As [`Self::resolve`], with the blocks of `source`, which are those of the store.
    pub(crate) async fn resolve_in(&self, source: &dyn BlockSource, path: Arc<ContentPath>) -> Result<Object> {
        let rules = self.check_path(&path)?;
        // Before anything is read: what is made of bytes that are gone must not be remembered.
        let seen = Seen { removals: self.removals(), faults: self.faults(), rules };
        let resolved = ipfrs_unixfs::resolve(source, path.root(), path.segments()).await;
        let roots = match &resolved {
            Ok(resolved) => resolved.roots.as_slice(),
            Err(error) => roots_before(error).unwrap_or_default(),
        };
        // These are read without the store.
        let mut inline = roots.iter().filter(|cid| identity_payload(cid).is_some());
        inline.try_for_each(|cid| self.check_block(cid))?;
        let mut resolved = resolved.inspect_err(|error| self.inner.metrics.refusals.note(error))?;
        let (cid, block) = (resolved.cid, resolved.data.clone());
        let kind = kind(resolved.node.take());
        let facts = Arc::new(PathFacts::new(path, resolved, kind.clone(), seen));
        Ok(Object { cid, facts, block, kind })
    }

    /// What is known of a path that was [remembered](Self::remember) under `text`.
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

    /// Remembers where a path led, under the text that stands for it. Paths are immutable: nothing goes stale, unless bytes
    /// of a stored file were gone when it was read.
    pub fn remember(&self, text: &str, facts: &Arc<PathFacts>) {
        if let Some(paths) = &self.inner.paths {
            paths.insert(text.to_owned(), facts.clone(), facts.removals);
        }
    }

    /// The object of a known path, without following the path again. Its block is asked of the store, so that one that
    /// was deleted is never served from what is remembered.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) names the missing block.
    pub async fn revisit(&self, facts: Arc<PathFacts>) -> Result<Object> {
        let block = self.inner.served.require(&facts.target).await?;
        Ok(Object { cid: facts.target, kind: facts.kind.clone(), facts, block })
    }

    /// The file that a known path leads to, without a look at the store: one whose bytes are all below its root, as long as no
    /// block has gone away since the root was read.
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

    /// The bytes of a span of a file. Only the blocks that it touches are read, a bounded way ahead of the consumer;
    /// dropping the stream stops the reading.
    pub fn read(&self, file: &FileContent, span: Span) -> impl Stream<Item = Result<Bytes>> + Send + Unpin + use<> {
        self.metered(self.reader(file, span))
    }

    /// A span of a file, of which nothing counts as a download.
    pub(crate) fn reader(&self, file: &FileContent, span: Span) -> DagReader {
        DagReader::new(self.inner.served.clone(), &file.0, span, &self.inner.config.streaming)
            .with_nodes(self.inner.nodes.clone())
    }

    /// Keeps the streaming metrics of what goes out.
    pub(crate) fn metered<S>(&self, reader: S) -> MeteredStream<S> {
        let metrics = self.inner.metrics.clone();
        let active = Active::begin(&metrics.downloads_active);
        MeteredStream { reader, metrics, _active: active }
    }

    /// The first piece of a span of a file, for a look at it: nothing of it counts as a download.
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

    /// Counts bytes of a file that were given out without a stream.
    pub fn count_download(&self, bytes: usize) {
        self.inner.metrics.download_bytes.inc_by(bytes as u64);
    }

    /// The entries of a directory, as a stream with bounded memory, in stored order.
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

/// A stream of what goes out of a file, that keeps the streaming metrics.
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

/// Where paths led before, by the text that stood for them.
pub(crate) type PathCache = EpochCache<String, Arc<PathFacts>, ByBytes>;

/// Returns an empty cache of paths, over the store that they are read from.
pub(crate) fn path_cache(store: Arc<dyn BlockStore>, config: &CacheConfig) -> Arc<PathCache> {
    EpochCache::new(store, config.max_entries, config.max_bytes, ByBytes)
}

/// Weighs what is known of a path by its bytes in memory.
#[derive(Debug, Clone)]
pub(crate) struct ByBytes;

/// Room for a content type that is found out later, and what a front-end keeps.
const FOUND_LATER_BYTES: usize = 512;

/// What a front-end keeps beyond that for a large file: the head of its answers.
const HEAD_BYTES: usize = 2_048;

/// What the name of a sharded entry takes, about.
const NAME_BYTES: usize = 32;

impl Weighter<String, Arc<PathFacts>> for ByBytes {
    fn weight(&self, text: &String, facts: &Arc<PathFacts>) -> u64 {
        let names = facts.path.segments().iter().map(LinkName::len).chain(facts.remainder.iter().map(String::len));
        let names: usize = names.map(|len| len + size_of::<String>()).sum();
        // Headers repeat the path, and list the roots again.
        let texts = 3 * text.len() + facts.cid.len() + 2 * facts.roots.len() + FOUND_LATER_BYTES;
        let links = match &facts.kind {
            ObjectKind::File(file) if file.0.children.is_empty() => 0,
            ObjectKind::File(file) => HEAD_BYTES + file.0.children.len() * size_of::<ipfrs_unixfs::Child>(),
            ObjectKind::Directory(directory) => match directory.0.as_ref() {
                UnixFsNode::Directory { entries, .. } => {
                    entries.iter().map(|entry| size_of::<DirEntry>() + entry.name.len()).sum()
                }
                UnixFsNode::HamtShard(shard) => shard.slots().len() * (size_of::<Slot>() + NAME_BYTES),
                UnixFsNode::File(_) | UnixFsNode::Symlink { .. } => 0,
            },
            ObjectKind::Symlink(_) | ObjectKind::Other => 0,
        };
        (size_of::<String>() + size_of::<ContentPath>() + size_of::<PathFacts>() + names + texts + links) as u64
    }
}
