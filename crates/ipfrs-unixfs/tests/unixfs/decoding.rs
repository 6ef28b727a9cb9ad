//! Decoding of blocks from untrusted authors.

use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Cid, ErrorKind, codec, hash, new_cid};
use ipfrs_unixfs::dag_pb::{self, PbLink};
use ipfrs_unixfs::{Attributes, LinkName, Mtime, Node, decode};
use proptest::prelude::*;

fn some_cid() -> Cid {
    new_cid(1, codec::RAW, hash::sha2_256(b"x")).unwrap()
}

fn link(name: impl Into<LinkName>) -> PbLink {
    PbLink { cid: some_cid(), name: name.into(), tsize: 1 }
}

fn block(codec: u64, data: impl Into<Bytes>) -> Block {
    Block::hash(1, codec, HashFunction::Sha2_256, data.into()).unwrap()
}

fn decode_block(block: &Block) -> ipfrs_core::Result<Node> {
    decode(block.cid(), block.data())
}

#[test]
fn content_is_a_slice_of_its_block() {
    let payload = b"this is not copied";
    let mut message = vec![8, 2, 0x12, payload.len() as u8];
    message.extend(payload);
    for block in [block(codec::RAW, &payload[..]), block(codec::DAG_PB, dag_pb::encode(&[], &message))] {
        let Node::File(file) = decode_block(&block).unwrap() else { panic!("not a file") };
        assert_eq!(file.inline, payload[..]);
        assert!(block.data().as_ptr_range().contains(&file.inline.as_ptr()));
    }
}

#[test]
fn mode_and_mtime_are_read_and_impossible_times_are_none() {
    let seconds_and_nanos = |nanos: u32| {
        let mut message = vec![8, 2, 0x38, 0xa4, 3, 0x42, 7, 8, 5, 0x15];
        message.extend(nanos.to_le_bytes());
        message[6] = 7;
        message
    };
    for (nanos, mtime) in [(7, Some(Mtime { seconds: 5, nanos: 7 })), (1_000_000_000, None)] {
        let block = block(codec::DAG_PB, dag_pb::encode(&[], &seconds_and_nanos(nanos)));
        assert_eq!(decode_block(&block).unwrap().attributes(), Attributes { mode: Some(0o644), mtime });
    }
}

#[test]
fn a_raw_leaf_of_the_old_type_is_a_file() {
    let block = block(codec::DAG_PB, dag_pb::encode(&[], &[8, 0, 0x12, 1, b'x', 0x18, 1]));
    assert!(matches!(decode_block(&block).unwrap(), Node::File(file) if file.inline == b"x"[..]));
}

#[test]
fn invalid_unixfs_is_refused_with_its_reason() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let overflow = [&[8, 2, 0x20][..], &huge, &[0x20], &huge].concat();
    let sharded =
        |bits: u8, hash_type: u8, fanout: &[u8]| [&[8, 5, 0x12, 1, bits, 0x28, hash_type, 0x30][..], fanout].concat();
    let links = |names: &[&str]| names.iter().map(|name| link(*name)).collect::<Vec<_>>();
    for (links, message, reason) in [
        (links(&[]), vec![8, 9], "type 9 is not known"),
        (links(&[]), vec![0x12, 0], "no type"),
        (links(&[]), vec![8, 2, 0x12, 9], "malformed UnixFS data"),
        (links(&[""]), vec![8, 2], "1 links with 0 sizes"),
        (links(&[""]), vec![8, 2, 0x18, 3, 0x20, 2], "filesize is 3, but its parts are 2 bytes"),
        (links(&["", ""]), overflow, "overflow"),
        (links(&["01a"]), sharded(2, 0x22, &[12]), "fan-out 12"),
        (links(&["01a"]), sharded(2, 0x22, &[4]), "fan-out 4"),
        (links(&["001a"]), sharded(2, 0x22, &[0x80, 0x10]), "fan-out 2048"),
        (links(&["01a"]), sharded(2, 0x12, &[16]), "hash type"),
        (links(&["0a", "1b"]), sharded(2, 0x22, &[16]), "1 bits for 2 links"),
        (links(&["2a"]), sharded(2, 0x22, &[16]), "at position 1"),
    ] {
        let block = block(codec::DAG_PB, dag_pb::encode(&links, &message));
        let error = decode_block(&block).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidContent, "{error}");
        assert!(error.to_string().contains(reason), "{error} (expected {reason})");
        assert!(error.to_string().contains(&format!("block {} is not valid UnixFS", block.cid())), "{error}");
    }
}

#[test]
fn invalid_dag_pb_is_refused_with_its_reason() {
    let valid = dag_pb::encode(&[link("a")], &[8, 1]);
    let (link_bytes, data_bytes) = valid.split_at(valid.len() - 4);
    for (bytes, reason) in [
        ([link_bytes, data_bytes, data_bytes].concat(), "two Data fields"),
        ([link_bytes, data_bytes, link_bytes].concat(), "in two places"),
        (vec![0x1a, 0], "unknown field 3"),
        (vec![0x0a, 5, 1], "extends past the end"),
        (vec![0x08, 5], "wire type"),
        (vec![0x12, 0], "no Hash"),
        (vec![0x12, 4, 0x18, 1, 0x12, 0], "field 2 after field 3"),
        (vec![0x12, 3, 0x0a, 1, 1], "CID"),
    ] {
        let error = dag_pb::decode(&bytes.into()).unwrap_err();
        assert!(error.to_string().contains(reason), "{error} (expected {reason})");
    }
    let data_first = Bytes::from([data_bytes, link_bytes].concat());
    assert_eq!(dag_pb::decode(&data_first).unwrap(), dag_pb::decode(&valid).unwrap());
}

#[test]
fn codecs_and_types_that_are_no_files_are_unsupported() {
    for block in [block(codec::DAG_CBOR, &[0xa0_u8][..]), block(codec::DAG_PB, dag_pb::encode(&[], &[8, 3]))] {
        assert_eq!(decode_block(&block).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}

/// Generates UnixFS messages with fields in any order and number, and arbitrary trailing bytes.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let varint = (prop::sample::select(vec![8_u8, 0x18, 0x20, 0x28, 0x30, 0x38]), prop_oneof![0_u8..8, any::<u8>()])
        .prop_map(|(key, value)| vec![key, value & 0x7f]);
    let bytes = (prop::sample::select(vec![0x12_u8, 0x42]), prop::collection::vec(any::<u8>(), 0..40))
        .prop_map(|(key, value)| [&[key, value.len() as u8][..], &value].concat());
    let field = prop_oneof![4 => varint, 2 => bytes, 1 => prop::collection::vec(any::<u8>(), 0..8)];
    prop::collection::vec(field, 0..8).prop_map(|fields| fields.concat())
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let block = block(codec::DAG_PB, bytes);
        if let Err(error) = decode_block(&block) {
            prop_assert!(matches!(error.kind(), ErrorKind::InvalidContent | ErrorKind::Unsupported));
        }
    }

    #[test]
    fn no_unixfs_message_panics(
        message in messages(),
        names in prop::collection::vec("[0-9A-F]{0,3}[a-z]{0,2}", 0..4),
        flipped: prop::sample::Index,
        with: u8,
    ) {
        let links: Vec<_> = names.into_iter().map(link).collect();
        let mut bytes = dag_pb::encode(&links, &message).to_vec();
        let _whatever = decode_block(&block(codec::DAG_PB, bytes.clone()));
        let at = flipped.index(bytes.len());
        bytes[at] ^= with;
        let _whatever = decode_block(&block(codec::DAG_PB, bytes));
    }

    #[test]
    fn nodes_read_back_as_they_were_written(
        names in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..10),
        data in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let links: Vec<_> = names.into_iter().map(link).collect();
        let node = dag_pb::decode(&dag_pb::encode(&links, &data)).unwrap();
        prop_assert_eq!(node.links, links);
        prop_assert_eq!(node.data.unwrap(), data);
    }
}
