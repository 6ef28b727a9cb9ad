//! Panics during a call from Python.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use ipfrs_core::Error;

use crate::error::Outcome;

/// Wraps `work` so that a panic ends only the call. Python would not treat a panic as an `Exception`.
pub(crate) fn guarded<T>(work: impl Future<Output = Outcome<T>>) -> impl Future<Output = Outcome<T>> {
    AssertUnwindSafe(work).catch_unwind().map(|caught| {
        let failed = |_| Err(Error::internal("the call failed because of a bug in ipfrs: please report it").into());
        caught.unwrap_or_else(failed)
    })
}
