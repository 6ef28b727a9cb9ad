//! Parses arbitrary bytes as an IPNS record, and verifies it for a name whose key is unknown.
#![no_main]

use std::time::SystemTime;

use ipfrs_ipns::{Name, Record};
use libfuzzer_sys::fuzz_target;

/// A name whose private key is unknown.
const NAME: &str = "k51qzi5uqu5dlvj2baxnqndepeb86cbk3ng7n3i46uzyxzyqj2xjonzllnv0v8";

fuzz_target!(|bytes: &[u8]| {
    let Ok(record) = Record::parse(bytes.to_vec()) else { return };
    let _ = (record.value(), record.sequence(), record.ttl(), record.validity_text(), record.signature_v1());
    let name = Name::parse(NAME).expect("the name is valid");
    assert!(record.verify(&name, SystemTime::now()).is_err(), "the key of this name is unknown");
    assert_eq!(record.bytes(), bytes);
});
