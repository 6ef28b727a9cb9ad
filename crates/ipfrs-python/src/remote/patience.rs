//! Timeouts for a daemon that does not respond.

use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::pin;
use tokio::time::{Instant, sleep_until, timeout};

/// Maximum time that the daemon may neither send data nor accept sent data. `None` for no limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience(Option<Duration>);

/// Upper limit of timeouts, because clocks cannot represent times beyond a few centuries. A longer timeout never
/// expires.
const MAX_TIMEOUT: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// State of a body that is produced while it is sent. Clones share the state.
#[derive(Debug, Clone, Default)]
pub(super) struct Sending(Arc<Mutex<Sent>>);

#[derive(Debug, Default)]
struct Sent {
    turn: Turn,
    /// The error with which producing the body failed.
    failure: Option<Error>,
}

/// The side that has to act next.
#[derive(Debug, Clone, Copy, Default)]
enum Turn {
    /// The producer of the body.
    #[default]
    Ours,
    /// The daemon, since this time.
    Theirs(Instant),
}

impl Sending {
    /// Records that the next piece has not been produced yet.
    pub(super) fn is_ours(&self) {
        self.0.lock().turn = Turn::Ours;
    }

    /// Records that a piece, or the end of the body, was passed to the connection.
    pub(super) fn is_theirs(&self) {
        self.0.lock().turn = Turn::Theirs(Instant::now());
    }

    /// Records that the body could not be produced. Returns an error that makes the connection break, without the
    /// cause.
    pub(super) fn fail(&self, error: Error) -> Error {
        let seen = Error::new(error.kind(), error.message());
        self.0.lock().failure = Some(error);
        seen
    }

    /// Returns the reason for a failed request: the error of producing its body if there was one, and `error`
    /// otherwise.
    pub(super) fn explain(&self, error: Error) -> Error {
        self.0.lock().failure.take().unwrap_or(error)
    }

    fn waiting_since(&self) -> Instant {
        match self.0.lock().turn {
            Turn::Ours => Instant::now(),
            Turn::Theirs(since) => since,
        }
    }
}

impl Patience {
    pub(super) fn of_seconds(timeout: Option<f64>) -> Result<Self> {
        let read = |seconds| Duration::try_from_secs_f64(seconds).ok().filter(|timeout| !timeout.is_zero());
        match timeout {
            None => Ok(Self(None)),
            Some(seconds) => read(seconds).map(|timeout| Self(Some(timeout.min(MAX_TIMEOUT)))).ok_or_else(|| {
                Error::invalid(format!("timeout = {seconds}: give a number of seconds above 0, or None for no limit"))
            }),
        }
    }

    /// Returns the timeout, if there is one.
    pub(super) fn longest(self) -> Option<Duration> {
        self.0
    }

    /// Waits for `response`. The time in which the body is still being produced does not count.
    pub(super) async fn wait<F: Future>(self, url: &str, sending: Option<&Sending>, response: F) -> Result<F::Output> {
        let Some(longest) = self.0 else { return Ok(response.await) };
        let Some(sending) = sending else {
            return timeout(longest, response).await.map_err(|_| timed_out(url, longest));
        };
        pin!(response);
        loop {
            let end = sending.waiting_since() + longest;
            if end <= Instant::now() {
                return Err(timed_out(url, longest));
            }
            tokio::select! {
                output = &mut response => return Ok(output),
                () = sleep_until(end) => {}
            }
        }
    }
}

fn timed_out(url: &str, longest: Duration) -> Error {
    let seconds = longest.as_secs_f64();
    let what = format!("{url} did not respond within {seconds} s (timeout = {seconds})");
    Error::new(ErrorKind::Timeout, format!("{what}: is the daemon busy, or the timeout too short?"))
}
