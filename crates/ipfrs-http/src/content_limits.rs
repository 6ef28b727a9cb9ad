//! Limits of requests: their number, their duration, and the size of content.
//!
//! The Node limits how long a request waits for a block. The connection limits how long a response may take after its
//! head, and how long a client may stop reading it.

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use ipfrs_core::limits::MAX_PATH_SEGMENTS;
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_node::{Limit, Node};

use crate::gateway;
use crate::state::AppState;

/// Whether a path, as written in a URL, has more segments than the gateway follows.
pub(crate) fn is_long(path: &str) -> bool {
    gateway::path::parts(path).count() > MAX_PATH_SEGMENTS
}

/// Advice for a client that requests content that is too large, by route.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Remedy {
    /// On the gateway.
    Gateway,
    /// Under `/v1/stream/download`.
    Download,
    /// Under `/v1/tensor`.
    Tensor,
    /// In the RPC.
    Rpc,
}

impl Remedy {
    fn of_content(self) -> &'static str {
        match self {
            Self::Gateway => "request it with ?format=car, or block by block with ?format=raw",
            Self::Download => "request /ipfs/{cid}?format=car, or request it block by block with ?format=raw",
            Self::Tensor => "request parts of it with slice=, or request /ipfs/{cid}?format=car",
            Self::Rpc => "use dag/export for a CAR of it, or block/get for its blocks",
        }
    }

    fn of_range(self) -> &'static str {
        match self {
            Self::Gateway => "request the whole file, or the blocks of the range with ?format=car&entity-bytes=FROM:TO",
            Self::Download => {
                "request the whole file, or the blocks of the range with /ipfs/{cid}?format=car&entity-bytes=FROM:TO"
            }
            Self::Tensor => "request the whole tensor, or parts of it with slice=",
            Self::Rpc => "request the whole file, or its blocks with block/get",
        }
    }
}

/// Refuses content that is too large to be served as a file or an archive, even if the client requests only a part of
/// it: a client could otherwise fetch all of it in parts.
///
/// # Errors
/// [`ErrorKind::Gone`] above `gateway.max_deserialized_bytes`.
pub(crate) fn check_size(state: &AppState, size: u64, remedy: Remedy) -> Result<()> {
    let most = state.config.max_deserialized_bytes;
    if most == 0 || size <= most {
        return Ok(());
    }
    Err(too_large_to_deserialise(&state.node, most, remedy))
}

/// Refuses range requests for files above the size limit for ranges.
///
/// # Errors
/// [`ErrorKind::Unsupported`] above `gateway.max_range_request_bytes`.
pub(crate) fn check_range(state: &AppState, is_range: bool, size: u64, remedy: Remedy) -> Result<()> {
    let most = state.config.max_range_request_bytes;
    if most == 0 || size <= most || !is_range {
        return Ok(());
    }
    state.node.count_refusal(Limit::RangeRequestBytes);
    let what = format!("ranges of files larger than {most} bytes are not served");
    let limit = format!("gateway.max_range_request_bytes = {most}");
    Err(Error::unsupported(format!("{what} ({limit}): {}", remedy.of_range())))
}

fn too_large_to_deserialise(node: &Node, most: u64, remedy: Remedy) -> Error {
    node.count_refusal(Limit::DeserializedBytes);
    let what = format!("content larger than {most} bytes is served only in verifiable formats");
    let limit = format!("gateway.max_deserialized_bytes = {most}");
    Error::new(ErrorKind::Gone, format!("{what} ({limit}): {}", remedy.of_content()))
}

/// Limits an archive of unknown length: the stream fails once it is too large to be served.
pub(crate) fn bounded(
    state: &AppState,
    pieces: impl Stream<Item = Result<Bytes>> + Send + 'static,
    remedy: Remedy,
) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
    let (node, most) = (state.node.clone(), state.config.max_deserialized_bytes);
    let is_over = move |sent: u64| most > 0 && sent > most;
    pieces.scan(0_u64, move |sent, piece| {
        let was_over = is_over(*sent);
        *sent = sent.saturating_add(piece.as_ref().map_or(0, |piece| piece.len() as u64));
        std::future::ready(match (was_over, is_over(*sent)) {
            // A caller may poll again after the error, which must be returned and counted only once.
            (true, _) => None,
            (false, true) => Some(Err(too_large_to_deserialise(&node, most, remedy))),
            (false, false) => Some(piece),
        })
    })
}
