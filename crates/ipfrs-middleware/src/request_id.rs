//! Request IDs, which clients choose or the server generates. All front-ends use the same header and format.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};

/// Header, or gRPC metadata key, of the request ID in requests and responses.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Maximum length of an ID that a client supplies, in bytes.
const MAX_BYTES: usize = 128;
/// Number of digits of each of the two numbers that form an ID.
const HALF_BYTES: usize = 16;

/// Generator of IDs that are unique in this process and very likely unique everywhere.
#[derive(Debug)]
pub struct RequestIds {
    /// First half of each ID: 16 hexadecimal digits.
    prefix: [u8; HALF_BYTES],
    next: AtomicU64,
}

impl RequestIds {
    /// Creates a generator with a random prefix.
    #[must_use]
    pub fn new() -> Self {
        // The system seeds `RandomState`, which suffices to distinguish two processes.
        let prefix = digits(RandomState::new().hash_one(std::process::id()));
        Self { prefix, next: AtomicU64::new(1) }
    }

    /// Generates an ID: 32 hexadecimal digits.
    #[must_use]
    pub fn make(&self) -> [u8; 2 * HALF_BYTES] {
        let mut id = [0; 2 * HALF_BYTES];
        let (first, second) = id.split_at_mut(HALF_BYTES);
        first.copy_from_slice(&self.prefix);
        second.copy_from_slice(&digits(self.next.fetch_add(1, Ordering::Relaxed)));
        id
    }
}

/// Whether an ID from a client is acceptable: 1 to 128 bytes of visible ASCII, spaces and tabs.
fn is_acceptable(id: &[u8]) -> bool {
    (1..=MAX_BYTES).contains(&id.len()) && id.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
}

/// Returns the client's ID for its request, or a new one. The value is marked as sensitive, so that HPACK does not
/// index it: unique IDs would evict headers that repeat from the dynamic table.
pub fn of(headers: &HeaderMap, ids: &RequestIds) -> HeaderValue {
    let mut id = match chosen(headers) {
        Some(id) => id.clone(),
        // Hexadecimal digits are always a valid header value.
        None => HeaderValue::from_bytes(&ids.make()).unwrap_or_else(|_| HeaderValue::from_static("-")),
    };
    id.set_sensitive(true);
    id
}

/// Returns the valid request ID that the client chose, if any.
#[must_use]
pub fn chosen(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(X_REQUEST_ID).filter(|id| is_acceptable(id.as_bytes()))
}

/// Returns the hexadecimal digits of a number. `format!` would take a tenth of the time of a cached response.
fn digits(number: u64) -> [u8; HALF_BYTES] {
    let mut left = number;
    let mut digits = [0; HALF_BYTES];
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(left & 15) as usize];
        left >>= 4;
    }
    digits
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
    fn request_id_is_process_prefix_and_counter() {
        let ids = RequestIds { prefix: digits(0xab), next: AtomicU64::new(0x0123_4567_89ab_cdef) };
        assert_eq!(ids.make(), *b"00000000000000ab0123456789abcdef");
        assert_eq!(ids.make(), *b"00000000000000ab0123456789abcdf0");
        let (one, other) = (RequestIds::new().make(), RequestIds::new().make());
        assert!(one[..HALF_BYTES] != other[..HALF_BYTES] && is_acceptable(&one), "{one:?} {other:?}");
    }
}
