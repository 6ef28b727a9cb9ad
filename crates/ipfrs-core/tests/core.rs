//! Content IDs, hashes and blocks as callers use them.

use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{
    Base, Block, ErrorKind, cid_from_bytes, cid_to_string, codec, hash, identity_payload, limits, new_cid, parse_cid,
    to_base,
};
use proptest::prelude::*;

const EMPTY_V0: &str = "QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH";

#[test]
fn a_cid_reads_back_from_every_supported_base() {
    let cid = new_cid(1, codec::RAW, hash::sha2_256(b"hello")).unwrap();
    for name in ["base58btc", "base32", "base32upper", "base36", "base36upper", "base16", "base16upper", "base64url"] {
        let text = cid_to_string(&cid, to_base(name).unwrap()).unwrap();
        assert_eq!(parse_cid(&text).unwrap(), cid, "{name}: {text}");
    }
}

#[test]
fn a_v0_cid_becomes_v1_in_other_bases() {
    let v0 = parse_cid(EMPTY_V0).unwrap();
    assert_eq!(cid_to_string(&v0, Base::Base58Btc).unwrap(), EMPTY_V0);
    let v1 = cid_to_string(&v0, Base::Base32Lower).unwrap();
    assert_eq!(v1, "bafybeif7ztnhq65lumvvtr4ekcwd2ifwgm3awq4zfr3srh462rwyinlb4y");
}

#[test]
fn malformed_cids_are_refused_with_their_text() {
    let cut = &EMPTY_V0[..45];
    let path = format!("/ipfs/{EMPTY_V0}");
    for text in ["", "Q", "Qm", "hello world", "b", "zz", cut, &path, "mAXASIA", "\u{fc}", &"b".repeat(5000)] {
        let error = parse_cid(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
        assert!(error.message().starts_with("invalid CID \""), "{error}");
    }
}

#[test]
fn an_identity_cid_carries_up_to_128_bytes() {
    let whole = Block::hash(1, codec::RAW, HashFunction::Identity, Bytes::from(vec![7; 128])).unwrap();
    let text = whole.cid().to_string();
    assert_eq!(identity_payload(&parse_cid(&text).unwrap()).unwrap(), &[7; 128][..]);
    let over = Block::hash(1, codec::RAW, HashFunction::Identity, Bytes::from(vec![7; 129])).unwrap_err();
    assert_eq!(over.kind(), ErrorKind::TooLarge);
    // The empty identity CID that gateways are probed with.
    assert_eq!(identity_payload(&parse_cid("bafkqaaa").unwrap()).unwrap(), b"");
}

#[test]
fn a_block_is_verified_and_bounded() {
    let cid = new_cid(1, codec::RAW, hash::sha2_256(b"right")).unwrap();
    assert!(Block::new(cid, Bytes::from_static(b"right")).is_ok());
    let wrong = Block::new(cid, Bytes::from_static(b"wrong")).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::InvalidInput);
    assert!(wrong.message().contains(&cid.to_string()), "{wrong}");
    let largest = Bytes::from(vec![0; limits::MAX_BLOCK_BYTES]);
    assert!(Block::hash(1, codec::RAW, HashFunction::Sha2_256, largest).is_ok());
    let over = Bytes::from(vec![0; limits::MAX_BLOCK_BYTES + 1]);
    assert_eq!(Block::new(cid, over).unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn v0_takes_only_dag_pb_with_sha2_256() {
    assert!(new_cid(0, codec::DAG_PB, hash::sha2_256(b"")).is_ok());
    assert!(new_cid(0, codec::RAW, hash::sha2_256(b"")).is_err());
    assert!(new_cid(2, codec::RAW, hash::sha2_256(b"")).is_err());
}

#[test]
fn codecs_have_names_and_numbers() {
    for name in ["raw", "dag-pb", "dag-cbor", "dag-json", "cbor", "json", "libp2p-key", "identity"] {
        assert_eq!(codec::name(codec::parse(name).unwrap()), Some(name));
    }
    assert_eq!(codec::parse("0x55").unwrap(), codec::RAW);
    assert!(codec::parse("protobuf").unwrap_err().message().contains("dag-pb"));
}

proptest! {
    #[test]
    fn every_cid_survives_text_and_bytes(data: Vec<u8>, version in 0..2u64) {
        let cid = new_cid(version, codec::DAG_PB, hash::sha2_256(&data)).unwrap();
        prop_assert_eq!(parse_cid(&cid.to_string()).unwrap(), cid);
        prop_assert_eq!(cid_from_bytes(&cid.to_bytes()).unwrap(), cid);
        hash::verify(&cid, &data).unwrap();
    }

    #[test]
    fn no_text_makes_the_parser_panic(text: String, bytes: Vec<u8>) {
        let _ = parse_cid(&text);
        let _ = cid_from_bytes(&bytes);
    }
}
