//! Spans of traced requests. They cost next to nothing unless a subscriber of `tracing` enables their target.

use std::sync::OnceLock;

/// Target of all spans: `resolve` (a path or name), `read` (blocks from the store) and `write` (blocks to it).
pub const TRACE_TARGET: &str = "ipfrs::trace";

/// Creates a span with [`TRACE_TARGET`].
macro_rules! span {
    ($($span:tt)*) => {
        tracing::info_span!(target: $crate::trace::TRACE_TARGET, $($span)*)
    };
}
pub(crate) use span;

/// Returns a number of things as the type that exporters take for a number.
pub(crate) fn number(things: usize) -> i64 {
    i64::try_from(things).unwrap_or(i64::MAX)
}

static CURRENT: OnceLock<fn() -> Option<String>> = OnceLock::new();

/// Sets the function that returns the value of `traceparent` for the current span. Requests to other servers carry it
/// (W3C Trace Context). A second call has no effect.
pub fn propagate_traces(current: fn() -> Option<String>) {
    let _ = CURRENT.set(current);
}

/// Returns the value of `traceparent` for a request to another server, if this work is traced.
#[cfg(feature = "https")]
pub(crate) fn traceparent() -> Option<String> {
    CURRENT.get().and_then(|current| current())
}
