//! Reads arbitrary bytes as a denylist.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ipfrs_node::fuzzing::denylist(bytes));
