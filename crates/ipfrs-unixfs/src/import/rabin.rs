//! A content-defined chunker with a Rabin fingerprint of the last bytes, like boxo's `rabin` chunker.
//!
//! Bytes are polynomials over GF(2). The fingerprint is the remainder of the window's polynomial by [`POLYNOMIAL`].

use super::cut::Cut;

/// An irreducible polynomial of degree [`DEGREE`], part of the format.
const POLYNOMIAL: u64 = 0x3d_f305_dfb2_a805;
const DEGREE: u32 = 53;
/// Size of the fingerprinted window, in bytes.
pub(crate) const WINDOW_BYTES: usize = 16;

/// Reduction table, indexed by the 8 bits that another byte shifts beyond the degree. Each value combines those bits
/// with their remainder.
const REDUCED: [u64; 256] = reduced();
/// Contribution of the oldest byte of the window to the fingerprint, indexed by that byte.
const LEAVING: [u64; 256] = leaving();

const fn remainder(mut value: u64) -> u64 {
    while value >> DEGREE != 0 {
        value ^= POLYNOMIAL << (value.ilog2() - DEGREE);
    }
    value
}

const fn reduced() -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 1;
    while byte < table.len() {
        let shifted = (byte as u64) << DEGREE;
        table[byte] = remainder(shifted) | shifted;
        byte += 1;
    }
    table
}

const fn leaving() -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 1;
    while byte < table.len() {
        let mut fingerprint = byte as u64;
        let mut position = 1;
        while position < WINDOW_BYTES {
            fingerprint = remainder(fingerprint << u8::BITS);
            position += 1;
        }
        table[byte] = fingerprint;
        byte += 1;
    }
    table
}

/// An incremental search for the end of each chunk.
#[derive(Debug)]
pub(crate) struct Rabin {
    min: usize,
    max: usize,
    /// A chunk ends where these bits of the fingerprint are zero.
    mask: u64,
    /// Number of bytes of the current chunk so far.
    count: usize,
    fingerprint: u64,
    /// The last bytes of the fingerprint, each at its position in the chunk modulo the window size.
    window: [u8; WINDOW_BYTES],
}

impl Rabin {
    /// Creates a chunker for chunks of `min` to `max` bytes. The average size is `min` plus `avg`, rounded down to a
    /// power of two. `min` must be at least [`WINDOW_BYTES`].
    pub(crate) fn new(min: usize, avg: usize, max: usize) -> Self {
        let mask = (1 << avg.ilog2()) - 1;
        Self { min, max, mask, count: 0, fingerprint: 0, window: [0; WINDOW_BYTES] }
    }

    /// Returns the bytes at the front of `piece` that belong to the current chunk.
    pub(crate) fn scan(&mut self, piece: &[u8]) -> Cut {
        // Below the minimum size, only the bytes of the first window affect the fingerprint.
        let skipped = (self.min - WINDOW_BYTES).saturating_sub(self.count).min(piece.len());
        self.count += skipped;
        for (len, &byte) in (skipped + 1..).zip(&piece[skipped..]) {
            self.slide(byte);
            self.count += 1;
            if self.count >= self.min && (self.fingerprint & self.mask == 0 || self.count >= self.max) {
                (self.count, self.fingerprint, self.window) = (0, 0, [0; WINDOW_BYTES]);
                return Cut { len, ends: true };
            }
        }
        Cut { len: piece.len(), ends: false }
    }

    fn slide(&mut self, byte: u8) {
        let leaving = std::mem::replace(&mut self.window[self.count % WINDOW_BYTES], byte);
        let left = self.fingerprint ^ LEAVING[usize::from(leaving)];
        let over = (left >> (DEGREE - u8::BITS)) as usize;
        self.fingerprint = (left << u8::BITS | u64::from(byte)) ^ REDUCED[over];
    }
}
