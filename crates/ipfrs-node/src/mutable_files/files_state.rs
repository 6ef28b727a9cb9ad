//! The state of the mutable files of a node: the tree, its blocks that are not stored yet, and the durable root.

use std::sync::Arc;

use ipfrs_core::{Cid, Error, ErrorKind, Result, codec};
use ipfrs_store::{BlockStore, BlockStoreExt, PutMode};
use ipfrs_stream::StoreSink;
use ipfrs_unixfs::{BlockSink, DirectoryEdit, Staging};
use parking_lot::Mutex as Short;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::spawn_blocking;

use super::path_locks::PathLocks;
use super::root_file::{RootFile, SavedRoot};
use super::root_notes::RootNotes;
use super::settings::TreeSettings;
use super::tree::Tree;
use super::unstored::{MAX_UNSTORED_BYTES, TreeSource, Unstored};
use crate::dag::{Leaves, Reachable};
use crate::fetched::Claims;
use crate::{LinkName, Node, to_the_end};

/// Mutable files of a node.
#[derive(Debug)]
pub(crate) struct MutableFiles {
    tree: Mutex<TreeState>,
    pub(super) unstored: Unstored,
    pub(super) locks: PathLocks,
    /// Root on the disk. Held while a root is written, and taken before the lock of the tree.
    durable: Mutex<DurableRoot>,
    pub(super) settings: TreeSettings,
    pub(super) root_notes: RootNotes,
}

/// The tree with what is needed to undo its changes.
#[derive(Debug, Default)]
struct TreeState {
    /// The tree, once it is used.
    tree: Option<Tree>,
    /// Root to load it from; `None` for an empty tree.
    base: Option<Cid>,
    /// Number of the flush of that root; 0 for the root at the start.
    base_version: u64,
    /// Number of times that changes were undone.
    undone: u64,
    /// Number of changes without a flush, and how many of them are durable.
    unflushed: u64,
    durable_unflushed: u64,
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
    /// Whether the node is closed, so that another process may have the repo.
    is_closed: bool,
}

impl MutableFiles {
    /// Creates the state with the latest of the saved roots that is complete, or was acknowledged. A crash may have
    /// saved a root of which not all blocks were stored; its flush was not acknowledged.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn open(
        file: Option<RootFile>,
        saved: &[SavedRoot],
        store: &Arc<dyn BlockStore>,
        settings: TreeSettings,
    ) -> Result<Self> {
        // Without a complete root, the use of the files says which one is missing.
        let mut current = saved.first().filter(|latest| !latest.is_first_attempt());
        for candidate in saved {
            if candidate.is_confirmed || is_complete(candidate, store).await? {
                current = Some(candidate);
                break;
            }
        }
        if let Some(latest) = saved.first().filter(|latest| current.is_none_or(|current| current != *latest)) {
            let (root, opened) = (latest.root, current.map(|current| current.root.to_string()));
            tracing::warn!(
                %root, opened, "blocks of the latest root of the mutable files are missing, and its flush was probably \
                 not acknowledged: an earlier root is opened, or an empty tree"
            );
        }
        let file = file.map(|mut file| {
            file.keep(current, saved);
            Arc::new(Short::new(file))
        });
        let root = current.map(|current| current.root);
        Ok(Self {
            tree: Mutex::new(TreeState { base: root, ..TreeState::default() }),
            unstored: Unstored::default(),
            locks: PathLocks::default(),
            durable: Mutex::new(DurableRoot { version: 0, root, file, is_closed: false }),
            settings,
            root_notes: RootNotes::default(),
        })
    }
}

/// Whether all blocks that were stored while the root was saved are there, as far as the tree still needs them.
async fn is_complete(saved: &SavedRoot, store: &Arc<dyn BlockStore>) -> Result<bool> {
    if store.size(&saved.root).await?.is_none() {
        return Ok(false);
    }
    let found = store.has_many(&saved.storing).await?;
    let missing: Vec<_> = saved.storing.iter().zip(found).filter(|(_, size)| size.is_none()).collect();
    if missing.is_empty() {
        return Ok(true);
    }
    // Gc may have removed blocks that only older versions of the tree needed.
    let mut reachable = Reachable::new(store.clone(), Leaves::Checked);
    reachable.start(&saved.root);
    while let Some(visits) = reachable.next().await? {
        if visits.iter().any(|visit| missing.iter().any(|(cid, _)| cid.hash() == visit.cid.hash())) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The root on the disk, which does not change while this exists.
pub(crate) struct KeptRoot<'a>(MutexGuard<'a, DurableRoot>);

impl KeptRoot<'_> {
    /// Whether the root is kept in a file.
    pub(super) fn has_file(&self) -> bool {
        self.0.file.is_some()
    }

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

    /// Waits until no root is being written. No root is written afterwards: another process may have the repo.
    pub(crate) async fn close(&self) {
        let mut durable = self.durable.lock().await;
        durable.is_closed = true;
        if let Some(file) = durable.file.clone() {
            // Also the note of the last flush is written before.
            let _closed = spawn_blocking(move || file.lock().close()).await;
        }
    }

    /// Whether there are changes that no flush has made durable.
    pub(super) async fn has_unflushed(&self) -> bool {
        let state = self.tree.lock().await;
        state.tree.is_some() && state.unflushed > state.durable_unflushed
    }
}

/// A change of the tree that others can already see.
#[derive(Debug, Clone, Copy)]
pub(super) struct Changed {
    flushes: bool,
    /// Number of the flush that contains it.
    version: u64,
    /// Number of times that changes were undone before it.
    undone: u64,
    /// Number of changes without a flush that become durable with it.
    flushed: Option<u64>,
    /// Whether its flush may use the disk space that is reserved for removals.
    takes_reserve: bool,
}

impl Changed {
    /// Lets the flush use the disk space that is reserved for removals: the change frees space, or is the last one.
    pub(super) fn with_reserve(self) -> Self {
        Self { takes_reserve: true, ..self }
    }
}

/// The tree while one operation uses it. New blocks become visible to other operations when it is dropped.
pub(super) struct OpenTree<'a> {
    guard: MutexGuard<'a, TreeState>,
    /// The tree before a change that is not complete.
    before: Option<Tree>,
    pub(super) staging: Staging,
    unstored: &'a Unstored,
}

impl OpenTree<'_> {
    /// Returns the tree and the staging for a change. Without [`Self::changed`], because the operation fails or is
    /// cancelled, the tree is later as it was before.
    pub(super) fn change(&mut self) -> Result<(&mut Tree, &mut Staging)> {
        // Blocks from the load of the tree are also needed then.
        self.unstored.extend(self.staging.take());
        self.before.clone_from(&self.guard.tree);
        self.parts()
    }

    /// Returns the tree and the staging for a look at it.
    pub(super) fn parts(&mut self) -> Result<(&mut Tree, &mut Staging)> {
        let tree = self.guard.tree.as_mut().ok_or_else(|| Error::internal("the mutable files are not loaded"))?;
        Ok((tree, &mut self.staging))
    }

    /// Releases the tree after a change, which [`Node::end_change`] completes.
    pub(super) fn changed(mut self, flushes: bool) -> Changed {
        self.before = None;
        self.guard.unflushed += u64::from(!flushes);
        let version = self.guard.tree.as_ref().map_or(0, |tree| tree.flushed().1);
        Changed { flushes, version, undone: self.guard.undone, flushed: None, takes_reserve: false }
    }

    /// Like [`Self::changed`] after a flush of the whole tree.
    pub(super) fn flushed(self) -> Changed {
        let unflushed = self.guard.unflushed;
        Changed { flushed: Some(unflushed), ..self.changed(true) }
    }
}

impl Drop for OpenTree<'_> {
    fn drop(&mut self) {
        match self.before.take() {
            Some(before) => self.guard.tree = Some(before),
            None => self.unstored.extend(self.staging.take()),
        }
    }
}

impl Node {
    /// Waits for the tree, and loads it for the first operation.
    ///
    /// # Errors
    /// If the root is missing or is not a directory.
    pub(super) async fn open_tree(&self) -> Result<OpenTree<'_>> {
        let files = &self.inner.mutable_files;
        let mut open = self.opened(files.tree.lock().await);
        let OpenTree { guard, staging, .. } = &mut open;
        if guard.tree.is_none() {
            let settings = files.settings;
            let TreeSettings { format, sharding, .. } = settings;
            // A root in another format could not be stored in a read-only repo.
            let root_format = Some(format).filter(|_| !self.inner.read_only);
            let root = match &guard.base {
                None => DirectoryEdit::empty(format, sharding),
                Some(root) => DirectoryEdit::load(staging, root, sharding).await.map_err(|e| {
                    let message = format!("cannot load the root {root} of the mutable files: {e}");
                    Error::new(e.kind(), message).with_source(e)
                })?,
            };
            guard.tree = Some(Tree::new(root, root_format, settings.max_unflushed, guard.base_version, staging)?);
        }
        Ok(open)
    }

    fn opened<'a>(&'a self, guard: MutexGuard<'a, TreeState>) -> OpenTree<'a> {
        let staging = Staging::new(Arc::new(self.stored_tree()));
        OpenTree { guard, before: None, staging, unstored: &self.inner.mutable_files.unstored }
    }

    /// Like [`Self::open_tree`], for an operation that may change the tree.
    ///
    /// # Errors
    /// Also if earlier changes use too much memory because their blocks cannot be stored.
    pub(super) async fn open_tree_to_change(&self) -> Result<OpenTree<'_>> {
        if self.inner.mutable_files.unstored.bytes() > MAX_UNSTORED_BYTES {
            self.store_tree(PutMode::Atomic).await?;
        }
        self.open_tree().await
    }

    /// Fetches the nodes on the way to each of `paths` that are not stored here, if they can be retrieved. An operation
    /// that has the tree does not wait for the network, because all others wait for it.
    ///
    /// # Errors
    /// If a node cannot be retrieved.
    pub(super) async fn fetch_ways(&self, paths: &[&[LinkName]]) -> Result<()> {
        if !self.may_retrieve() {
            return Ok(());
        }
        for names in paths {
            let mut last = None;
            while let Some(missing) = self.missing_on_way(names).await {
                // A block that cannot be kept is missing again.
                if last.replace(missing) == Some(missing) {
                    break;
                }
                self.single_store().require(&missing).await?;
                self.until_fetched_are_stored().await;
            }
        }
        Ok(())
    }

    /// Returns the first block on the way to a path that is not stored here.
    async fn missing_on_way(&self, names: &[LinkName]) -> Option<Cid> {
        let mut open = match self.open_tree().await {
            Ok(open) => open,
            Err(error) => return error.missing_block(),
        };
        let (tree, staging) = open.parts().ok()?;
        tree.find(staging, names).await.err()?.missing_block()
    }

    /// Returns a source of the blocks of the tree that are stored here.
    fn stored_tree(&self) -> TreeSource {
        let store: Arc<dyn BlockStore> = self.inner.served.clone();
        TreeSource { unstored: self.inner.mutable_files.unstored.clone(), store, empty: None }
    }

    /// Returns a source of all blocks of the tree.
    pub(super) fn tree_source(&self) -> TreeSource {
        TreeSource { unstored: self.inner.mutable_files.unstored.clone(), store: self.single_store(), empty: None }
    }

    /// Returns the sink for blocks of files that are being written.
    pub(super) fn tree_sink(&self) -> Arc<dyn BlockSink> {
        Arc::new(StoreSink(self.inner.served.clone()))
    }

    /// Stores the blocks of the tree that are not stored yet, in an atomic `mode`.
    pub(super) async fn store_tree(&self, mode: PutMode) -> Result<()> {
        let unstored = &self.inner.mutable_files.unstored;
        let blocks = unstored.all();
        // The tree of a read-only repo cannot change, so its blocks are in the store.
        if blocks.is_empty() || self.inner.read_only {
            return Ok(());
        }
        let cids: Vec<_> = blocks.iter().map(|block| *block.cid()).collect();
        for outcome in self.inner.store.put_many(blocks, mode).await {
            outcome?;
        }
        unstored.remove(&cids);
        Ok(())
    }

    /// Stores the blocks of the tree that are not stored yet, except on a full disk: reads and gc also find them in
    /// memory, by [`Self::store_below`].
    pub(super) async fn store_tree_if_there_is_space(&self) -> Result<()> {
        match self.store_tree(PutMode::Atomic).await {
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(()),
            stored => stored,
        }
    }

    /// Ends an operation that has changed the tree: if it flushes, makes the flushed root durable, and otherwise only
    /// limits the memory of the blocks that are not stored yet. Operations that end at the same time share the writes.
    ///
    /// # Errors
    /// If it flushes, and the blocks or the root cannot be written. The change is undone, unless there are changes
    /// without a flush.
    pub(super) async fn end_change(&self, changed: Changed) -> Result<()> {
        if !changed.flushes {
            // The change is made, so it cannot fail any more. The next one stores the blocks, or fails.
            if self.inner.mutable_files.unstored.bytes() > MAX_UNSTORED_BYTES
                && let Err(error) = self.store_tree(PutMode::Atomic).await
            {
                tracing::warn!(%error, "cannot store the blocks of changes of the mutable files without a flush");
            }
            return Ok(());
        }
        let node = self.clone();
        // No write of the root may outlive the lock.
        to_the_end(async move { node.write_root(changed).await }).await
    }

    /// Makes the flushed root durable, unless one with this change is.
    async fn write_root(&self, changed: Changed) -> Result<()> {
        let files = &self.inner.mutable_files;
        let mut durable = files.durable.lock().await;
        if durable.is_closed {
            return Err(Error::new(ErrorKind::Unavailable, "the repo is closed"));
        }
        // Another operation may have flushed while this one waited.
        let (root, version) = {
            let state = files.tree.lock().await;
            if state.undone != changed.undone {
                let message = "the change was undone, because an earlier one could not be stored: try again";
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            let Some(flushed) = state.tree.as_ref().map(Tree::flushed) else { return Ok(()) };
            flushed
        };
        if durable.version < changed.version {
            let mode = if changed.takes_reserve { PutMode::Reserved } else { PutMode::Atomic };
            if let Err(error) = self.write_durably(root.cid, &durable, mode).await {
                self.undo_changes(&durable).await;
                return Err(error);
            }
            (durable.version, durable.root) = (version, Some(root.cid));
        }
        if let Some(flushed) = changed.flushed {
            let mut state = files.tree.lock().await;
            state.durable_unflushed = state.durable_unflushed.max(flushed);
        }
        Ok(())
    }

    /// Writes the blocks that are not stored yet, and the root.
    async fn write_durably(&self, root: Cid, durable: &DurableRoot, mode: PutMode) -> Result<()> {
        let Some(file) = &durable.file else { return self.store_tree(mode).await };
        self.note_lost_root().await?;
        let mut storing = self.inner.mutable_files.unstored.cids();
        if !RootFile::can_list(&storing) {
            self.store_tree(mode).await?;
            storing.clear();
        }
        let (writer, confirmed) = (Arc::clone(file), durable.root);
        let writing = spawn_blocking(move || writer.lock().write(&root, &storing, confirmed.as_ref()));
        // The blocks usually take longer than the root, which is only awaited afterwards, so that it wakes no task.
        let stored = self.store_tree(mode).await;
        let written =
            writing.await.map_err(|e| Error::internal("a task that writes the root failed").with_source(e))?;
        stored.and(written)?;
        let needs_note = file.lock().confirm();
        if needs_note {
            RootFile::note_later(file);
        }
        self.note_used_root().await;
        Ok(())
    }

    /// Returns to the durable root, because a later one could not be written. Changes without a flush were
    /// acknowledged, so if there are any, everything stays as it is until the next flush.
    async fn undo_changes(&self, durable: &DurableRoot) {
        let files = &self.inner.mutable_files;
        let mut state = files.tree.lock().await;
        if state.unflushed == state.durable_unflushed {
            (state.tree, state.base, state.base_version) = (None, durable.root, durable.version);
            state.undone += 1;
            files.unstored.clear();
        }
    }

    /// Returns the roots that gc keeps: the durable one, and that of the tree in memory. [`Self::store_below`] finds
    /// all of their blocks.
    ///
    /// # Errors
    /// If the blocks of the tree cannot be stored, unless the disk is full.
    pub(crate) async fn mutable_roots(&self) -> Result<Vec<Cid>> {
        let files = &self.inner.mutable_files;
        // No root is written meanwhile, so the durable one is marked even if the next one cannot be written.
        let durable = files.durable.lock().await;
        let mut roots: Vec<_> = durable.root.into_iter().collect();
        let mut open = self.opened(files.tree.lock().await);
        if let Ok((tree, staging)) = open.parts() {
            let current = tree.link(staging, &[]).await?;
            roots.extend([tree.flushed().0.cid, current.cid]);
        }
        drop(open);
        self.store_tree_if_there_is_space().await?;
        Ok(roots)
    }

    /// Whether content that is put into the tree now needs [`Self::protect_for_tree`].
    pub(super) fn may_lose_content(&self) -> bool {
        let evicts = self.inner.fetched.as_ref().is_some_and(|fetched| fetched.evicts());
        evicts || self.inner.metrics.collections.is_running()
    }

    /// Protects content that is going to be put into the tree from a running gc, which may have read the roots, and
    /// from the eviction of fetched blocks. The caller holds a lease until then. Missing blocks are no error: the tree
    /// may refer to content that is not stored here.
    pub(super) async fn protect_for_tree(&self, cid: &Cid) -> Result<()> {
        let mut claims = Claims::new(self.inner.fetched.as_ref().filter(|fetched| fetched.evicts()));
        let reachable = Reachable::new(self.inner.store.clone(), Leaves::Checked);
        let mut reachable = reachable.touching(self.inner.protection.clone());
        reachable.start(cid);
        while let Some(visits) = reachable.next().await? {
            // A block that was not found may be one that is being stored.
            claims.add(visits.iter().map(|visit| visit.cid.hash()));
            // Blocks below one that cannot be read would not be protected.
            let mut failed = visits.into_iter().filter_map(|visit| visit.found.err());
            if let Some(error) = failed.find(|error| error.missing_block().is_none()) {
                return Err(error);
            }
        }
        claims.finish().await
    }
}

/// Returns whether a codec can be that of a node in the tree.
pub(super) fn is_tree_codec(cid: &Cid) -> bool {
    matches!(cid.codec(), codec::RAW | codec::DAG_PB)
}
