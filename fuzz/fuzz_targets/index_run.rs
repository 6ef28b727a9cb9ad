//! Opens arbitrary bytes as a run of the index, and reads every entry and one key. Damage is an error, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], &[u8], &[u8])| {
    let (header, content, key) = input;
    ipfrs_store::fuzzing::index_run(header, content, key);
});
