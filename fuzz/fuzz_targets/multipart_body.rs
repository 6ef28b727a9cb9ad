//! Reads arbitrary bytes as a multipart body, whole and in small pieces. Both find the same parts.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// Content type of half of the inputs: the fuzzer need not find it.
const CONTENT_TYPE: &[u8] = b"multipart/form-data; boundary=b";

fuzz_target!(|input: (Option<&[u8]>, u8, &[u8])| {
    let (content_type, piece_bytes, body) = input;
    ipfrs_http::fuzzing::multipart_body(content_type.unwrap_or(CONTENT_TYPE), body, piece_bytes);
});
