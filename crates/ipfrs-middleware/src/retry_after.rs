//! When a client may try again, as part of an error.

use std::time::Duration;

use ipfrs_core::{Error, ErrorKind};

/// Source of an error whose request may be repeated after some time.
#[derive(Debug, thiserror::Error)]
#[error("retry after {0:?}")]
struct RetryAfter(Duration);

/// Returns an error of kind [`ErrorKind::RateLimited`] for a request that may be repeated after `wait`.
pub(crate) fn limited(text: impl Into<String>, wait: Duration) -> Error {
    Error::new(ErrorKind::RateLimited, text).with_source(RetryAfter(wait))
}

/// Returns the seconds after which a refused request may be repeated, if that is known.
#[must_use]
pub fn retry_after(error: &Error) -> Option<u64> {
    let RetryAfter(wait) = std::error::Error::source(error)?.downcast_ref()?;
    // A client that comes a moment too early would be refused again.
    Some(wait.as_secs() + 1)
}
