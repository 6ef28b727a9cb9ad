//! Files whose nodes have links without sizes.
//!
//! UnixFS requires a size for each link of a file (<https://specs.ipfs.tech/unixfs/#unixfs-file>), but other
//! implementations read such a file from its beginning. Here the sizes are found by reading the nodes of the parts, so
//! that ranges work as well.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use ipfrs_core::{Cid, Error, Result};

use crate::blocks::BlockSource;
use crate::node::{Node, decode_async, decode_with_sizes, is_without_sizes, part_cids};

/// Most parts that are read to find the sizes of one file.
pub const MAX_MEASURED_PARTS: usize = 1_024;

/// Largest node whose links get sizes, in bytes. It has room for [`MAX_MEASURED_PARTS`] links.
const MAX_NODE_BYTES: usize = 64 * 1024;

/// Most nodes without sizes above each other.
const MAX_DEPTH: usize = 8;

/// Decodes a block like [`decode_async`]. If it is a file whose links have no sizes, reads its parts from `source` to
/// find them, and counts them off `left`, the number of parts that the caller may still read in this way.
///
/// # Errors
/// Returns the errors of [`decode_async`], which concern missing sizes if there are more than `left` parts below the
/// nodes without sizes, and the errors of `source`.
pub async fn decode_measured(source: &dyn BlockSource, cid: Cid, data: Bytes, left: &AtomicUsize) -> Result<Node> {
    match decode_async(cid, data.clone()).await {
        Err(error) if is_without_sizes(&error) => measured(source, cid, data, error, left, MAX_DEPTH).await,
        decoded => decoded,
    }
}

/// Returns the node of a file after reading at most `left` parts. `error` is that of decoding it.
fn measured<'a>(
    source: &'a dyn BlockSource,
    cid: Cid,
    data: Bytes,
    error: Error,
    left: &'a AtomicUsize,
    depth: usize,
) -> BoxFuture<'a, Result<Node>> {
    async move {
        if data.len() > MAX_NODE_BYTES || depth == 0 {
            return Err(error);
        }
        let parts = part_cids(&data)?;
        let take = |left: usize| left.checked_sub(parts.len());
        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return Err(error);
        }
        let mut sizes = Vec::with_capacity(parts.len());
        for part in parts {
            let block = match ipfrs_core::identity_payload(&part) {
                Some(payload) => Bytes::copy_from_slice(payload),
                None => source.peek(&part).await?,
            };
            let node = match decode_async(part, block.clone()).await {
                Err(error) if is_without_sizes(&error) => measured(source, part, block, error, left, depth - 1).await?,
                decoded => decoded?,
            };
            let Node::File(file) = node else {
                return Err(Error::invalid_content(format!("block {cid} is a file, but its part {part} is not")));
            };
            sizes.push(file.size);
        }
        decode_with_sizes(&cid, &data, sizes)
    }
    .boxed()
}
