//! Helpers for the benchmarks that write no report.

use std::fmt::Debug;

/// Returns the value of `result`. A failed measurement has no figure, so an error ends the benchmark.
///
/// # Panics
/// Panics if `result` is an error.
pub fn must<T, E: Debug>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error:?}"),
    }
}
