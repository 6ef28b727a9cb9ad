//! Writes to mutable files.

use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_unixfs::{CidFormat, FileEdit, NewLink, Staging};

use super::change::now;
use super::directory::CachedFile;
use super::path::MutablePath;
use super::tree::{Target, Tree, does_not_exist, is_absent};
use super::unstored::TreeSource;
use crate::Node;

/// Options of [`Node::write_to_tree`].
#[derive(Debug, Clone, Copy)]
pub struct WriteOptions {
    /// Offset of the first byte. Beyond the end of the file, zeros are added.
    pub offset: u64,
    /// Whether a missing file is created.
    pub create: bool,
    /// Whether missing directories above the file are created.
    pub parents: bool,
    /// Whether the file is truncated first.
    pub truncate: bool,
    /// Maximum number of bytes to write.
    pub count: u64,
    /// Whether new leaves are raw; by default as `[import]` says, or if the content ID of the file has version 1.
    pub raw_leaves: Option<bool>,
    /// Format of the content IDs of a new file and new directories; by default that of `[import]`.
    pub format: Option<CidFormat>,
    /// Whether the change is flushed.
    pub flush: bool,
}

impl Node {
    /// Writes to a file in the tree. Writers of one file wait for each other. The file changes when all content has
    /// been read; if `content` fails, it stays as it is.
    ///
    /// # Errors
    /// If the path is not a file, or does not exist and is not created; [`ErrorKind::Conflict`] if the file was
    /// moved, removed or replaced meanwhile, or is an object that is being ingested; otherwise errors of the content or
    /// the store.
    pub async fn write_to_tree(
        &self,
        path: &MutablePath,
        options: WriteOptions,
        mut content: impl Stream<Item = Result<Bytes>> + Send + Unpin,
    ) -> Result<()> {
        self.check_writable()?;
        let names = path.names();
        self.recover_before_write(names).await?;
        // Writers that wait for another one hold no permit.
        let _lock = self.inner.mutable_files.locks.lock(names).await?;
        // Its writer would wait for this one, which may be as slow as its client likes.
        if self.inner.ingestion.is_written(names) {
            let why = "a client of /ws/ingest is writing the file: try again when its connection has ended";
            return Err(Error::new(ErrorKind::Conflict, why));
        }
        let _import_permit = self.import_permit().await?;
        let _lease = self.inner.protection.lease();
        let before = self.file_to_write(path, options).await?;
        let settings = self.inner.mutable_files.settings;
        let format = options.format.unwrap_or(settings.format);
        let (file, empty) = match before {
            Some(file) => (file, None),
            None => {
                let empty = FileEdit::empty(format)?;
                let link = NewLink { cid: *empty.cid(), tsize: empty.data().len() as u64 };
                (CachedFile::new(link), Some(empty))
            }
        };
        let raw_leaves = options.raw_leaves.or(settings.raw_leaves).unwrap_or(file.raw_leaves);
        let source = Arc::new(TreeSource { empty: empty.clone(), ..self.tree_source() });
        let (sink, chunker) = (self.tree_sink(), settings.chunker);
        let mut edit = FileEdit::open(source, sink, &file.link.cid, Some(raw_leaves), chunker, now()).await?;
        if options.truncate {
            edit.truncate(0).await?;
        }
        edit.seek(options.offset).await?;
        let mut left = options.count;
        while left > 0
            && let Some(piece) = content.next().await.transpose()?
        {
            let piece = piece.slice(..usize::try_from(left).unwrap_or(usize::MAX).min(piece.len()));
            left -= piece.len() as u64;
            self.inner.metrics.upload_bytes.inc_by(piece.len() as u64);
            edit.write(piece).await?;
        }
        let (link, blocks) = edit.finish().await?;
        let mut open = self.open_tree().await?;
        let (tree, staging) = open.change()?;
        tree.count(options.flush)?;
        blocks.into_iter().for_each(|block| staging.insert(block));
        let (above, name) = names.split_at(names.len().saturating_sub(1));
        if let Some(empty) = empty {
            staging.insert(empty);
            let name = name.first().ok_or_else(does_not_exist)?;
            if options.parents {
                tree.make_directories(staging, above, format).await?;
            }
            let directory = tree.directory(staging, above).await?.ok_or_else(does_not_exist)?;
            directory.add(staging, name, file.link).await?;
        }
        match tree.find(staging, names).await {
            Ok(Target::File(current)) if current.link == file.link => {
                (current.link, current.raw_leaves) = (link, raw_leaves);
            }
            Ok(_) => return Err(Error::new(ErrorKind::Conflict, "the file was replaced while it was written")),
            Err(e) if is_absent(&e) => {
                let text = "the file was moved or removed while it was written, so the new content is not stored";
                return Err(Error::new(ErrorKind::Conflict, text));
            }
            Err(e) => return Err(e),
        }
        if options.flush {
            tree.update_above(staging, names, link).await?;
            tree.flush_directory(staging, above).await?;
        }
        tree.limit_cache(staging).await?;
        self.end_change(open.changed(options.flush)).await
    }

    /// Returns the file that is to be written, or `None` if it is to be created, and checks that it can be.
    async fn file_to_write(&self, path: &MutablePath, options: WriteOptions) -> Result<Option<CachedFile>> {
        let names = path.names();
        self.fetch_ways(&[names]).await?;
        let mut open = self.open_tree_to_change().await?;
        let (tree, staging) = open.parts()?;
        if options.parents {
            let above = if path.ends_with_slash() { names } else { &names[..names.len().saturating_sub(1)] };
            tree.check_directories(staging, above).await?;
        }
        let found = match tree.find(staging, names).await {
            Ok(Target::File(file)) if file.is_symlink => {
                return Err(Error::unsupported("symlinks not yet supported"));
            }
            Ok(Target::File(file)) => Some(*file),
            Ok(Target::Directory(_)) => return Err(not_a_file(path)),
            Err(e) if is_absent(&e) && options.create => None,
            Err(e) => return Err(e),
        };
        if found.is_none() {
            check_parent(tree, staging, path, options.parents).await?;
        }
        tree.check_count(options.flush)?;
        Ok(found)
    }
}

/// Checks that a file can be created: its directory exists or will be made.
async fn check_parent(tree: &mut Tree, staging: &Staging, path: &MutablePath, parents: bool) -> Result<()> {
    let (above, name) = path.split();
    if name.is_none() {
        return Err(does_not_exist());
    }
    match tree.directory(staging, above).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Error::invalid("expected *mfs.Directory, didn't get it. This is likely a race condition")),
        Err(e) if is_absent(&e) && parents => Ok(()),
        Err(e) => Err(e),
    }
}

/// Returns the error for a path that is not that of a file.
pub(super) fn not_a_file(path: &MutablePath) -> Error {
    Error::invalid(format!("{path} was not a file"))
}
