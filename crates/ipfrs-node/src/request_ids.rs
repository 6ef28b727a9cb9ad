//! IDs of requests, in all front-ends the same.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest ID that is taken from a client, in bytes.
const MAX_BYTES: usize = 128;

/// Makes IDs that are unique in this process and very likely everywhere.
#[derive(Debug)]
pub struct RequestIds {
    prefix: u64,
    next: AtomicU64,
}

impl RequestIds {
    /// IDs of a prefix of their own.
    #[must_use]
    pub fn new() -> Self {
        // RandomState is seeded by the system: enough to tell two processes apart.
        Self { prefix: RandomState::new().hash_one(std::process::id()), next: AtomicU64::new(1) }
    }

    /// A new ID: 32 hexadecimal digits.
    #[must_use]
    pub fn make(&self) -> String {
        format!("{:016x}{:016x}", self.prefix, self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether this can be the ID that a client chose: 1 to 128 bytes of visible ASCII, spaces and tabs.
    #[must_use]
    pub fn is_fit(id: &[u8]) -> bool {
        (1..=MAX_BYTES).contains(&id.len()) && id.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
    }
}

impl Default for RequestIds {
    fn default() -> Self {
        Self::new()
    }
}
