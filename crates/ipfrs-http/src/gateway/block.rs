//! Blocks as they are stored: raw, and those of dag-json, dag-cbor, JSON and CBOR under their media types.

use axum::response::Response;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue};
use ipfrs_core::{Result, codec};
use ipfrs_node::Object;

use super::codec::Codec;
use super::content_response::{ContentResponse, etag};
use super::disposition;
use super::format::Format;
use super::payload::Payload;
use super::request::GatewayRequest;
use crate::state::AppState;

/// Responds with the block as `requested`, which is the codec of the block, or JSON or CBOR for its DAG variant.
///
/// # Errors
/// See [`ContentResponse::payload`].
pub(super) async fn block(
    state: &AppState,
    request: &GatewayRequest<'_>,
    headers: &HeaderMap,
    object: Object,
    requested: Codec,
) -> Result<Response> {
    let mut response = ContentResponse::new(state, request, &object, etag(&object, &format!(".{}", requested.name())));
    response.set(CONTENT_TYPE, HeaderValue::from_static(requested.media_type()));
    response.set(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let (extension, kind) = requested.extension_and_disposition();
    let kind = if request.download { "attachment" } else { kind };
    let name = request.filename.clone().unwrap_or_else(|| format!("{}.{extension}", object.cid));
    response.set(CONTENT_DISPOSITION, disposition::header(kind, &name));
    if request.format == Format::Codec(requested) {
        response.locate(request);
    }
    response.payload(state, headers, Payload::Bytes(object.block)).await
}

/// Returns the message for content that is not available as `format`.
pub(super) fn mismatch(format: &str, object: &Object) -> String {
    let (path, cid) = (&object.resolved.path, object.cid);
    let stored = codec::name(cid.codec()).map_or_else(|| format!("0x{:x}", cid.codec()), str::to_owned);
    format!(
        "{path} is not available as {format}: its block {cid} is {stored}, with no conversion; request the block \
         with format=raw, or leave the format out"
    )
}

/// Responds with a block as stored: `?format=raw` or `Accept: application/vnd.ipld.raw`.
pub(super) async fn raw(
    state: &AppState,
    request: &GatewayRequest<'_>,
    headers: &HeaderMap,
    object: Object,
) -> Result<Response> {
    let mut response = ContentResponse::new(state, request, &object, etag(&object, ".raw"));
    response.set(CONTENT_TYPE, HeaderValue::from_static("application/vnd.ipld.raw"));
    response.set(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let name = request.filename.clone().unwrap_or_else(|| [&object.resolved.cid, ".bin"].concat());
    response.set(CONTENT_DISPOSITION, disposition::header("attachment", &name));
    response.locate(request);
    response.payload(state, headers, Payload::Bytes(object.block)).await
}
