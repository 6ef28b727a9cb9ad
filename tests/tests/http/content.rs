//! Content to add, and what Kubo calls it.

use bytes::Bytes;
use ipfrs_core::hash;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::Deserialize;

/// Content IDs that Kubo gave for files and trees, by flags of `ipfs add`.
#[derive(Deserialize)]
pub(crate) struct Vectors {
    pub(crate) files: Vec<FileVector>,
    pub(crate) trees: Vec<TreeVector>,
}

/// A file that is the keystream of `seed`.
#[derive(Deserialize)]
pub(crate) struct FileVector {
    pub(crate) size: usize,
    pub(crate) seed: String,
    pub(crate) profile: String,
    pub(crate) flags: Vec<String>,
    pub(crate) cid: String,
}

/// A directory called `d`.
#[derive(Deserialize)]
pub(crate) struct TreeVector {
    pub(crate) tree: String,
    pub(crate) profile: String,
    pub(crate) flags: Vec<String>,
    pub(crate) cid: String,
}

/// The vectors that the importer's own tests use.
pub(crate) fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../../crates/ipfrs-unixfs/tests/vectors/kubo-add.json")).unwrap()
}

/// The query of `add` for the flags of `ipfs add`.
pub(crate) fn options(profile: &str, flags: &[String]) -> String {
    let flags = flags.iter().filter_map(|flag| match flag.as_str() {
        "-w" => Some("wrap-with-directory=true"),
        // These choose what a client sends.
        "-r" | "--hidden" => None,
        flag => flag.strip_prefix("--"),
    });
    flags.fold(format!("profile={profile}"), |query, flag| format!("{query}&{flag}"))
}

/// The first `len` bytes of the keystream of ChaCha20 with the hash of `seed` as key, nonce and counter zero.
pub(crate) fn keystream(seed: &str, len: usize) -> Bytes {
    let key = hash::sha2_256(seed.as_bytes()).digest().try_into().unwrap();
    let mut bytes = vec![0; len];
    ChaCha20Rng::from_seed(key).fill_bytes(&mut bytes);
    bytes.into()
}

/// `len` bytes that do not repeat.
pub(crate) fn bytes(len: usize) -> Bytes {
    keystream("ipfrs-tests", len)
}

/// Compares without printing megabytes when they differ.
#[track_caller]
pub(crate) fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    if found != expected {
        let at = found.iter().zip(expected).position(|(a, b)| a != b);
        panic!("{what}: {} bytes instead of {}, the first difference at {at:?}", found.len(), expected.len());
    }
}
