//! When connections end from our side: when the daemon drains, and when a client asks for nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::coop::has_budget_remaining;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// The two steps of ending: connections finish what they do, then whatever is left is cut.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// The same as `started`.
    draining: Draining,
    pub(crate) started: CancellationToken,
    pub(crate) cut: CancellationToken,
}

impl Drain {
    /// The first step.
    pub(crate) fn start(&self) {
        self.draining.0.store(true, Ordering::Release);
        self.started.cancel();
    }
}

/// Whether the daemon drains, for a look that takes no lock and wakes nobody.
#[derive(Debug, Clone, Default)]
pub(crate) struct Draining(Arc<AtomicBool>);

impl Draining {
    /// Whether it does: the next answer is the last.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What may end one connection.
pub(crate) struct Ends<'a, 'd> {
    drain: &'d Drain,
    started: Pin<&'a mut WaitForCancellationFuture<'d>>,
    /// Whether the task's waker is with `started`.
    is_registered: bool,
    cut: Pin<&'a mut WaitForCancellationFuture<'d>>,
    silence: Alarm,
    longest: Duration,
    /// For the deadlines of requests.
    over: Alarm,
}

/// A timer of a connection's task for times that only move on. It is set anew when it has run out, and not for each
/// time.
#[derive(Debug, Default)]
struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
    /// Whether the task's waker is with `sleep`.
    is_timed: bool,
}

impl Alarm {
    /// Whether the time is over. The task is woken when it is.
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
        // A task that has done enough for one turn is told so instead of having its waker taken.
        self.is_timed = has_budget_remaining();
        false
    }
}

impl<'a, 'd> Ends<'a, 'd> {
    /// Returns those of a connection: the two steps of `drain`, and the time for which a client may ask for nothing.
    pub(crate) fn new(
        drain: &'d Drain,
        started: Pin<&'a mut WaitForCancellationFuture<'d>>,
        cut: Pin<&'a mut WaitForCancellationFuture<'d>>,
        longest: Duration,
    ) -> Self {
        let (silence, over) = (Alarm::default(), Alarm::default());
        Self { drain, started, is_registered: false, cut, silence, longest, over }
    }

    /// Whether the daemon drains.
    pub(crate) fn draining(&self) -> &'d Draining {
        &self.drain.draining
    }

    /// Whether what is idle is to be closed. The task is woken when it is.
    pub(crate) fn is_draining(&mut self, cx: &mut Context<'_>) -> bool {
        // One poll leaves the task's waker with the token; after that, looking at the flag is enough.
        if self.is_registered {
            return self.draining().has_begun();
        }
        self.is_registered = true;
        self.started.as_mut().poll(cx).is_ready()
    }

    /// Ready when nothing is waited for any more.
    pub(crate) fn poll_cut(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.cut.as_mut().poll(cx)
    }

    /// Whether a client that has asked for nothing `since` then has had its time. The task is woken when it has.
    pub(crate) fn is_silent(&mut self, since: Instant, cx: &mut Context<'_>) -> bool {
        self.silence.is_over(since + self.longest, cx)
    }

    /// Whether a request whose time ends `at` then is over. The task is woken when it is.
    pub(crate) fn is_over(&mut self, at: Instant, cx: &mut Context<'_>) -> bool {
        self.over.is_over(at, cx)
    }
}
