//! The list of tensors in a file, and a cache of such lists.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt};
use ipfrs_core::{Error, Result};
use ipfrs_stream::Span;
use ipfrs_tensor::{Catalogue, Header, PREFIX_BYTES};
use tokio::task::spawn_blocking;

use crate::{FileContent, Node, Object, ObjectKind};

/// Maximum memory that parsing a header takes, as a multiple of its size. The worst case is metadata of empty
/// strings.
const READ_HEADER_FACTOR: usize = 16;

impl Node {
    /// Returns the catalogue of a file, from the cache or from its header.
    pub(super) async fn catalogue(&self, object: &Object) -> Result<Arc<Catalogue>> {
        let ObjectKind::File(file) = &object.kind else { return Err(no_file(object).await) };
        let epoch = self.epoch();
        let cache = self.inner.catalogues.as_ref();
        if let Some(cached) = cache.and_then(|cache| cache.get(&object.cid)) {
            return Ok(cached);
        }
        let with_path = |e: Error| Error::new(e.kind(), format!("{}: {}", object.resolved.path, e.message()));
        let size = file.size();
        let prefix = self.read_head(file, (PREFIX_BYTES as u64).min(size)).await?;
        let header = Header::of(&prefix, size).map_err(with_path)?;
        let _work_memory = self.work_memory(header.bytes.saturating_mul(READ_HEADER_FACTOR)).await?;
        let bytes = self.read_head(file, header.bytes as u64).await?;
        let parsed = spawn_blocking(move || Catalogue::parse(&bytes, size)).await;
        let parsed = parsed.map_err(|e| Error::internal("reading a header failed").with_source(e))?;
        let catalogue = Arc::new(parsed.map_err(with_path)?);
        if let Some(cache) = cache {
            cache.insert(object.cid, catalogue.clone(), epoch);
        }
        Ok(catalogue)
    }

    /// Returns the first bytes of a file in one piece. They do not count as a download.
    async fn read_head(&self, file: &FileContent, bytes: u64) -> Result<Bytes> {
        let span = Span { start: 0, len: bytes };
        let mut pieces = self.reader(file, span).inspect_err(|error| self.inner.metrics.refusals.note(error));
        let first = pieces.next().await.transpose()?.unwrap_or_default();
        if first.len() as u64 == bytes {
            return Ok(first);
        }
        let mut whole = BytesMut::from(first);
        while let Some(piece) = pieces.next().await {
            whole.extend_from_slice(&piece?);
        }
        Ok(whole.freeze())
    }
}

async fn no_file(object: &Object) -> Error {
    let path = &object.resolved.path;
    match object.kind {
        ObjectKind::Directory(_) => Error::invalid(format!("{path} is a directory: name a file in it")),
        ObjectKind::Symlink(_) => Error::unsupported(format!("{path} is a symlink: use the path of its target")),
        ObjectKind::File(_) | ObjectKind::Other => object.not_unixfs("name a file with tensors").await,
    }
}
