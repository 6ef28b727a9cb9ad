//! Test content, and the content IDs that Kubo gives it.

use bytes::Bytes;
use ipfrs_core::hash;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::Deserialize;

/// Content IDs from Kubo for files and trees, by flags of `ipfs add`.
#[derive(Deserialize)]
pub(crate) struct Vectors {
    pub(crate) files: Vec<FileVector>,
    pub(crate) trees: Vec<TreeVector>,
}

/// A file whose content is the keystream of `seed`.
#[derive(Deserialize)]
pub(crate) struct FileVector {
    pub(crate) size: usize,
    pub(crate) seed: String,
    pub(crate) profile: String,
    pub(crate) flags: Vec<String>,
    pub(crate) cid: String,
}

/// A directory named `d`.
#[derive(Deserialize)]
pub(crate) struct TreeVector {
    pub(crate) tree: String,
    pub(crate) profile: String,
    pub(crate) flags: Vec<String>,
    pub(crate) cid: String,
}

/// Returns the vectors, which the importer's own tests also use.
pub(crate) fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../../crates/ipfrs-unixfs/tests/vectors/kubo-add.json")).unwrap()
}

/// Returns the query of `add` that corresponds to the flags of `ipfs add`.
pub(crate) fn options(profile: &str, flags: &[String]) -> String {
    let flags = flags.iter().filter_map(|flag| match flag.as_str() {
        "-w" => Some("wrap-with-directory=true"),
        // These flags only select the files that the client sends.
        "-r" | "--hidden" => None,
        flag => flag.strip_prefix("--"),
    });
    flags.fold(format!("profile={profile}"), |query, flag| format!("{query}&{flag}"))
}

/// Returns the first `len` bytes of the ChaCha20 keystream with the hash of `seed` as key, and nonce and counter
/// zero.
pub(crate) fn keystream(seed: &str, len: usize) -> Bytes {
    let key = hash::sha2_256(seed.as_bytes()).digest().try_into().unwrap();
    let mut bytes = vec![0; len];
    ChaCha20Rng::from_seed(key).fill_bytes(&mut bytes);
    bytes.into()
}

/// Returns `len` bytes that do not repeat.
pub(crate) fn bytes(len: usize) -> Bytes {
    keystream("ipfrs-tests", len)
}

/// Compares without printing megabytes if the bytes differ.
#[track_caller]
pub(crate) fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    if found != expected {
        let at = found.iter().zip(expected).position(|(a, b)| a != b);
        panic!("{what}: {} bytes instead of {}, the first difference at {at:?}", found.len(), expected.len());
    }
}
