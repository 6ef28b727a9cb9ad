//! The import pipeline, which gathers, hashes, lays out and stores blocks.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use ipfrs_core::limits::MAX_CHUNK_BYTES;
use ipfrs_core::{Cid, Error, FileOffset, Result, codec, cores, identity_payload};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::file_layout::FileLayout;
use super::layout::{Part, node_block};
use super::leaf::{HashedLeaf, Leaf, LeafGatherer, hash_leaves};
use super::options::ImportOptions;
use super::spare::SpareBatch;
use super::writer::{BlockWriter, MAX_BATCH_BYTES, Mark};
use crate::blocks::BlockSink;
use crate::data::{Attributes, Data, DataType};

/// Most leaves that are hashed as one batch. A batch has at most [`MAX_BATCH_BYTES`] of payload.
const MAX_HASH_BATCH_LEAVES: usize = 16;
/// Time after which gathered leaves and blocks are passed on, although their batches are not full: a client that sends
/// little must not keep them in memory.
pub const MAX_GATHERING: Duration = Duration::from_secs(2);
/// A batch of fewer bytes is hashed inline, because this takes less time than a blocking thread.
const INLINE_HASH_BYTES: usize = 32 * 1024;
// Ensures that a batch of one leaf is not hashed before it is known whether the file has another: see
// `FileImport::finish`.
const _: () = assert!(2 * MAX_CHUNK_BYTES <= MAX_BATCH_BYTES && MAX_HASH_BATCH_LEAVES >= 2);

/// An imported file, directory or symbolic link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Content ID of the root block.
    pub cid: Cid,
    /// Total size of all blocks below the root including the root, in bytes. A block that is linked twice counts
    /// twice. Links of directories contain this size, and Kubo's `add` reports it.
    pub tsize: u64,
    /// Size of the content, in bytes: of the file, of the symbolic link's target, or of everything in the directory.
    pub size: u64,
    /// Kind of the entry.
    pub kind: EntryKind,
}

/// The kind of an [`Entry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A file.
    File,
    /// A directory, sharded or not.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// Imports any number of files, symbolic links and directories into one sink. Children must be imported before their
/// directory. The blocks of many small files share a batch.
///
/// Memory is bounded independently of the file size. An importer holds at most four batches of 4 MiB of blocks: one
/// being gathered, one being hashed, one waiting to be full, and one in the sink. Further batches, of which an
/// importer has at most one per core in hashing and four in the sink, are shared: with N cores, all importers of the
/// process together have at most N + 3. An importer also holds the pieces of the content stream that these blocks are
/// slices of, and the links of one node for each level of the file's tree. Leaves of content-defined chunks take up to
/// twice their size. Memory for directories is documented in [`DirectoryBuilder`](super::DirectoryBuilder).
///
/// An error of the sink or of a content stream ends the import. The caller should then drop the importer, which
/// aborts its tasks. Blocks that the sink has already stored are kept.
pub struct Importer {
    pub(super) options: Arc<ImportOptions>,
    pub(super) writer: BlockWriter,
    max_hash_batches: usize,
}

impl Importer {
    /// Creates an importer into `sink`. Its methods must be called in a Tokio runtime.
    pub fn new(options: ImportOptions, sink: Arc<dyn BlockSink>) -> Self {
        Self { options: Arc::new(options), writer: BlockWriter::new(sink), max_hash_batches: cores() }
    }

    /// Imports a file with `attributes`. `content` yields its bytes in pieces of any size. After each piece, the
    /// importer calls `progress` with the number of bytes of this file that it has read so far.
    ///
    /// When this function returns, the blocks of the file may not be stored yet: see [`flush`](Self::flush) and
    /// [`durable`](Self::durable).
    ///
    /// # Errors
    /// Returns the first error of `content` or of the sink (possibly for blocks of an earlier file), and
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for attributes that the options do not declare.
    pub async fn file<S>(
        &mut self,
        content: S,
        attributes: Attributes,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Entry>
    where
        S: Stream<Item = Result<Bytes>> + Send + Unpin,
    {
        self.file_at(content, None, attributes, progress).await
    }

    /// Imports a file like [`file`](Self::file). If `path` is the absolute path of the file that `content` is read
    /// from, its raw leaves are passed to [`BlockSink::put_leaves`].
    ///
    /// # Errors
    /// As [`file`](Self::file).
    pub async fn file_at<S>(
        &mut self,
        mut content: S,
        path: Option<Arc<Path>>,
        attributes: Attributes,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Entry>
    where
        S: Stream<Item = Result<Bytes>> + Send + Unpin,
    {
        self.check(&attributes)?;
        let mut gatherer = LeafGatherer::new(&self.options);
        let is_content_defined = self.options.chunker.is_content_defined();
        let mut file = FileImport::new(self, path);
        let mut read_bytes = 0;
        while let Some(mut piece) = file.next_piece(&mut content).await? {
            read_bytes += piece.len() as u64;
            while !piece.is_empty() {
                if let Some(leaf) = gatherer.take(&mut piece) {
                    file.push(leaf).await?;
                }
                if is_content_defined {
                    tokio::task::yield_now().await;
                }
            }
            progress(read_bytes);
        }
        if let Some(leaf) = gatherer.finish() {
            file.push(leaf).await?;
        }
        let root = file.finish(&attributes).await?;
        Ok(Entry { cid: root.cid, tsize: root.tsize, size: root.size, kind: EntryKind::File })
    }

    /// Imports a symbolic link to the path `target`. As in Kubo, only the time of its attributes is kept.
    ///
    /// # Errors
    /// Returns [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for a target that does not fit into a block, and
    /// otherwise the errors of [`file`](Self::file).
    pub async fn symlink(&mut self, target: impl AsRef<[u8]>, attributes: Attributes) -> Result<Entry> {
        let target = target.as_ref();
        self.check(&attributes)?;
        let data = Data {
            type_code: Some(DataType::Symlink.code()),
            data: Some(Bytes::copy_from_slice(target)),
            ..Data::default()
        }
        .with_attributes(&Attributes { mode: None, ..attributes });
        let (block, tsize) = node_block(&[], &data, &self.options)?;
        let cid = *block.cid();
        self.writer.push(block).await?;
        Ok(Entry { cid, tsize, size: target.len() as u64, kind: EntryKind::Symlink })
    }

    pub(super) fn check(&self, attributes: &Attributes) -> Result<()> {
        if attributes.is_some() && !self.options.attributes {
            return Err(Error::invalid(
                "attributes were given, but the import was created without them: set Overrides::attributes",
            ));
        }
        Ok(())
    }

    /// Returns the position after everything imported so far.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.writer.mark()
    }

    /// Returns the position up to which the sink has acknowledged all blocks. Everything imported before a
    /// [`mark`](Self::mark) that is not greater is durable. The blocks of an unfinished batch are sent only by
    /// [`flush`](Self::flush).
    #[must_use]
    pub fn durable(&self) -> Mark {
        self.writer.durable()
    }

    /// Returns the time at which the gathered blocks should be [passed on](Self::pass_on), if there are any.
    #[must_use]
    pub fn gathered_until(&self) -> Option<Instant> {
        self.writer.gathering_since().map(|since| since + MAX_GATHERING)
    }

    /// Sends all gathered blocks to the sink, without waiting until they are durable.
    ///
    /// # Errors
    /// An error of the sink, for earlier blocks.
    pub async fn pass_on(&mut self) -> Result<()> {
        self.writer.send().await
    }

    /// Sends all gathered blocks, and returns when everything imported so far is durable.
    ///
    /// # Errors
    /// Returns the first error of the sink.
    pub async fn flush(&mut self) -> Result<()> {
        self.writer.flush().await
    }
}

/// A batch that is being hashed. Dropping it aborts the task.
struct Hashing {
    task: AbortOnDropHandle<Result<Vec<HashedLeaf>>>,
    /// `None` if no other batch was being hashed when this one began.
    _spare: Option<SpareBatch>,
}

/// The leaves of one file in the hashing stage.
struct FileImport<'a> {
    options: Arc<ImportOptions>,
    writer: &'a mut BlockWriter,
    max_hash_batches: usize,
    batch: Vec<Leaf>,
    /// When the oldest leaf arrived that may still be in memory; `None` if there is none.
    gathering_since: Option<Instant>,
    /// Number of file bytes in the batch.
    batch_bytes: usize,
    hashing: VecDeque<Hashing>,
    layout: FileLayout,
    /// Absolute path of the file, if leaves are parts of it.
    path: Option<Arc<Path>>,
    /// Number of file bytes in the leaves that were placed.
    placed_bytes: u64,
}

impl<'a> FileImport<'a> {
    fn new(importer: &'a mut Importer, path: Option<Arc<Path>>) -> Self {
        Self {
            path,
            placed_bytes: 0,
            layout: FileLayout::new(ImportOptions::clone(&importer.options)),
            options: Arc::clone(&importer.options),
            writer: &mut importer.writer,
            max_hash_batches: importer.max_hash_batches,
            batch: Vec::new(),
            gathering_since: None,
            batch_bytes: 0,
            hashing: VecDeque::new(),
        }
    }

    async fn push(&mut self, leaf: Leaf) -> Result<()> {
        self.batch_bytes += leaf.payload_bytes;
        self.batch.push(leaf);
        self.gathering_since.get_or_insert_with(Instant::now);
        if self.batch.len() >= MAX_HASH_BATCH_LEAVES
            || self.batch_bytes + self.options.chunker.max_chunk_bytes() > MAX_BATCH_BYTES
        {
            self.hash_batch().await?;
        }
        Ok(())
    }

    /// Starts to hash the batch. If as many batches as are allowed are being hashed, first waits for the oldest one.
    async fn hash_batch(&mut self) -> Result<()> {
        if self.hashing.len() >= self.max_hash_batches {
            self.take_hashed().await?;
        }
        let mut spare = None;
        while !self.hashing.is_empty() {
            spare = SpareBatch::take();
            if spare.is_some() {
                break;
            }
            self.take_hashed().await?;
        }
        self.batch_bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        let options = Arc::clone(&self.options);
        let task = tokio::task::spawn_blocking(move || hash_leaves(batch, &options));
        self.hashing.push_back(Hashing { task: AbortOnDropHandle::new(task), _spare: spare });
        Ok(())
    }

    /// Returns the leaves of the oldest batch that is being hashed, once they are hashed. There must be one. Nothing is
    /// lost if the future is dropped.
    async fn next_hashed(&mut self) -> Result<Vec<HashedLeaf>> {
        let Some(oldest) = self.hashing.front_mut() else { return Ok(Vec::new()) };
        let leaves = (&mut oldest.task).await;
        self.hashing.pop_front();
        leaves.map_err(|e| Error::internal("a task that hashes blocks failed").with_source(e))?
    }

    /// Waits for the oldest batch that is being hashed, and passes it on.
    async fn take_hashed(&mut self) -> Result<()> {
        let leaves = self.next_hashed().await?;
        self.place(leaves).await
    }

    /// Passes on what was gathered. The only leaf of a file may get attributes at its end, and stays.
    async fn pass_on(&mut self) -> Result<()> {
        self.gathering_since = None;
        let is_first = self.hashing.is_empty() && self.placed_bytes == 0;
        if self.batch.len() > usize::from(is_first) {
            self.hash_batch().await?;
        }
        while !self.hashing.is_empty() {
            self.take_hashed().await?;
        }
        self.writer.send().await
    }

    /// Returns the next piece of `content`. Meanwhile, passes on the batches that are hashed, and after a while others,
    /// so that a slow client does not hold them.
    async fn next_piece<S>(&mut self, content: &mut S) -> Result<Option<Bytes>>
    where
        S: Stream<Item = Result<Bytes>> + Send + Unpin,
    {
        loop {
            let since = self.gathering_since;
            let is_due = async { sleep_until(since.unwrap_or_else(Instant::now) + MAX_GATHERING).await };
            let leaves = tokio::select! {
                biased;
                piece = content.next() => return piece.transpose(),
                leaves = self.next_hashed(), if !self.hashing.is_empty() => Some(leaves?),
                () = is_due, if since.is_some() => None,
            };
            match leaves {
                Some(leaves) => self.place(leaves).await?,
                None => self.pass_on().await?,
            }
        }
    }

    async fn place(&mut self, leaves: Vec<HashedLeaf>) -> Result<()> {
        let mut nodes = Vec::new();
        for HashedLeaf { block, part } in leaves {
            let is_part = block.cid().codec() == codec::RAW && identity_payload(block.cid()).is_none();
            match self.path.clone().filter(|_| is_part) {
                Some(path) => self.writer.push_leaf(block, FileOffset { path, offset: self.placed_bytes }).await?,
                None => self.writer.push(block).await?,
            }
            self.placed_bytes += part.size;
            self.layout.push(part, &mut nodes)?;
            for node in nodes.drain(..) {
                self.writer.push(node).await?;
            }
        }
        Ok(())
    }

    async fn finish(mut self, attributes: &Attributes) -> Result<Part> {
        // A batch is never hashed before it has two leaves.
        if let ([only], FileLayout::Balanced(_)) = (self.batch.as_mut_slice(), &self.layout)
            && self.hashing.is_empty()
            && self.placed_bytes == 0
            && attributes.is_some()
        {
            *only = only.with_attributes(attributes)?;
        }
        if self.hashing.is_empty() && self.batch_bytes < INLINE_HASH_BYTES {
            let leaves = hash_leaves(std::mem::take(&mut self.batch), &self.options)?;
            self.place(leaves).await?;
        } else {
            if !self.batch.is_empty() {
                self.hash_batch().await?;
            }
            while !self.hashing.is_empty() {
                self.take_hashed().await?;
            }
        }
        let mut nodes = Vec::new();
        let root = self.layout.finish(attributes, &mut nodes)?;
        for node in nodes {
            self.writer.push(node).await?;
        }
        Ok(root)
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use futures::stream;
    use ipfrs_core::Block;
    use tokio::sync::watch;

    use super::*;
    use crate::import::options::Overrides;

    /// A sink that counts blocks.
    struct Counting(watch::Sender<usize>);

    #[async_trait]
    impl BlockSink for Counting {
        async fn put(&self, blocks: Vec<Block>) -> Result<()> {
            self.0.send_modify(|count| *count += blocks.len());
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_silent_client_has_sent_is_passed_on() {
        let (sender, mut stored) = watch::channel(0);
        let mut importer =
            Importer::new(ImportOptions::new(None, Overrides::default()).unwrap(), Arc::new(Counting(sender)));
        // Three leaves, which are far from a full batch.
        let content = stream::iter([Ok(Bytes::from(vec![0; 3 * 262_144]))]).chain(stream::pending());
        let mut no_progress = |_| {};
        tokio::select! {
            _ = importer.file(content, Attributes::default(), &mut no_progress) => unreachable!("the content has no end"),
            seen = stored.wait_for(|count| *count == 3) => drop(seen.unwrap()),
            () = tokio::time::sleep(10 * MAX_GATHERING) => panic!("nothing was stored"),
        }
    }
}
