//! Content IDs, hashes and blocks through the public API.

use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{
    Base, Block, Error, ErrorKind, Multihash, cid_from_bytes, cid_text, cid_to_string, codec, hash, identity_payload,
    limits, new_cid, parse_cid, to_base,
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
fn base32_fast_path_checks_every_digit() {
    let text = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku";
    let cid = parse_cid(text).unwrap();
    assert_eq!(cid.to_bytes(), multibase::decode(text).unwrap().1);
    for place in 0..text.len() {
        for other in ['0', '1', '8', '=', '-', 'é', '\0'] {
            let mut wrong = text.to_owned();
            wrong.replace_range(place..=place, other.encode_utf8(&mut [0; 4]));
            assert!(parse_cid(&wrong).is_err(), "{wrong}");
        }
    }
    // The last digit encodes three bits of the digest and two zero bits.
    for (digit, is_right) in [('i', true), ('v', false), ('4', true), ('b', false), ('2', false)] {
        let other = format!("{}{digit}", &text[..58]);
        assert_eq!(parse_cid(&other).is_ok(), is_right, "{other}");
        assert_eq!(multibase::decode(&other).is_ok(), is_right);
    }
}

#[test]
fn malformed_cids_are_refused_with_their_text() {
    let cut = &EMPTY_V0[..45];
    let path = format!("/ipfs/{EMPTY_V0}");
    // A trailing byte after the digest.
    let long = format!("f01551220{}00", "ab".repeat(32));
    for text in [
        "",
        "Q",
        "Qm",
        "hello world",
        "b",
        "zz",
        cut,
        &path,
        "mAXASIA",
        "\u{fc}",
        &"b".repeat(5000),
        "f01550000ff",
        &long,
    ] {
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
    // The empty identity CID, which gateway probes use.
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

/// Digests of the empty input and of "abc", from FIPS 180-4 and 202, the Keccak submission, the algorithm of RFC 7693
/// with 32 bytes, and the BLAKE3 specification.
#[test]
fn hash_functions_give_their_published_digests() {
    for (name, code, empty, abc) in [
        (
            "sha2-256",
            0x12,
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
        (
            "sha2-512",
            0x13,
            "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce\
             47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
             2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ),
        (
            "sha3-256",
            0x16,
            "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a",
            "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532",
        ),
        (
            "keccak-256",
            0x1b,
            "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470",
            "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45",
        ),
        (
            "blake2b-256",
            0xb220,
            "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8",
            "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319",
        ),
        (
            "blake3",
            0x1e,
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
            "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
        ),
    ] {
        let function = HashFunction::from_name(name).unwrap();
        assert_eq!(HashFunction::from_name(&name.to_ascii_uppercase()).unwrap(), function, "{name}");
        assert_eq!((function.code(), HashFunction::from_code(code).unwrap()), (code, function), "{name}");
        for (data, digest) in [(&b""[..], empty), (b"abc", abc)] {
            let found = function.digest(data).unwrap();
            let hex: String = found.digest().iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!((found.code(), hex.as_str()), (code, digest), "{name}");
        }
    }
}

#[test]
fn blocks_of_every_hash_function_are_verified() {
    for function in HashFunction::ALL {
        let block = Block::hash(1, codec::RAW, function, Bytes::from_static(b"right")).unwrap();
        assert!(Block::new(*block.cid(), Bytes::from_static(b"right")).is_ok(), "{function:?}");
        let wrong = Block::new(*block.cid(), Bytes::from_static(b"wrong")).unwrap_err();
        assert!(wrong.message().contains(&block.cid().to_string()), "{wrong}");
        assert_eq!(parse_cid(&block.cid().to_string()).unwrap(), *block.cid());
    }
}

#[test]
fn many_blocks_are_hashed_and_verified_as_one_is() {
    let data: Vec<Bytes> = (0..40_usize).map(|i| Bytes::from(vec![i as u8; i * i])).collect();
    for function in HashFunction::ALL.into_iter().filter(|function| *function != HashFunction::Identity) {
        let one_by_one = data.iter().map(|data| Block::hash(1, codec::RAW, function, data.clone()).unwrap());
        let one_by_one: Vec<Block> = one_by_one.collect();
        assert_eq!(Block::hash_all(1, codec::RAW, function, data.clone()).unwrap(), one_by_one, "{function:?}");
    }
    let too_large = vec![Bytes::from_static(b"x"), Bytes::from(vec![0; limits::MAX_BLOCK_BYTES + 1])];
    let error = Block::hash_all(1, codec::RAW, HashFunction::Sha2_256, too_large).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);

    // Blocks of four functions in turn, every fifth of which has the bytes of another block.
    let blocks = data.iter().enumerate().map(|(i, data)| {
        let function = HashFunction::ALL[i % 4];
        let cid = *Block::hash(1, codec::RAW, function, data.clone()).unwrap().cid();
        (cid, if i % 5 == 4 { Bytes::from_static(b"other") } else { data.clone() })
    });
    let blocks: Vec<(ipfrs_core::Cid, Bytes)> = blocks.collect();
    let verified = Block::verify_all(blocks.clone(), limits::MAX_BLOCK_BYTES);
    assert_eq!(verified.len(), blocks.len());
    for (verified, (cid, data)) in verified.into_iter().zip(blocks) {
        match (verified, Block::new(cid, data)) {
            (Ok(together), Ok(alone)) => assert_eq!(together, alone),
            (Err(together), Err(alone)) => assert_eq!(together.to_string(), alone.to_string()),
            (together, alone) => panic!("{cid}: {together:?}, but {alone:?} alone"),
        }
    }
}

#[test]
fn digests_of_a_wrong_length_are_refused() {
    for function in HashFunction::ALL {
        let Some(length) = function.digest_bytes() else { continue };
        // A digest of blake3 may be longer, up to the longest that a content ID can have.
        for wrong in [19, length + 1].into_iter().filter(|wrong| *wrong < length || !function.is_whole(*wrong)) {
            let hash = Multihash::wrap(function.code(), &vec![7; wrong]).unwrap();
            let cid = new_cid(1, codec::RAW, hash).unwrap();
            let reason = format!("its {} digest has {wrong} bytes instead of {length}", function.name());
            assert!(parse_cid(&cid.to_string()).unwrap_err().message().contains(&reason));
            assert!(cid_from_bytes(&cid.to_bytes()).unwrap_err().message().contains(&reason));
        }
        let truncated = function.truncated_digest(b"data", 20).unwrap();
        let cid = new_cid(1, codec::RAW, truncated).unwrap();
        assert_eq!(parse_cid(&cid.to_string()).unwrap(), cid);
        assert!(hash::verify(&cid, b"data").is_ok() && hash::verify(&cid, b"date").is_err(), "{cid}");
    }
}

#[test]
fn digests_of_blake3_have_any_length() {
    // Content IDs of Kubo (`block put --mhtype=blake3 --mhlen=64`).
    for (bytes, cid) in [
        (20, "bafkr4fcj3sdq34o6p7lapfgoxtset5om3lsxlly"),
        (
            64,
            "bafkr4qcj3sdq34o6p7lapfgoxtset5om3lsxll72uz5cjnrkzmb6aoo3sknmbprpe27pbfrb67tonydgfot5ixuq4skiva76ppbgpjlzc4ua4",
        ),
        (
            128,
            "bafkr5aabjhoiodpr3z75mb4uz26oispvztnok5np7kthujfwflfqhybz3ojjvqf6f4tl54eweh36nzxamyv2pvc6sdsjjcud7z54ez5fpelsqdta\
             x2k3rvuq3wdl5a4blxv3gvsroa3nakfzzknamhu2apf3vvytyiobabrn2bfnfajq66ikjy5lewsp5jyddsg5l7u3emr2ancimryay",
        ),
    ] {
        let hash = HashFunction::Blake3.truncated_digest(b"foo\n", bytes).unwrap();
        assert_eq!(new_cid(1, codec::RAW, hash).unwrap().to_string(), cid);
        assert_eq!(*parse_cid(cid).unwrap().hash(), hash);
        assert!(HashFunction::Blake3.matches(&hash, b"foo\n").unwrap());
        assert!(!HashFunction::Blake3.matches(&hash, b"bar\n").unwrap());
    }
    assert!(HashFunction::Blake3.truncated_digest(b"foo", 129).is_err());
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
        prop_assert_eq!(cid_text(&cid), cid.to_string());
        prop_assert_eq!(parse_cid(&cid_text(&cid)).unwrap(), cid);
        prop_assert_eq!(cid_from_bytes(&cid.to_bytes()).unwrap(), cid);
        hash::verify(&cid, &data).unwrap();
    }

    #[test]
    fn no_text_makes_the_parser_panic(text: String, bytes: Vec<u8>) {
        let _ = parse_cid(&text);
        let _ = cid_from_bytes(&bytes);
    }
}

#[test]
fn a_kind_of_error_is_known_by_its_code() {
    for kind in ErrorKind::ALL {
        assert_eq!(ErrorKind::from_code(kind.code()), Some(kind));
    }
    assert_eq!(ErrorKind::from_code("nonsense"), None);
}

#[test]
fn denied_access_of_the_process_is_no_missing_right_of_a_caller() {
    use std::io;
    for (system, kind) in [
        (io::ErrorKind::PermissionDenied, ErrorKind::Internal),
        (io::ErrorKind::ReadOnlyFilesystem, ErrorKind::Internal),
        (io::ErrorKind::StorageFull, ErrorKind::NoSpace),
        (io::ErrorKind::NotFound, ErrorKind::NotFound),
    ] {
        assert_eq!(Error::io("cannot write 1.pack", system.into()).kind(), kind);
    }
}
