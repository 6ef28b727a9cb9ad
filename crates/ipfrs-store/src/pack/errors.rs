//! Errors that several callers get.

use ipfrs_core::Error;

/// Copies an error for another caller.
pub(super) fn again(error: &Error) -> Error {
    match error.is_read_only() {
        true => Error::read_only(error.message()),
        false => Error::new(error.kind(), error.message()),
    }
}
