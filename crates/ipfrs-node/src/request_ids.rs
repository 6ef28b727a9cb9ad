//! IDs of requests, in all front-ends the same.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest ID that is taken from a client, in bytes.
const MAX_BYTES: usize = 128;

/// Makes IDs that are unique in this process and very likely everywhere.
#[derive(Debug)]
pub struct RequestIds {
    /// The first half of each: 16 hexadecimal digits.
    prefix: String,
    next: AtomicU64,
}

impl RequestIds {
    /// IDs of a prefix of their own.
    #[must_use]
    pub fn new() -> Self {
        // RandomState is seeded by the system: enough to tell two processes apart.
        let prefix = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
        Self { prefix, next: AtomicU64::new(1) }
    }

    /// A new ID: 32 hexadecimal digits.
    #[must_use]
    pub fn make(&self) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // What formats numbers takes a tenth of the time of an answer that is ready.
        let mut id = String::with_capacity(2 * self.prefix.len());
        id.push_str(&self.prefix);
        id.extend(number.to_be_bytes().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
        id
    }

    /// Whether this can be the ID that a client chose: 1 to 128 bytes of visible ASCII, spaces and tabs.
    #[must_use]
    pub fn is_fit(id: &[u8]) -> bool {
        (1..=MAX_BYTES).contains(&id.len()) && id.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
    }
}

/// The hexadecimal digit of a number below 16.
fn digit(value: u8) -> char {
    char::from(if value < 10 { b'0' + value } else { b'a' + value - 10 })
}

impl Default for RequestIds {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_prefix_of_the_process_and_the_number_of_the_request() {
        let ids = RequestIds { prefix: "00000000000000ab".to_owned(), next: AtomicU64::new(0x0123_4567_89ab_cdef) };
        assert_eq!(ids.make(), "00000000000000ab0123456789abcdef");
        assert_eq!(ids.make(), "00000000000000ab0123456789abcdf0");
        let (one, other) = (RequestIds::new().make(), RequestIds::new().make());
        assert!(one != other && one.len() == 32 && RequestIds::is_fit(one.as_bytes()), "{one} {other}");
    }
}
