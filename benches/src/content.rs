//! Content to serve. It is the same on every machine and, except for texts, can be neither compressed nor
//! deduplicated.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

const PIECE_BYTES: usize = 1024 * 1024;

/// Returns `length` pseudo-random bytes generated from `seed`.
#[must_use]
pub fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Returns `length` bytes of words generated from `seed`, with word frequencies as in a natural language.
#[must_use]
pub fn text(seed: u64, length: usize) -> Vec<u8> {
    const SYLLABLES: [&str; 16] =
        ["ba", "con", "de", "el", "for", "ing", "ka", "lo", "men", "no", "per", "ri", "sta", "ter", "un", "ve"];
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    let mut text = Vec::with_capacity(length + 32);
    while text.len() < length {
        // The n-th word occurs about once in n words.
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

/// Writes a file of `mib` MiB of pseudo-random bytes generated from `seed`.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn write_random_file(path: &Path, seed: u64, mib: u64) -> Result<()> {
    let describe = || format!("cannot write {}", path.display());
    let mut file = File::create(path).with_context(describe)?;
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    let mut piece = vec![0; PIECE_BYTES];
    for _ in 0..mib {
        generator.fill_bytes(&mut piece);
        file.write_all(&piece).with_context(describe)?;
    }
    // Pending writes must not disturb the measurement.
    file.sync_all().with_context(describe)
}

/// Start offsets of ranges of `length` bytes in a file of `size` bytes: unaligned, spread over the file, and the same
/// in every run.
#[derive(Debug, Clone)]
pub struct Offsets {
    generator: ChaCha8Rng,
    places: u64,
}

impl Offsets {
    /// Creates the offsets. `length` must not exceed `size`.
    #[must_use]
    pub fn new(size: u64, length: u64) -> Self {
        Self::seeded(size, length, length)
    }

    /// Creates offsets that differ from those of other seeds.
    #[must_use]
    pub fn seeded(size: u64, length: u64, seed: u64) -> Self {
        Self { generator: ChaCha8Rng::seed_from_u64(seed), places: size - length + 1 }
    }
}

impl Iterator for Offsets {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        Some(self.generator.next_u64() % self.places)
    }
}
