//! Blocks of dag-json, dag-cbor, JSON and CBOR, sent unchanged under the requested media type.
//!
//! Blocks are never converted from one codec to another: a mismatch is 406
//! (<https://specs.ipfs.tech/ipips/ipip-0524/>).

use axum::response::Response;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue};
use ipfrs_core::{Cid, Result, codec};
use ipfrs_node::Object;

use super::payload::Payload;
use super::request::{Format, GatewayRequest};
use super::{Answer, disposition, etag};
use crate::router::AppState;

/// A codec that has a media type of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Json,
    Cbor,
    DagJson,
    DagCbor,
}

impl Codec {
    /// Returns the codec of a block.
    pub(super) fn of(cid: &Cid) -> Option<Self> {
        match cid.codec() {
            codec::JSON => Some(Self::Json),
            codec::CBOR => Some(Self::Cbor),
            codec::DAG_JSON => Some(Self::DagJson),
            codec::DAG_CBOR => Some(Self::DagCbor),
            _ => None,
        }
    }

    /// Returns the name used in `?format=` and in the `Etag`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Cbor => "cbor",
            Self::DagJson => "dag-json",
            Self::DagCbor => "dag-cbor",
        }
    }

    pub(super) const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Cbor => "application/cbor",
            Self::DagJson => "application/vnd.ipld.dag-json",
            Self::DagCbor => "application/vnd.ipld.dag-cbor",
        }
    }

    /// Whether a block of the codec `stored` is valid in this codec without conversion: dag-json is JSON, and
    /// dag-cbor is CBOR.
    pub(super) fn is_that_of(self, stored: Self) -> bool {
        self == stored || matches!((self, stored), (Self::Json, Self::DagJson) | (Self::Cbor, Self::DagCbor))
    }

    /// Returns the file extension, and whether a browser may show the block inline.
    fn extension_and_disposition(self) -> (&'static str, &'static str) {
        match self {
            Self::Json | Self::DagJson => ("json", "inline"),
            Self::Cbor | Self::DagCbor => ("cbor", "attachment"),
        }
    }
}

/// Responds with the block as `asked`, which is the codec of the block, or JSON or CBOR for its DAG variant.
///
/// # Errors
/// See [`Answer::payload`].
pub(super) async fn block(
    state: &AppState,
    request: &GatewayRequest<'_>,
    headers: &HeaderMap,
    object: Object,
    asked: Codec,
) -> Result<Response> {
    let mut answer = Answer::new(state, request, &object, etag(&object, &format!(".{}", asked.name())));
    answer.set(CONTENT_TYPE, HeaderValue::from_static(asked.media_type()));
    answer.set(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let (extension, kind) = asked.extension_and_disposition();
    let kind = if request.download { "attachment" } else { kind };
    let name = request.filename.clone().unwrap_or_else(|| format!("{}.{extension}", object.cid));
    answer.set(CONTENT_DISPOSITION, disposition::header(kind, &name));
    if request.format == Format::Codec(asked) {
        answer.locate(request);
    }
    answer.payload(state, headers, Payload::Bytes(object.block)).await
}

/// Returns the message for content that is not available as `format`.
pub(super) fn mismatch(format: &str, object: &Object) -> String {
    let (path, cid) = (&object.facts.path, object.cid);
    let stored = codec::name(cid.codec()).map_or_else(|| format!("0x{:x}", cid.codec()), str::to_owned);
    format!(
        "{path} is not to be had as {format}: its block {cid} is {stored}, and nothing is converted; ask for the block \
         with format=raw, or leave the format out"
    )
}
