//! Changes of one file.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use ipfrs_core::{Block, Cid, Error, Result, codec};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::append::{Append, Leaves};
use super::cid_format::CidFormat;
use super::file_part::{FileNode, FilePart};
use super::overwrite::overwrite;
use super::pieces::{Pieces, join};
use super::staging::{NewLink, Staging};
use super::truncate::truncate;
use crate::blocks::{BlockSink, BlockSource};
use crate::data::{Mtime, WireMtime};
use crate::import::{Chunker, Part};

/// Number of written bytes that are cut into leaves and appended by themselves.
const PART_BYTES: usize = 2 * 1024 * 1024;
/// Number of parts that are gathered before their leaves are hashed: sixteen leaves together take half the time that
/// they take one after the other.
const GATHERED_PARTS: usize = 2;
/// Size of the leaves of holes, in bytes.
const HOLE_CHUNK_BYTES: usize = 4096;
/// Size of new blocks, in bytes, from which they are passed to the sink before the change ends.
const MAX_STAGED_BYTES: usize = 4 * 1024 * 1024;
/// Maximum number of puts in progress. The sink can begin the next one at once, and may store several together.
const MAX_PUTS: usize = 4;

/// Most bytes of zeros that one seek adds to a file: 4 GiB.
pub const MAX_HOLE_BYTES: u64 = 4 << 30;

/// A change of one file: truncation, and writes at increasing offsets. Memory is bounded: 4 MiB of gathered content,
/// about 4 MiB of new blocks, 16 MiB of leaves that are being stored, and the nodes on the path to the current offset.
/// A buffer that was written stays until the last block in it is stored, unless it is over 16 MiB.
///
/// The layout is that of Kubo's mutable files. Content within the file is replaced in the existing blocks. Content
/// beyond its end is appended in the trickle layout. Each 2 MiB of it are split by themselves, and a leaf that is not
/// full is not continued.
pub struct FileEdit {
    staging: Staging,
    sink: Arc<dyn BlockSink>,
    /// Puts of leaves in progress, while the next ones are hashed. They end with the change: clients that leave would
    /// fill the memory otherwise.
    storing: VecDeque<AbortOnDropHandle<Result<()>>>,
    root: FilePart,
    /// Format of new nodes.
    format: CidFormat,
    raw_leaves: bool,
    /// Chunker of new content.
    chunker: Chunker,
    now: WireMtime,
    /// Offset of the first byte that is not part of the tree yet.
    offset: u64,
    /// Full parts from there, and the one behind them.
    full_parts: Vec<Vec<Bytes>>,
    part: Pieces,
}

impl FileEdit {
    /// Begins a change of the file `cid`. Raw leaves are the default for CIDv1. A file with a modification time gets
    /// `now` where Kubo sets the time: when its root block holds content, or receives its first leaves.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for anything but a file, and
    /// [`ErrorKind::InvalidContent`](ipfrs_core::ErrorKind) for an invalid one; otherwise the errors of the source.
    pub async fn open(
        source: Arc<dyn BlockSource>,
        sink: Arc<dyn BlockSink>,
        cid: &Cid,
        raw_leaves: Option<bool>,
        chunker: Chunker,
        now: Mtime,
    ) -> Result<Self> {
        let staging = Staging::new(source);
        let root = FilePart::load(&staging, cid).await?;
        let format = CidFormat::of(cid)?;
        let raw_leaves = raw_leaves.unwrap_or(format.version() > 0);
        let now = WireMtime { seconds: Some(now.seconds), nanos: Some(now.nanos).filter(|nanos| *nanos > 0) };
        Ok(Self {
            staging,
            sink,
            storing: VecDeque::new(),
            root,
            format,
            raw_leaves,
            chunker,
            now,
            offset: 0,
            full_parts: Vec::new(),
            part: Pieces::default(),
        })
    }

    /// Returns the block of an empty file.
    ///
    /// # Errors
    /// Returns an error if the hash function cannot be computed.
    pub fn empty(format: CidFormat) -> Result<Block> {
        format.block(codec::DAG_PB, FileNode::empty(format).encode())
    }

    /// Returns the size of the file, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        let gathered = self.full_parts.len() * PART_BYTES + self.part.len();
        self.root.size().max(self.offset + gathered as u64)
    }

    /// Sets the size of the file. A file that grows is continued with zeros.
    ///
    /// # Errors
    /// Returns the errors of [`Self::write`], and [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for more than
    /// [`MAX_HOLE_BYTES`] of zeros.
    pub async fn truncate(&mut self, size: u64) -> Result<()> {
        self.sync().await?;
        self.stored().await?;
        if size >= self.root.size() {
            return self.expand(size).await;
        }
        truncate(&mut self.staging, &mut self.root, size, &self.now, 0).await
    }

    /// Sets the offset of the next write. An offset beyond the end continues the file with zeros.
    ///
    /// # Errors
    /// As [`Self::truncate`].
    pub async fn seek(&mut self, offset: u64) -> Result<()> {
        self.sync().await?;
        self.stored().await?;
        self.expand(offset).await?;
        self.offset = offset;
        Ok(())
    }

    /// Writes at the current offset.
    ///
    /// # Errors
    /// Returns [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) if the size of the file overflows, and otherwise the
    /// errors of the source and the sink.
    pub async fn write(&mut self, mut content: Bytes) -> Result<()> {
        let is_kept = Pieces::keeps(content.len());
        while !content.is_empty() {
            let len = content.len().min(PART_BYTES - self.part.len());
            self.part.push(content.split_to(len), is_kept);
            if self.part.len() == PART_BYTES {
                self.full_parts.push(self.part.take());
                if self.full_parts.len() == GATHERED_PARTS {
                    self.sync().await?;
                }
            }
        }
        Ok(())
    }

    /// Ends the change. Returns a link to the new root, and the blocks that were not passed to the sink. With raw
    /// leaves, a file of one raw leaf and without attributes is that leaf.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn finish(mut self) -> Result<(NewLink, Vec<Block>)> {
        self.commit().await
    }

    /// Returns a link to the current root, and the blocks that were not passed to the sink; see [`Self::finish`]. The
    /// change continues: the caller must make the blocks available in the source first.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn commit(&mut self) -> Result<(NewLink, Vec<Block>)> {
        self.sync().await?;
        self.stored().await?;
        let root = match only_leaf(&self.root).filter(|_| self.raw_leaves) {
            Some(cid) => NewLink { cid, tsize: self.root.size() },
            None => self.root.commit(&mut self.staging).await?,
        };
        Ok((root, self.staging.take()))
    }

    /// Returns a link to a file with raw leaves as a change without any content would leave it; see [`Self::finish`].
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn collapsed(staging: &Staging, file: NewLink) -> Result<NewLink> {
        if file.cid.codec() != codec::DAG_PB {
            return Ok(file);
        }
        let root = FilePart::load(staging, &file.cid).await?;
        let Some(cid) = only_leaf(&root) else { return Ok(file) };
        let leaf = staging.load(&cid).await?;
        Ok(NewLink { cid, tsize: leaf.len() as u64 })
    }

    /// Adds zeros up to `size`.
    async fn expand(&mut self, size: u64) -> Result<()> {
        let hole = size.saturating_sub(self.root.size());
        if hole == 0 {
            return Ok(());
        }
        if hole > MAX_HOLE_BYTES {
            return Err(Error::too_large(format!(
                "the offset is {hole} bytes past the end of the file, over the limit of {MAX_HOLE_BYTES}"
            )));
        }
        let is_raw = self.appends_raw_leaves();
        let leaves = Leaves::of_zeros(&mut self.staging, hole, HOLE_CHUNK_BYTES, self.format, is_raw)?;
        self.append(leaves).await
    }

    fn appends_raw_leaves(&self) -> bool {
        self.raw_leaves || matches!(self.root, FilePart::Raw { .. })
    }

    /// Writes the gathered content into the tree.
    async fn sync(&mut self) -> Result<()> {
        let mut parts = mem::take(&mut self.full_parts);
        if self.part.len() > 0 {
            parts.push(self.part.take());
        }
        if parts.is_empty() {
            return Ok(());
        }
        let len: usize = parts.iter().flatten().map(Bytes::len).sum();
        let end = self.offset.checked_add(len as u64);
        let end = end.filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or_else(|| Error::too_large("the size of the file is over 2^63 bytes"))?;
        self.expand(self.offset).await?;
        let mut offset = self.offset;
        for part in &mut parts {
            let size = self.root.size();
            if offset > size {
                break;
            }
            if offset < size {
                // The leaf in which the last part ended may be among those that are being stored.
                self.stored().await?;
                join(part);
            }
            let len: usize = part.iter().map(Bytes::len).sum();
            // At the end of the file, this replaces nothing.
            overwrite(&mut self.staging, &mut self.root, offset, &mut part[0], &self.now, 0).await?;
            offset += len as u64;
        }
        parts.retain(|part| part.iter().any(|piece| !piece.is_empty()));
        while !parts.is_empty() {
            let is_raw = self.appends_raw_leaves();
            // A root that is a raw leaf decides about the first part only.
            let count = if is_raw == self.raw_leaves { parts.len() } else { 1 };
            let next = parts.drain(..count).collect();
            let next = Leaves::of_parts(&mut self.staging, next, self.chunker, self.format, is_raw).await?;
            for leaves in next {
                self.append(leaves).await?;
            }
        }
        self.offset = end;
        self.store_staged().await
    }

    /// Passes new blocks to the sink if there are many. Waits only if too many earlier ones are being stored.
    async fn store_staged(&mut self) -> Result<()> {
        if self.staging.bytes() < MAX_STAGED_BYTES {
            return Ok(());
        }
        while self.storing.len() >= MAX_PUTS || self.storing.front().is_some_and(AbortOnDropHandle::is_finished) {
            self.first_stored().await?;
        }
        // Before the offset changes, only nodes and the last leaf may be loaded again.
        let (leaves, nodes): (Vec<_>, Vec<_>) =
            self.staging.take().into_iter().partition(|block| block.cid().codec() == codec::RAW);
        let sink = self.sink.clone();
        let storing = tokio::spawn(async move { sink.put(leaves).await }.in_current_span());
        self.storing.push_back(AbortOnDropHandle::new(storing));
        nodes.into_iter().for_each(|node| self.staging.insert(node));
        if self.staging.bytes() >= MAX_STAGED_BYTES {
            self.sink.put(self.staging.take()).await?;
        }
        Ok(())
    }

    /// Waits for all leaves that are being stored.
    async fn stored(&mut self) -> Result<()> {
        while !self.storing.is_empty() {
            self.first_stored().await?;
        }
        Ok(())
    }

    /// Waits for the oldest put.
    async fn first_stored(&mut self) -> Result<()> {
        let Some(storing) = self.storing.pop_front() else { return Ok(()) };
        storing.await.map_err(|e| Error::internal("a task that stores leaves failed").with_source(e))?
    }

    async fn append(&mut self, leaves: Leaves) -> Result<()> {
        if let FilePart::Raw { data, .. } = &self.root {
            // A raw block has no links, so it becomes the first leaf of a node.
            let size = data.len() as u64;
            let leaf = self.root.commit(&mut self.staging).await?;
            let mut node = FileNode::empty(self.format);
            node.push(&Part { cid: leaf.cid, size, tsize: leaf.tsize });
            self.root = FilePart::Node(node);
        }
        let FilePart::Node(root) = &mut self.root else { return Ok(()) };
        let mut append = Append { staging: &mut self.staging, leaves, format: self.format, now: &self.now };
        append.run(root).await
    }
}

/// Returns the only leaf of a file that is raw and has all that the root contains.
fn only_leaf(root: &FilePart) -> Option<Cid> {
    let FilePart::Node(node) = root else { return None };
    let [only] = node.links.as_slice() else { return None };
    let is_all = node.inline_bytes() == 0 && !node.data.attributes().is_some();
    (is_all && only.cid.codec() == codec::RAW).then_some(only.cid)
}
