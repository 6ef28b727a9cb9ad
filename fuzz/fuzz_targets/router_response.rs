//! Reads arbitrary bytes as a response of a delegated router.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ipfrs_retrieval::fuzzing::router_response(bytes));
