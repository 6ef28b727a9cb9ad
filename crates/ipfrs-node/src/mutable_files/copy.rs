//! Copies of content and of mutable files into the tree.

use std::sync::Arc;

use bytes::Bytes;
use ipfrs_core::{Block, Cid, Error, Result};
use ipfrs_store::{BlockStoreExt, PutMode};
use ipfrs_unixfs::{NewLink, Staging, decode_async, is_without_sizes};

use super::change::{failed, flush_path, symlinks_unsupported};
use super::directory::{Cached, link_of};
use super::files_state::is_tree_codec;
use super::path::{MutablePath, directory_text};
use super::tree::{Tree, does_not_exist, is_absent};
use crate::{ContentPath, LinkName, Node};

/// Source of a copy into the tree.
#[derive(Debug, Clone)]
pub enum CopySource {
    /// Content at a path. Only its root block has to be available.
    Content(ContentPath),
    /// A mutable file or directory.
    Mutable(MutablePath),
}

impl Node {
    /// Copies content or a mutable file or directory to `to`, which must not exist. `to` with a slash at the end is a
    /// directory, into which the source is copied under its last name. With `force`, an existing file is replaced.
    ///
    /// # Errors
    /// If the source does not exist or is not UnixFS, or the target exists or has no directory above it.
    pub async fn copy_into_tree(
        &self,
        from: &CopySource,
        to: &MutablePath,
        parents: bool,
        force: bool,
        flush: bool,
    ) -> Result<()> {
        self.check_writable()?;
        let _lease = self.inner.protection.lease();
        let source = self.copied_link(from).await.map_err(|e| {
            let path = match from {
                CopySource::Content(path) => path.to_string(),
                CopySource::Mutable(path) => path.without_slash().to_string(),
            };
            failed("cp: cannot get node from path", &path, e)
        })?;
        let is_symlink = self.check_copied(&source).await?;
        let to = match to.ends_with_slash() || to.names().is_empty() {
            true => to.join(last_name(from))?,
            false => to.clone(),
        };
        let shown = to.to_string();
        let cannot_flush = |e: Error| failed("cp: cannot flush the created file", &shown, e);
        let (above, name) = to.split();
        let name = name.ok_or_else(|| Error::invalid("cannot create file with empty name"))?;
        self.fetch_ways(&[to.names()]).await?;
        let mut is_protected = false;
        let mut open = loop {
            let mut open = self.open_tree_to_change().await?;
            let (tree, staging) = open.parts()?;
            self.check_target(tree, staging, (above, name), parents, force, &shown).await?;
            if flush && is_symlink {
                return Err(cannot_flush(symlinks_unsupported()));
            }
            tree.check_count(flush)?;
            if is_protected || !self.may_lose_content() {
                break open;
            }
            // Others do not wait for the walk, which a copy that is refused does without.
            drop(open);
            self.protect_for_tree(&source.cid).await?;
            is_protected = true;
        };
        // A gc run that begins from now on waits for the tree, to read its root.
        let (tree, staging) = open.change()?;
        tree.count(flush)?;
        if parents {
            let format = self.inner.mutable_files.settings.format;
            tree.make_directories(staging, above, format).await?;
        }
        let directory = tree.directory(staging, above).await?.ok_or_else(does_not_exist)?;
        directory.unlink(staging, name).await?;
        directory.add(staging, name, source).await?;
        if flush {
            flush_copy(tree, staging, &to).await.map_err(cannot_flush)?;
        }
        tree.limit_cache(staging).await?;
        self.end_change(open.changed(flush)).await
    }

    /// Checks that a copy to `above` and `name` can succeed.
    async fn check_target(
        &self,
        tree: &mut Tree,
        staging: &Staging,
        (above, name): (&[LinkName], &LinkName),
        makes_parents: bool,
        force: bool,
        shown: &str,
    ) -> Result<()> {
        let cannot_put = |e: Error| failed("cp: cannot put node in path", shown, e);
        if makes_parents {
            tree.check_directories(staging, above).await?;
            if !tree.exists(staging, above).await? {
                return Ok(());
            }
        }
        let directory = match tree.directory(staging, above).await {
            Ok(Some(directory)) => directory,
            Ok(None) if force => {
                let message = format!("cp: cannot unlink existing file: not a directory: {}", directory_text(above));
                return Err(Error::invalid(message));
            }
            Ok(None) => {
                return Err(cannot_put(Error::invalid(format!("{} is not a directory", directory_text(above)))));
            }
            Err(e) if force && !is_absent(&e) => {
                return Err(Error::new(e.kind(), format!("cp: cannot unlink existing file: {e}")).with_source(e));
            }
            Err(e) => return Err(cannot_put(e)),
        };
        match directory.child(staging, name).await.map_err(cannot_put)? {
            None => Ok(()),
            Some(Cached::File(_)) if force => Ok(()),
            Some(Cached::Directory(_)) if force => {
                Err(Error::invalid(format!("cp: cannot unlink existing file: not a file: {shown}")))
            }
            Some(_) => Err(cannot_put(Error::invalid("directory already has entry by that name"))),
        }
    }

    /// Returns a link to the source of a copy.
    async fn copied_link(&self, from: &CopySource) -> Result<NewLink> {
        match from {
            CopySource::Content(path) => {
                let object = self.resolve(path.clone()).await?.whole()?;
                if !is_tree_codec(&object.cid) {
                    // The size is not used.
                    return Ok(NewLink { cid: object.cid, tsize: 0 });
                }
                // Found again after the touch, so that a running gc spares it.
                self.inner.protection.touch(std::iter::once(object.cid.hash()));
                self.inner.protection.settled().await;
                self.keep_copied(object.cid, object.block.clone()).await?;
                link_of(&object.cid, &object.block)
            }
            CopySource::Mutable(path) => {
                self.fetch_ways(&[path.names()]).await?;
                let mut open = self.open_tree().await?;
                let (tree, staging) = open.parts()?;
                tree.link(staging, path.names()).await
            }
        }
    }

    /// Stores the root of a copy, of which the tree is going to read the block. If it was fetched, it may not be stored
    /// yet, and neither may the blocks below it, which must not become evictable after the copy.
    async fn keep_copied(&self, root: Cid, block: Bytes) -> Result<()> {
        if self.inner.fetched.as_ref().is_some_and(|fetched| fetched.evicts()) {
            self.until_fetched_are_stored().await;
        }
        if self.inner.served.size(&root).await?.is_some() {
            return Ok(());
        }
        let stored = self.inner.served.put_many(vec![Block::trusted(root, block)], PutMode::Atomic).await;
        stored.into_iter().try_for_each(|outcome| outcome.map(drop))
    }

    /// Checks that the source of a copy is UnixFS. Returns whether it is a symlink.
    async fn check_copied(&self, source: &NewLink) -> Result<bool> {
        const INVALID: &str = "cp: source must be a valid UnixFS (dag-pb or raw codec)";
        if !is_tree_codec(&source.cid) {
            return Err(Error::unsupported(INVALID));
        }
        let staging = Staging::new(Arc::new(self.tree_source()));
        let block = staging.load(&source.cid).await?;
        match decode_async(source.cid, block).await {
            Err(error) if !is_without_sizes(&error) => {
                Err(Error::new(error.kind(), format!("{INVALID}: {error}")).with_source(error))
            }
            decoded => Ok(decoded.is_ok_and(|node| matches!(node, ipfrs_unixfs::Node::Symlink { .. }))),
        }
    }
}

/// Flushes a copy and the directory above it.
async fn flush_copy(tree: &mut Tree, staging: &mut Staging, to: &MutablePath) -> Result<()> {
    flush_path(tree, staging, to.names()).await?;
    tree.flush_directory(staging, to.split().0).await.map(drop)
}

/// Returns the last name of the source of a copy.
fn last_name(from: &CopySource) -> LinkName {
    match from {
        CopySource::Content(path) => path.segments().last().cloned().unwrap_or_else(|| path.root().to_string().into()),
        CopySource::Mutable(path) => path.last().cloned().unwrap_or_else(|| ".".into()),
    }
}
