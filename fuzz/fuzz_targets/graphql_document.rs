//! Parses an arbitrary GraphQL document, and checks it as before its execution.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| ipfrs_graphql::fuzzing::document(text));
