//! Reads an arbitrary `_redirects` file, and applies it to an arbitrary path.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str)| {
    let (file, path) = input;
    ipfrs_http::fuzzing::redirects_file(file, path);
});
