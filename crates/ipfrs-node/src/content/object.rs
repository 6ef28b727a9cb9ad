//! Objects that content paths lead to: files, directories, symlinks and other blocks.

use std::sync::Arc;

use bytes::Bytes;
use ipfrs_core::{Cid, Error, ErrorKind, Result};
use ipfrs_unixfs::{FileNode, Node as UnixFsNode, decode_async};

use super::path::ContentPath;
use super::resolved_path::ResolvedPath;

/// Target of a content path.
#[derive(Debug, Clone)]
pub struct Object {
    /// The content ID of the target.
    pub cid: Cid,
    /// The path that led to it.
    pub resolved: Arc<ResolvedPath>,
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
        match self.resolved.remainder.as_slice() {
            [] => Ok(self),
            within => Err(Error::unsupported(format!(
                "{} resolves to {:?} within block {}: request the block, or use dag/get",
                self.resolved.path,
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
        Error::new(kind, format!("{}: {reason}; {remedy}", self.resolved.path))
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
pub struct FileContent {
    pub(crate) node: Arc<FileNode>,
    /// The path that led to the file, from which missing blocks are retrieved.
    pub(crate) path: Arc<ContentPath>,
}

impl FileContent {
    /// Returns the size of the file in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.node.size
    }

    /// Returns the whole content if it is stored in the root block.
    #[must_use]
    pub fn inline(&self) -> Option<Bytes> {
        self.node.children.is_empty().then(|| self.node.inline.clone())
    }
}
