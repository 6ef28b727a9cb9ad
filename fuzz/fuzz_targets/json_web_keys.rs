//! Reads arbitrary bytes as a JSON Web Key Set. Secrets are used only where they are allowed.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ipfrs_middleware::fuzzing::json_web_keys(bytes));
