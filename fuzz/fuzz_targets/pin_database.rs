//! Opens a damaged file of pins. It is refused, or has all pins.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// Damage: other bytes, another length, or another content.
type Damage<'a> = (Vec<(u8, u16, u8)>, Option<u32>, Option<&'a [u8]>);

fuzz_target!(|damage: Damage<'_>| {
    let (changes, length, content) = damage;
    ipfrs_store::fuzzing::pin_database(&changes, length, content);
});
