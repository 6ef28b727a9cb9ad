//! Reads a file with the root of the mutable files, whose slots have valid checksums or not, and writes another root.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Option<[&str; 3]>, &[u8])| {
    let (lines, bytes) = input;
    ipfrs_node::fuzzing::mutable_files_root(lines, bytes);
});
