//! Limit on the lines of the log that a client can cause again and again.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Minimum time between two lines.
const INTERVAL: Duration = Duration::from_secs(60);

/// Limiter for one kind of line.
#[derive(Debug, Default)]
pub(super) struct LogLimiter(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    /// Time of the last line.
    last: Option<Instant>,
    /// Lines that were left out since.
    left_out: u64,
}

impl LogLimiter {
    /// Returns the number of lines that were left out since the last one if a line may be written at `now`, else
    /// `None`.
    pub(super) fn take(&self, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock();
        if lines.last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
            lines.left_out += 1;
            return None;
        }
        lines.last = Some(now);
        Some(std::mem::take(&mut lines.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_has_the_number_of_those_left_out() {
        let (limiter, start) = (LogLimiter::default(), Instant::now());
        assert_eq!(limiter.take(start), Some(0));
        for _ in 0..3 {
            assert_eq!(limiter.take(start + INTERVAL / 2), None);
        }
        assert_eq!(limiter.take(start + INTERVAL), Some(3));
        assert_eq!(limiter.take(start + INTERVAL), None);
        assert_eq!(limiter.take(start + 2 * INTERVAL), Some(1));
    }
}
