//! What the root block of a file or directory says of it.

use ipfrs_core::{Error, Result, codec};
use ipfrs_unixfs::{Attributes, Node as UnixFsNode, dag_pb, decode};
use tokio::task::spawn_blocking;

use crate::{ListedKind, Node, Object, ObjectKind};

/// What is known of a file, directory or symlink from its root block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectInfo {
    /// What it is; never [`ListedKind::Unknown`].
    pub kind: ListedKind,
    /// Bytes of a file; of others 0.
    pub size: u64,
    /// Bytes of all of its blocks, as the root block claims.
    pub dag_size: u64,
    /// Links of the root block.
    pub links: usize,
    /// Permissions and time, where they were kept.
    pub attributes: Attributes,
}

impl Node {
    /// What the root block of an object says of it.
    ///
    /// # Errors
    /// As [`Object::not_unixfs`] for what is neither a file nor a directory nor a symlink.
    pub async fn object_info(&self, object: &Object) -> Result<ObjectInfo> {
        let block = object.block.clone();
        let in_block = block.len() as u64;
        match &object.kind {
            ObjectKind::Other => return Err(object.not_unixfs("ask for its block, or as a DAG").await),
            ObjectKind::File(file) if object.cid.codec() == codec::RAW => {
                let (kind, attributes) = (ListedKind::File, Attributes::default());
                return Ok(ObjectInfo { kind, size: file.size(), dag_size: in_block, links: 0, attributes });
            }
            ObjectKind::File(_) | ObjectKind::Directory(_) | ObjectKind::Symlink(_) => {}
        }
        let cid = object.cid;
        // Two times a block of some megabytes with thousands of links: too much for a runtime worker.
        let described = spawn_blocking(move || {
            let (node, links) = (decode(&cid, &block)?, dag_pb::decode(&block)?.links);
            let (kind, size) = match &node {
                UnixFsNode::File(file) => (ListedKind::File, file.size),
                UnixFsNode::Directory { .. } | UnixFsNode::HamtShard(_) => (ListedKind::Directory, 0),
                UnixFsNode::Symlink { .. } => (ListedKind::Symlink, 0),
            };
            let dag_size = links.iter().fold(in_block, |sum, link| sum.saturating_add(link.tsize));
            Ok(ObjectInfo { kind, size, dag_size, links: links.len(), attributes: node.attributes() })
        });
        described.await.map_err(|e| Error::internal(format!("decoding block {cid} failed")).with_source(e))?
    }
}
