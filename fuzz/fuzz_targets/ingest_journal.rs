//! Reads a journal of an object with arbitrary records, and what may follow them. Records without gaps are read whole.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, Vec<(u8, &[u8])>, &[u8], u64)| {
    let (first, records, rest, size) = input;
    ipfrs_node::fuzzing::ingest_journal(first, &records, rest, size);
});
