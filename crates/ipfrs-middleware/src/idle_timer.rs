//! Timer of pauses in a request body.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// A client that has sent this many bytes is not pausing.
const PROGRESS_BYTES: usize = 64 * 1024;

/// Limit on the time for which a request waits for its client, in one pause or in total since the last progress,
/// because other requests need the resources that it holds. Time spent on anything else does not count.
#[derive(Debug)]
pub struct IdleTimer {
    limit: Duration,
    /// Time spent waiting since the last progress, and the bytes received since then.
    waited: Duration,
    received: usize,
    /// Start of the current wait, and its timer.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl IdleTimer {
    /// Creates a timer that fires after `limit` of waiting.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit, waited: Duration::ZERO, received: 0, waiting: None }
    }

    /// Returns the limit.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Ends the current wait, which brought this many bytes.
    pub fn received(&mut self, bytes: usize) {
        if let Some((since, _)) = self.waiting.take() {
            self.waited += since.elapsed();
        }
        self.received = self.received.saturating_add(bytes);
        if self.received >= PROGRESS_BYTES {
            self.progressed();
        }
    }

    /// Starts counting anew, because the client has sent something complete.
    pub fn progressed(&mut self) {
        (self.waited, self.received) = (Duration::ZERO, 0);
    }

    /// Begins or continues a wait for the client. Ready when the limit is exceeded.
    pub fn poll_exceeded(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let left = self.limit.saturating_sub(self.waited);
        let (_, timer) = self.waiting.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(left))));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::{advance, timeout};

    use super::*;

    async fn waits(timer: &mut IdleTimer, seconds: u64) -> bool {
        let time = Duration::from_secs(seconds);
        timeout(time, poll_fn(|cx| timer.poll_exceeded(cx))).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_are_summed_until_the_client_progresses() {
        let mut timer = IdleTimer::new(Duration::from_secs(10));
        assert!(waits(&mut timer, 6).await);
        timer.received(1);
        // The time between waits does not count.
        advance(Duration::from_secs(100)).await;
        assert!(waits(&mut timer, 3).await);
        timer.received(PROGRESS_BYTES);
        assert!(waits(&mut timer, 9).await);
        timer.received(1);
        assert!(!waits(&mut timer, 2).await);
        timer.progressed();
    }
}
