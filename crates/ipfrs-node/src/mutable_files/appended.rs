//! Files that one writer appends to for a long time, in many commits.

use std::sync::Arc;

use ipfrs_core::{Block, Cid, Error, ErrorKind, Result};
use ipfrs_unixfs::{BlockSink, BlockSource, FileEdit, NewLink, Staging};
use tokio::task::JoinHandle;
use tracing::Instrument;

use super::directory::CachedFile;
use super::path::MutablePath;
use super::tree::{Target, Tree, does_not_exist, is_absent};
use super::write::not_a_file;
use crate::gc::Lease;
use crate::{LinkName, Node};

/// A file as its writer left it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppendedFile(CachedFile);

impl AppendedFile {
    /// Returns the content ID.
    pub(crate) fn cid(&self) -> &Cid {
        &self.0.link.cid
    }
}

impl Node {
    /// Opens a file, or creates it durably with the directories above it. Returns `None` if it exists and `append` is
    /// not set.
    pub(crate) async fn open_appended(&self, path: &MutablePath, append: bool) -> Result<Option<AppendedFile>> {
        let names = path.names();
        let format = self.inner.mutable_files.settings.format;
        let Some((name, above)) = names.split_last() else { return Err(not_a_file(path)) };
        self.fetch_ways(&[names]).await?;
        let mut open = self.open_tree_to_change().await?;
        let (tree, staging) = open.change()?;
        match tree.find(staging, names).await {
            Ok(Target::File(file)) if file.is_symlink => {
                return Err(Error::new(ErrorKind::Conflict, format!("{path} is a symlink")));
            }
            Ok(Target::File(file)) => return Ok(append.then_some(AppendedFile(*file))),
            Ok(Target::Directory(_)) => return Err(Error::new(ErrorKind::Conflict, not_a_file(path).to_string())),
            Err(e) if is_absent(&e) => {}
            Err(e) => return Err(e),
        }
        let empty = FileEdit::empty(format)?;
        let link = NewLink { cid: *empty.cid(), tsize: empty.data().len() as u64 };
        staging.insert(empty);
        tree.count(true)?;
        tree.make_directories(staging, above, format).await?;
        let directory = tree.directory(staging, above).await?.ok_or_else(does_not_exist)?;
        directory.add(staging, name, link).await?;
        tree.flush_directory(staging, above).await?;
        tree.limit_cache(staging).await?;
        self.end_change(open.changed(true)).await?;
        Ok(Some(AppendedFile(CachedFile::new(link))))
    }

    /// Replaces a file with a later state of it. The returned task makes that durable, and then ends `lease`. It ends
    /// with the errors of the store.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if another writer has replaced or removed it meanwhile; otherwise errors of the store.
    pub(crate) async fn replace_appended(
        &self,
        path: &MutablePath,
        file: &mut AppendedFile,
        (link, blocks): (NewLink, Vec<Block>),
        lease: Option<Lease>,
    ) -> Result<JoinHandle<Result<()>>> {
        let names = path.names();
        let lock = self.inner.mutable_files.locks.lock_at_last(names).await;
        let mut open = self.open_tree_to_change().await?;
        let (tree, staging) = open.change()?;
        blocks.into_iter().for_each(|block| staging.insert(block));
        unchanged(tree, staging, names, file).await?.link = link;
        tree.update_above(staging, names, link).await?;
        tree.limit_cache(staging).await?;
        let (node, changed) = (self.clone(), open.changed(true));
        file.0.link = link;
        let ending = async move {
            let _held = (lock, lease);
            node.end_change(changed).await
        };
        Ok(tokio::spawn(ending.in_current_span()))
    }

    /// Waits until what [`Self::replace_appended`] has put into a file is durable, or undone.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if another writer of the file takes too long; otherwise errors of the store.
    pub(crate) async fn until_appended_is_durable(&self, path: &MutablePath) -> Result<()> {
        let _lock = self.inner.mutable_files.locks.lock(path.names()).await?;
        // A flush that failed is not undone while there are changes without a flush.
        if !self.inner.mutable_files.has_unflushed().await {
            return Ok(());
        }
        match self.flush_tree(path).await {
            Err(error) if !is_absent(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Checks that a file is still as its writer left it.
    ///
    /// # Errors
    /// As [`Self::replace_appended`].
    pub(crate) async fn check_appended(&self, path: &MutablePath, file: &AppendedFile) -> Result<()> {
        let mut open = self.open_tree().await?;
        let (tree, staging) = open.parts()?;
        unchanged(tree, staging, path.names(), file).await.map(drop)
    }

    /// Returns the source for edits of such files.
    pub(crate) fn appended_source(&self) -> Arc<dyn BlockSource> {
        Arc::new(self.tree_source())
    }

    /// Returns the sink for edits of such files.
    pub(crate) fn appended_sink(&self) -> Arc<dyn BlockSink> {
        self.tree_sink()
    }

    /// Returns a lease that protects blocks of such a file until they are part of the tree.
    pub(crate) fn appended_lease(&self) -> Lease {
        self.inner.protection.lease()
    }
}

/// Returns the file at a path, which must still be as its writer left it.
async fn unchanged<'a>(
    tree: &'a mut Tree,
    staging: &Staging,
    names: &[LinkName],
    file: &AppendedFile,
) -> Result<&'a mut CachedFile> {
    match tree.find(staging, names).await {
        Ok(Target::File(current)) if current.link == file.0.link => Ok(current),
        Err(e) if !is_absent(&e) => Err(e),
        _ => Err(Error::new(ErrorKind::Conflict, "the mutable file was replaced or removed while it was written")),
    }
}
