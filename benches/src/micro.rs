//! What measurements share that have no report of their own.

use std::fmt::Debug;

/// A measurement that goes wrong has no figure: it ends with the reason.
///
/// # Panics
/// When there is an error.
pub fn must<T, E: Debug>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error:?}"),
    }
}
