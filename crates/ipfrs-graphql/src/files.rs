//! Files of a multipart request, which are read while they arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use ipfrs_core::{Error, Result};
use multer::{Field, Multipart};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::error::unreadable;

/// The files of a request.
pub(crate) struct Files {
    /// Names of the parts, in the order of the map.
    names: Vec<String>,
    parts: Arc<Mutex<Multipart<'static>>>,
    /// Number of parts and pieces of parts that the parser has returned.
    claims: Arc<AtomicUsize>,
}

/// A file while it arrives.
pub(crate) struct FilePart {
    /// File name, if the client sent one.
    pub(crate) name: Option<String>,
    pub(crate) content: BoxStream<'static, Result<Bytes>>,
}

impl Files {
    /// Creates the files that follow in `parts`. `names` are the names of their parts.
    pub(crate) fn new(names: Vec<String>, parts: Multipart<'static>, claims: Arc<AtomicUsize>) -> Self {
        Self { names, parts: Arc::new(Mutex::new(parts)), claims }
    }

    /// Returns a file, once the ones before it were read or dropped.
    ///
    /// # Errors
    /// If there is no such file, or if it was sent before one that was used already.
    pub(crate) async fn take(&self, number: usize) -> Result<FilePart> {
        let wanted = self.names.get(number).ok_or_else(|| Error::invalid("the map has no such file"))?;
        let mut parts = Arc::clone(&self.parts).lock_owned().await;
        loop {
            let field = parts.next_field().await.map_err(unreadable)?;
            self.claims.fetch_add(1, Ordering::Relaxed);
            let Some(field) = field else {
                return Err(Error::invalid(format!(
                    "the file {wanted:?} of the map was not sent, or was sent before a file that the operation uses \
                     earlier: send the files in the order of their use, each for one variable"
                )));
            };
            if field.name() == Some(wanted) {
                let name = field.file_name().filter(|name| !name.is_empty()).map(str::to_owned);
                return Ok(FilePart { name, content: content(field, parts, Arc::clone(&self.claims)) });
            }
        }
    }
}

/// Returns the content of a part. Until it is dropped, no other part can be read.
fn content(
    field: Field<'static>,
    parts: OwnedMutexGuard<Multipart<'static>>,
    claims: Arc<AtomicUsize>,
) -> BoxStream<'static, Result<Bytes>> {
    let pieces = stream::unfold((field, parts, claims), |(mut field, parts, claims)| async move {
        let piece = field.chunk().await.map_err(unreadable).transpose()?;
        claims.fetch_add(1, Ordering::Relaxed);
        Some((piece, (field, parts, claims)))
    });
    pieces.boxed()
}
