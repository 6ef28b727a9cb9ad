//! Changes of the tree: directories, copies, moves, removals, attributes and flushes.

use std::time::{SystemTime, UNIX_EPOCH};

use ipfrs_core::{Cid, Error, ErrorKind, Result};
use ipfrs_unixfs::{AttributeChange, CidFormat, DirectoryEdit, FileEdit, Mtime, NewLink, Staging};

use super::directory::{Cached, link_of};
use super::files_state::Changed;
use super::path::{MutablePath, directory_text, text};
use super::settings::TreeSettings;
use super::tree::{Target, Tree, does_not_exist, is_absent};
use crate::{LinkName, Node};

/// Attribute of a mutable file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MutableAttribute {
    /// Unix permissions; 0 removes them.
    Mode(u32),
    /// Modification time.
    Mtime(Mtime),
    /// The current time as modification time.
    Now,
}

impl Node {
    /// Creates a directory, with `parents` also the directories above it. With `parents`, an existing directory is no
    /// error. The format is by default that of `[import]`.
    ///
    /// # Errors
    /// If the path exists or, without `parents`, the directory above it does not.
    pub async fn make_directory(
        &self,
        path: &MutablePath,
        parents: bool,
        format: Option<CidFormat>,
        flush: bool,
    ) -> Result<()> {
        self.check_writable()?;
        let TreeSettings { format: default_format, sharding, .. } = self.inner.mutable_files.settings;
        let format = format.unwrap_or(default_format);
        self.fetch_ways(&[path.names()]).await?;
        let _lease = self.inner.protection.lease();
        let mut open = self.open_tree_to_change().await?;
        let (tree, staging) = open.change()?;
        let names = path.names();
        let Some((name, above)) = names.split_last() else {
            let exists = "cannot create directory '/': Already exists";
            return if parents { Ok(()) } else { Err(Error::invalid(exists)) };
        };
        tree.check_directories(staging, names).await?;
        if parents {
            tree.count(flush)?;
            tree.make_directories(staging, names, format).await?;
        } else {
            let directory = tree.directory(staging, above).await?.ok_or_else(does_not_exist)?;
            if directory.child(staging, name).await?.is_some() {
                return Err(Error::invalid("file already exists"));
            }
            tree.count(flush)?;
            let directory = tree.directory(staging, above).await?.ok_or_else(does_not_exist)?;
            directory.add_directory(staging, name, DirectoryEdit::empty(format, sharding)).await?;
        }
        if flush {
            tree.flush_directory(staging, names).await?;
        }
        tree.limit_cache(staging).await?;
        self.end_change(open.changed(flush)).await
    }

    /// Puts an imported root into the tree, under its own `name` if `to` is a directory, and flushes it.
    ///
    /// # Errors
    /// If the directory does not exist, or the target exists.
    pub(crate) async fn put_into_tree(&self, root: &Cid, name: &LinkName, to: &MutablePath) -> Result<()> {
        self.fetch_ways(&[to.names()]).await?;
        let mut open = self.open_tree_to_change().await?;
        let (tree, staging) = open.change()?;
        let shown = |path: &MutablePath| format!("{:?}", path.to_string());
        let to = if to.is_directory() {
            let absent = |e: Error| {
                let what = format!("to-files: MFS destination directory {} does not exist: {e}", shown(to));
                Error::new(e.kind(), what).with_source(e)
            };
            match tree.find(staging, to.names()).await.map_err(absent)? {
                Target::Directory(_) => to.join(name.clone())?,
                Target::File(_) => {
                    let message = format!("to-files: MFS destination {} is not a directory", shown(to));
                    return Err(Error::invalid(message));
                }
            }
        } else {
            to.clone()
        };
        let (above, name) = to.split();
        let name = name.ok_or_else(|| Error::invalid("cannot create file with empty name"))?;
        let cannot = |e: Error| failed("to-files: cannot put node in path", &shown(&to), e);
        let absent = |e: Error| {
            let parent = format!("{:?}", text(above));
            let what = format!("to-files: MFS destination parent {} {parent} does not exist: {e}", shown(&to));
            Error::new(e.kind(), what).with_source(e)
        };
        let directory = tree.directory(staging, above).await.map_err(absent)?;
        let not_a_directory = || cannot(Error::invalid(format!("{} is not a directory", directory_text(above))));
        let directory = directory.ok_or_else(not_a_directory)?;
        let block = staging.load(root).await?;
        directory.add(staging, name, link_of(root, &block)?).await.map_err(cannot)?;
        tree.flush_directory(staging, above).await?;
        tree.limit_cache(staging).await?;
        self.end_change(open.changed(true)).await
    }

    /// Moves a file or directory. If the target is a directory, the source is moved into it; an existing file is
    /// replaced.
    ///
    /// As in Kubo, the source stays if it and the target have equal names in directories of equal names.
    ///
    /// # Errors
    /// If the source or the directory above the target does not exist, or the target is below the source.
    pub async fn move_in_tree(&self, from: &MutablePath, to: &MutablePath, flush: bool) -> Result<()> {
        self.check_writable()?;
        self.fetch_ways(&[from.names(), to.names()]).await?;
        let _lease = self.inner.protection.lease();
        let mut open = self.open_tree_to_change().await?;
        let (tree, staging) = open.change()?;
        let (from_above, from_name) = from.split();
        let (to_above, to_name) = to.split();
        let directory = |names: &[LinkName]| Error::invalid(format!("{} is not a directory", directory_text(names)));
        tree.directory(staging, to_above).await?.ok_or_else(|| directory(to_above))?;
        tree.directory(staging, from_above).await?.ok_or_else(|| directory(from_above))?;
        let from_name = from_name.ok_or_else(does_not_exist)?;
        let link = tree.link(staging, from.names()).await?;
        let mut target_above = to_above.to_vec();
        let mut target_name = to_name.unwrap_or(from_name).clone();
        let target = [to_above, std::slice::from_ref(&target_name)].concat();
        let replaces_file = match tree.find(staging, &target).await {
            Ok(Target::File(_)) => true,
            Ok(Target::Directory(_)) => {
                (target_above, target_name) = (target, from_name.clone());
                false
            }
            Err(e) if is_absent(&e) => false,
            Err(e) => return Err(e),
        };
        if target_above.starts_with(from.names()) {
            return Err(Error::invalid(format!("cannot move {from} into itself")));
        }
        let target_directory = tree.directory(staging, &target_above).await?.ok_or_else(does_not_exist)?;
        if !replaces_file && target_directory.child(staging, &target_name).await?.is_some() {
            return Err(Error::invalid("directory already has entry by that name"));
        }
        tree.count(flush)?;
        let target_directory = tree.directory(staging, &target_above).await?.ok_or_else(does_not_exist)?;
        if replaces_file {
            target_directory.unlink(staging, &target_name).await?;
        }
        target_directory.add(staging, &target_name, link).await?;
        let is_copy = from_above.last() == target_above.last() && *from_name == target_name;
        if !is_copy {
            let source_directory = tree.directory(staging, from_above).await?.ok_or_else(does_not_exist)?;
            source_directory.unlink(staging, from_name).await?;
        }
        if flush {
            tree.flush_directory(staging, to_above).await?;
            if to_above != from_above {
                tree.flush_directory(staging, from_above).await?;
            }
            tree.flush_directory(staging, &[]).await?;
        }
        tree.limit_cache(staging).await?;
        self.end_change(open.changed(flush)).await
    }

    /// Removes a file, with `recursive` or `force` also a directory. With `force`, a missing one is no error.
    ///
    /// # Errors
    /// If the path does not exist, is the root, or is a directory without `recursive`.
    pub async fn remove_from_tree(&self, path: &MutablePath, recursive: bool, force: bool) -> Result<()> {
        self.check_writable()?;
        let names = path.names();
        let Some((name, above)) = names.split_last() else { return Err(Error::invalid("cannot delete root")) };
        self.fetch_ways(&[if force { above } else { names }]).await?;
        let mut open = self.open_tree().await?;
        let (tree, staging) = open.change()?;
        let directory = match tree.directory(staging, above).await {
            Ok(Some(directory)) => directory,
            Ok(None) => {
                let message = "expected *mfs.Directory, didn't get it. This is likely a race condition";
                return Err(Error::invalid(message));
            }
            Err(e) if force && is_absent(&e) => return Ok(()),
            Err(e) => return Err(e),
        };
        if !force {
            match directory.child(staging, name).await? {
                None => return Err(does_not_exist()),
                Some(Cached::Directory(_)) if !recursive => {
                    return Err(Error::invalid("path is a directory, use -r to remove directories"));
                }
                Some(_) => {}
            }
        }
        if !directory.unlink(staging, name).await? {
            return if force { Ok(()) } else { Err(does_not_exist()) };
        }
        tree.flush_directory(staging, above).await?;
        tree.limit_cache(staging).await?;
        self.end_change(open.changed(true).with_reserve()).await
    }

    /// Changes an attribute of a file or directory, and flushes it.
    ///
    /// # Errors
    /// If the path does not exist.
    pub async fn set_mutable_attribute(&self, path: &MutablePath, attribute: MutableAttribute) -> Result<()> {
        self.check_writable()?;
        let _lease = self.inner.protection.lease();
        let change = match attribute {
            MutableAttribute::Mode(mode) => AttributeChange::Mode(mode),
            MutableAttribute::Mtime(mtime) => AttributeChange::Mtime(mtime),
            MutableAttribute::Now => AttributeChange::Mtime(now()),
        };
        let names = path.names();
        self.fetch_ways(&[names]).await?;
        let _lock = self.inner.mutable_files.locks.lock(names).await?;
        let mut open = self.open_tree_to_change().await?;
        let (tree, staging) = open.change()?;
        let link = match tree.find(staging, names).await? {
            Target::Directory(directory) => {
                directory.fold(staging, false).await?;
                directory.edit.set_attribute(change)?;
                directory.edit.commit(staging)?
            }
            Target::File(file) => {
                let block = staging.load(&file.link.cid).await?;
                let block = change.of_file(&file.link.cid, &block)?;
                file.link = link_of(block.cid(), block.data())?;
                staging.insert(block);
                file.link
            }
        };
        tree.update_above(staging, names, link).await?;
        tree.limit_cache(staging).await?;
        self.end_change(open.changed(true)).await
    }

    /// Changes the format of the content ID of a directory. Without a `format`, only flushes.
    ///
    /// # Errors
    /// If the path is the root, a file, or does not exist.
    pub async fn set_cid_format(&self, path: &MutablePath, format: Option<CidFormat>, flush: bool) -> Result<()> {
        self.check_writable()?;
        let names = path.names();
        self.fetch_ways(&[names]).await?;
        let mut open = self.open_tree_to_change().await?;
        let (tree, staging) = open.change()?;
        if let Some(format) = format {
            match tree.find(staging, names).await? {
                Target::Directory(directory) => directory.edit.set_format(format),
                Target::File(_) => return Err(Error::invalid("can only update directories")),
            }
        }
        if flush {
            flush_path(tree, staging, names).await?;
            tree.flush_directory(staging, &names[..names.len().saturating_sub(1)]).await?;
        }
        self.end_change(open.changed(flush)).await
    }

    /// Makes a file or directory with everything below it durable, and returns its content ID.
    ///
    /// # Errors
    /// If the path does not exist, or the blocks cannot be stored.
    pub async fn flush_tree(&self, path: &MutablePath) -> Result<Cid> {
        self.flush_and_end(path, |changed| changed).await
    }

    async fn flush_and_end(&self, path: &MutablePath, end: impl FnOnce(Changed) -> Changed) -> Result<Cid> {
        self.check_writable()?;
        self.fetch_ways(&[path.names()]).await?;
        let mut open = self.open_tree().await?;
        let (tree, staging) = open.change()?;
        let link = flush_path(tree, staging, path.names()).await?;
        tree.count(true)?;
        let changed = if path.names().is_empty() { open.flushed() } else { open.changed(true) };
        self.end_change(end(changed)).await?;
        Ok(link.cid)
    }
}

impl Node {
    /// Makes changes without a flush durable, before the node is closed. As in Kubo, only a crash loses them.
    pub(crate) async fn flush_at_last(&self) -> Result<()> {
        if self.inner.read_only || !self.inner.mutable_files.has_unflushed().await {
            return Ok(());
        }
        self.flush_and_end(&MutablePath::parse("/")?, Changed::with_reserve).await.map(drop)
    }
}

/// Flushes the node at a path. As in Kubo, a file with raw leaves that consists of one leaf becomes that leaf.
pub(super) async fn flush_path(tree: &mut Tree, staging: &mut Staging, names: &[LinkName]) -> Result<NewLink> {
    let link = match tree.find(staging, names).await? {
        Target::Directory(_) => return tree.flush_directory(staging, names).await,
        Target::File(file) if file.is_symlink => return Err(symlinks_unsupported()),
        Target::File(file) => {
            if file.raw_leaves {
                file.link = FileEdit::collapsed(staging, file.link).await?;
            }
            file.link
        }
    };
    tree.update_above(staging, names, link).await?;
    Ok(link)
}

pub(super) fn symlinks_unsupported() -> Error {
    Error::unsupported("symlinks not yet supported")
}

/// Returns an error with the wording of Kubo before it.
pub(super) fn failed(what: &str, path: &str, error: Error) -> Error {
    let kind = match error.kind() {
        ErrorKind::Conflict => ErrorKind::InvalidInput,
        kind => kind,
    };
    Error::new(kind, format!("{what} {path}: {error}")).with_source(error)
}

/// Returns the current time.
pub(crate) fn now() -> Mtime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Mtime { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}
