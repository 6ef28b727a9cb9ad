//! Reasons for the daemon to end a connection: draining, and clients that send no request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::coop::has_budget_remaining;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// The two stages of ending: connections complete their requests, then the remaining ones are closed.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// Same state as `started`.
    draining: Draining,
    pub(crate) started: CancellationToken,
    pub(crate) cut: CancellationToken,
}

impl Drain {
    /// Starts the first stage.
    pub(crate) fn start(&self) {
        self.draining.0.store(true, Ordering::Release);
        self.started.cancel();
    }
}

/// Whether the daemon drains, in a form that can be checked without a lock or a wakeup.
#[derive(Debug, Clone, Default)]
pub(crate) struct Draining(Arc<AtomicBool>);

impl Draining {
    /// Whether draining has begun, so that the next response is the last one.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Conditions that may end a connection.
pub(crate) struct Deadlines<'a, 'd> {
    drain: &'d Drain,
    started: Pin<&'a mut WaitForCancellationFuture<'d>>,
    /// Whether the waker of the task is registered with `started`.
    is_registered: bool,
    cut: Pin<&'a mut WaitForCancellationFuture<'d>>,
    silence_alarm: Alarm,
    max_silence: Duration,
    /// Timer for the deadlines of requests.
    request_alarm: Alarm,
}

/// Timer of a connection task, for deadlines that only increase. It is reset when it expires, not for each new
/// deadline.
#[derive(Debug, Default)]
struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
    /// Whether the waker of the task is registered with `sleep`.
    is_timed: bool,
}

impl Alarm {
    /// Whether `end` has passed. Otherwise the task is woken at that time.
    fn is_over(&mut self, end: Instant, cx: &mut Context<'_>) -> bool {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(end)));
        if self.is_timed && !sleep.is_elapsed() {
            return false;
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if Instant::now() >= end {
                return true;
            }
            sleep.as_mut().reset(end);
        }
        // If the task has used up its budget, Tokio wakes it again at once without registering the waker.
        self.is_timed = has_budget_remaining();
        false
    }
}

impl<'a, 'd> Deadlines<'a, 'd> {
    /// Creates the conditions of a connection: the two stages of `drain`, and the maximum time without a request.
    pub(crate) fn new(
        drain: &'d Drain,
        started: Pin<&'a mut WaitForCancellationFuture<'d>>,
        cut: Pin<&'a mut WaitForCancellationFuture<'d>>,
        max_silence: Duration,
    ) -> Self {
        let (silence_alarm, request_alarm) = (Alarm::default(), Alarm::default());
        Self { drain, started, is_registered: false, cut, silence_alarm, max_silence, request_alarm }
    }

    /// Returns the flag for draining.
    pub(crate) fn draining(&self) -> &'d Draining {
        &self.drain.draining
    }

    /// Whether idle connections are to be closed. Otherwise the task is woken when they are.
    pub(crate) fn is_draining(&mut self, cx: &mut Context<'_>) -> bool {
        // The first poll registers the waker with the token. Later calls only check the flag.
        if self.is_registered {
            return self.draining().has_begun();
        }
        self.is_registered = true;
        self.started.as_mut().poll(cx).is_ready()
    }

    /// Ready when the remaining connections are to be closed.
    pub(crate) fn poll_cut(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.cut.as_mut().poll(cx)
    }

    /// Whether the client has sent no request for too long `since` then. Otherwise the task is woken at that time.
    pub(crate) fn is_silent(&mut self, since: Instant, cx: &mut Context<'_>) -> bool {
        self.silence_alarm.is_over(since + self.max_silence, cx)
    }

    /// Whether the deadline `at` of a request has passed. Otherwise the task is woken at that time.
    pub(crate) fn is_over(&mut self, at: Instant, cx: &mut Context<'_>) -> bool {
        self.request_alarm.is_over(at, cx)
    }
}

/// How long after its deadline a request is terminated. Until then, its handler can respond with an error.
pub(crate) const DEADLINE_GRACE: Duration = Duration::from_secs(1);
