//! Blocks of dag-json, dag-cbor, JSON and CBOR: answered as they are, under the media type that is asked for.
//!
//! Nothing is converted from one codec to another: what does not fit is 406
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

/// A codec whose blocks are media of a type of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Json,
    Cbor,
    DagJson,
    DagCbor,
}

impl Codec {
    /// That of a block.
    pub(super) fn of(cid: &Cid) -> Option<Self> {
        match cid.codec() {
            codec::JSON => Some(Self::Json),
            codec::CBOR => Some(Self::Cbor),
            codec::DAG_JSON => Some(Self::DagJson),
            codec::DAG_CBOR => Some(Self::DagCbor),
            _ => None,
        }
    }

    /// What `?format=` and the `Etag` call it.
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

    /// Whether a block of the codec `stored` is of this codec without a change: dag-json is JSON, and dag-cbor is CBOR.
    pub(super) fn is_that_of(self, stored: Self) -> bool {
        self == stored || matches!((self, stored), (Self::Json, Self::DagJson) | (Self::Cbor, Self::DagCbor))
    }

    /// How a browser saves it, and whether it may show it.
    fn extension_and_disposition(self) -> (&'static str, &'static str) {
        match self {
            Self::Json | Self::DagJson => ("json", "inline"),
            Self::Cbor | Self::DagCbor => ("cbor", "attachment"),
        }
    }
}

/// The block, as one of the codec `asked`, which is that of the block or the plain one of its kind.
///
/// # Errors
/// As [`Answer::payload`].
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

/// Why content is not to be had as `format`.
pub(super) fn mismatch(format: &str, object: &Object) -> String {
    let (path, cid) = (&object.facts.path, object.cid);
    let stored = codec::name(cid.codec()).map_or_else(|| format!("0x{:x}", cid.codec()), str::to_owned);
    format!(
        "{path} is not to be had as {format}: its block {cid} is {stored}, and nothing is converted; ask for the block \
         with format=raw, or leave the format out"
    )
}
