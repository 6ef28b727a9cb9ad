//! The tree: walks along paths, and updates of the directories above a changed node.

use std::fmt;
use std::sync::Arc;

use ipfrs_core::{Error, Result};
use ipfrs_unixfs::{CidFormat, DirectoryEdit, NewLink, Staging};

use super::directory::{Cached, CachedFile, Directory};
use super::path::joined;
use crate::LinkName;

/// Maximum number of cached nodes. The cache is cleared before.
const MAX_CACHED_NODES: usize = 16 * 1024;
/// Number of cached nodes above which the cache is cleared when they are counted.
const MANY_CACHED_NODES: usize = MAX_CACHED_NODES / 4 * 3;

/// The tree. Clones share what is below the root. Changes of either copy the directories on their way, which still
/// share their entries, unless one changes, and most of their cached nodes.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    root: Directory,
    /// Root of the last flush.
    flushed: NewLink,
    /// Number of the last flush, counted from the start.
    version: u64,
    /// Number of operations since the last flush.
    unflushed: u64,
    /// Maximum of it; 0 for no limit.
    max_unflushed: u64,
    /// Upper bound of the number of cached nodes: their last count, and the steps of all walks since.
    cached_at_most: usize,
}

/// Node at a path.
pub(super) enum Target<'a> {
    Directory(&'a mut Directory),
    File(&'a mut CachedFile),
}

impl Tree {
    /// Creates a tree with a root that was read from the disk or is empty, and the number of its flush. The root gets
    /// `format`, as in Kubo, where it always has the configured one.
    pub(super) fn new(
        mut root: DirectoryEdit,
        format: Option<CidFormat>,
        max_unflushed: u64,
        version: u64,
        staging: &mut Staging,
    ) -> Result<Self> {
        if let Some(format) = format {
            root.set_format(format);
        }
        let flushed = root.commit(staging)?;
        Ok(Self { root: Directory::new(root), flushed, version, unflushed: 0, max_unflushed, cached_at_most: 0 })
    }

    /// Returns the root of the last flush and its number.
    pub(super) fn flushed(&self) -> (NewLink, u64) {
        (self.flushed, self.version)
    }

    /// Counts an operation.
    ///
    /// # Errors
    /// As [`Self::check_count`].
    pub(super) fn count(&mut self, flushes: bool) -> Result<()> {
        self.check_count(flushes)?;
        self.unflushed = if flushes { 0 } else { self.unflushed + 1 };
        Ok(())
    }

    /// Checks that [`Self::count`] can succeed.
    ///
    /// # Errors
    /// If too many operations were not flushed. They use memory.
    pub(super) fn check_count(&self, flushes: bool) -> Result<()> {
        let max = self.max_unflushed;
        if !flushes && max > 0 && self.unflushed >= max {
            return Err(Error::invalid(format!(
                "reached limit of {max} unflushed MFS operations. To resolve: 1) run 'ipfs files flush' to persist \
                 changes, 2) use --flush=true (default), or 3) increase Internal.MFSNoFlushLimit in config \
                 (mutable_files.max_unflushed)"
            )));
        }
        Ok(())
    }

    /// Returns the node at a path.
    ///
    /// # Errors
    /// If it does not exist, or if there is a file above it.
    pub(super) async fn find<'a>(&'a mut self, staging: &Staging, names: &[LinkName]) -> Result<Target<'a>> {
        // The caller may look up a node in the directory.
        self.cached_at_most += names.len() + 1;
        let mut directory = &mut self.root;
        for (at, name) in names.iter().enumerate() {
            match directory.child(staging, name).await? {
                None => return Err(does_not_exist()),
                Some(Cached::Directory(child)) => directory = Arc::make_mut(child),
                Some(Cached::File(file)) if at + 1 == names.len() => return Ok(Target::File(file)),
                Some(Cached::File(_)) => {
                    let path = joined(&names[..at + 2]);
                    return Err(Error::invalid(format!("cannot access {path}: Not a directory")));
                }
            }
        }
        Ok(Target::Directory(directory))
    }

    /// Returns whether there is a node at a path.
    pub(super) async fn exists(&mut self, staging: &Staging, names: &[LinkName]) -> Result<bool> {
        match self.find(staging, names).await {
            Ok(_) => Ok(true),
            Err(e) if is_absent(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Returns the directory at a path, or `None` for a file.
    pub(super) async fn directory<'a>(
        &'a mut self,
        staging: &Staging,
        names: &[LinkName],
    ) -> Result<Option<&'a mut Directory>> {
        match self.find(staging, names).await? {
            Target::Directory(directory) => Ok(Some(directory)),
            Target::File(_) => Ok(None),
        }
    }

    /// Returns a link to the node at a path, with all changes below it.
    pub(super) async fn link(&mut self, staging: &mut Staging, names: &[LinkName]) -> Result<NewLink> {
        match self.find(staging, names).await? {
            Target::Directory(directory) => directory.fold(staging, false).await,
            Target::File(file) => Ok(file.link),
        }
    }

    /// Creates the directories of a path, which exist afterwards.
    ///
    /// # Errors
    /// If one of the names is that of a file. Nothing is created then.
    pub(super) async fn make_directories(
        &mut self,
        staging: &mut Staging,
        names: &[LinkName],
        format: CidFormat,
    ) -> Result<()> {
        self.check_directories(staging, names).await?;
        self.cached_at_most += names.len();
        let sharding = self.root.edit.sharding();
        let mut directory = &mut self.root;
        for name in names {
            directory = match directory.child(staging, name).await?.is_some() {
                true => match directory.child(staging, name).await? {
                    Some(Cached::Directory(child)) => Arc::make_mut(child),
                    Some(Cached::File(_)) | None => return Err(Error::internal("a directory is a file")),
                },
                false => directory.add_directory(staging, name, DirectoryEdit::empty(format, sharding)).await?,
            };
        }
        Ok(())
    }

    /// Checks that [`Self::make_directories`] can succeed.
    pub(super) async fn check_directories(&mut self, staging: &Staging, names: &[LinkName]) -> Result<()> {
        self.cached_at_most += names.len();
        let mut directory = &mut self.root;
        for (at, name) in names.iter().enumerate() {
            match directory.child(staging, name).await? {
                None => return Ok(()),
                Some(Cached::Directory(child)) => directory = Arc::make_mut(child),
                Some(Cached::File(_)) if at + 1 == names.len() => return Err(Error::invalid("file already exists")),
                Some(Cached::File(_)) => {
                    return Err(Error::invalid(format!("{} was not a directory", joined(&names[..at]))));
                }
            }
        }
        Ok(())
    }

    /// Updates the directories above a node that has changed, and takes the result as the flushed root.
    pub(super) async fn update_above(
        &mut self,
        staging: &mut Staging,
        names: &[LinkName],
        mut link: NewLink,
    ) -> Result<()> {
        for depth in (0..names.len()).rev() {
            let directory = self.directory(staging, &names[..depth]).await?;
            let directory = directory.ok_or_else(|| Error::internal("a file is above another"))?;
            link = directory.update(staging, &names[depth], link).await?;
        }
        self.flushed = link;
        self.version += 1;
        Ok(())
    }

    /// Flushes a directory: updates its entries for all nodes below it, clears its cache, and updates the directories
    /// above it.
    pub(super) async fn flush_directory(&mut self, staging: &mut Staging, names: &[LinkName]) -> Result<NewLink> {
        let directory = self.directory(staging, names).await?;
        let directory = directory.ok_or_else(|| Error::internal("a directory is a file"))?;
        let link = directory.fold(staging, true).await?;
        self.update_above(staging, names, link).await?;
        Ok(link)
    }

    /// Clears the cache if it is large. The nodes are counted only when there may be too many, because all other
    /// operations wait meanwhile.
    pub(super) async fn limit_cache(&mut self, staging: &mut Staging) -> Result<()> {
        if self.cached_at_most <= MAX_CACHED_NODES {
            return Ok(());
        }
        self.cached_at_most = self.root.cached_nodes();
        if self.cached_at_most > MANY_CACHED_NODES {
            self.root.fold(staging, true).await?;
            self.cached_at_most = 0;
        }
        Ok(())
    }
}

/// Cause of the error for a node that does not exist.
#[derive(Debug)]
struct Absent;

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the directory has no such entry")
    }
}

impl std::error::Error for Absent {}

/// Returns the error for a node that does not exist.
pub(super) fn does_not_exist() -> Error {
    Error::not_found("file does not exist").with_source(Absent)
}

/// Returns whether an error says that a node does not exist, as opposed to a missing block.
pub(super) fn is_absent(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<Absent>())
}
