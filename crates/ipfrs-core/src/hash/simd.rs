//! The compression function of SHA2-256 (FIPS 180-4, 6.2.2) on one block of each of several messages, with one
//! message per lane of the vector registers.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// Number of bytes of a message that one step of the compression function processes.
pub(super) const BLOCK_BYTES: usize = 64;

/// Round constants (FIPS 180-4, 4.2.2).
#[rustfmt::skip]
const K: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

/// The rounds, which differ between instruction sets only in the word type and the operations.
macro_rules! compress {
    ($features:literal, $lanes:literal, $zero:ident, $set:ident, $load:ident, $store:ident, $add:ident) => {
        /// Processes `blocks` blocks of each message. Each word of the state is an array with one word per message.
        #[target_feature(enable = $features)]
        pub(in super::super) fn compress(state: &mut [[u32; $lanes]; 8], messages: &[&[u8]; $lanes], blocks: usize) {
            let mut sums = [$zero(); 8];
            for (sum, words) in sums.iter_mut().zip(state.iter()) {
                // SAFETY: the array has as many bytes as the load reads, and the load needs no alignment.
                *sum = unsafe { $load(words.as_ptr().cast()) };
            }
            for block in 0..blocks {
                let mut w = schedule(messages, block * BLOCK_BYTES);
                let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = sums;
                for round in (0..64).step_by(16) {
                    for i in 0..16 {
                        if round > 0 {
                            let s0 = xor3(
                                rotr::<7, 25>(w[(i + 1) % 16]),
                                rotr::<18, 14>(w[(i + 1) % 16]),
                                shr::<3>(w[(i + 1) % 16]),
                            );
                            let s1 = xor3(
                                rotr::<17, 15>(w[(i + 14) % 16]),
                                rotr::<19, 13>(w[(i + 14) % 16]),
                                shr::<10>(w[(i + 14) % 16]),
                            );
                            w[i] = $add($add(w[i], s0), $add(w[(i + 9) % 16], s1));
                        }
                        let k = $set(K[round + i].cast_signed());
                        let s1 = xor3(rotr::<6, 26>(e), rotr::<11, 21>(e), rotr::<25, 7>(e));
                        let t1 = $add($add($add(h, $add(k, w[i])), s1), ch(e, f, g));
                        let s0 = xor3(rotr::<2, 30>(a), rotr::<13, 19>(a), rotr::<22, 10>(a));
                        let t2 = $add(s0, maj(a, b, c));
                        h = g;
                        g = f;
                        f = e;
                        e = $add(d, t1);
                        d = c;
                        c = b;
                        b = a;
                        a = $add(t1, t2);
                    }
                }
                for (sum, word) in sums.iter_mut().zip([a, b, c, d, e, f, g, h]) {
                    *sum = $add(*sum, word);
                }
            }
            for (sum, words) in sums.iter().zip(state.iter_mut()) {
                // SAFETY: the array has as many bytes as the store writes, and the store needs no alignment.
                unsafe { $store(words.as_mut_ptr().cast(), *sum) };
            }
        }
    };
}

/// Sixteen messages at a time.
pub(super) mod avx512 {
    use super::*;

    compress!(
        "avx512f,avx512bw",
        16,
        _mm512_setzero_si512,
        _mm512_set1_epi32,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_add_epi32
    );

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn rotr<const RIGHT: i32, const LEFT: i32>(x: __m512i) -> __m512i {
        _mm512_ror_epi32::<RIGHT>(x)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn shr<const BITS: u32>(x: __m512i) -> __m512i {
        _mm512_srli_epi32::<BITS>(x)
    }

    // The const parameter of a ternary operation is its truth table.

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn xor3(x: __m512i, y: __m512i, z: __m512i) -> __m512i {
        _mm512_ternarylogic_epi32::<0x96>(x, y, z)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn ch(x: __m512i, y: __m512i, z: __m512i) -> __m512i {
        _mm512_ternarylogic_epi32::<0xCA>(x, y, z)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn maj(x: __m512i, y: __m512i, z: __m512i) -> __m512i {
        _mm512_ternarylogic_epi32::<0xE8>(x, y, z)
    }

    /// Loads the block at `offset` of each message and groups its words by position: a transposed matrix of 16 by 16.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn schedule(messages: &[&[u8]; 16], offset: usize) -> [__m512i; 16] {
        let big_endian = _mm512_set4_epi32(0x0c0d0e0f, 0x08090a0b, 0x04050607, 0x00010203);
        let mut rows = [_mm512_setzero_si512(); 16];
        for (row, message) in rows.iter_mut().zip(messages) {
            let block = &message[offset..offset + BLOCK_BYTES];
            // SAFETY: the slice has as many bytes as the load reads, and the load needs no alignment.
            let block = unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
            *row = _mm512_shuffle_epi8(block, big_endian);
        }
        let mut pairs = [_mm512_setzero_si512(); 16];
        for i in (0..16).step_by(2) {
            pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
            pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
        }
        // Word n of four rows is in the 128 bits n / 4 of fours[n % 4].
        let mut fours = [_mm512_setzero_si512(); 16];
        for i in (0..16).step_by(4) {
            fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
            fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
            fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
            fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
        }
        let mut words = [_mm512_setzero_si512(); 16];
        for i in 0..4 {
            let low = _mm512_shuffle_i32x4::<0x88>(fours[i], fours[i + 4]);
            let high = _mm512_shuffle_i32x4::<0xdd>(fours[i], fours[i + 4]);
            let other_low = _mm512_shuffle_i32x4::<0x88>(fours[i + 8], fours[i + 12]);
            let other_high = _mm512_shuffle_i32x4::<0xdd>(fours[i + 8], fours[i + 12]);
            words[i] = _mm512_shuffle_i32x4::<0x88>(low, other_low);
            words[i + 4] = _mm512_shuffle_i32x4::<0x88>(high, other_high);
            words[i + 8] = _mm512_shuffle_i32x4::<0xdd>(low, other_low);
            words[i + 12] = _mm512_shuffle_i32x4::<0xdd>(high, other_high);
        }
        words
    }
}

/// Eight messages at a time.
pub(super) mod avx2 {
    use super::*;

    compress!(
        "avx2",
        8,
        _mm256_setzero_si256,
        _mm256_set1_epi32,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_add_epi32
    );

    #[inline]
    #[target_feature(enable = "avx2")]
    fn rotr<const RIGHT: i32, const LEFT: i32>(x: __m256i) -> __m256i {
        _mm256_or_si256(_mm256_srli_epi32::<RIGHT>(x), _mm256_slli_epi32::<LEFT>(x))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn shr<const BITS: i32>(x: __m256i) -> __m256i {
        _mm256_srli_epi32::<BITS>(x)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn xor3(x: __m256i, y: __m256i, z: __m256i) -> __m256i {
        _mm256_xor_si256(_mm256_xor_si256(x, y), z)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn ch(x: __m256i, y: __m256i, z: __m256i) -> __m256i {
        _mm256_xor_si256(z, _mm256_and_si256(x, _mm256_xor_si256(y, z)))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn maj(x: __m256i, y: __m256i, z: __m256i) -> __m256i {
        _mm256_or_si256(_mm256_and_si256(x, y), _mm256_and_si256(z, _mm256_or_si256(x, y)))
    }

    /// Loads the block at `offset` of each message and groups its words by position: two transposed matrices of 8 by
    /// 8.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn schedule(messages: &[&[u8]; 8], offset: usize) -> [__m256i; 16] {
        let mut words = [_mm256_setzero_si256(); 16];
        let (first, second) = words.split_at_mut(8);
        transposed(messages, offset, first);
        transposed(messages, offset + BLOCK_BYTES / 2, second);
        words
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn transposed(messages: &[&[u8]; 8], offset: usize, words: &mut [__m256i]) {
        let big_endian =
            _mm256_set_epi64x(0x0c0d0e0f_08090a0b, 0x04050607_00010203, 0x0c0d0e0f_08090a0b, 0x04050607_00010203);
        let mut rows = [_mm256_setzero_si256(); 8];
        for (row, message) in rows.iter_mut().zip(messages) {
            let half = &message[offset..offset + BLOCK_BYTES / 2];
            // SAFETY: the slice has as many bytes as the load reads, and the load needs no alignment.
            let half = unsafe { _mm256_loadu_si256(half.as_ptr().cast()) };
            *row = _mm256_shuffle_epi8(half, big_endian);
        }
        let mut pairs = [_mm256_setzero_si256(); 8];
        for i in (0..8).step_by(2) {
            pairs[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
            pairs[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
        }
        // Word n of four rows is in the half n / 4 of fours[n % 4].
        let mut fours = [_mm256_setzero_si256(); 8];
        for i in (0..8).step_by(4) {
            fours[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
            fours[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
            fours[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
            fours[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
        }
        for i in 0..4 {
            words[i] = _mm256_permute2x128_si256::<0x20>(fours[i], fours[i + 4]);
            words[i + 4] = _mm256_permute2x128_si256::<0x31>(fours[i], fours[i + 4]);
        }
    }
}
