//! Links of one block.

use bytes::Bytes;
use ipfrs_core::{Cid, Result};
use ipfrs_unixfs::dag_pb::PbLink;
use ipfrs_unixfs::named_links;

use super::INLINE_DECODE_BYTES;
use crate::off_workers;

/// Returns the links of a block, in the order of the block and with repetitions. Links of dag-pb have names and the
/// sizes that the block claims. The names of other links are empty, and their sizes 0.
///
/// # Errors
/// [`ErrorKind::InvalidContent`](ipfrs_core::ErrorKind) for a malformed block;
/// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for too many links.
pub async fn block_links(cid: Cid, data: Bytes) -> Result<Vec<PbLink>> {
    if data.len() <= INLINE_DECODE_BYTES {
        return named_links(&cid, &data);
    }
    off_workers(move || named_links(&cid, &data)).await
}
