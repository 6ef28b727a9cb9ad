//! Looking for the next request of a client that asks again at once, instead of sleeping until the system tells of it.
//!
//! A worker that sleeps takes some tens of microseconds to wake, longer than it takes to answer from memory: of one client that
//! asks for one thing after another, that is half of the time. So a worker that has answered one connection alone looks at its
//! socket for a moment first. Where looking is in vain it is given up at once and tried again ever more seldom: clients that
//! are further away than that moment, and those that share the core with the worker, are waited for asleep.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Answers in a row to one connection, by one worker, after which its socket is looked at.
const ALONE: u32 = 8;

/// Answers that go by after looking was in vain, at first and at most.
const PAUSES: (u32, u32) = (8, 4096);

thread_local! {
    static LAST: Cell<Last> = const { Cell::new(Last::of(0)) };
}

/// What a worker remembers of its last answers.
#[derive(Debug, Clone, Copy)]
struct Last {
    /// The connection that all of them went to.
    connection: usize,
    /// How many there were, up to [`ALONE`].
    answers: u32,
    /// Answers that go by until the socket is looked at again.
    left: u32,
    /// What `left` was set to.
    pause: u32,
}

impl Last {
    const fn of(connection: usize) -> Self {
        Self { connection, answers: 0, left: 0, pause: 0 }
    }

    /// Notes an answer. Tells whether to look for the next request.
    fn is_awaited(&mut self, connection: usize) -> bool {
        if self.connection != connection {
            *self = Self::of(connection);
        }
        if self.answers < ALONE {
            self.answers += 1;
            return false;
        }
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// Notes how looking went.
    fn looked(&mut self, has_come: bool) {
        self.pause = if has_come { 0 } else { (self.pause * 2).clamp(PAUSES.0, PAUSES.1) };
        self.left = self.pause;
    }
}

/// Looks for the next request of the connection with this number, which was answered just now, for at most `longest`.
/// `has_come` tells without waiting whether there is one. Whoever calls waits in the ordinary way afterwards.
pub(crate) fn look(connection: usize, longest: Duration, mut has_come: impl FnMut() -> bool) {
    let mut last = LAST.get();
    if last.is_awaited(connection) {
        let start = Instant::now();
        let found = loop {
            if has_come() {
                break true;
            }
            if start.elapsed() >= longest {
                break false;
            }
            std::hint::spin_loop();
        };
        last.looked(found);
    }
    LAST.set(last);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of `answers` to a connection were followed by a look that found what `found` says.
    fn looks(last: &mut Last, connection: usize, answers: u32, found: bool) -> Vec<u32> {
        let look = |answer: &u32| {
            let is_awaited = last.is_awaited(connection);
            if is_awaited {
                last.looked(found);
            }
            is_awaited && *answer > 0
        };
        (1..=answers).filter(look).collect()
    }

    #[test]
    fn a_client_that_asks_again_at_once_is_looked_for_after_each_answer() {
        let mut last = Last::of(1);
        assert_eq!(looks(&mut last, 1, 12, true), [9, 10, 11, 12]);
    }

    #[test]
    fn looking_in_vain_becomes_seldom_and_stays_possible() {
        let mut last = Last::of(1);
        assert_eq!(looks(&mut last, 1, 100, false), [9, 17, 33, 65]);
        let seldom = looks(&mut last, 1, 100_000, false);
        let (before, after) = (seldom[seldom.len() - 2], seldom[seldom.len() - 1]);
        assert_eq!(after - before, PAUSES.1);
        assert_eq!(
            looks(&mut last, 1, 2 * PAUSES.1, true).last(),
            Some(&(2 * PAUSES.1)),
            "it is not given up for good"
        );
    }

    #[test]
    fn no_connection_is_looked_at_beside_others() {
        let mut last = Last::of(1);
        for _ in 0..100 {
            assert!(looks(&mut last, 1, 7, true).is_empty());
            assert!(looks(&mut last, 2, 8, true).is_empty());
        }
    }

    #[test]
    fn a_worker_looks_for_no_longer_than_it_may() {
        let mut asked = 0;
        for _ in 0..=ALONE {
            look(7, Duration::ZERO, || {
                asked += 1;
                false
            });
        }
        assert_eq!(asked, 1);
    }
}
