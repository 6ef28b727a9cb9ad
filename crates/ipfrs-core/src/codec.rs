//! Multicodec codes of IPLD block formats (<https://github.com/multiformats/multicodec/blob/master/table.csv>).

use crate::{Error, Result};

/// Raw bytes.
pub const RAW: u64 = 0x55;
/// MerkleDAG protobuf, the node format of UnixFS.
pub const DAG_PB: u64 = 0x70;
/// DAG-CBOR.
pub const DAG_CBOR: u64 = 0x71;
/// Public key of a libp2p peer, used in IPNS names.
pub const LIBP2P_KEY: u64 = 0x72;
/// CBOR without links.
pub const CBOR: u64 = 0x51;
/// DAG-JSON.
pub const DAG_JSON: u64 = 0x0129;
/// JSON without links.
pub const JSON: u64 = 0x0200;
/// A git object.
pub const GIT_RAW: u64 = 0x78;
/// DAG-JOSE: signed and encrypted objects.
pub const DAG_JOSE: u64 = 0x85;
/// The identity "codec": data without a format of its own.
pub const IDENTITY: u64 = 0x00;

const NAMES: [(&str, u64); 10] = [
    ("raw", RAW),
    ("dag-pb", DAG_PB),
    ("dag-cbor", DAG_CBOR),
    ("dag-json", DAG_JSON),
    ("cbor", CBOR),
    ("json", JSON),
    ("git-raw", GIT_RAW),
    ("dag-jose", DAG_JOSE),
    ("libp2p-key", LIBP2P_KEY),
    ("identity", IDENTITY),
];

/// Returns the code of a codec given by name (`dag-pb`) or as a number (`0x70`, `112`).
///
/// # Errors
/// Returns [`ErrorKind::InvalidInput`](crate::ErrorKind) for an unknown codec. The message names it and lists the
/// known ones.
pub fn parse(name: &str) -> Result<u64> {
    if let Some((_, code)) = NAMES.iter().find(|(known, _)| *known == name) {
        return Ok(*code);
    }
    let number = match name.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => name.parse().ok(),
    };
    number.ok_or_else(|| {
        let known: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
        Error::invalid(format!("unknown multicodec: {name:?}: use one of {}, or a multicodec number", known.join(", ")))
    })
}

/// Returns the name of a codec, if it is one of the codecs above.
#[must_use]
pub fn name(code: u64) -> Option<&'static str> {
    NAMES.iter().find(|(_, known)| *known == code).map(|(name, _)| *name)
}
