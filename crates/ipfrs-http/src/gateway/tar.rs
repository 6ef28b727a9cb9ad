//! Files and trees as TAR archives: `?format=tar` or `Accept: application/x-tar`
//! (<https://specs.ipfs.tech/ipips/ipip-0288/>).

use axum::body::Body;
use axum::response::Response;
use futures::StreamExt;
use http::header::{ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, StatusCode};
use ipfrs_core::Result;
use ipfrs_node::{Object, ObjectKind, gathered};

use super::content_response::{ContentResponse, etag};
use super::disposition;
use super::request::GatewayRequest;
use crate::body::{Chunked, Sized, begun, unknown_length};
use crate::content_limits::{self, Remedy};
use crate::state::AppState;

/// Responds with an archive of a file, directory or symlink. The unpacked root entry is named after the content ID.
///
/// # Errors
/// See [`ipfrs_node::Node::archive`]; also errors near the beginning of the stream, such as an entry that leads out
/// of the archive or a missing block.
pub(super) async fn archive(
    state: &AppState,
    request: &GatewayRequest<'_>,
    headers: &HeaderMap,
    object: Object,
) -> Result<Response> {
    // Weak, because future versions may write the archive headers differently.
    let mut response = ContentResponse::new(state, request, &object, format!("W/{}", etag(&object, ".x-tar")));
    response.set(CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    response.set(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let name = request.filename.clone().unwrap_or_else(|| format!("{}.tar", object.cid));
    response.set(CONTENT_DISPOSITION, disposition::header("attachment", &name));
    response.set(ACCEPT_RANGES, HeaderValue::from_static("none"));
    response.locate(request);
    if let Some(settled) = response.settled(headers, None) {
        return Ok(settled);
    }
    if let ObjectKind::File(file) = &object.kind {
        content_limits::check_size(state, file.size(), Remedy::Gateway)?;
    }
    let archive = state.node.archive(&object, &object.cid.to_string().into(), None).await?;
    let pieces = match archive.length {
        Some(length) => {
            response.set(CONTENT_LENGTH, HeaderValue::from(length));
            archive.pieces
        }
        None => content_limits::bounded(state, archive.pieces, Remedy::Gateway).boxed(),
    };
    // HEAD reads as far as GET does before its head, so that both have the same status.
    let pieces = begun(gathered(pieces)).await?;
    let body = match (request.is_head, archive.length) {
        (true, Some(_)) => Body::empty(),
        (true, None) => unknown_length(),
        (false, Some(length)) => Sized::body(pieces, length),
        (false, None) => Chunked::body(pieces, false),
    };
    Ok(response.into_response(StatusCode::OK, body))
}
