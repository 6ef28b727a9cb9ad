//! Reads an arbitrary text as a message of `/ws`. A refusal is short JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| ipfrs_http::fuzzing::websocket_message(text));
