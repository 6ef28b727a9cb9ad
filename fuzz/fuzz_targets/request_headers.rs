//! Reads arbitrary `Range`, `Accept`, lists of entity tags, and dates. All ranges are within the content.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], u64, Vec<&[u8]>, &str, &[u8])| {
    let (range, size, accept, tags, date) = input;
    ipfrs_http::fuzzing::request_headers(range, size, &accept, tags, date);
});
