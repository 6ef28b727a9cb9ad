//! How long a daemon may let us wait.

use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::pin;
use tokio::time::{Instant, sleep_until, timeout};

/// The longest time that the daemon may send nothing, or take nothing of what it is sent; `None` for no limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience(Option<Duration>);

/// Who would wait for longer waits for ever; clocks count no further than some centuries.
const MAX_TIMEOUT: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// How far a body is that is made while it is sent. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub(super) struct Sending(Arc<Mutex<Sent>>);

#[derive(Debug, Default)]
struct Sent {
    turn: Turn,
    /// Why it could not be made.
    failure: Option<Error>,
}

/// Who is waited for.
#[derive(Debug, Clone, Copy, Default)]
enum Turn {
    /// Whoever makes the body.
    #[default]
    Ours,
    /// The daemon, since then.
    Theirs(Instant),
}

impl Sending {
    /// The next piece is not made yet.
    pub(super) fn is_ours(&self) {
        self.0.lock().turn = Turn::Ours;
    }

    /// A piece was handed over, or the last one.
    pub(super) fn is_theirs(&self) {
        self.0.lock().turn = Turn::Theirs(Instant::now());
    }

    /// It cannot be made: gives what breaks the connection off, which is all that the daemon is to see.
    pub(super) fn fail(&self, error: Error) -> Error {
        let seen = Error::new(error.kind(), error.message());
        self.0.lock().failure = Some(error);
        seen
    }

    /// Why a request failed: if that is it, for what could not be made of its body.
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

    /// The longest time, where there is a limit.
    pub(super) fn longest(self) -> Option<Duration> {
        self.0
    }

    /// Waits for `answer`, which is not late while the body is on its way.
    pub(super) async fn wait<F: Future>(self, url: &str, sending: Option<&Sending>, answer: F) -> Result<F::Output> {
        let Some(longest) = self.0 else { return Ok(answer.await) };
        let Some(sending) = sending else { return timeout(longest, answer).await.map_err(|_| late(url, longest)) };
        pin!(answer);
        loop {
            let end = sending.waiting_since() + longest;
            if end <= Instant::now() {
                return Err(late(url, longest));
            }
            tokio::select! {
                output = &mut answer => return Ok(output),
                () = sleep_until(end) => {}
            }
        }
    }
}

fn late(url: &str, longest: Duration) -> Error {
    let seconds = longest.as_secs_f64();
    let what = format!("{url} let us wait for more than {seconds} s (timeout = {seconds})");
    Error::new(ErrorKind::Timeout, format!("{what}: is the daemon busy, or the timeout too short?"))
}
