//! The state of the mutable files of a node: the tree, its blocks that are not stored yet, and the durable root.

use std::sync::Arc;

use ipfrs_core::{Cid, Error, Result, codec};
use ipfrs_store::{BlockStore, BlockStoreExt, PutMode};
use ipfrs_stream::StoreSink;
use ipfrs_unixfs::{BlockSink, CidFormat, DirectoryEdit, Staging};
use parking_lot::Mutex as Short;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::spawn_blocking;
use tracing::Instrument;

use super::path_locks::PathLocks;
use super::root_file::{RootFile, SavedRoot};
use super::tree::Tree;
use super::unstored::{MAX_UNSTORED_BYTES, TreeSource, Unstored};
use crate::Node;
use crate::dag::{Leaves, Reachable};
use crate::fetched::Claims;

/// Mutable files of a node.
#[derive(Debug)]
pub(crate) struct MutableFiles {
    /// The tree, once it is used.
    tree: Mutex<Option<Tree>>,
    /// Root at the start; `None` if there was none.
    initial: Option<Cid>,
    unstored: Unstored,
    pub(super) locks: PathLocks,
    /// Root on the disk. Held while a root is written, and taken before the lock of the tree.
    durable: Mutex<DurableRoot>,
}

/// Root on the disk.
#[derive(Debug)]
struct DurableRoot {
    /// Number of its flush; 0 for the root at the start.
    version: u64,
    /// Content ID; `None` if there is none.
    root: Option<Cid>,
    /// File with the root; `None` if the blocks are in memory. A task that writes it holds the lock around this.
    file: Option<Arc<Short<RootFile>>>,
}

impl MutableFiles {
    /// Creates the state with the latest of the saved roots that is stored. A crash may have saved a root whose blocks
    /// were not stored; its flush was not acknowledged.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn open(file: Option<RootFile>, saved: &[SavedRoot], store: &dyn BlockStore) -> Result<Self> {
        let mut current = saved.first();
        for candidate in saved {
            if store.size(&candidate.root).await?.is_some() {
                current = Some(candidate);
                break;
            }
        }
        let file = file.map(|mut file| {
            if let Some(current) = current {
                file.keep(current, saved);
            }
            Arc::new(Short::new(file))
        });
        let root = current.map(|current| current.root);
        Ok(Self {
            tree: Mutex::default(),
            initial: root,
            unstored: Unstored::default(),
            locks: PathLocks::default(),
            durable: Mutex::new(DurableRoot { version: 0, root, file }),
        })
    }
}

/// The root on the disk, which does not change while this exists.
pub(crate) struct KeptRoot<'a>(MutexGuard<'a, DurableRoot>);

impl KeptRoot<'_> {
    /// Returns the root; `None` if the mutable files were never used.
    pub(crate) fn root(&self) -> Option<Cid> {
        self.0.root
    }
}

impl MutableFiles {
    /// Waits until no root is being written, and keeps others from writing one. Gc keeps the blocks below it.
    pub(crate) async fn durable_root(&self) -> KeptRoot<'_> {
        KeptRoot(self.durable.lock().await)
    }
}

/// The tree while one operation uses it. New blocks become visible to other operations when it is dropped.
pub(super) struct OpenTree<'a> {
    guard: MutexGuard<'a, Option<Tree>>,
    pub(super) staging: Staging,
    unstored: &'a Unstored,
}

impl OpenTree<'_> {
    /// Returns the tree and the staging for its changes.
    pub(super) fn parts(&mut self) -> Result<(&mut Tree, &mut Staging)> {
        let tree = self.guard.as_mut().ok_or_else(|| Error::internal("the mutable files are not loaded"))?;
        Ok((tree, &mut self.staging))
    }
}

impl Drop for OpenTree<'_> {
    fn drop(&mut self) {
        self.unstored.extend(self.staging.take());
    }
}

impl Node {
    /// Waits for the tree, and loads it for the first operation.
    ///
    /// # Errors
    /// If the root is missing or is not a directory.
    pub(super) async fn open_tree(&self) -> Result<OpenTree<'_>> {
        let files = &self.inner.mutable_files;
        let mut guard = files.tree.lock().await;
        let mut staging = Staging::new(Arc::new(self.tree_source()));
        if guard.is_none() {
            let root = match &files.initial {
                None => DirectoryEdit::empty(CidFormat::V0),
                Some(root) => DirectoryEdit::load(&staging, root).await.map_err(|e| {
                    let message = format!("cannot load the root {root} of the mutable files: {e}");
                    Error::new(e.kind(), message).with_source(e)
                })?,
            };
            *guard = Some(Tree::new(root, &mut staging)?);
        }
        Ok(OpenTree { guard, staging, unstored: &files.unstored })
    }

    /// Returns a source of all blocks of the tree.
    pub(super) fn tree_source(&self) -> TreeSource {
        TreeSource { unstored: self.inner.mutable_files.unstored.clone(), store: self.single_store() }
    }

    /// Returns the sink for blocks of files that are being written.
    pub(super) fn tree_sink(&self) -> Arc<dyn BlockSink> {
        Arc::new(StoreSink(self.inner.served.clone()))
    }

    /// Stores the blocks of the tree that are not stored yet.
    pub(super) async fn store_tree(&self) -> Result<()> {
        self.store_tree_below(None).await
    }

    /// Stores the blocks of the tree that are not stored yet, and the block of `root` after all others.
    async fn store_tree_below(&self, root: Option<Cid>) -> Result<()> {
        let unstored = &self.inner.mutable_files.unstored;
        let mut blocks = unstored.all();
        // The tree of a read-only repo cannot change, so its blocks are in the store.
        if blocks.is_empty() || self.inner.read_only {
            return Ok(());
        }
        if let Some(at) = root.and_then(|root| blocks.iter().position(|block| *block.cid() == root)) {
            let last = blocks.len() - 1;
            blocks.swap(at, last);
        }
        let cids: Vec<_> = blocks.iter().map(|block| *block.cid()).collect();
        for outcome in self.inner.store.put_many(blocks, PutMode::Atomic).await {
            outcome?;
        }
        unstored.remove(&cids);
        Ok(())
    }

    /// Ends an operation that has released the tree: if it `flushes`, makes the flushed root durable, and otherwise
    /// only limits the memory of the blocks that are not stored yet. Operations that end at the same time share the
    /// writes.
    pub(super) async fn end_change(&self, flushes: bool) -> Result<()> {
        let files = &self.inner.mutable_files;
        if !flushes {
            let is_large = files.unstored.bytes() > MAX_UNSTORED_BYTES;
            return if is_large { self.store_tree().await } else { Ok(()) };
        }
        let Some((_, version)) = files.tree.lock().await.as_ref().map(Tree::flushed) else { return Ok(()) };
        let node = self.clone();
        // Completed even if the caller is cancelled, so that no write of the root outlives the lock.
        let flushing = tokio::spawn(async move { node.write_root(version).await }.in_current_span());
        flushing.await.map_err(|e| Error::internal("a task that writes the root failed").with_source(e))?
    }

    /// Makes the flushed root durable, unless one as new as `version` is.
    async fn write_root(&self, version: u64) -> Result<()> {
        let files = &self.inner.mutable_files;
        let mut durable = files.durable.lock().await;
        if durable.version >= version {
            return Ok(());
        }
        // Another operation may have flushed while this one waited.
        let Some((root, version)) = files.tree.lock().await.as_ref().map(Tree::flushed) else { return Ok(()) };
        let Some(file) = durable.file.clone() else {
            self.store_tree().await?;
            (durable.version, durable.root) = (version, Some(root.cid));
            return Ok(());
        };
        let (writer, confirmed) = (file.clone(), durable.root);
        let writing = async {
            let writing = spawn_blocking(move || writer.lock().write(&root.cid, confirmed.as_ref()));
            writing.await.map_err(|e| Error::internal("a task that writes the root failed").with_source(e))?
        };
        let storing = self.store_tree_below(Some(root.cid));
        if self.inner.pack.is_some() {
            // The pack engine recovers a prefix of what was put. If the block of the root is in it, all others are.
            let (stored, written) = tokio::join!(storing, writing);
            stored.and(written)?;
        } else {
            storing.await?;
            writing.await?;
        }
        file.lock().confirm();
        (durable.version, durable.root) = (version, Some(root.cid));
        Ok(())
    }

    /// Returns the roots that gc keeps: the durable one, and that of the tree in memory, of which all blocks are
    /// stored.
    ///
    /// # Errors
    /// If the blocks of the tree cannot be stored.
    pub(crate) async fn mutable_roots(&self) -> Result<Vec<Cid>> {
        let files = &self.inner.mutable_files;
        // No root is written meanwhile, so the durable one is marked even if the next one cannot be written.
        let durable = files.durable.lock().await;
        let mut roots: Vec<_> = durable.root.into_iter().collect();
        if let Some(tree) = files.tree.lock().await.as_mut() {
            let mut staging = Staging::new(Arc::new(self.tree_source()));
            let current = tree.link(&mut staging, &[]).await;
            files.unstored.extend(staging.take());
            roots.extend([tree.flushed().0.cid, current?.cid]);
        }
        self.store_tree().await?;
        Ok(roots)
    }

    /// Protects content that was put into the tree from a running gc, which may have read the roots before, and from
    /// the eviction of fetched blocks. The caller holds a lease. Missing blocks are no error: the tree may refer to
    /// content that is not stored here.
    pub(super) async fn protect_in_tree(&self, cid: &Cid) -> Result<()> {
        let fetched = self.inner.fetched.as_ref().filter(|fetched| fetched.evicts());
        if !self.inner.metrics.collections.is_running() && fetched.is_none() {
            return Ok(());
        }
        let mut claims = Claims::new(fetched);
        let reachable = Reachable::new(self.inner.store.clone(), Leaves::Checked);
        let mut reachable = reachable.touching(self.inner.protection.clone());
        reachable.start(cid);
        while let Some(visits) = reachable.next().await? {
            claims.add(visits.iter().filter(|visit| visit.found.is_ok()).map(|visit| visit.cid.hash()));
        }
        claims.finish().await
    }
}

/// Returns whether a codec can be that of a node in the tree.
pub(super) fn is_tree_codec(cid: &Cid) -> bool {
    matches!(cid.codec(), codec::RAW | codec::DAG_PB)
}
