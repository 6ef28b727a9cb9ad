//! Information that the root block of a file or directory contains about it.

use ipfrs_core::{Error, Result, codec};
use ipfrs_unixfs::{Attributes, dag_pb, decode};
use tokio::task::spawn_blocking;

use crate::{ListedKind, Node, Object, ObjectKind};

/// Information about a file, directory or symlink from its root block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Kind of the object; never [`ListedKind::Unknown`].
    pub kind: ListedKind,
    /// Size of a file in bytes; 0 for other kinds.
    pub size: u64,
    /// Bytes of all blocks of the object, as the root block claims.
    pub dag_size: u64,
    /// Number of links in the root block.
    pub links: usize,
    /// Mode and modification time, if they are stored.
    pub attributes: Attributes,
}

impl Node {
    /// Returns the information that the root block of an object contains.
    ///
    /// # Errors
    /// As [`Object::not_unixfs`] if the object is not a file, a directory or a symlink.
    pub async fn object_info(&self, object: &Object) -> Result<ObjectInfo> {
        let block = object.block.clone();
        let in_block = block.len() as u64;
        let decoded = match &object.kind {
            ObjectKind::Other => return Err(object.not_unixfs("request its block, or use the DAG service").await),
            ObjectKind::File(file) if object.cid.codec() == codec::RAW => {
                let (kind, attributes) = (ListedKind::File, Attributes::default());
                return Ok(ObjectInfo { kind, size: file.size(), dag_size: in_block, links: 0, attributes });
            }
            ObjectKind::File(file) => Some((ListedKind::File, file.size(), file.node.attributes)),
            ObjectKind::Directory(directory) => Some((ListedKind::Directory, 0, directory.node.attributes())),
            ObjectKind::Symlink(_) => None,
        };
        let cid = object.cid;
        // The block may have some megabytes with thousands of links, which is too much for a runtime worker.
        let described = spawn_blocking(move || {
            let (kind, size, attributes) = match decoded {
                Some(decoded) => decoded,
                None => (ListedKind::Symlink, 0, decode(&cid, &block)?.attributes()),
            };
            let (links, below) = dag_pb::totals(&block)?;
            Ok(ObjectInfo { kind, size, dag_size: in_block.saturating_add(below), links, attributes })
        });
        described.await.map_err(|e| Error::internal(format!("decoding block {cid} failed")).with_source(e))?
    }
}
