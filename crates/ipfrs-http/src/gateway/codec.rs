//! Blocks of dag-json, dag-cbor, JSON and CBOR, sent unchanged under the requested media type.
//!
//! Blocks are never converted from one codec to another: a mismatch is 406
//! (<https://specs.ipfs.tech/ipips/ipip-0524/>).

use ipfrs_core::{Cid, codec};

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
    pub(super) fn extension_and_disposition(self) -> (&'static str, &'static str) {
        match self {
            Self::Json | Self::DagJson => ("json", "inline"),
            Self::Cbor | Self::DagCbor => ("cbor", "attachment"),
        }
    }
}
