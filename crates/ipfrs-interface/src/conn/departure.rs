//! Clients that leave while they wait for a response or for an event, or reset their connection while they wait for the
//! next bytes of another response. hyper does not read during a response, so it would notice them only when it sends
//! some, and the work for it would go on until then.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ipfrs_stream::Presence;
use tokio::time::{Instant, Sleep, sleep_until};

/// Interval of the checks. Most requests have their response before the first.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time for which a response is awaited after the client has closed its sending side, and for which events are sent. It
/// may still read, as `nc -N` does, and most responses begin within this time. But most clients that do this have left:
/// a longer wait would retrieve content for them, and take sessions from others. Other servers, such as nginx, wait for
/// no time at all.
const HALF_CLOSED: Duration = Duration::from_secs(3);

/// State that both sides of hyper share: the connection task requests a check, and the socket makes it at its next
/// flush.
#[derive(Debug, Default)]
pub(crate) struct Check {
    is_due: AtomicBool,
    found: AtomicU8,
}

impl Check {
    /// Notes the `presence` of the peer if the check is due.
    pub(crate) fn make(&self, presence: impl FnOnce() -> Presence) {
        if self.is_due.swap(false, Ordering::Relaxed) {
            self.found.store(presence() as u8, Ordering::Relaxed);
        }
    }
}

/// Watches whether the client is still there.
#[derive(Debug, Default)]
pub(crate) struct Departure {
    /// Set at the first wait.
    timer: Option<Pin<Box<Sleep>>>,
    half_closed: Option<Instant>,
}

impl Departure {
    /// Requests a check if it is time for one.
    pub(crate) fn request(&mut self, check: &Check, cx: &mut Context<'_>) {
        let Some(timer) = &mut self.timer else { return };
        if timer.as_mut().poll(cx).is_ready() {
            timer.as_mut().reset(Instant::now() + INTERVAL);
            check.is_due.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the client has left, according to the last check. `may_half_close` is whether a client that has closed
    /// its sending side is still there. Schedules the next check.
    pub(crate) fn has_happened(&mut self, check: &Check, may_half_close: bool, cx: &mut Context<'_>) -> bool {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + INTERVAL)));
        if let Poll::Ready(()) = timer.as_mut().poll(cx) {
            cx.waker().wake_by_ref();
        }
        let found = check.found.load(Ordering::Relaxed);
        if found == Presence::HalfClosed as u8 && !may_half_close {
            return self.half_closed.get_or_insert_with(Instant::now).elapsed() >= HALF_CLOSED;
        }
        found == Presence::Gone as u8
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn half_closed_client_has_left_after_some_seconds() {
        let (check, mut departure) = (Check::default(), Departure::default());
        let mut cx = Context::from_waker(Waker::noop());
        let mut waited = Duration::ZERO;
        while !departure.has_happened(&check, false, &mut cx) {
            assert!(!departure.has_happened(&check, true, &mut cx));
            tokio::time::advance(INTERVAL).await;
            waited += INTERVAL;
            departure.request(&check, &mut cx);
            check.make(|| Presence::HalfClosed);
        }
        // The first check notices it.
        assert_eq!(waited, INTERVAL + HALF_CLOSED);
    }
}
