//! Construction of directories, which are sharded when they are large.

use std::cmp::Ordering;
use std::sync::Arc;

use ipfrs_core::{Block, Error, Result};
use tokio_util::task::AbortOnDropHandle;

use super::importer::{Entry, EntryKind, Importer};
use super::layout::node_block;
use super::options::ImportOptions;
use super::shard::ShardBuilder;
use super::sharding::{DirectoryBytes, basic_data};
use crate::dag_pb::PbLink;
use crate::data::Attributes;
use crate::link_name::LinkName;
use crate::murmur3;

/// Number of entries above which a batch is encoded and hashed on a blocking thread.
const INLINE_ENTRIES: usize = 512;
/// Entries per batch when a complete directory is imported.
const BATCH_ENTRIES: usize = 4_096;

/// Returns the hash of a name in sharded directories. Entries of a directory under construction are sorted by this
/// hash, and then by name.
#[must_use]
pub fn entry_hash(name: impl AsRef<[u8]>) -> u64 {
    murmur3::hash(name.as_ref())
}

/// A directory that is built incrementally; see [`Importer::begin_directory`].
///
/// For a directory that may still fit into one block, the builder keeps all entries in memory, a few thousand at
/// most. For a sharded directory, it keeps only the unfinished shards, one for each level.
#[derive(Debug)]
pub struct DirectoryBuilder {
    options: Arc<ImportOptions>,
    attributes: Attributes,
    form: Form,
    /// Number of content bytes in the directory.
    size: u64,
    /// Hash and name of the last entry.
    last: Option<(u64, LinkName)>,
}

#[derive(Debug)]
enum Form {
    /// A directory in one block.
    Basic { entries: Vec<PbLink>, bytes: DirectoryBytes },
    /// A directory of many blocks.
    Sharded(ShardBuilder),
}

impl DirectoryBuilder {
    fn new(attributes: Attributes, options: Arc<ImportOptions>) -> Self {
        let form = Form::Basic { entries: Vec::new(), bytes: options.sharding.empty_bytes(&attributes) };
        Self { options, attributes, form, size: 0, last: None }
    }

    fn push(&mut self, name: LinkName, entry: &Entry, blocks: &mut Vec<Block>) -> Result<()> {
        check_name(&name)?;
        let hash = entry_hash(&name);
        self.check_order(hash, &name)?;
        self.size = self.size.saturating_add(entry.size);
        let link = PbLink { cid: entry.cid, name, tsize: entry.tsize };
        match &mut self.form {
            Form::Sharded(shards) => shards.push(hash, link, &self.options, blocks),
            Form::Basic { entries, bytes } => {
                let sharding = &self.options.sharding;
                *bytes = *bytes + sharding.link_bytes(&link);
                entries.push(link);
                if !sharding.is_over_size(*bytes) && !sharding.is_over_links(entries.len()) {
                    return Ok(());
                }
                let entries = std::mem::take(entries);
                self.shard(entries, blocks)
            }
        }
    }

    /// Converts the directory to shards.
    fn shard(&mut self, entries: Vec<PbLink>, blocks: &mut Vec<Block>) -> Result<()> {
        let mut shards = ShardBuilder::new(&self.options);
        for link in entries {
            shards.push(entry_hash(&link.name), link, &self.options, blocks)?;
        }
        self.form = Form::Sharded(shards);
        Ok(())
    }

    fn check_order(&mut self, hash: u64, name: &LinkName) -> Result<()> {
        if let Some((last_hash, last)) = &self.last {
            match (*last_hash, last).cmp(&(hash, name)) {
                Ordering::Less => {}
                Ordering::Equal => return Err(Error::invalid(format!("directory has two entries named {name:?}"))),
                Ordering::Greater => {
                    return Err(Error::invalid(format!("directory entry {name:?} comes after {last:?}: sort by hash")));
                }
            }
        }
        self.last = Some((hash, name.clone()));
        Ok(())
    }

    /// Returns the last blocks, ending with the root, and the total size of all blocks below the root including the
    /// root.
    fn finish(self) -> Result<(Vec<Block>, u64)> {
        let mut blocks = Vec::new();
        let tsize = match self.form {
            Form::Sharded(shards) => shards.finish(&self.attributes, &self.options, &mut blocks)?,
            Form::Basic { mut entries, .. } => {
                entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
                let (block, tsize) = node_block(&entries, &basic_data(&self.attributes), &self.options)?;
                blocks.push(block);
                tsize
            }
        };
        Ok((blocks, tsize))
    }

    fn is_large(&self) -> bool {
        matches!(&self.form, Form::Basic { entries, .. } if entries.len() > INLINE_ENTRIES)
    }
}

impl Importer {
    /// Begins a directory with `attributes`.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for attributes that the options do not declare.
    pub fn begin_directory(&self, attributes: Attributes) -> Result<DirectoryBuilder> {
        self.check(&attributes)?;
        Ok(DirectoryBuilder::new(attributes, Arc::clone(&self.options)))
    }

    /// Adds entries: names and previously imported content. The names must be in the order of [`entry_hash`] and then
    /// of the names, and follow all entries that were added before.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a name that is empty, `.` or `..`, contains a
    /// slash or NUL, is repeated or is out of order. Otherwise returns the first error of the sink.
    pub async fn extend_directory(
        &mut self,
        mut directory: DirectoryBuilder,
        entries: Vec<(LinkName, Entry)>,
    ) -> Result<DirectoryBuilder> {
        let is_large = entries.len() > INLINE_ENTRIES;
        let extend = move || {
            let mut blocks = Vec::new();
            for (name, entry) in entries {
                directory.push(name, &entry, &mut blocks)?;
            }
            Ok((directory, blocks))
        };
        let (directory, blocks) = if is_large { on_blocking_thread(extend).await? } else { extend()? };
        self.push_all(blocks).await?;
        Ok(directory)
    }

    /// Imports the finished directory.
    ///
    /// # Errors
    /// Returns the first error of the sink.
    pub async fn finish_directory(&mut self, directory: DirectoryBuilder) -> Result<Entry> {
        let size = directory.size;
        let is_large = directory.is_large();
        let finish = move || directory.finish();
        let (blocks, tsize) = if is_large { on_blocking_thread(finish).await? } else { finish()? };
        let cid = blocks.last().map(|root| *root.cid()).ok_or_else(|| Error::internal("a directory without blocks"))?;
        self.push_all(blocks).await?;
        Ok(Entry { cid, tsize, size, kind: EntryKind::Directory })
    }

    /// Imports a directory with `attributes` and `entries`: names, in any order, and previously imported content.
    ///
    /// # Errors
    /// Returns the errors of [`extend_directory`](Self::extend_directory), except those about the order.
    pub async fn directory(&mut self, mut entries: Vec<(LinkName, Entry)>, attributes: Attributes) -> Result<Entry> {
        let mut directory = self.begin_directory(attributes)?;
        let is_large = entries.len() > INLINE_ENTRIES;
        let sort = move || {
            entries.sort_by_cached_key(|(name, _)| (entry_hash(name), name.clone()));
            Ok(entries)
        };
        let entries = if is_large { on_blocking_thread(sort).await? } else { sort()? };
        let mut entries = entries.into_iter();
        while entries.len() > 0 {
            directory = self.extend_directory(directory, entries.by_ref().take(BATCH_ENTRIES).collect()).await?;
        }
        self.finish_directory(directory).await
    }

    async fn push_all(&mut self, blocks: Vec<Block>) -> Result<()> {
        for block in blocks {
            self.writer.push(block).await?;
        }
        Ok(())
    }
}

async fn on_blocking_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let task = AbortOnDropHandle::new(tokio::task::spawn_blocking(work));
    task.await.map_err(|e| Error::internal("a task that encodes a directory failed").with_source(e))?
}

/// Checks that a name can be that of a directory entry.
pub(crate) fn check_name(name: &LinkName) -> Result<()> {
    if matches!(name.as_bytes(), b"" | b"." | b"..") {
        return Err(Error::invalid(format!("{name:?} cannot be the name of a directory entry")));
    }
    if name.as_bytes().iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(Error::invalid(format!("the name of directory entry {name:?} holds a slash or NUL")));
    }
    Ok(())
}
