//! Chunks that end where a Rabin fingerprint of the last bytes says so, as in boxo's `rabin` chunker.
//!
//! Bytes are polynomials over GF(2), and the fingerprint is the remainder of the window's by [`POLYNOMIAL`].

use super::cutter::Cut;

/// Irreducible, of degree [`DEGREE`]; part of the format.
const POLYNOMIAL: u64 = 0x3d_f305_dfb2_a805;
const DEGREE: u32 = 53;
/// The fingerprint is one of this many bytes.
pub(crate) const WINDOW_BYTES: usize = 16;

/// By the 8 bits that a further byte shifts over the degree: those bits and their remainder.
const REDUCED: [u64; 256] = reduced();
/// By the oldest byte of the window: what it is in the fingerprint.
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

/// The end of each chunk, found as bytes come.
#[derive(Debug)]
pub(crate) struct Rabin {
    min: usize,
    max: usize,
    /// A chunk ends where these bits of the fingerprint are zero.
    mask: u64,
    /// Bytes of the current chunk so far.
    count: usize,
    fingerprint: u64,
    /// The last bytes of the fingerprint, each at its position in the chunk modulo the length.
    window: [u8; WINDOW_BYTES],
}

impl Rabin {
    /// Chunks of `min` to `max` bytes, and of `min` and `avg` rounded down to a power of two on average. `min` is at least
    /// [`WINDOW_BYTES`].
    pub(crate) fn new(min: usize, avg: usize, max: usize) -> Self {
        let mask = (1 << avg.ilog2()) - 1;
        Self { min, max, mask, count: 0, fingerprint: 0, window: [0; WINDOW_BYTES] }
    }

    /// The bytes from the front of `piece` that belong to the current chunk.
    pub(crate) fn scan(&mut self, piece: &[u8]) -> Cut {
        // Where no chunk may end, only the bytes of the first window count.
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
