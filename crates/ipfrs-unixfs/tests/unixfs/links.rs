//! Extraction of the links of blocks.

use bytes::Bytes;
use ipfrs_core::limits::{MAX_BLOCK_LINKS, MAX_BLOCK_NESTING};
use ipfrs_core::{Cid, ErrorKind, Result, codec, hash, new_cid};
use ipfrs_unixfs::dag_pb::{self, PbLink};
use ipfrs_unixfs::{lenient_links, links};
use proptest::prelude::*;

fn cid(codec: u64, data: &[u8]) -> Cid {
    new_cid(1, codec, hash::sha2_256(data)).unwrap()
}

fn links_of(codec: u64, data: impl Into<Bytes>) -> Result<Vec<Cid>> {
    let data = data.into();
    links(&cid(codec, &data), &data).map(|links| links.iter().collect())
}

/// Returns a link in dag-cbor: tag 42 with a byte string of a zero and the binary CID.
pub(crate) fn cbor_link(cid: &Cid) -> Vec<u8> {
    let bytes = cid.to_bytes();
    let len = bytes.len() as u8 + 1;
    let head = if len < 24 { vec![0x40 | len] } else { vec![0x58, len] };
    [&[0xd8, 42][..], &head, &[0], &bytes].concat()
}

#[test]
fn links_come_in_the_order_of_the_block_and_repeat() {
    let (a, b) = (cid(codec::RAW, b"a"), cid(codec::DAG_PB, b"b"));
    let pb = [b, a, b].map(|cid| PbLink { cid, name: "n".into(), tsize: 1 });
    assert_eq!(links_of(codec::DAG_PB, dag_pb::encode(&pb, &[8, 1])).unwrap(), [b, a, b]);
    // {"x": [b, {"y": a}], "z": b, "n": [null, 1.5, -1, h'00', 1000, true]}
    let cbor = [
        &[0xa3, 0x61, b'x', 0x82][..],
        &cbor_link(&b),
        &[0xa1, 0x61, b'y'],
        &cbor_link(&a),
        &[0x61, b'z'],
        &cbor_link(&b),
        &[0x61, b'n', 0x86, 0xf6, 0xfb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0x20, 0x41, 0, 0x19, 0x03, 0xe8, 0xf5],
    ]
    .concat();
    assert_eq!(links_of(codec::DAG_CBOR, cbor).unwrap(), [b, a, b]);
    let json = format!(
        r#"{{"x": [{{"/": "{b}"}}, {{"y": {{"/": "{a}"}}}}], "z": {{"\/": "{b}"}}, "n": [null, 1.5, -1, true, "t"],
            "bytes": {{"/": {{"bytes": "AQ"}}}}, "plain": {{"/": "no link", "k": 0}}}}"#
    );
    assert_eq!(links_of(codec::DAG_JSON, json).unwrap(), [b, a, b]);
}

#[test]
fn leaves_and_other_codecs_have_no_links() {
    let link = cbor_link(&cid(codec::RAW, b"a"));
    for codec in [codec::RAW, codec::CBOR, codec::JSON, codec::LIBP2P_KEY, 0x7b] {
        assert_eq!(links_of(codec, link.clone()).unwrap(), []);
    }
    assert_eq!(links_of(codec::DAG_PB, dag_pb::encode(&[], &[8, 2, 0x12, 1, b'x'])).unwrap(), []);
}

#[test]
fn malformed_blocks_are_named_with_what_is_wrong() {
    let whole = cbor_link(&cid(codec::RAW, b"a"));
    for (codec, data, reason) in [
        (codec::DAG_PB, vec![0x0a, 5, 1], "extends past the end"),
        (codec::DAG_CBOR, vec![], "ends in the middle of an item"),
        (codec::DAG_CBOR, whole[..20].to_vec(), "ends in the middle of an item"),
        (codec::DAG_CBOR, [&whole[..], &[0]].concat(), "1 bytes follow"),
        (codec::DAG_CBOR, vec![0x9f, 0xff], "indefinite"),
        (codec::DAG_CBOR, vec![0xc1, 0], "tag 1"),
        (codec::DAG_CBOR, vec![0xa1, 1, 1], "key"),
        (codec::DAG_CBOR, vec![0xd8, 42, 0x42, 1, 1], "starts with zero"),
        (codec::DAG_CBOR, vec![0xd8, 42, 0x42, 0, 1], "CID"),
        (codec::DAG_CBOR, vec![0xf8, 30], "simple"),
        // A list that declares more items than fit into memory.
        (codec::DAG_CBOR, vec![0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], "ends in the middle of an item"),
        (codec::DAG_JSON, br#"{"a": "#.to_vec(), "EOF"),
        (codec::DAG_JSON, br#"{} {}"#.to_vec(), "trailing"),
        (codec::DAG_JSON, br#"{"/": "not a CID"}"#.to_vec(), "invalid CID"),
    ] {
        let data = Bytes::from(data);
        let error = links_of(codec, data.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidContent, "{error}");
        assert!(error.to_string().contains(reason), "{error} (expected {reason})");
        assert!(error.to_string().contains(&cid(codec, &data).to_string()), "{error}");
    }
}

#[test]
fn links_of_any_number_and_depth_are_read() {
    let small = new_cid(1, codec::RAW, hash::HashFunction::Identity.digest(b"").unwrap()).unwrap();
    let link = PbLink { cid: small, name: "".into(), tsize: 0 };
    let cbor = |count: usize| {
        let head = [&[0x9a][..], &(count as u32).to_be_bytes()].concat();
        [head, cbor_link(&small).repeat(count)].concat()
    };
    let json = |count: usize| format!("[{}]", vec![format!(r#"{{"/":"{small}"}}"#); count].join(","));
    let many = MAX_BLOCK_LINKS + 1;
    assert_eq!(links_of(codec::DAG_PB, dag_pb::encode(&vec![link; many], &[])).unwrap().len(), many);
    assert_eq!(links_of(codec::DAG_CBOR, cbor(many)).unwrap().len(), many);
    assert_eq!(links_of(codec::DAG_JSON, json(many)).unwrap().len(), many);
    let nested = |open: &str, close: &str, depth: usize| open.repeat(depth) + "0" + &close.repeat(depth);
    assert!(links_of(codec::DAG_JSON, nested("[", "]", MAX_BLOCK_NESTING)).is_ok());
    // The maximum depth within the block size: lists of one item, lists of two items, and maps of two keys.
    for (open, close) in [(&[0x81][..], &[][..]), (&[0x82], &[0]), (&[0xa2, 0x60], &[0x61, b'x', 0])] {
        let depth = 2 * 1024 * 1024 / (open.len() + close.len()) - 1;
        let block = [open.repeat(depth), cbor_link(&small), close.repeat(depth)].concat();
        assert_eq!(links_of(codec::DAG_CBOR, block).unwrap(), [small]);
    }
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let error = links_of(codec::DAG_JSON, nested(open, close, MAX_BLOCK_NESTING + 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert!(error.to_string().contains("127 levels deep"), "{error}");
    }
}

#[test]
fn dag_cbor_that_kubo_refuses_has_links_for_gc_alone() {
    let a = cid(codec::RAW, b"a");
    let link = cbor_link(&a);
    let item = |before: &[u8], after: &[u8]| [before, &link, after].concat();
    for (data, reason) in [
        (item(&[0x98, 1], &[]), "more bytes than it needs"),
        (item(&[0x82], &[0x18, 1]), "more bytes than it needs"),
        (item(&[0x82], &[0xf9, 0x7e, 0]), "NaN or infinite"),
        (item(&[0x82], &[0xfb, 0xff, 0xf0, 0, 0, 0, 0, 0, 0]), "NaN or infinite"),
        (item(&[0x82], &[0x3b, 0xff, 0, 0, 0, 0, 0, 0, 0]), "below -2^63"),
        (item(&[0xa2, 0x61, b'k'], &[0x61, b'k', 0]), "twice in one map"),
        (item(&[0xa3, 0x61, b'k'], &[0x60, 0, 0x61, b'k', 0]), "twice in one map"),
    ] {
        let data = Bytes::from(data);
        let cid = cid(codec::DAG_CBOR, &data);
        let error = links(&cid, &data).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidContent, "{error}");
        assert!(error.to_string().contains(reason), "{error} (expected {reason})");
        assert_eq!(lenient_links(&cid, &data).unwrap().iter().collect::<Vec<_>>(), [a]);
    }
    // Kubo accepts keys in any order, short floats, and undefined.
    for data in [
        item(&[0xa2, 0x61, b'k'], &[0x60, 0]),
        item(&[0x82], &[0xf9, 0x3c, 0]),
        item(&[0x82], &[0xfa, 0, 0, 0, 0]),
        item(&[0x82], &[0xf7]),
    ] {
        assert_eq!(links_of(codec::DAG_CBOR, data).unwrap(), [a]);
    }
}

proptest! {
    #[test]
    fn no_cbor_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _whatever = links_of(codec::DAG_CBOR, bytes);
    }

    #[test]
    fn no_json_panics(text in r#"[\[\]{}":,/a0 ]{0,60}"#) {
        let _whatever = links_of(codec::DAG_JSON, text);
    }
}
