//! Uploads of single files as one stream.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use ipfrs_core::{Error, Result};
use ipfrs_unixfs::Attributes;

use super::ledger::Need;
use super::options::{UploadOptions, Uploaded, check_length};
use crate::Node;
use crate::operations::{OperationId, OperationKind};

/// Uploads larger than this reserve space on the disk.
const LEAST_RESERVED_BYTES: u64 = 1024 * 1024;

impl Node {
    /// Imports one file as a stream, as the operation `id`. `length` is the expected size, if known. Dropping the
    /// future fails the upload; blocks that were already written stay unreferenced.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) if the ID is in use;
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) over `upload.max_bytes`;
    /// [`ErrorKind::NoSpace`](ipfrs_core::ErrorKind) if the disk lacks `length` bytes in addition to its reserve and
    /// the needs of other uploads; otherwise the error of the content, the options or the store.
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
        // A shorter file is stored as one batch, which the store refuses if the disk is full.
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
        let imported = operation.unless_cancelled(self.import_file(options, bounded, progress)).await;
        match &imported {
            Ok(file) => operation.done(file.cid, file.size, file.blocks),
            Err(e) => operation.fail(e),
        }
        imported
    }

    /// Imports one file. Calls `progress` with the bytes read and the number of blocks stored.
    pub(super) async fn import_file<S>(
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
        // A file name is a path in the import only if a directory wraps the file.
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
