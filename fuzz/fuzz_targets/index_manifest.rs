//! Decodes arbitrary bytes as the manifest of the index. What can be decoded stays the same when it is encoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|content: &[u8]| ipfrs_store::fuzzing::index_manifest(content));
