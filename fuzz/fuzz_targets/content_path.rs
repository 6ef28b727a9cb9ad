//! Parses an arbitrary text as a content path and as a content ID. What is written is read as the same.
#![no_main]

use ipfrs_core::parse_cid;
use ipfrs_node::ContentPath;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(path) = ContentPath::parse(text) {
        let again = ContentPath::parse(path.to_bytes()).expect("what was written is read");
        assert_eq!(again, path);
    }
    if let Ok(cid) = parse_cid(text) {
        assert_eq!(parse_cid(&cid.to_string()).expect("what was written is read"), cid);
    }
});
