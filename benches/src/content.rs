//! Content to serve: the same on every machine, and, but for texts, nothing that could be compressed or stored once.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

const PIECE_BYTES: usize = 1024 * 1024;

/// `length` pseudo-random bytes that `seed` decides on.
#[must_use]
pub fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// `length` bytes of words that `seed` decides on, some of them as much more often than others as in a language.
#[must_use]
pub fn text(seed: u64, length: usize) -> Vec<u8> {
    const SYLLABLES: [&str; 16] =
        ["ba", "con", "de", "el", "for", "ing", "ka", "lo", "men", "no", "per", "ri", "sta", "ter", "un", "ve"];
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    let mut text = Vec::with_capacity(length + 32);
    while text.len() < length {
        // The nth word comes about once in n.
        let power = 1 << (generator.next_u64() % 12);
        let mut word = (power + generator.next_u64() % power) * 7_919;
        loop {
            text.extend_from_slice(SYLLABLES[(word % 16) as usize].as_bytes());
            word /= 16;
            if word == 0 {
                break;
            }
        }
        text.extend_from_slice(if generator.next_u64() % 12 == 0 { b".\n" } else { b" " });
    }
    text.truncate(length);
    text
}

/// Makes a file of `mib` MiB of pseudo-random bytes that `seed` decides on.
///
/// # Errors
/// When it cannot be written.
pub fn write_random_file(path: &Path, seed: u64, mib: u64) -> Result<()> {
    let describe = || format!("cannot write {}", path.display());
    let mut file = File::create(path).with_context(describe)?;
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    let mut piece = vec![0; PIECE_BYTES];
    for _ in 0..mib {
        generator.fill_bytes(&mut piece);
        file.write_all(&piece).with_context(describe)?;
    }
    // What the disk still has to do must not go on beside what is measured.
    file.sync_all().with_context(describe)
}

/// Where ranges of `length` bytes begin in a file of `size`: spread over it, at odd places, the same in every run.
#[derive(Debug, Clone)]
pub struct Offsets {
    generator: ChaCha8Rng,
    places: u64,
}

impl Offsets {
    /// Of ranges that are not longer than the file.
    #[must_use]
    pub fn new(size: u64, length: u64) -> Self {
        Self { generator: ChaCha8Rng::seed_from_u64(length), places: size - length + 1 }
    }
}

impl Iterator for Offsets {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        Some(self.generator.next_u64() % self.places)
    }
}
