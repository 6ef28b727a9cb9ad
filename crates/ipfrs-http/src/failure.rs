//! The log of requests that failed through no fault of their clients: as many lines as an operator reads, however often
//! strangers ask for what fails.

use std::time::{Duration, Instant};

use axum::response::Response;
use http::HeaderValue;
use ipfrs_core::{Error, ErrorKind};
use parking_lot::Mutex;

use crate::request_id::RequestId;

/// Most lines of one kind in [`SPAN`].
const MOST_LINES: u32 = 20;
/// See [`MOST_LINES`].
const SPAN: Duration = Duration::from_secs(10);

static FAILED: Turns = Turns::new();
static BROKEN_OFF: Turns = Turns::new();

/// Why an answer failed. It goes with the answer, as an extension, to where the request's ID is known.
#[derive(Debug, Clone)]
struct Failure {
    kind: ErrorKind,
    error: String,
    cause: String,
}

/// Has an answer that failed for `error` logged as it goes out.
pub(crate) fn note(response: &mut Response, error: &Error) {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    response.extensions_mut().insert(Failure { kind: error.kind(), error: error.to_string(), cause });
}

/// Logs an answer as it goes out, if it failed for a reason that was noted.
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

/// Logs an error whose message to the client lacks a path in the file system.
pub(crate) fn withheld(error: &Error) {
    if let Some(left_out) = FAILED.take(Instant::now()) {
        tracing::error!(kind = %error.kind(), %error, left_out, "a part of a response failed");
    }
}

/// Logs why an answer breaks off after its head was sent: the client cannot be told any more.
pub(crate) fn broken_off(error: Error) -> Error {
    log_broken_off(&error);
    error
}

/// Logs why the connection cuts a response after its head was sent.
pub fn log_broken_off(error: &Error) {
    if let Some(left_out) = BROKEN_OFF.take(Instant::now()) {
        tracing::warn!(%error, left_out, "an answer was broken off after its head was sent");
    }
}

/// Lines of a kind, of which only so many are written in a while.
#[derive(Debug)]
struct Turns(Mutex<Taken>);

#[derive(Debug)]
struct Taken {
    /// Since when turns are counted.
    since: Option<Instant>,
    turns: u32,
    left_out: u64,
}

impl Turns {
    const fn new() -> Self {
        Self(Mutex::new(Taken { since: None, turns: 0, left_out: 0 }))
    }

    /// A turn to write a line, with how many were left out since the last one. `None`: this one is left out.
    fn take(&self, now: Instant) -> Option<u64> {
        let mut taken = self.0.lock();
        if taken.since.is_none_or(|since| now.duration_since(since) >= SPAN) {
            (taken.since, taken.turns) = (Some(now), 0);
        }
        if taken.turns == MOST_LINES {
            taken.left_out += 1;
            return None;
        }
        taken.turns += 1;
        Some(std::mem::take(&mut taken.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_are_written_in_a_while_and_the_next_one_says_how_many_were_not() {
        let (turns, start) = (Turns::new(), Instant::now());
        for _ in 0..MOST_LINES {
            assert_eq!(turns.take(start), Some(0));
        }
        for _ in 0..3 {
            assert_eq!(turns.take(start + SPAN / 2), None);
        }
        assert_eq!(turns.take(start + SPAN), Some(3));
        assert_eq!(turns.take(start + SPAN), Some(0));
    }
}
