//! Links and paths in IPLD blocks.

mod canonical;
mod cbor;
pub mod git;
pub mod jose;
mod json;
mod pb;
mod value;

use bytes::Bytes;
use ipfrs_core::limits::MAX_BLOCK_NESTING;
use ipfrs_core::{Cid, CidList, Error, ErrorKind, Result, codec};

use crate::LinkName;
use crate::dag_pb::{self, PbLink};

pub use canonical::{canonical_cbor, ordered_cbor};

/// Treatment of blocks that are readable but not canonical.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strictness {
    /// Accepts the blocks that Kubo accepts.
    AsKubo,
    /// Accepts every unambiguous form.
    Lenient,
}

/// Returns the links of a block, in the order of the block and with repetitions. Blocks of dag-pb, dag-cbor, dag-json,
/// git-raw and dag-jose can have links; blocks of raw and all other codecs have none.
///
/// This function takes milliseconds for a large block. In a Tokio runtime, call it on a blocking thread.
///
/// # Errors
/// Returns [`ErrorKind::InvalidContent`] for a malformed block, with a message that names the block and the fault,
/// and [`ErrorKind::TooLarge`] for dag-json with lists and maps more than [`MAX_BLOCK_NESTING`] deep.
pub fn links(cid: &Cid, data: &Bytes) -> Result<CidList> {
    links_of(cid, data, Strictness::AsKubo)
}

/// Whether it is known which links blocks of a codec have.
#[must_use]
pub fn knows_links(codec: u64) -> bool {
    use codec::{CBOR, DAG_CBOR, DAG_JOSE, DAG_JSON, DAG_PB, GIT_RAW, JSON, RAW};
    matches!(codec, RAW | DAG_PB | DAG_CBOR | DAG_JSON | GIT_RAW | DAG_JOSE | CBOR | JSON)
}

/// Returns the links of a block like [`links`], but also accepts dag-cbor that is not canonical. Garbage collection
/// must keep the links of blocks that were stored under other rules.
///
/// # Errors
/// Returns the errors of [`links`].
pub fn lenient_links(cid: &Cid, data: &Bytes) -> Result<CidList> {
    links_of(cid, data, Strictness::Lenient)
}

/// Returns the names of the links of a dag-pb block, in the order of [`links`]. Empty for other codecs, whose links
/// have no names.
///
/// # Errors
/// Returns [`ErrorKind::InvalidContent`] for a malformed block.
pub fn link_names(cid: &Cid, data: &Bytes) -> Result<Vec<LinkName>> {
    if cid.codec() != codec::DAG_PB {
        return Ok(Vec::new());
    }
    let names = dag_pb::RawNode::read(data).and_then(|node| node.links());
    names.map(|links| links.into_iter().map(|link| link.name).collect()).map_err(|error| named(cid, &error))
}

/// Returns the links of a block like [`links`], with the names and sizes that links of dag-pb have. Links of other
/// codecs have an empty name and the size 0.
///
/// # Errors
/// Returns the errors of [`links`], and [`ErrorKind::TooLarge`] for dag-pb with more links than a block may have.
pub fn named_links(cid: &Cid, data: &Bytes) -> Result<Vec<PbLink>> {
    if cid.codec() == codec::DAG_PB {
        return dag_pb::RawNode::read(data).and_then(|node| node.links()).map_err(|error| named(cid, &error));
    }
    let unnamed = |cid| PbLink { cid, name: LinkName::default(), tsize: 0 };
    Ok(links(cid, data)?.iter().map(unnamed).collect())
}

fn links_of(cid: &Cid, data: &Bytes, strictness: Strictness) -> Result<CidList> {
    let links = match cid.codec() {
        codec::DAG_PB => dag_pb::decode_cids(data),
        codec::DAG_CBOR => cbor::links(data, strictness),
        codec::DAG_JSON => json::links(data),
        codec::GIT_RAW => lenient(git::links(data), strictness),
        codec::DAG_JOSE => lenient(jose::links(data), strictness),
        _ => return Ok(CidList::default()),
    };
    links.map_err(|error| named(cid, &error))
}

/// Earlier versions stored and pinned malformed blocks of these codecs, which had no links.
fn lenient(links: Result<CidList>, strictness: Strictness) -> Result<CidList> {
    match links {
        Err(error) if strictness == Strictness::Lenient && error.kind() == ErrorKind::InvalidInput => {
            Ok(CidList::default())
        }
        links => links,
    }
}

/// Adds the name of the block to an error.
pub(crate) fn named(cid: &Cid, error: &Error) -> Error {
    let name = codec::name(cid.codec()).unwrap_or("IPLD");
    match error.kind() {
        ErrorKind::InvalidInput => Error::invalid_content(format!("block {cid} is not valid {name}: {error}")),
        kind => Error::new(kind, format!("block {cid}: {error}")),
    }
}

/// The result of following a path within one block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The first segments lead to a link.
    Link {
        /// Target of the link.
        cid: Cid,
        /// Number of segments that lead to the link, at least one.
        used: usize,
    },
    /// All segments lead to a value in the block that is not a link.
    Within,
    /// The block has no value for the segment at this index.
    Missing(usize),
}

/// Follows `segments` in a block of dag-pb, or one for which [`has_paths`] is true, up to the first link. The segments
/// are keys of maps and indices of lists. A block that is only a link has no segments below it.
///
/// # Errors
/// Returns the errors of [`links`].
pub(crate) fn follow(cid: &Cid, data: &Bytes, segments: &[String]) -> Result<Step> {
    let step = match cid.codec() {
        codec::DAG_JSON | codec::JSON => json::follow(data, segments),
        codec::GIT_RAW => git::follow(data, segments),
        codec::DAG_JOSE => jose::follow(data, segments),
        codec::DAG_PB => pb::follow(data, segments),
        _ => cbor::follow(data, segments),
    };
    step.map_err(|error| named(cid, &error))
}

/// Whether paths lead into blocks of a codec by [`follow`].
pub(crate) fn has_paths(cid: &Cid) -> bool {
    use codec::{CBOR, DAG_CBOR, DAG_JOSE, DAG_JSON, GIT_RAW, JSON};
    matches!(cid.codec(), DAG_CBOR | DAG_JSON | CBOR | JSON | GIT_RAW | DAG_JOSE)
}

/// Parses a list index: decimal digits.
fn list_index(segment: &str) -> Option<u64> {
    if segment.bytes().all(|byte| byte.is_ascii_digit()) { segment.parse().ok() } else { None }
}

/// Returns an error if `depth` lists and maps already enclose a value and no more nesting is allowed.
fn check_nesting(depth: usize) -> Result<()> {
    if depth >= MAX_BLOCK_NESTING {
        return Err(too_nested());
    }
    Ok(())
}

/// Returns the error for a block whose lists and maps are nested too deeply.
fn too_nested() -> Error {
    Error::too_large(format!(
        "its lists and maps are nested more than {MAX_BLOCK_NESTING} levels deep, the maximum for one block: split it into several linked blocks"
    ))
}
