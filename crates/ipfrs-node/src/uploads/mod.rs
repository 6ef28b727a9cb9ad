//! Uploads of single files: as one stream, or in requests that can be resumed.

mod append;
mod config;
mod options;
mod resumable;
mod space;
mod spool;
mod tending;

use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use ipfrs_core::{Cid, Error, Result};
use ipfrs_unixfs::Attributes;

pub use config::UploadConfig;
pub use options::UploadOptions;
pub(crate) use resumable::Uploads;
pub use resumable::{NewUpload, UploadStatus};

use self::space::Need;
use crate::Node;
use crate::operations::{OperationId, OperationKind};

/// Uploads of more bytes reserve room on the disk.
const LEAST_RESERVED_BYTES: u64 = 1024 * 1024;

/// A file that was uploaded: it is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uploaded {
    /// Its content ID, or that of the directory that it was put into.
    pub cid: Cid,
    /// Bytes of the file.
    pub size: u64,
    /// Blocks of its DAG, and of the directory; one that is linked twice counts twice.
    pub blocks: u64,
}

impl Node {
    /// Imports one file while it streams in, as the operation `id`. `length` is how long the file is going to be, where
    /// that is known. When the future is dropped the upload has failed; blocks that were written stay unreferenced.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) when the ID is taken, [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind)
    /// over `upload.max_bytes`, [`ErrorKind::NoSpace`](ipfrs_core::ErrorKind) when the disk has not `length` bytes
    /// beside what it keeps free and what other uploads need; else what the content, the options or the store fail
    /// with.
    pub async fn upload<S>(
        &self,
        options: &UploadOptions,
        id: OperationId,
        length: Option<u64>,
        content: S,
    ) -> Result<Uploaded>
    where
        S: Stream<Item = Result<Bytes>> + Send + Unpin,
    {
        let config = &self.inner.config.upload;
        check_length(length.unwrap_or(0), config)?;
        self.import_options(&options.import()?)?;
        // A shorter one is stored as one batch, or refused with that.
        let reserved = match length {
            Some(length) if length > LEAST_RESERVED_BYTES => {
                Some(self.reserve_upload(Need { spool: 0, packs: length }).await?)
            }
            _ => None,
        };
        let operation = self.inner.operations.begin(id, OperationKind::Upload, 0, length)?;
        let mut taken = 0;
        let bounded = content.map(|piece| {
            let piece = piece?;
            taken += piece.len() as u64;
            check_length(taken, config).map(|()| piece)
        });
        let progress = |bytes, blocks| {
            if let (Some(reserved), Some(length)) = (&reserved, length) {
                reserved.set(Need { spool: 0, packs: length.saturating_sub(bytes) });
            }
            operation.advance(bytes, blocks);
        };
        let imported = self.import_file(options, bounded, progress).await;
        match &imported {
            Ok(file) => operation.done(file.cid, file.size, file.blocks),
            Err(e) => operation.fail(e),
        }
        imported
    }

    /// Imports one file. `progress` is told the bytes that were taken in and the blocks that are stored.
    async fn import_file<S>(
        &self,
        options: &UploadOptions,
        content: S,
        mut progress: impl FnMut(u64, u64) + Send,
    ) -> Result<Uploaded>
    where
        S: Stream<Item = Result<Bytes>> + Send + Unpin,
    {
        let mut session = self.add(options.import()?).await?;
        let blocks = session.stored_blocks();
        // A name is a path of the import only where there is a directory to hold it.
        let path = options.filename.as_deref().filter(|_| options.wrap).unwrap_or_default();
        let mut size = 0;
        let count = |bytes| {
            size = bytes;
            progress(bytes, blocks.load(Ordering::Relaxed));
        };
        session.file(path, Attributes::default(), content, count).await?;
        let root = session.finish().await?.pop();
        let root = root.ok_or_else(|| Error::internal("an import without a root"))?;
        Ok(Uploaded { cid: root.cid, size, blocks: blocks.load(Ordering::Relaxed) })
    }
}

fn check_length(bytes: u64, config: &UploadConfig) -> Result<()> {
    if bytes <= config.max_bytes {
        return Ok(());
    }
    Err(Error::too_large(format!(
        "the upload is over the limit of {most} bytes (upload.max_bytes = {most}): split the file, or set the limit higher",
        most = config.max_bytes
    )))
}
