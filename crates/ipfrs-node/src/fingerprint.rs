//! What stands for a block in large sets.

use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use ipfrs_core::Multihash;

/// Makes fingerprints with a key that nobody knows: two blocks of one fingerprint are a matter of chance, whatever somebody
/// does to their digests.
#[derive(Debug, Default)]
pub(crate) struct Fingerprints([RandomState; 2]);

impl Fingerprints {
    /// 64 bits, where a mistake may only keep what could go.
    pub(crate) fn short(&self, hash: &Multihash) -> u64 {
        let mut hasher = self.0[0].build_hasher();
        hasher.write_u64(hash.code());
        hasher.write(hash.digest());
        hasher.finish()
    }

    /// 128 bits, where a mistake could lose something.
    pub(crate) fn long(&self, hash: &Multihash) -> u128 {
        let mut hasher = self.0[1].build_hasher();
        hasher.write(hash.digest());
        hasher.write_u64(hash.code());
        u128::from(self.short(hash)) << 64 | u128::from(hasher.finish())
    }

    /// 128 bits of a few texts, in order.
    pub(crate) fn parts(&self, parts: &[&[u8]]) -> u128 {
        let [high, low] = [0, 1].map(|half: usize| u128::from(self.0[half].hash_one(parts)));
        high << 64 | low
    }
}

/// Hashes fingerprints, which are as good as random, to themselves.
#[derive(Debug, Default)]
pub(crate) struct Itself(u64);

/// For sets of fingerprints.
pub(crate) type ByItself = BuildHasherDefault<Itself>;

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }

    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = (fingerprint >> 32) as u64;
    }
}
