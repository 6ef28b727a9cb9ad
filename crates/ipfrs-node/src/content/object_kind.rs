//! Kinds of objects, with what was decoded of their root blocks.

use std::sync::Arc;

use bytes::Bytes;
use ipfrs_core::Result;
use ipfrs_unixfs::{DirEntry, FileNode, Mtime, Node as UnixFsNode, ShardLink};

use super::node_memory::{DecodedNodes, NodeMemory};
use super::path::ContentPath;

/// Approximate memory of the name of an entry in a shard, in bytes.
const NAME_BYTES: usize = 32;

/// Memory of the links of a file up to which they are not counted, in bytes. Ordinary files have less in one node.
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

/// A UnixFS directory; see [`Node::entries`].
#[derive(Debug, Clone)]
pub struct Directory {
    pub(super) node: Arc<UnixFsNode>,
    /// Counted until the last copy is dropped.
    _memory: Arc<NodeMemory>,
}

impl Directory {
    /// Counts the memory of the directory `node` in `all`.
    ///
    /// # Errors
    /// Those of [`NodeMemory::check`].
    pub(super) fn new(node: UnixFsNode, all: &Arc<DecodedNodes>) -> Result<Self> {
        let memory = NodeMemory::of(memory_of(&node), all)?;
        Ok(Self { node: Arc::new(node), _memory: memory })
    }

    /// Returns the number of entries if the root block contains it. That of a sharded directory does not.
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
    /// Counted until the last copy is dropped; `None` for few links.
    _memory: Option<Arc<NodeMemory>>,
}

impl FileContent {
    /// Counts the memory of the links of `node` in `all`, if it has many.
    ///
    /// # Errors
    /// Those of [`NodeMemory::check`].
    pub(super) fn new(node: FileNode, path: &Arc<ContentPath>, all: &Arc<DecodedNodes>) -> Result<Self> {
        let bytes = node.children.memory_bytes();
        let memory = (bytes > UNCOUNTED_BYTES).then(|| NodeMemory::of(bytes, all)).transpose()?;
        Ok(Self { node: Arc::new(node), path: Arc::clone(path), _memory: memory })
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
