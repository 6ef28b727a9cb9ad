//! Converts arbitrary bytes between the codecs of nodes. The value stays the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ipfrs_node::fuzzing::dag_node(bytes));
