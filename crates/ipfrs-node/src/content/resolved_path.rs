//! A resolved content path, which front-ends may cache.

use std::sync::{Arc, Weak};

use ipfrs_core::{Cid, Result, cid_text};
use ipfrs_store::{BlockStore, Footprint, Provenance, StoreEpoch};
use ipfrs_unixfs::{LinkName, Resolved};
use parking_lot::Mutex;

use super::node_memory::{DecodedNodes, NodeMemory};
use super::object_kind::{ObjectKind, memory_of};
use super::path::ContentPath;

/// Result of resolving a path. Front-ends cache it, because resolving a path costs more than sending a small file.
#[derive(Debug)]
pub struct ResolvedPath {
    /// The content path.
    pub path: Arc<ContentPath>,
    /// The content ID of the target as text.
    pub cid: String,
    /// Content IDs of all steps as text, root first and target last, separated by commas.
    pub roots: String,
    /// Segments that lead to a value inside the target's block (dag-cbor or dag-json); otherwise empty.
    pub remainder: Vec<String>,
    /// Provenance of the path. `None` if one of the blocks may have been removed meanwhile.
    pub provenance: Option<Provenance>,
    /// All blocks that were read, the target last.
    pub blocks: Arc<[Cid]>,
    pub(super) target: Cid,
    /// Decoded root block. Decoding a root with a thousand links costs more than sending a small range of the file.
    pub(super) kind: ObjectKind,
    /// [`ObjectKind::counted_bytes`] of `kind`.
    counted_bytes: usize,
    /// Memory of `kind` while requests hold it, which they share. A path in a cache does not count, because caches have
    /// limits of their own.
    memory: Mutex<Weak<NodeMemory>>,
}

impl ResolvedPath {
    /// `since` is the store epoch before anything was read.
    pub(super) fn new(
        path: Arc<ContentPath>,
        resolved: Resolved,
        kind: ObjectKind,
        store: &dyn BlockStore,
        since: StoreEpoch,
    ) -> Self {
        let cid = cid_text(&resolved.cid);
        let mut roots = String::with_capacity((cid.len() + 1) * resolved.roots.len());
        for root in &resolved.roots {
            let comma = if roots.is_empty() { "" } else { "," };
            roots.push_str(comma);
            match *root == resolved.cid {
                true => roots.push_str(&cid),
                false => roots.push_str(&cid_text(root)),
            }
        }
        let blocks: Arc<[Cid]> = resolved.shards.into_iter().chain(resolved.roots).collect();
        let provenance = Provenance::new(store, since, Footprint::of(&*blocks));
        let (counted_bytes, memory, target) = (kind.counted_bytes(), Mutex::default(), resolved.cid);
        let remainder = resolved.remainder;
        Self { path, cid, roots, remainder, provenance, blocks, target, kind, counted_bytes, memory }
    }

    /// Returns the decoded root block for a request. If it is large, it counts in `all` while requests hold it.
    ///
    /// # Errors
    /// Those of [`NodeMemory::check`].
    pub(super) fn counted_kind(&self, all: &Arc<DecodedNodes>) -> Result<ObjectKind> {
        if self.counted_bytes == 0 {
            return Ok(self.kind.clone());
        }
        let mut shared = self.memory.lock();
        let memory = match shared.upgrade() {
            Some(memory) => memory,
            None => {
                let memory = NodeMemory::of(self.counted_bytes, all)?;
                *shared = Arc::downgrade(&memory);
                memory
            }
        };
        Ok(self.kind.with_memory(memory))
    }

    /// Whether the path leads to a file whose bytes are below its root block.
    #[must_use]
    pub fn is_file_of_several_blocks(&self) -> bool {
        matches!(&self.kind, ObjectKind::File(file) if !file.node.children.is_empty())
    }

    /// Returns the approximate memory in bytes, for the weight of a cache entry.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let names = self.path.segments().iter().map(LinkName::len).chain(self.remainder.iter().map(String::len));
        let names: usize = names.map(|len| len + size_of::<String>()).sum();
        let links = match &self.kind {
            ObjectKind::File(file) => file.node.children.memory_bytes(),
            ObjectKind::Directory(directory) => memory_of(&directory.node),
            ObjectKind::Symlink(_) | ObjectKind::Other => 0,
        };
        let texts = self.cid.len() + self.roots.len();
        let blocks = size_of_val(&*self.blocks);
        (size_of::<Self>() + size_of::<ContentPath>() + names + texts + blocks + links) as u64
    }
}
