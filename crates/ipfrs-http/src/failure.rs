//! Log of requests that failed through no fault of the client. The number of lines is limited, so that clients cannot
//! flood the log by repeating a failing request.

use std::time::{Duration, Instant};

use axum::response::Response;
use http::HeaderValue;
use ipfrs_core::{Error, ErrorKind};
use parking_lot::Mutex;

use crate::request_id::RequestId;

/// Maximum number of lines of one kind within [`SPAN`].
const MAX_LINES: u32 = 20;
/// See [`MAX_LINES`].
const SPAN: Duration = Duration::from_secs(10);

static FAILED: LogLimiter = LogLimiter::new();
static BROKEN_OFF: LogLimiter = LogLimiter::new();

/// Reason why a request failed, attached to its response as an extension until the request ID is known.
#[derive(Debug, Clone)]
struct Failure {
    kind: ErrorKind,
    error: String,
    cause: String,
}

/// Marks a response that failed because of `error` to be logged by [`log`].
pub(crate) fn note(response: &mut Response, error: &Error) {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    response.extensions_mut().insert(Failure { kind: error.kind(), error: error.to_string(), cause });
}

/// Logs a response that [`note`] marked.
pub(crate) fn log(response: &mut Response, endpoint: &str, id: &HeaderValue) {
    let Some(Failure { kind, error, cause }) = response.extensions_mut().remove() else { return };
    let Some(left_out) = FAILED.take(Instant::now()) else { return };
    let id = RequestId(id.clone());
    let request_id = id.as_str();
    if kind == ErrorKind::Timeout {
        tracing::warn!(endpoint, request_id, error, cause, left_out, "a request took too long");
    } else {
        tracing::error!(endpoint, request_id, %kind, error, cause, left_out, "a request failed");
    }
}

/// Logs an error whose message to the client omits a file system path.
pub(crate) fn withheld(error: &Error) {
    if let Some(left_out) = FAILED.take(Instant::now()) {
        tracing::error!(kind = %error.kind(), %error, left_out, "a part of a response failed");
    }
}

/// Logs why a response was cut off after its head was sent, when the client can no longer be informed.
pub(crate) fn broken_off(error: Error) -> Error {
    log_broken_off(&error);
    error
}

/// Logs why the connection cut off a response after its head was sent.
pub fn log_broken_off(error: &Error) {
    if let Some(left_out) = BROKEN_OFF.take(Instant::now()) {
        tracing::warn!(%error, left_out, "a response was aborted after its head was sent");
    }
}

/// Rate limiter for one kind of log line.
#[derive(Debug)]
struct LogLimiter(Mutex<LogWindow>);

#[derive(Debug)]
struct LogWindow {
    /// Start of the current span.
    since: Option<Instant>,
    log_lines: u32,
    left_out: u64,
}

impl LogLimiter {
    const fn new() -> Self {
        Self(Mutex::new(LogWindow { since: None, log_lines: 0, left_out: 0 }))
    }

    /// Returns the number of lines suppressed since the last one if a line may be written now, else `None`.
    fn take(&self, now: Instant) -> Option<u64> {
        let mut window = self.0.lock();
        if window.since.is_none_or(|since| now.duration_since(since) >= SPAN) {
            (window.since, window.log_lines) = (Some(now), 0);
        }
        if window.log_lines == MAX_LINES {
            window.left_out += 1;
            return None;
        }
        window.log_lines += 1;
        Some(std::mem::take(&mut window.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_limited_and_skipped_ones_counted() {
        let (log_lines, start) = (LogLimiter::new(), Instant::now());
        for _ in 0..MAX_LINES {
            assert_eq!(log_lines.take(start), Some(0));
        }
        for _ in 0..3 {
            assert_eq!(log_lines.take(start + SPAN / 2), None);
        }
        assert_eq!(log_lines.take(start + SPAN), Some(3));
        assert_eq!(log_lines.take(start + SPAN), Some(0));
    }
}
