//! Records: signed records verify, and all others do not.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipfrs_core::ErrorKind;
use ipfrs_ipns::{KeyType, MAX_RECORD_BYTES, Name, PrivateKey, Record};
use proptest::prelude::*;
use prost::Message;

const VALUE: &str = "/ipfs/bafkqaaa/a/b";
const TTL: Duration = Duration::from_secs(300);

/// The protobuf of the specification, for building invalid records.
#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(bytes = "vec", optional, tag = "1")]
    value: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "2")]
    signature_v1: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "3")]
    validity_type: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "4")]
    validity: Option<Vec<u8>>,
    #[prost(uint64, optional, tag = "5")]
    sequence: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    ttl: Option<u64>,
    #[prost(bytes = "vec", optional, tag = "7")]
    public_key: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "8")]
    signature_v2: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "9")]
    data: Option<Vec<u8>>,
}

fn key() -> PrivateKey {
    PrivateKey::generate(KeyType::Ed25519, None).unwrap()
}

fn soon() -> SystemTime {
    SystemTime::now() + Duration::from_secs(3_600)
}

fn record(key: &PrivateKey) -> Record {
    Record::create(key, VALUE, 7, soon(), TTL).unwrap()
}

/// Returns the reason for which a valid record is rejected after `change`.
fn refusal(change: impl FnOnce(&mut Entry)) -> String {
    let key = key();
    let mut entry = Entry::decode(record(&key).bytes().clone()).unwrap();
    change(&mut entry);
    refusal_of(entry.encode_to_vec(), &Name::of(key.public()))
}

fn refusal_of(bytes: Vec<u8>, name: &Name) -> String {
    let verified = Record::parse(bytes).and_then(|record| record.verify(name, SystemTime::now()));
    let error = verified.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    error.to_string()
}

/// Returns a record whose key signed these bytes instead of its data.
fn signed(data: &[u8]) -> (Vec<u8>, Name) {
    let key = key();
    let signature = key.sign(&[b"ipns-signature:", data].concat()).unwrap();
    let entry = Entry { signature_v2: Some(signature), data: Some(data.to_vec()), ..Entry::default() };
    (entry.encode_to_vec(), Name::of(key.public()))
}

#[test]
fn records_of_every_key_type_verify_only_for_own_name() {
    let other = Name::of(key().public());
    for (key_type, bits) in
        [(KeyType::Ed25519, None), (KeyType::Rsa, Some(2_048)), (KeyType::Secp256k1, None), (KeyType::Ecdsa, None)]
    {
        let key = PrivateKey::generate(key_type, bits).unwrap();
        let name = Name::of(key.public());
        for make in [Record::create, Record::create_v2_only] {
            let made = make(&key, VALUE, 7, soon(), TTL).unwrap();
            let read = Record::parse(made.bytes().clone()).unwrap();
            read.verify(&name, SystemTime::now()).unwrap();
            assert_eq!(read, made);
            assert_eq!(read.value(), VALUE.as_bytes());
            assert_eq!((read.sequence(), read.ttl()), (7, Some(TTL)));
            // The name of a long key is a hash, so the record contains the key.
            let embedded = Entry::decode(read.bytes().clone()).unwrap().public_key;
            assert_eq!(embedded.is_some(), name.public_key().is_none(), "{key_type}");
            let error = read.verify(&other, SystemTime::now()).unwrap_err();
            assert!(error.message().contains(&other.to_string()), "{error}");
        }
    }
}

/// A key that Kubo 0.44 exported, as libp2p protobuf, and a record that Kubo published with it, both in base64.
const KUBO_KEY: &str = "CAESQNf32O9xS55iQHhjDxmySCFwdefJ4h7v/9/D6KwGx8jDQ4+hkFJaFWrjFGCF3P/aMRRrOPmsx5JFg0g8D6IG4jY=";
const KUBO_RECORD: &str = "Cg4vaXBmcy9iYWZrcWFhYRJARtGzopzxoWRoOWV9RymDiPeTHO5FBdicVN6FBL7LHVD067BZKgtQax95MtWn/E7A\
    wPvVTs9OcnhqvU1n0TowAxgAIhwyMDI2LTExLTIzVDExOjI5OjUyLjc3NDE4MDlaKAAwgIiso88CQkD7g7q+jUekmeK5r+tqn1casgKjBfkDY7mO\
    8vvdVprRJMCn74FFCJmOSyA+k37K/WMhEavUwfBJkWZ07f0qvgYDSmKlY1RUTBsAAAAU9GsEAGVWYWx1ZU4vaXBmcy9iYWZrcWFhYWhTZXF1ZW5j\
    ZQBoVmFsaWRpdHlYHDIwMjYtMTEtMjNUMTE6Mjk6NTIuNzc0MTgwOVpsVmFsaWRpdHlUeXBlAA==";
const KUBO_NAME: &str = "k51qzi5uqu5dhv7j7ac9w2m7rwx0kzte56q3qr00kyk7t1qfbvaw6eriqzfxh2";

#[test]
fn a_record_is_byte_for_byte_the_one_that_kubo_makes() {
    let key = PrivateKey::from_protobuf(&STANDARD.decode(KUBO_KEY).unwrap()).unwrap();
    assert_eq!(Name::of(key.public()).to_string(), KUBO_NAME);
    let theirs = Record::parse(STANDARD.decode(KUBO_RECORD).unwrap()).unwrap();
    let end = SystemTime::UNIX_EPOCH + Duration::new(1_795_433_392, 774_180_900);
    theirs.verify(&Name::parse(KUBO_NAME).unwrap(), end).unwrap();
    let ours = Record::create(&key, "/ipfs/bafkqaaa", 0, end, Duration::from_secs(90)).unwrap();
    assert_eq!(ours.bytes(), theirs.bytes());
}

#[test]
fn record_v1_fields_equal_signed_data() {
    let key = key();
    let made = record(&key);
    let entry = Entry::decode(made.bytes().clone()).unwrap();
    assert_eq!(entry.value.as_deref(), Some(VALUE.as_bytes()));
    assert_eq!(entry.validity.as_deref(), Some(made.validity_text().as_bytes()));
    assert_eq!((entry.validity_type, entry.sequence, entry.ttl), (Some(0), Some(7), Some(300_000_000_000)));
    let message = [VALUE.as_bytes(), made.validity_text().as_bytes(), b"EOL"].concat();
    key.public().verify(&message, &entry.signature_v1.unwrap()).unwrap();

    let short = Record::create_v2_only(&key, VALUE, 7, soon(), TTL).unwrap();
    let entry = Entry::decode(short.bytes().clone()).unwrap();
    assert_eq!(Entry { data: entry.data.clone(), signature_v2: entry.signature_v2.clone(), ..Entry::default() }, entry);
}

#[test]
fn fields_that_are_not_what_was_signed_are_refused() {
    assert!(refusal(|entry| entry.value = Some(b"/ipfs/bafkqabi".to_vec())).contains("its field value"));
    assert!(refusal(|entry| entry.value = None).contains("its field value"));
    assert!(refusal(|entry| entry.validity = Some(b"2999-01-01T00:00:00Z".to_vec())).contains("its field validity"));
    assert!(refusal(|entry| entry.validity_type = Some(1)).contains("its field validityType"));
    assert!(refusal(|entry| entry.sequence = Some(8)).contains("its field sequence"));
    assert!(refusal(|entry| entry.sequence = None).contains("its field sequence"));
    assert!(refusal(|entry| entry.ttl = Some(1)).contains("its field ttl"));
}

#[test]
fn records_that_the_key_of_the_name_did_not_sign_are_refused() {
    let v1_only = refusal(|entry| (entry.signature_v2, entry.data) = (None, None));
    assert!(v1_only.contains("no V2 signature"), "{v1_only}");
    assert!(refusal(|entry| entry.signature_v2.as_mut().unwrap()[9] ^= 1).contains("its signature"));
    let another = key().public().to_protobuf();
    assert!(refusal(|entry| entry.public_key = Some(another)).contains("belongs to another name"));
    assert!(refusal(|entry| entry.public_key = Some(vec![8, 1])).contains("not valid for the IPNS name"));

    let rsa = PrivateKey::generate(KeyType::Rsa, Some(2_048)).unwrap();
    let mut entry = Entry::decode(record(&rsa).bytes().clone()).unwrap();
    entry.public_key = None;
    let keyless = refusal_of(entry.encode_to_vec(), &Name::of(rsa.public()));
    assert!(keyless.contains("neither the name nor the record contains a usable public key"), "{keyless}");
}

#[test]
fn signed_data_has_one_form_and_every_field() {
    // {"TTL": 0, "Value": h'', "Sequence": 0, "Validity": '2999-01-01T00:00:00Z', "ValidityType": 0}
    let fields: [&[u8]; 5] = [
        b"\x63TTL\x00",
        b"\x65Value\x40",
        b"\x68Sequence\x00",
        b"\x68Validity\x542999-01-01T00:00:00Z",
        b"\x6cValidityType\x00",
    ];
    let map = |fields: &[&[u8]]| [&[0xa0 + fields.len() as u8], fields.concat().as_slice()].concat();
    let (bytes, name) = signed(&map(&fields));
    let good = Record::parse(bytes).unwrap();
    good.verify(&name, SystemTime::now()).unwrap();
    assert!(good.value().is_empty());

    let refused = |fields: &[&[u8]], why: &str| {
        let (bytes, name) = signed(&map(fields));
        let error = refusal_of(bytes, &name);
        assert!(error.contains(why), "{why}: {error}");
    };
    let [ttl, value, sequence, validity, validity_type] = fields;
    refused(&[ttl, sequence, validity, validity_type], "no Value");
    refused(&[ttl, value, validity, validity_type], "no Sequence");
    refused(&[ttl, value, sequence, validity_type], "no Validity");
    refused(&[ttl, value, sequence, validity], "ValidityType");
    refused(&[ttl, value, sequence, validity, b"\x6cValidityType\x01"], "ValidityType");
    refused(&[ttl, b"\x65Value\x60", sequence, validity, validity_type], "its Value is not a byte string");
    refused(&[b"\x63TTL\x20", value, sequence, validity, validity_type], "its TTL is not an unsigned");
    refused(&[ttl, value, sequence, b"\x68Validity\x48tomorrow", validity_type], "not an RFC 3339 time");
    refused(&[value, ttl, sequence, validity, validity_type], "not DAG-CBOR");
    refused(&[b"\x63TTL\x18\x00", value, sequence, validity, validity_type], "not DAG-CBOR");
    assert!(refusal_of(signed(b"\x80").0, &name).contains("not a map"));
    assert!(refusal_of(signed(b"\xff").0, &name).contains("not DAG-CBOR"));
    assert!(refusal_of(signed(&[0x81; 5_000]).0, &name).contains("not DAG-CBOR"));
}

#[test]
fn a_record_ends_at_its_validity() {
    let key = key();
    let name = Name::of(key.public());
    let end = SystemTime::UNIX_EPOCH + Duration::new(2_000_000_000, 5);
    let record = Record::create(&key, VALUE, 0, end, TTL).unwrap();
    record.verify(&name, end).unwrap();
    let error = record.verify(&name, end + Duration::from_nanos(1)).unwrap_err();
    assert!(error.message().contains("it expired at 2033-05-18T03:33:20.000000005Z"), "{error}");
    // The result must not outlive the record.
    let default = Duration::from_secs(60);
    assert_eq!(record.lifetime(end - Duration::from_secs(3_600), default), TTL);
    assert_eq!(record.lifetime(end - Duration::from_secs(10), default), Duration::from_secs(10));
    assert_eq!(record.lifetime(end + TTL, default), Duration::ZERO);
}

#[test]
fn oversized_or_invalid_records_are_rejected() {
    let key = key();
    let long = format!("/ipfs/bafkqaaa/{}", "a".repeat(MAX_RECORD_BYTES));
    assert_eq!(Record::create(&key, &long, 0, soon(), TTL).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(Record::parse(vec![0; MAX_RECORD_BYTES + 1]).unwrap_err().kind(), ErrorKind::TooLarge);
    let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
    assert_eq!(Record::create(&key, VALUE, 0, before, TTL).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn record_with_higher_sequence_then_validity_supersedes() {
    let key = key();
    let end = soon();
    let make = |sequence, end| Record::create(&key, VALUE, sequence, end, TTL).unwrap();
    let (old, new) = (make(1, end + TTL), make(2, end));
    assert!(new.supersedes(&old) && !old.supersedes(&new));
    let longer = make(2, end + TTL);
    assert!(longer.supersedes(&new) && !new.supersedes(&longer));
    assert!(!new.supersedes(&new.clone()));
    let other = Record::create(&key, "/ipfs/bafkqabi", 2, end, TTL).unwrap();
    assert_ne!(other.supersedes(&new), new.supersedes(&other), "everybody keeps the same of two");
}

#[test]
fn a_name_is_read_in_every_form_and_written_in_one() {
    let key = key();
    let name = Name::of(key.public());
    assert_eq!(name.public_key().as_ref(), Some(key.public()));
    let text = name.to_string();
    assert!(text.starts_with("k51") && text.len() == 62, "{text}");
    let base32 = name.cid().to_string();
    for form in [&text, &base32, &name.peer_id(), &text.to_uppercase()] {
        assert_eq!(&Name::parse(form).unwrap(), &name, "{form}");
    }

    let rsa = Name::of(PrivateKey::generate(KeyType::Rsa, Some(2_048)).unwrap().public());
    assert!(rsa.peer_id().starts_with("Qm") && rsa.public_key().is_none());
    assert_eq!(Name::parse(&rsa.peer_id()).unwrap(), rsa);

    let wrong_codec = ipfrs_core::Cid::new_v1(ipfrs_core::codec::DAG_PB, *rsa.multihash()).to_string();
    let error = Name::parse(&wrong_codec).unwrap_err();
    assert!(error.message().contains(&rsa.to_string()), "the name that may be meant is named: {error}");
    for text in ["", "1", "Qm", "12D3KooW", "example.org", "k51qzi5uqu5d0", "bafkqaaa", &"1".repeat(1_000_000)] {
        assert_eq!(Name::parse(text).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = Record::parse(bytes);
    }

    #[test]
    fn any_data_is_read_or_refused(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        let entry = Entry { signature_v2: Some(vec![0]), data: Some(data), ..Entry::default() };
        let _ = Record::parse(entry.encode_to_vec());
    }

    #[test]
    fn a_changed_record_says_what_was_signed_or_is_refused(at in any::<prop::sample::Index>(), change in 1_u8..) {
        let key = key();
        let name = Name::of(key.public());
        let good = record(&key);
        let mut bytes = good.bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        if let Ok(changed) = Record::parse(bytes) && changed.verify(&name, SystemTime::now()).is_ok() {
            // The V1 signature is not verified, so it may be anything.
            prop_assert_eq!(changed.value(), good.value());
            prop_assert_eq!((changed.sequence(), changed.ttl()), (good.sequence(), good.ttl()));
            prop_assert_eq!(changed.validity_text(), good.validity_text());
        }
    }

    #[test]
    fn any_text_is_a_name_or_refused(text in "[1Qmkbafz]?\\PC{0,70}") {
        if let Ok(name) = Name::parse(&text) {
            prop_assert_eq!(Name::parse(&name.to_string()).unwrap(), name);
        }
    }
}
