//! Objects that content paths lead to: files, directories, symlinks and other blocks.

use std::sync::Arc;

use bytes::Bytes;
use ipfrs_core::{Cid, Error, Result};
use ipfrs_unixfs::decode_async;

use super::object_kind::ObjectKind;
use super::resolved_path::ResolvedPath;
use crate::Node;

/// Target of a content path.
#[derive(Debug, Clone)]
pub struct Object {
    /// The content ID of the target.
    pub cid: Cid,
    /// The path that led to it.
    pub resolved: Arc<ResolvedPath>,
    /// The root block of the target.
    pub block: Bytes,
    /// Kind of the target.
    pub kind: ObjectKind,
}

impl Object {
    /// Returns this object if it is a whole block or file.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) when the path leads to a value inside a block.
    pub fn whole(self) -> Result<Self> {
        match self.resolved.remainder.as_slice() {
            [] => Ok(self),
            within => Err(Error::unsupported(format!(
                "{} resolves to {:?} within block {}: request the block, or use dag/get",
                self.resolved.path,
                within.join("/"),
                self.cid
            ))),
        }
    }

    /// Returns the error for a caller that needs a file or a directory when this object is [`ObjectKind::Other`]. It
    /// says what the block is instead or why it cannot be decoded. `remedy` tells the client what to request.
    pub async fn not_unixfs(&self, remedy: &str) -> Error {
        let path = &self.resolved.path;
        match decode_async(self.cid, self.block.clone()).await {
            Ok(_) => {
                Error::unsupported(format!("{path}: block {} is neither a file nor a directory; {remedy}", self.cid))
            }
            Err(reason) => Error::new(reason.kind(), format!("{path}: {reason}; {remedy}")).with_source(reason),
        }
    }
}

impl Node {
    /// Returns the approximate memory that an object holds, in bytes: its path, what was decoded of its block, and the
    /// block itself unless it is a view of a mapped file.
    #[must_use]
    pub fn object_bytes(&self, object: &Object) -> usize {
        let mappings = self.inner.mappings.as_ref();
        let is_mapped = mappings.is_some_and(|mappings| mappings.locate(&object.block).is_some());
        let block = if is_mapped { 0 } else { object.block.len() };
        let resolved = usize::try_from(object.resolved.memory_bytes()).unwrap_or(usize::MAX);
        resolved.saturating_add(block)
    }
}
