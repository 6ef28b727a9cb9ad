//! A directory of the tree with the cached nodes below it.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use ipfrs_core::{Cid, Error, ErrorKind, Result, codec};
use ipfrs_unixfs::{
    DirectoryEdit, NewLink, Node as UnixFsNode, Sharding, Staging, dag_pb, decode_async, is_without_sizes,
};

use super::cached_nodes::CachedNodes;
use crate::LinkName;

/// A directory. The cached nodes may be newer than its entries for them. Clones share the entries and cached nodes.
#[derive(Debug, Clone)]
pub(super) struct Directory {
    pub(super) edit: DirectoryEdit,
    cached: CachedNodes,
}

/// A cached node.
#[derive(Debug, Clone)]
pub(super) enum Cached {
    Directory(Arc<Directory>),
    File(CachedFile),
}

/// A cached file or symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CachedFile {
    pub(super) link: NewLink,
    /// Whether new leaves are raw. Writes without a flush keep the choice of earlier ones.
    pub(super) raw_leaves: bool,
    pub(super) is_symlink: bool,
}

impl CachedFile {
    pub(super) fn new(link: NewLink) -> Self {
        Self { link, raw_leaves: u64::from(link.cid.version()) > 0, is_symlink: false }
    }
}

impl Directory {
    pub(super) fn new(edit: DirectoryEdit) -> Self {
        Self { edit, cached: CachedNodes::default() }
    }

    /// Returns the node `name` and keeps it in the cache.
    pub(super) async fn child(&mut self, staging: &Staging, name: &LinkName) -> Result<Option<&mut Cached>> {
        if !self.cached.contains(name) {
            let Some(link) = self.edit.find(staging, name).await? else { return Ok(None) };
            let node = load(staging, &link.cid, self.edit.sharding()).await?;
            self.cached.insert(name.clone(), node);
        }
        Ok(self.cached.get_mut(name))
    }

    /// Adds an entry, which must not exist.
    pub(super) async fn add(&mut self, staging: &Staging, name: &LinkName, link: NewLink) -> Result<()> {
        if self.child(staging, name).await?.is_some() {
            return Err(Error::new(ErrorKind::Conflict, "directory already has entry by that name"));
        }
        self.edit.insert(staging, name, link).await
    }

    /// Adds an empty directory, which must not exist.
    pub(super) async fn add_directory(
        &mut self,
        staging: &mut Staging,
        name: &LinkName,
        mut edit: DirectoryEdit,
    ) -> Result<&mut Self> {
        let link = edit.commit(staging)?;
        self.edit.insert(staging, name, link).await?;
        self.cached.insert(name.clone(), Cached::Directory(Arc::new(Self::new(edit))));
        match self.cached.get_mut(name) {
            Some(Cached::Directory(directory)) => Ok(Arc::make_mut(directory)),
            Some(Cached::File(_)) | None => Err(Error::internal("a new directory is a file")),
        }
    }

    /// Removes an entry. Returns whether it existed.
    pub(super) async fn unlink(&mut self, staging: &Staging, name: &LinkName) -> Result<bool> {
        let existed = self.edit.remove(staging, name).await?;
        // Not before: a cached node may be newer than its entry, which stays if its removal fails.
        self.cached.remove(name);
        Ok(existed)
    }

    /// Updates the entry of a node, and returns a link to the directory. Other cached nodes are left out.
    pub(super) async fn update(&mut self, staging: &mut Staging, name: &LinkName, link: NewLink) -> Result<NewLink> {
        self.edit.insert(staging, name, link).await?;
        self.edit.commit(staging)
    }

    /// Updates the entries of all cached nodes, and returns a link to the directory. With `clears_cache`, the nodes
    /// are removed from the cache.
    pub(super) fn fold<'a>(
        &'a mut self,
        staging: &'a mut Staging,
        clears_cache: bool,
    ) -> BoxFuture<'a, Result<NewLink>> {
        async move {
            let Self { edit, cached } = self;
            for (name, node) in cached.all_mut() {
                let link = match node {
                    Cached::Directory(directory) => Arc::make_mut(directory).fold(staging, false).await?,
                    Cached::File(file) => file.link,
                };
                edit.insert(staging, name, link).await?;
            }
            if clears_cache {
                *cached = CachedNodes::default();
            }
            edit.commit(staging)
        }
        .boxed()
    }

    /// Returns the number of cached nodes at all depths.
    pub(super) fn cached_nodes(&self) -> usize {
        self.cached.count()
    }
}

/// Loads a node of the tree.
async fn load(staging: &Staging, cid: &Cid, sharding: Sharding) -> Result<Cached> {
    if !matches!(cid.codec(), codec::RAW | codec::DAG_PB) {
        return Err(Error::unsupported("unrecognized node type in cache node"));
    }
    let block = staging.load(cid).await?;
    let file = CachedFile::new(link_of(cid, &block)?);
    Ok(match decode_async(*cid, block.clone()).await {
        Err(error) if is_without_sizes(&error) => Cached::File(file),
        decoded => match decoded? {
            UnixFsNode::Directory { .. } | UnixFsNode::HamtShard(_) => {
                Cached::Directory(Arc::new(Directory::new(DirectoryEdit::decode(cid, &block, sharding)?)))
            }
            UnixFsNode::File(_) => Cached::File(file),
            UnixFsNode::Symlink { .. } => Cached::File(CachedFile { is_symlink: true, ..file }),
        },
    })
}

/// Returns a link to a node, with the size of the blocks below it as its block declares it.
pub(super) fn link_of(cid: &Cid, block: &Bytes) -> Result<NewLink> {
    let below = if cid.codec() == codec::DAG_PB { dag_pb::totals(block)?.1 } else { 0 };
    Ok(NewLink { cid: *cid, tsize: below.saturating_add(block.len() as u64) })
}
