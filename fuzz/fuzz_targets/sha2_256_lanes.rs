//! Hashes any number of messages of any lengths in lanes, with every vector instruction set of this machine, and
//! compares the digests with those of aws-lc-rs for single messages.
#![no_main]

use ipfrs_core::hash::HashFunction;
use libfuzzer_sys::fuzz_target;

/// The tested module, which is private to its crate, with the items that it imports from there.
#[path = "../../crates/ipfrs-core/src/hash"]
mod hash {
    mod lanes;
    mod simd;

    pub(super) type Digest = [u8; 32];

    pub(super) fn sha2_256_digest(data: &[u8]) -> Digest {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, data);
        digest.as_ref().try_into().expect("a digest has 32 bytes")
    }

    /// Hashes with all lanes of every instruction set, then through the public function.
    pub(super) fn check(messages: &[&[u8]], expected: &[Digest]) {
        let order: Vec<usize> = (0..messages.len()).rev().collect();
        for lanes in lanes::Lanes::found() {
            let mut digests = vec![[0; 32]; messages.len()];
            lanes.digest(messages, &order, &mut digests);
            assert_eq!(digests, expected, "{lanes:?}");
        }
        assert_eq!(lanes::digests(messages), expected);
    }
}

/// Size of the buffer that messages are slices of. The longest message may use all of it.
const BYTES: usize = 64 * 1024 + 256;

fuzz_target!(|input: (Vec<(u16, u8)>, &[u8])| {
    let (cuts, seed) = input;
    let bytes: Vec<u8> = seed.iter().chain(&[0]).copied().cycle().take(BYTES).collect();
    let messages: Vec<&[u8]> = cuts.iter().map(|(len, at)| &bytes[usize::from(*at)..][..usize::from(*len)]).collect();
    let expected: Vec<hash::Digest> = messages.iter().map(|message| hash::sha2_256_digest(message)).collect();
    hash::check(&messages, &expected);
    let public = HashFunction::Sha2_256.digests(&messages).expect("SHA2-256 has a digest for every message");
    assert!(public.iter().map(|hash| hash.digest()).eq(expected.iter().map(|digest| &digest[..])));
});
