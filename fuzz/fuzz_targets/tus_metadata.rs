//! Reads arbitrary headers as `Upload-Metadata`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|values: Vec<&[u8]>| ipfrs_http::fuzzing::tus_metadata(&values));
