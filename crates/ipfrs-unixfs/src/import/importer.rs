//! The import pipeline: gather, hash, lay out, store.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use ipfrs_core::limits::MAX_CHUNK_BYTES;
use ipfrs_core::{Cid, Error, Result};
use tokio_util::task::AbortOnDropHandle;

use super::layout::{FileLayout, Part, node_block};
use super::leaf::{HashedLeaf, Leaf, LeafGatherer, hash_leaves};
use super::options::ImportOptions;
use super::writer::{BlockWriter, MAX_BATCH_BYTES, Mark};
use crate::blocks::BlockSink;
use crate::data::{Attributes, Data, DataType};

/// Most leaves that are hashed as one batch, of at most [`MAX_BATCH_BYTES`] of payload.
const MAX_HASH_BATCH_LEAVES: usize = 16;
/// Less than this is hashed at once, as that takes less time than handing it to another thread and back.
const INLINE_HASH_BYTES: usize = 32 * 1024;
// So that a batch of one leaf is not hashed before it is known whether the file has another: see `FileImport::finish`.
const _: () = assert!(2 * MAX_CHUNK_BYTES <= MAX_BATCH_BYTES && MAX_HASH_BATCH_LEAVES >= 2);

/// What was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The root block.
    pub cid: Cid,
    /// Bytes of all blocks below the root, itself included, where a block that is linked twice counts twice. It goes
    /// into the links of directories, and is what Kubo's `add` reports as size.
    pub tsize: u64,
    /// Bytes of content: of the file, of the symbolic link's target, or of everything in the directory.
    pub size: u64,
    /// What it is.
    pub kind: EntryKind,
}

/// What kind of thing was imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A file.
    File,
    /// A directory, sharded or not.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// Imports any number of files, symbolic links and directories, children first, into one sink. Blocks of many small
/// files share a batch.
///
/// Memory is bounded whatever the size of a file: with N cores, at most (N + 6) times 4 MiB of blocks (one batch being
/// gathered, N being hashed, one waiting to be full, 4 in the sink), the pieces of the content stream that these are
/// slices of, and the links of one node for each level of the file's tree. Leaves whose ends the content decides take up to
/// twice their bytes. Directories are built from their entries as [`DirectoryBuilder`](super::DirectoryBuilder) says.
///
/// An error of the sink or of a content stream ends the import: drop the importer, which aborts its tasks. Blocks that
/// the sink has by then stay there.
pub struct Importer {
    pub(super) options: Arc<ImportOptions>,
    pub(super) writer: BlockWriter,
    max_hash_batches: usize,
}

impl Importer {
    /// An importer into `sink`. Its methods must be called in a Tokio runtime.
    pub fn new(options: ImportOptions, sink: Arc<dyn BlockSink>) -> Self {
        Self {
            options: Arc::new(options),
            writer: BlockWriter::new(sink),
            max_hash_batches: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// Imports a file with `attributes`. `content` is its bytes in pieces of any size; `progress` is told how many bytes have been read of
    /// this file so far, after each piece.
    ///
    /// When it returns the file's blocks are on their way: see [`flush`](Self::flush) and [`durable`](Self::durable).
    ///
    /// # Errors
    /// The first error of `content`, or of the sink (perhaps for blocks of an earlier file);
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for attributes that the options did not announce.
    pub async fn file<S>(
        &mut self,
        mut content: S,
        attributes: Attributes,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Entry>
    where
        S: Stream<Item = Result<Bytes>> + Send + Unpin,
    {
        self.check(&attributes)?;
        let mut gatherer = LeafGatherer::new(&self.options);
        let is_content_defined = self.options.chunker.is_content_defined();
        let mut file = FileImport::new(self);
        let mut read_bytes = 0;
        while let Some(piece) = content.next().await {
            let mut piece = piece?;
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

    /// Imports a symbolic link to the path `target`. Of its attributes only the time is kept, as in Kubo.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for a target that does not fit into a block; else as
    /// [`file`](Self::file).
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
                "attributes were given, but the import was made without: set Overrides::attributes",
            ));
        }
        Ok(())
    }

    /// The position after everything imported so far.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.writer.mark()
    }

    /// The position up to which the sink has acknowledged everything: what was imported before a [`mark`](Self::mark)
    /// that is not greater is durable. Blocks of an unfinished batch are only sent by [`flush`](Self::flush).
    #[must_use]
    pub fn durable(&self) -> Mark {
        self.writer.durable()
    }

    /// Sends what has been gathered, and returns when everything imported so far is durable.
    ///
    /// # Errors
    /// The first error of the sink.
    pub async fn flush(&mut self) -> Result<()> {
        self.writer.flush().await
    }
}

/// A batch that is being hashed; dropping it ends that soon.
type HashTask = AbortOnDropHandle<Result<Vec<HashedLeaf>>>;

/// The leaves of one file on their way through the hashers.
struct FileImport<'a> {
    options: Arc<ImportOptions>,
    writer: &'a mut BlockWriter,
    max_hash_batches: usize,
    batch: Vec<Leaf>,
    /// Bytes of the file in the batch.
    batch_bytes: usize,
    hashing: VecDeque<HashTask>,
    layout: FileLayout,
}

impl<'a> FileImport<'a> {
    fn new(importer: &'a mut Importer) -> Self {
        Self {
            layout: FileLayout::new(ImportOptions::clone(&importer.options)),
            options: Arc::clone(&importer.options),
            writer: &mut importer.writer,
            max_hash_batches: importer.max_hash_batches,
            batch: Vec::new(),
            batch_bytes: 0,
            hashing: VecDeque::new(),
        }
    }

    async fn push(&mut self, leaf: Leaf) -> Result<()> {
        self.batch_bytes += leaf.payload_bytes;
        self.batch.push(leaf);
        if self.batch.len() >= MAX_HASH_BATCH_LEAVES
            || self.batch_bytes + self.options.chunker.max_chunk_bytes() > MAX_BATCH_BYTES
        {
            self.hash_batch().await?;
        }
        Ok(())
    }

    /// Starts to hash the batch, once one of the earlier ones is done if there are as many as there may be.
    async fn hash_batch(&mut self) -> Result<()> {
        if self.hashing.len() >= self.max_hash_batches {
            self.take_hashed().await?;
        }
        self.batch_bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        let options = Arc::clone(&self.options);
        let task = tokio::task::spawn_blocking(move || hash_leaves(batch, &options));
        self.hashing.push_back(AbortOnDropHandle::new(task));
        Ok(())
    }

    /// Waits for the oldest batch that is being hashed.
    async fn take_hashed(&mut self) -> Result<()> {
        if let Some(task) = self.hashing.pop_front() {
            let leaves =
                task.await.map_err(|e| Error::internal("a task that hashes blocks failed").with_source(e))??;
            self.place(leaves).await?;
        }
        Ok(())
    }

    async fn place(&mut self, leaves: Vec<HashedLeaf>) -> Result<()> {
        let mut nodes = Vec::new();
        for HashedLeaf { block, part } in leaves {
            self.writer.push(block).await?;
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
