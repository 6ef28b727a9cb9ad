//! Both directions are compared with messages that prost derives.

use ipfrs_core::hash::{HashFunction, sha2_256};
use proptest::prelude::*;
use prost::Message as _;

use super::*;

#[derive(Clone, PartialEq, prost::Message)]
struct PbMessage {
    #[prost(message, optional, tag = "1")]
    wantlist: Option<PbWantlist>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    blocks: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "3")]
    payload: Vec<PbBlock>,
    #[prost(message, repeated, tag = "4")]
    presences: Vec<PbPresence>,
    #[prost(int32, tag = "5")]
    pending_bytes: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PbWantlist {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<PbEntry>,
    #[prost(bool, tag = "2")]
    full: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PbEntry {
    #[prost(bytes = "vec", tag = "1")]
    cid: Vec<u8>,
    #[prost(int32, tag = "2")]
    priority: i32,
    #[prost(bool, tag = "3")]
    cancel: bool,
    #[prost(int32, tag = "4")]
    want_type: i32,
    #[prost(bool, tag = "5")]
    send_dont_have: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PbBlock {
    #[prost(bytes = "vec", tag = "1")]
    prefix: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    data: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PbPresence {
    #[prost(bytes = "vec", tag = "1")]
    cid: Vec<u8>,
    #[prost(int32, tag = "2")]
    kind: i32,
}

fn raw(data: &[u8]) -> Cid {
    Cid::new_v1(codec::RAW, sha2_256(data))
}

use ipfrs_core::codec;

/// Returns the message without the length in front of it, which it checks.
fn without_length(framed: &[u8]) -> &[u8] {
    let (length, rest) = unsigned_varint::decode::usize(framed).unwrap();
    assert_eq!(length, rest.len());
    rest
}

#[test]
fn wantlist_encodes_as_protobuf() {
    let (first, second) = (raw(b"1"), raw(b"2"));
    let want = Outgoing::Want { kind: WantKind::Have, priority: i32::MAX };
    let framed = wantlist(&[(first, want), (second, Outgoing::Cancel)], Version::V1_2, true);
    let decoded = PbMessage::decode(without_length(&framed)).unwrap();
    let entries = vec![
        PbEntry { cid: first.to_bytes(), priority: i32::MAX, cancel: false, want_type: 1, send_dont_have: true },
        PbEntry { cid: second.to_bytes(), cancel: true, ..Default::default() },
    ];
    assert_eq!(decoded.wantlist, Some(PbWantlist { entries, full: true }));
}

fn joined(parts: &[Bytes]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.iter().copied()).collect()
}

#[test]
fn responses_encode_as_protobuf_in_each_version() {
    let blocks: Vec<Bytes> = [0, 1, 4096, 4097, 300_000].iter().map(|size| vec![7; *size].into()).collect();
    let mut response = Response::default();
    for data in &blocks {
        response.push_block(raw(data), data.clone());
    }
    response.push_presence(raw(b"a"), true);
    response.push_presence(raw(b"b"), false);

    let current = PbMessage::decode(without_length(&joined(&response.encode(Version::V1_2)))).unwrap();
    let data: Vec<&[u8]> = current.payload.iter().map(|block| block.data.as_slice()).collect();
    assert_eq!(data, blocks);
    assert_eq!(current.payload[0].prefix, [1, 0x55, 0x12, 32]);
    let presences: Vec<(Vec<u8>, i32)> = current.presences.into_iter().map(|p| (p.cid, p.kind)).collect();
    assert_eq!(presences, [(raw(b"a").to_bytes(), 0), (raw(b"b").to_bytes(), 1)]);

    let older = PbMessage::decode(without_length(&joined(&response.encode(Version::V1_1)))).unwrap();
    assert_eq!((older.payload.len(), older.presences.len()), (5, 0));
    let oldest = PbMessage::decode(without_length(&joined(&response.encode(Version::V1_0)))).unwrap();
    assert_eq!((oldest.blocks, oldest.payload.len()), (blocks.iter().map(|block| block.to_vec()).collect(), 0));
    let mut presence = Response::default();
    presence.push_presence(raw(b"a"), true);
    assert!(presence.encode(Version::V1_1).is_empty());
}

#[test]
fn decoded_message_equals_the_encoded_one() {
    let cid = raw(b"x").to_bytes();
    let entry = PbEntry { cid: cid.clone(), priority: -5, cancel: true, want_type: 1, send_dont_have: true };
    let message = PbMessage {
        wantlist: Some(PbWantlist { entries: vec![entry], full: true }),
        blocks: vec![b"old".to_vec()],
        payload: vec![PbBlock { prefix: vec![1, 0x55, 0x12, 32], data: b"new".to_vec() }],
        presences: vec![PbPresence { cid: cid.clone(), kind: 1 }],
        pending_bytes: 7,
    };
    let decoded = Message::decode(message.encode_to_vec().into()).unwrap();
    assert!(decoded.is_full);
    let cid = Bytes::from(cid);
    let want = WantEntry { cid: cid.clone(), priority: -5, cancel: true, kind: WantKind::Have, send_dont_have: true };
    assert_eq!(decoded.wants, [want]);
    assert_eq!(decoded.presences, [Presence { cid, has_block: false }]);
    let cids: Vec<Cid> = decoded
        .blocks
        .iter()
        .map(|block| block.prefix.cid(HashFunction::Sha2_256.digest(&block.data).unwrap()).unwrap())
        .collect();
    assert_eq!(cids, [Cid::new_v0(sha2_256(b"old")).unwrap(), raw(b"new")]);
}

#[test]
fn malformed_messages_are_refused() {
    let refused = |bytes: &[u8]| Message::decode(Bytes::copy_from_slice(bytes)).unwrap_err();
    assert_eq!(refused(&[0x0a]), Malformed::Protobuf, "a field without its length");
    assert_eq!(refused(&[0x0a, 5, 0]), Malformed::Protobuf, "a field longer than the message");
    assert_eq!(refused(&[0x0b]), Malformed::Protobuf, "a group");
    assert_eq!(refused(&[0xff; 12]), Malformed::Protobuf, "an endless number");
    assert_eq!(refused(&[0x1a, 2, 0x0a, 0]), Malformed::Cid, "a block with an empty prefix");
    let presences = [0x22, 0].repeat(MAX_ENTRIES + 1);
    assert_eq!(refused(&presences), Malformed::TooManyEntries);
    assert_eq!(Message::decode(Bytes::copy_from_slice(&presences[2..])).unwrap().presences.len(), MAX_ENTRIES);
}

#[test]
fn long_cids_are_ignored_and_malformed_ones_refused() {
    assert_eq!(parse_cid(&raw(b"x").to_bytes()), Ok(Some(raw(b"x"))));
    assert_eq!(parse_cid(&[1, 0x55, 0x12]), Err(Malformed::Cid));
    assert_eq!(parse_cid(b""), Err(Malformed::Cid));
    assert_eq!(parse_cid(&[1; 169]), Ok(None));
    let mut long = vec![1, 0x55, 0x12, 0x81, 0x01];
    long.extend([0; 129]);
    assert_eq!(parse_cid(&long), Ok(None), "a digest of 129 bytes");
}

proptest! {
    #[test]
    fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let ours = Message::decode(bytes.clone().into());
        let theirs = PbMessage::decode(bytes.as_slice());
        // Ours accepts wrong wire types of known fields, and refuses malformed prefixes.
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            prop_assert_eq!(ours.presences.len(), theirs.presences.len());
        }
    }
}
