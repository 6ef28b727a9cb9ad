//! Busy polling for the next request of a client that sends requests in quick succession, instead of sleeping until
//! the kernel reports it.
//!
//! A sleeping worker takes some tens of microseconds to wake, longer than a response from the cache. For a single
//! client that sends one request after another, that is half of the time. A worker that has served only one
//! connection therefore polls its socket for a moment first. If polling fails, the worker stops at once and polls
//! less and less often. It sleeps while it waits for clients whose round trip is longer than that moment, and for
//! clients that share its core.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Number of consecutive responses to one connection, by one worker, after which its socket is polled.
const ALONE: u32 = 8;

/// Number of responses without polling after a failed poll: initial and maximum value.
const PAUSES: (u32, u32) = (8, 4096);

thread_local! {
    static LAST: Cell<Last> = const { Cell::new(Last::of(0)) };
}

/// The recent responses of a worker.
#[derive(Debug, Clone, Copy)]
struct Last {
    /// Connection that received all of them.
    connection: usize,
    /// Number of responses, up to [`ALONE`].
    responses: u32,
    /// Number of responses until the socket is polled again.
    left: u32,
    /// Last initial value of `left`.
    pause: u32,
}

impl Last {
    const fn of(connection: usize) -> Self {
        Self { connection, responses: 0, left: 0, pause: 0 }
    }

    /// Records a response. Returns whether to poll for the next request.
    fn should_poll(&mut self, connection: usize) -> bool {
        if self.connection != connection {
            *self = Self::of(connection);
        }
        if self.responses < ALONE {
            self.responses += 1;
            return false;
        }
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// Records the result of a poll.
    fn record_poll(&mut self, has_arrived: bool) {
        self.pause = if has_arrived { 0 } else { (self.pause * 2).clamp(PAUSES.0, PAUSES.1) };
        self.left = self.pause;
    }
}

/// Polls for the next request on the connection with this number, to which a response was just sent, for at most
/// `time_limit`. `has_arrived` checks without blocking whether data have arrived. The caller waits in the usual way
/// afterwards.
pub(crate) fn look(connection: usize, time_limit: Duration, mut has_arrived: impl FnMut() -> bool) {
    let mut last = LAST.get();
    if last.should_poll(connection) {
        let start = Instant::now();
        let found = loop {
            if has_arrived() {
                break true;
            }
            if start.elapsed() >= time_limit {
                break false;
            }
            std::hint::spin_loop();
        };
        last.record_poll(found);
    }
    LAST.set(last);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns which of `responses` responses on a connection were followed by a poll, if each poll has the result
    /// `found`.
    fn polls(last: &mut Last, connection: usize, responses: u32, found: bool) -> Vec<u32> {
        let look = |response: &u32| {
            let should_poll = last.should_poll(connection);
            if should_poll {
                last.record_poll(found);
            }
            should_poll && *response > 0
        };
        (1..=responses).filter(look).collect()
    }

    #[test]
    fn busy_poll_follows_each_response_to_a_fast_client() {
        let mut last = Last::of(1);
        assert_eq!(polls(&mut last, 1, 12, true), [9, 10, 11, 12]);
    }

    #[test]
    fn failed_busy_polls_become_rare_but_never_stop() {
        let mut last = Last::of(1);
        assert_eq!(polls(&mut last, 1, 100, false), [9, 17, 33, 65]);
        let rare = polls(&mut last, 1, 100_000, false);
        let (before, after) = (rare[rare.len() - 2], rare[rare.len() - 1]);
        assert_eq!(after - before, PAUSES.1);
        assert_eq!(
            polls(&mut last, 1, 2 * PAUSES.1, true).last(),
            Some(&(2 * PAUSES.1)),
            "polling is never disabled for good"
        );
    }

    #[test]
    fn busy_poll_needs_a_single_active_connection() {
        let mut last = Last::of(1);
        for _ in 0..100 {
            assert!(polls(&mut last, 1, 7, true).is_empty());
            assert!(polls(&mut last, 2, 8, true).is_empty());
        }
    }

    #[test]
    fn busy_poll_stops_at_the_time_limit() {
        let mut polled = 0;
        for _ in 0..=ALONE {
            look(7, Duration::ZERO, || {
                polled += 1;
                false
            });
        }
        assert_eq!(polled, 1);
    }
}
