//! Decodes arbitrary bytes as a Bitswap message, and computes the content IDs of its blocks.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ipfrs_bitswap::fuzzing::message(Bytes::copy_from_slice(bytes)));
