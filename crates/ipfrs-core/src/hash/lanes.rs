//! SHA2-256 (FIPS 180-4) of several messages at a time, with one message per lane of the vector registers.
//!
//! A single message cannot use several lanes, because each of its blocks needs the state after the previous block.
//! Several messages can: a machine with AVX-512 hashes sixteen messages in little more time than one message takes
//! without SHA extensions.

use std::array;
use std::cmp::Reverse;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::simd::{self, BLOCK_BYTES};
use super::{Digest, sha2_256_digest};

/// Initial hash value (FIPS 180-4, 5.3.3).
const INITIAL: [u32; 8] =
    [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];

/// Minimum speedup over hashing messages one after the other at which lanes are used.
const LEAST_GAIN: f64 = 1.1;

/// A set of vector instructions that this machine supports. Only [`Self::found`] creates values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lanes(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// AVX-512, with sixteen lanes.
    Avx512,
    /// AVX2, with eight lanes.
    Avx2,
}

impl Lanes {
    /// Returns the instruction sets that this machine supports.
    pub(super) fn found() -> impl Iterator<Item = Self> {
        let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        let kinds = [(avx512, Kind::Avx512), (is_x86_feature_detected!("avx2"), Kind::Avx2)];
        kinds.into_iter().filter_map(|(is_there, kind)| is_there.then_some(Self(kind)))
    }

    /// Returns the fastest instruction set of this machine and its speedup over hashing messages one after the other,
    /// if all lanes are full. Measured once, in less than 2 ms.
    fn fastest() -> Option<(Self, f64)> {
        static FASTEST: OnceLock<Option<(Lanes, f64)>> = OnceLock::new();
        *FASTEST.get_or_init(|| {
            let message = vec![0x5a; 4096];
            let messages = [message.as_slice(); 16];
            let order: [usize; 16] = array::from_fn(|i| i);
            let mut digests = [[0; 32]; 16];
            let alone = least_seconds(|| {
                messages.iter().zip(&mut digests).for_each(|(message, digest)| *digest = sha2_256_digest(message));
            });
            let gains = Self::found().map(|lanes| {
                let side_by_side = least_seconds(|| lanes.digest(&messages, &order, &mut digests));
                (lanes, alone / side_by_side)
            });
            gains.filter(|(_, gain)| *gain >= LEAST_GAIN).max_by(|(_, a), (_, b)| a.total_cmp(b))
        })
    }

    fn count(self) -> usize {
        match self.0 {
            Kind::Avx512 => 16,
            Kind::Avx2 => 8,
        }
    }

    /// Writes the digests of the messages in `order`. They are processed in that order.
    #[allow(unsafe_code)]
    pub(super) fn digest(self, messages: &[&[u8]], order: &[usize], digests: &mut [Digest]) {
        match self.0 {
            Kind::Avx512 => side_by_side(messages, order, digests, |state, blocks, count| {
                // SAFETY: `found` returns this kind only if the processor and the system support the instructions.
                unsafe { simd::avx512::compress(state, blocks, count) }
            }),
            Kind::Avx2 => side_by_side(messages, order, digests, |state, blocks, count| {
                // SAFETY: same as above.
                unsafe { simd::avx2::compress(state, blocks, count) }
            }),
        }
    }
}

fn least_seconds(mut work: impl FnMut()) -> f64 {
    let times = (0..5).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed()
    });
    times.min().unwrap_or(Duration::MAX).as_secs_f64()
}

/// Returns the digests of all messages, in order.
pub(super) fn digests(messages: &[&[u8]]) -> Vec<Digest> {
    let mut digests = vec![[0; 32]; messages.len()];
    let mut order: Vec<usize> = (0..messages.len()).collect();
    let mut alone = messages.len();
    if messages.len() > 1
        && let Some((lanes, gain)) = Lanes::fastest()
    {
        // The longest messages come first, so that the lanes end at about the same time.
        order.sort_unstable_by_key(|&i| Reverse(messages[i].len()));
        let lengths = order.iter().map(|&i| messages[i].len() + BLOCK_BYTES);
        alone = longer_than_all_others(lengths, lanes.count(), gain);
        lanes.digest(messages, &order[alone..], &mut digests);
    }
    for &i in &order[..alone] {
        digests[i] = sha2_256_digest(messages[i]);
    }
    digests
}

/// Returns how many of the longest messages are faster when hashed alone. The lanes are busy at least as long as
/// their longest message takes, and lanes with only one remaining message are slower than plain hashing. `lengths`
/// must begin with the longest.
fn longer_than_all_others(lengths: impl Iterator<Item = usize> + Clone, lanes: usize, gain: f64) -> usize {
    let mut total: usize = lengths.clone().sum();
    let is_too_long = |length: &usize| {
        let is_too_long = (length * lanes) as f64 > gain * total as f64;
        total -= length;
        is_too_long
    };
    lengths.take_while(is_too_long).count()
}

/// The unprocessed rest of a message.
struct Lane<'a> {
    /// Index of the message.
    index: usize,
    /// Whole blocks that have not been processed yet.
    body: &'a [u8],
    /// The rest of the message and its padding, which follow the body. `at..end` has not been processed yet.
    tail: [u8; 2 * BLOCK_BYTES],
    at: usize,
    end: usize,
}

impl<'a> Lane<'a> {
    /// Pads the message (FIPS 180-4, 5.1.1).
    fn new(index: usize, message: &'a [u8]) -> Self {
        let (body, rest) = message.split_at(message.len() - message.len() % BLOCK_BYTES);
        let mut tail = [0; 2 * BLOCK_BYTES];
        tail[..rest.len()].copy_from_slice(rest);
        tail[rest.len()] = 0x80;
        let bits = (message.len() as u64 * 8).to_be_bytes();
        let end = if rest.len() + 1 + bits.len() <= BLOCK_BYTES { BLOCK_BYTES } else { 2 * BLOCK_BYTES };
        tail[end - bits.len()..end].copy_from_slice(&bits);
        Self { index, body, tail, at: 0, end }
    }

    /// Returns the contiguous blocks that can be processed next; empty at the end of the message.
    fn rest(&self) -> &[u8] {
        if self.body.is_empty() { &self.tail[self.at..self.end] } else { self.body }
    }

    fn advance(&mut self, bytes: usize) {
        if self.body.is_empty() { self.at += bytes } else { self.body = &self.body[bytes..] }
    }
}

/// Keeps the lanes busy: when a message ends, the next one takes its lane.
fn side_by_side<const N: usize>(
    messages: &[&[u8]],
    order: &[usize],
    digests: &mut [Digest],
    compress: impl Fn(&mut [[u32; N]; 8], &[&[u8]; N], usize),
) {
    let mut waiting = order.iter().map(|&index| Lane::new(index, messages[index]));
    let mut lanes: [Option<Lane<'_>>; N] = array::from_fn(|_| waiting.next());
    let mut state = INITIAL.map(|word| [word; N]);
    while let Some(shortest) = lanes.iter().flatten().map(Lane::rest).min_by_key(|rest| rest.len()) {
        // A lane without a message computes a result that is discarded.
        let rests = lanes.each_ref().map(|lane| lane.as_ref().map_or(shortest, Lane::rest));
        let bytes = shortest.len();
        compress(&mut state, &rests, bytes / BLOCK_BYTES);
        for (i, place) in lanes.iter_mut().enumerate() {
            let Some(lane) = place else { continue };
            lane.advance(bytes);
            if lane.rest().is_empty() {
                let digest = digests[lane.index].chunks_exact_mut(4);
                for ((bytes, words), initial) in digest.zip(&mut state).zip(INITIAL) {
                    bytes.copy_from_slice(&words[i].to_be_bytes());
                    words[i] = initial;
                }
                *place = waiting.next();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates messages of all lengths around block boundaries, and longer ones.
    fn messages() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let length = prop_oneof![0..300_usize, 0..5_000_usize, (0..40_usize).prop_map(|blocks| blocks * BLOCK_BYTES)];
        let message = (length, any::<u8>()).prop_map(|(length, seed)| {
            (0..length).map(|i| (i as u8).wrapping_mul(31).rotate_left(u32::from(seed) % 8) ^ seed).collect()
        });
        prop::collection::vec(message, 0..40)
    }

    fn alone(messages: &[&[u8]]) -> Vec<Digest> {
        messages.iter().map(|message| sha2_256_digest(message)).collect()
    }

    proptest! {
        #[test]
        fn every_kind_of_lanes_gives_the_digests_of_the_library(messages in messages()) {
            let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
            let order: Vec<usize> = (0..messages.len()).collect();
            for lanes in Lanes::found() {
                let mut digests = vec![[0; 32]; messages.len()];
                lanes.digest(&messages, &order, &mut digests);
                prop_assert_eq!(&digests, &alone(&messages), "{:?}", lanes);
            }
            prop_assert_eq!(digests(&messages), alone(&messages));
        }
    }

    #[test]
    fn lanes_hash_every_length_and_message_count() {
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(2_000).collect();
        for count in 1..36 {
            let all: Vec<&[u8]> = (0..131).map(|i| &bytes[i..i + i]).collect();
            for messages in all.chunks(count) {
                for lanes in Lanes::found() {
                    let order: Vec<usize> = (0..messages.len()).collect();
                    let mut digests = vec![[0; 32]; messages.len()];
                    lanes.digest(messages, &order, &mut digests);
                    assert_eq!(digests, alone(messages), "{lanes:?}, {count} at a time");
                }
            }
        }
    }

    #[test]
    fn a_message_much_longer_than_the_others_is_hashed_alone() {
        let count = |lengths: &[usize]| longer_than_all_others(lengths.iter().copied(), 16, 4.0);
        assert_eq!(count(&[1_000; 16]), 0);
        assert_eq!(count(&[1_000; 4]), 0);
        assert_eq!(count(&[1_000; 3]), 3);
        let uneven: Vec<usize> = std::iter::once(1_000_000).chain([1_000; 15]).collect();
        assert_eq!(count(&uneven), 1);
        assert_eq!(count(&[]), 0);
    }
}
