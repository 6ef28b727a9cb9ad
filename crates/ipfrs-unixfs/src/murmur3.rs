//! MurmurHash3 x64, first 64 bits: the hash of names in sharded directories.
//!
//! The algorithm by Austin Appleby is in the public domain (<https://github.com/aappleby/smhasher>,
//! `MurmurHash3_x64_128`, seed 0).

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// Returns the first of the two 64-bit words of the 128-bit hash of `data`.
pub(crate) fn hash(data: &[u8]) -> u64 {
    let (mut h1, mut h2) = (0_u64, 0_u64);
    let mut blocks = data.chunks_exact(16);
    for block in &mut blocks {
        let (k1, k2) = words(block);
        h1 = (h1 ^ mix_k1(k1)).rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 = (h2 ^ mix_k2(k2)).rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    // Zeros mix to zero, so padding the tail is equivalent to omitting its missing words.
    let (k1, k2) = words(blocks.remainder());
    let len = data.len() as u64;
    h1 ^= mix_k1(k1) ^ len;
    h2 ^= mix_k2(k2) ^ len;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    finish(h1).wrapping_add(finish(h2))
}

/// Splits up to 16 bytes into two little-endian words, padded with zeros.
fn words(bytes: &[u8]) -> (u64, u64) {
    let mut padded = [0; 16];
    padded[..bytes.len()].copy_from_slice(bytes);
    let both = u128::from_le_bytes(padded);
    (both as u64, (both >> 64) as u64)
}

fn mix_k1(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mix_k2(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn finish(mut h: u64) -> u64 {
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn gives_the_published_hashes() {
        // First words of the results of the reference implementation.
        assert_eq!(hash(b""), 0);
        assert_eq!(hash(b"hello"), 0xcbd8_a7b3_41bd_9b02);
        assert_eq!(hash(b"hello, world"), 0x342f_ac62_3a5e_bc8e);
        assert_eq!(hash(b"The quick brown fox jumps over the lazy dog."), 0xcd99_481f_9ee9_02c9);
    }
}
