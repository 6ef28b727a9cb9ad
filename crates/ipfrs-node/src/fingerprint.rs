//! Fingerprints of blocks, for large sets.

use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use ipfrs_core::Multihash;

/// Computes fingerprints with a secret random key, so that an attacker cannot craft digests whose fingerprints
/// collide.
#[derive(Debug, Default)]
pub(crate) struct Fingerprints([RandomState; 2]);

impl Fingerprints {
    /// Returns 64 bits, for uses in which a collision only keeps a block that could be deleted.
    pub(crate) fn short(&self, hash: &Multihash) -> u64 {
        let mut hasher = self.0[0].build_hasher();
        hasher.write_u64(hash.code());
        hasher.write(hash.digest());
        hasher.finish()
    }

    /// Returns 128 bits, for uses in which a collision could lose a block.
    pub(crate) fn long(&self, hash: &Multihash) -> u128 {
        let mut hasher = self.0[1].build_hasher();
        hasher.write(hash.digest());
        hasher.write_u64(hash.code());
        u128::from(self.short(hash)) << 64 | u128::from(hasher.finish())
    }

    /// Returns 128 bits for a sequence of byte strings.
    pub(crate) fn parts(&self, parts: &[&[u8]]) -> u128 {
        let [high, low] = [0, 1].map(|half: usize| u128::from(self.0[half].hash_one(parts)));
        high << 64 | low
    }
}

/// Hasher that maps fingerprints, which are already random, to themselves.
#[derive(Debug, Default)]
pub(crate) struct Itself(u64);

/// Hash builder for sets of fingerprints.
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
