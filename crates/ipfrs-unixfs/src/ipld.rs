//! What IPLD blocks link to, and where paths lead in them.

mod canonical;
mod cbor;
mod json;

use bytes::Bytes;
use ipfrs_core::limits::MAX_BLOCK_NESTING;
use ipfrs_core::{Cid, CidList, Error, ErrorKind, Result, codec};

use crate::dag_pb;

pub use canonical::canonical_cbor;

/// Rules for blocks that are readable but not canonical.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strictness {
    /// The rules of Kubo.
    AsKubo,
    /// Every form with one meaning is read.
    Lenient,
}

/// Returns what a block links to, in the order of the block, once for each time that it is linked to. Blocks of dag-pb,
/// dag-cbor and dag-json have links; those of raw and all other codecs have none.
///
/// It takes milliseconds for a large block: tasks of a Tokio runtime ask for it on a thread that may be busy.
///
/// # Errors
/// [`ErrorKind::InvalidContent`] names the block and says what is malformed; [`ErrorKind::TooLarge`] for dag-json with
/// lists and maps more than [`MAX_BLOCK_NESTING`] deep.
pub fn links(cid: &Cid, data: &Bytes) -> Result<CidList> {
    links_of(cid, data, Strictness::AsKubo)
}

/// As [`links`], and of dag-cbor that is not canonical as well: what keeps blocks must not lose those that were
/// taken in by other rules.
///
/// # Errors
/// As [`links`].
pub fn lenient_links(cid: &Cid, data: &Bytes) -> Result<CidList> {
    links_of(cid, data, Strictness::Lenient)
}

fn links_of(cid: &Cid, data: &Bytes, strictness: Strictness) -> Result<CidList> {
    let links = match cid.codec() {
        codec::DAG_PB => dag_pb::decode_cids(data),
        codec::DAG_CBOR => cbor::links(data, strictness),
        codec::DAG_JSON => json::links(data),
        _ => return Ok(CidList::default()),
    };
    links.map_err(|error| named(cid, &error))
}

/// The error with the block that it is about.
pub(crate) fn named(cid: &Cid, error: &Error) -> Error {
    let name = codec::name(cid.codec()).unwrap_or("IPLD");
    match error.kind() {
        ErrorKind::InvalidInput => Error::invalid_content(format!("block {cid} is not valid {name}: {error}")),
        kind => Error::new(kind, format!("block {cid}: {error}")),
    }
}

/// Where a path leads within one block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The first segments lead to a link.
    Link {
        /// What is linked to.
        cid: Cid,
        /// How many segments lead to the link, at least one.
        used: usize,
    },
    /// All segments lead to something in the block that is no link.
    Within,
    /// There is nothing where the segment of this index should lead.
    Missing(usize),
}

/// Where `segments` lead in a block of dag-cbor or dag-json: the keys of maps and the indices of lists, as far as the
/// first link. A block that is nothing but a link has no segments below it.
///
/// # Errors
/// As [`links`].
pub(crate) fn follow(cid: &Cid, data: &[u8], segments: &[String]) -> Result<Step> {
    let step = match cid.codec() {
        codec::DAG_JSON => json::follow(data, segments),
        _ => cbor::follow(data, segments),
    };
    step.map_err(|error| named(cid, &error))
}

/// The index that a segment is: decimal digits.
fn list_index(segment: &str) -> Option<u64> {
    if segment.bytes().all(|byte| byte.is_ascii_digit()) { segment.parse().ok() } else { None }
}

/// Refuses lists and maps that `depth` others are around, when these are too many.
fn check_nesting(depth: usize) -> Result<()> {
    if depth >= MAX_BLOCK_NESTING {
        return Err(too_nested());
    }
    Ok(())
}

/// The error of a block whose lists and maps are too deep.
fn too_nested() -> Error {
    Error::too_large(format!(
        "its lists and maps are more than {MAX_BLOCK_NESTING} deep, the most that a block may have: make several that are linked"
    ))
}
