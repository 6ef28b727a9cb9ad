//! How long a response may be cached.

use std::time::Duration;

use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderValue};

use crate::body::header_text;

/// Time for which a response is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Unlimited: content under a content ID never changes.
    Immutable,
    /// Limited to the TTL that the owner of the name chose.
    For(Duration),
}

impl Freshness {
    /// Sets the caching headers.
    pub(super) fn tell(self, immutable: &HeaderValue, headers: &mut HeaderMap) {
        match self {
            Self::Immutable => drop(headers.insert(CACHE_CONTROL, immutable.clone())),
            Self::For(ttl) => {
                headers.insert(CACHE_CONTROL, header_text(&format!("public, max-age={}", ttl.as_secs())));
            }
        }
    }

    /// Same as [`Self::tell`], for a page rendered by the daemon, which changes with the daemon's version.
    pub(super) fn tell_of_page(self, headers: &mut HeaderMap) {
        const SECONDS: u64 = 604_800;
        let seconds = match self {
            Self::Immutable => SECONDS,
            Self::For(ttl) => ttl.as_secs().min(SECONDS),
        };
        let value = format!("public, max-age={seconds}, stale-while-revalidate=2678400");
        headers.insert(CACHE_CONTROL, header_text(&value));
    }
}
