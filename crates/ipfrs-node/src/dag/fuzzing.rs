//! Entry point for fuzzing the conversion of nodes.

use bytes::Bytes;
use ipfrs_core::codec;

use super::node::{convert, decode};

const CODECS: [u64; 8] = [
    codec::DAG_CBOR,
    codec::DAG_JSON,
    codec::DAG_PB,
    codec::CBOR,
    codec::JSON,
    codec::RAW,
    codec::GIT_RAW,
    codec::DAG_JOSE,
];

/// Converts a node from and to every codec. What was converted to a codec with the whole data model must have the same
/// value in it.
pub(crate) fn convert_all(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    for from in CODECS {
        let value = decode(from, &bytes);
        for to in CODECS {
            let Ok(converted) = convert(from, &bytes, to).map_err(|e| e.error) else { continue };
            if matches!(to, codec::DAG_CBOR | codec::DAG_JSON) {
                let again = decode(to, &converted).expect("what was encoded decodes");
                assert_eq!(again, *value.as_ref().expect("it was decoded"), "from {from:x} to {to:x}");
            }
        }
    }
}
