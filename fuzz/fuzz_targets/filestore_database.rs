//! Opens a damaged file of references to blocks in files, reads it in all ways and changes it. Damage is an error,
//! never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// Damage: other bytes, another length, or another content.
type Damage<'a> = (Vec<(u8, u16, u8)>, Option<u32>, Option<&'a [u8]>);

fuzz_target!(|damage: Damage<'_>| {
    let (changes, length, content) = damage;
    ipfrs_store::fuzzing::filestore_database(&changes, length, content);
});
