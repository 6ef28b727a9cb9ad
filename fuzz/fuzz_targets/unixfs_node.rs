//! Parses arbitrary bytes as a dag-pb block. A decoded node must have the same links and data after encoding it
//! again. Reading it as UnixFS, and reading the links of other codecs, must not panic.
#![no_main]

use bytes::Bytes;
use ipfrs_core::hash::sha2_256;
use ipfrs_core::{Cid, codec};
use ipfrs_unixfs::{dag_pb, decode, links};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let block = Bytes::copy_from_slice(data);
    if let Ok(node) = dag_pb::decode(&block) {
        let content = node.data.clone().unwrap_or_default();
        let again = dag_pb::decode(&dag_pb::encode(&node.links, &content)).expect("what was encoded decodes");
        assert_eq!((again.links, again.data.unwrap_or_default()), (node.links, content));
    }
    for codec in [codec::DAG_PB, codec::DAG_CBOR, codec::DAG_JSON, codec::RAW] {
        let cid = Cid::new_v1(codec, sha2_256(&block));
        let _ = decode(&cid, &block);
        let _ = links(&cid, &block);
    }
});
