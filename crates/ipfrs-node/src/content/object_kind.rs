//! Kinds of objects, with what was decoded of their root blocks.

use std::sync::Arc;

use bytes::Bytes;
use ipfrs_unixfs::{DirEntry, FileNode, Mtime, Node as UnixFsNode, ShardLink};

use super::node_memory::NodeMemory;
use super::path::ContentPath;

/// Approximate memory of the name of an entry in a shard, in bytes.
const NAME_BYTES: usize = 32;

/// Memory of a node up to which it is not counted, in bytes. Ordinary files have fewer links in one node.
const UNCOUNTED_BYTES: usize = 64 * 1024;

/// Kinds of [`Object`](super::Object). Cheap to clone.
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

impl ObjectKind {
    /// Returns the memory of the decoded node that counts while requests hold it, in bytes; 0 for a small node.
    pub(super) fn counted_bytes(&self) -> usize {
        let bytes = match self {
            Self::File(file) => file.node.children.memory_bytes(),
            Self::Directory(directory) => memory_of(&directory.node),
            Self::Symlink(_) | Self::Other => 0,
        };
        if bytes > UNCOUNTED_BYTES { bytes } else { 0 }
    }

    /// Returns a copy that holds `memory`.
    pub(super) fn with_memory(&self, memory: Arc<NodeMemory>) -> Self {
        match self.clone() {
            Self::File(file) => Self::File(FileContent { _memory: Some(memory), ..file }),
            Self::Directory(directory) => Self::Directory(Directory { _memory: Some(memory), ..directory }),
            other => other,
        }
    }
}

/// A UnixFS directory; see [`Node::entries`].
#[derive(Debug, Clone)]
pub struct Directory {
    pub(super) node: Arc<UnixFsNode>,
    /// Counted until the last copy is dropped; `None` for a small directory, and in caches.
    _memory: Option<Arc<NodeMemory>>,
}

impl Directory {
    /// Creates a directory whose memory is not counted.
    pub(super) fn new(node: UnixFsNode) -> Self {
        Self { node: Arc::new(node), _memory: None }
    }

    /// Returns the number of entries. `None` for a sharded directory, whose root block does not contain it.
    #[must_use]
    pub fn count(&self) -> Option<usize> {
        match &*self.node {
            UnixFsNode::Directory { entries, .. } => Some(entries.len()),
            UnixFsNode::HamtShard(_) | UnixFsNode::File(_) | UnixFsNode::Symlink { .. } => None,
        }
    }
}

/// Returns the approximate memory of a decoded directory, in bytes.
pub(super) fn memory_of(node: &UnixFsNode) -> usize {
    match node {
        UnixFsNode::Directory { entries, .. } => {
            entries.iter().map(|entry| size_of::<DirEntry>() + entry.name.len()).sum()
        }
        UnixFsNode::HamtShard(shard) => shard.slots().len() * (size_of::<ShardLink>() + NAME_BYTES),
        UnixFsNode::File(_) | UnixFsNode::Symlink { .. } => 0,
    }
}

/// Content of a file: its size and the location of its bytes.
#[derive(Debug, Clone)]
pub struct FileContent {
    pub(crate) node: Arc<FileNode>,
    /// The path that led to the file, from which missing blocks are retrieved.
    pub(crate) path: Arc<ContentPath>,
    /// Counted until the last copy is dropped; `None` for few links, and in caches.
    _memory: Option<Arc<NodeMemory>>,
}

impl FileContent {
    /// Creates a file whose memory is not counted.
    pub(super) fn new(node: FileNode, path: &Arc<ContentPath>) -> Self {
        Self { node: Arc::new(node), path: Arc::clone(path), _memory: None }
    }

    /// Returns the size of the file in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.node.size
    }

    /// Returns the time of the last change, if the file has one.
    #[must_use]
    pub fn mtime(&self) -> Option<Mtime> {
        self.node.attributes.mtime
    }

    /// Returns the whole content if it is stored in the root block.
    #[must_use]
    pub fn inline(&self) -> Option<Bytes> {
        self.node.children.is_empty().then(|| self.node.inline.clone())
    }
}
