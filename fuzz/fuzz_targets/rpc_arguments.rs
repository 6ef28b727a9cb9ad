//! Parses an arbitrary path and query as the arguments and options of a command of the RPC, by its definition.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &str, &str)| {
    let (command, path, query) = input;
    ipfrs_http::fuzzing::rpc_arguments(command, path, query);
});
