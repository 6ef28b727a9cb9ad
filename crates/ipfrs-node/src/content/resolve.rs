//! Resolution of content paths to objects.

use std::sync::Arc;

use ipfrs_core::{Cid, Result, identity_payload};
use ipfrs_store::{BlockStoreExt, Provenance};
use ipfrs_stream::{IndexingSource, Part};
use ipfrs_unixfs::{BlockSource, Node as UnixFsNode, roots_before};
use tracing::Instrument;

use super::object::Object;
use super::object_kind::{Directory, FileContent, ObjectKind};
use super::path::ContentPath;
use super::resolved_path::ResolvedPath;
use crate::Node;
use crate::trace::{number, span};

impl Node {
    /// Resolves a path to its object.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) names the missing block or link;
    /// [`ErrorKind::Gone`](ipfrs_core::ErrorKind) and [`ErrorKind::LegalReasons`](ipfrs_core::ErrorKind) name the
    /// path or block that a denylist blocks; otherwise as `ipfrs_unixfs::resolve`.
    pub async fn resolve(&self, path: impl Into<Arc<ContentPath>>) -> Result<Object> {
        let path = path.into();
        let part = self.expected_part();
        self.resolve_for(path, part).await
    }

    /// Like [`Self::resolve`]. `part` is the part below the target that is going to be read, which is retrieved
    /// together with the path if it is not in the store.
    pub(crate) async fn resolve_for(&self, path: impl Into<Arc<ContentPath>>, part: Part) -> Result<Object> {
        let path = path.into();
        let source = IndexingSource::new(self.path_store(&path, part), self.inner.nodes.clone());
        let span = span!("resolve", root = %path.root(), segments = number(path.segments().len()));
        self.resolve_in(&source, path).instrument(span).await
    }

    /// Like [`Self::resolve`], but reads the blocks of the store through `source`.
    pub(crate) async fn resolve_in(&self, source: &dyn BlockSource, path: Arc<ContentPath>) -> Result<Object> {
        // Read before anything else, so that results from removed bytes or old denylists are not cached.
        let epoch = self.epoch();
        self.check_path(&path)?;
        let resolved = path.follow(source).await;
        let roots = match &resolved {
            Ok(resolved) => resolved.roots.as_slice(),
            Err(error) => roots_before(error).unwrap_or_default(),
        };
        // Identity blocks are read without the store, so they are checked here.
        let mut inline = roots.iter().filter(|cid| identity_payload(cid).is_some());
        inline.try_for_each(|cid| self.check_block(cid))?;
        let mut resolved = resolved.inspect_err(|error| self.inner.metrics.refusals.note(error))?;
        let (cid, block) = (resolved.cid, resolved.data.clone());
        let kind = kind(&path, resolved.node.take());
        let resolved = Arc::new(ResolvedPath::new(path, resolved, kind, &*self.inner.served, epoch));
        let kind = resolved.counted_kind(&self.inner.decoded_nodes)?;
        Ok(Object { cid, resolved, block, kind })
    }

    /// Returns the object of a path that was resolved before. Its block is read from the store, so a deleted block is
    /// never served from a cache.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) names the missing block;
    /// [`ErrorKind::RateLimited`](ipfrs_core::ErrorKind) if large nodes take too much memory.
    pub async fn load(&self, resolved: Arc<ResolvedPath>) -> Result<Object> {
        if let [inner @ .., _] = &*resolved.blocks {
            self.note_use(inner);
        }
        let store = self.path_store(&resolved.path, self.expected_part());
        let block = store.require(&resolved.target).await?;
        let kind = resolved.counted_kind(&self.inner.decoded_nodes)?;
        Ok(Object { cid: resolved.target, kind, resolved, block })
    }

    /// Returns the file that a resolved path leads to, without reading the store. This works only for a file whose
    /// bytes are all below its root, and only as long as the blocks of the path are in the store.
    #[must_use]
    pub fn file_below_root(&self, resolved: &ResolvedPath) -> Option<FileContent> {
        match &resolved.kind {
            ObjectKind::File(file) if resolved.remainder.is_empty() && self.is_current(resolved.provenance) => {
                let is_below = file.node.inline.is_empty() && !file.node.children.is_empty();
                // A refusal becomes the error of `load`.
                let kind = is_below.then(|| resolved.counted_kind(&self.inner.decoded_nodes)).transpose().ok()?;
                let Some(ObjectKind::File(file)) = kind else { return None };
                self.note_use(&resolved.blocks);
                Some(file)
            }
            _ => None,
        }
    }

    fn is_current(&self, provenance: Option<Provenance>) -> bool {
        provenance.is_some_and(|provenance| provenance.is_current(&*self.inner.served))
    }

    /// Records that a cache has used data derived from these blocks without reading them, so that they are evicted
    /// later.
    pub fn note_use(&self, cids: &[Cid]) {
        self.inner.served.note_use(cids);
    }
}

fn kind(path: &Arc<ContentPath>, node: Option<UnixFsNode>) -> ObjectKind {
    match node {
        Some(UnixFsNode::File(file)) => ObjectKind::File(FileContent::new(file, path)),
        Some(node @ (UnixFsNode::Directory { .. } | UnixFsNode::HamtShard(_))) => {
            ObjectKind::Directory(Directory::new(node))
        }
        Some(UnixFsNode::Symlink { target, .. }) => ObjectKind::Symlink(target),
        None => ObjectKind::Other,
    }
}
