//! Byte counts and transfer rates of all sockets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time constant of the rates: traffic one `WINDOW` ago has 1/e of the weight of current traffic.
const WINDOW: Duration = Duration::from_secs(10);

/// Byte counters that sockets update. Clones share the counters.
#[derive(Debug, Clone, Default)]
pub struct Bandwidth {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    total_in: AtomicU64,
    total_out: AtomicU64,
    rates: Mutex<Rates>,
}

/// The values of the counters at one point in time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BandwidthSnapshot {
    /// Bytes received since the start.
    pub total_in: u64,
    /// Bytes sent since the start.
    pub total_out: u64,
    /// Bytes received per second, weighted towards the last ten seconds.
    pub rate_in: f64,
    /// Bytes sent per second, weighted towards the last ten seconds.
    pub rate_out: f64,
}

impl Bandwidth {
    /// Adds received bytes.
    pub fn add_in(&self, bytes: u64) {
        self.shared.total_in.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds sent bytes.
    pub fn add_out(&self, bytes: u64) {
        self.shared.total_out.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the totals, and the rates computed from the totals of earlier snapshots.
    #[must_use]
    pub fn snapshot(&self) -> BandwidthSnapshot {
        self.snapshot_at(Instant::now())
    }

    fn snapshot_at(&self, now: Instant) -> BandwidthSnapshot {
        let mut rates = self.shared.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let total_in = self.shared.total_in.load(Ordering::Relaxed);
        let total_out = self.shared.total_out.load(Ordering::Relaxed);
        rates.advance(now, total_in, total_out);
        BandwidthSnapshot { total_in, total_out, rate_in: rates.input.rate(), rate_out: rates.output.rate() }
    }
}

/// Exponentially weighted rates. Each snapshot computes them from the totals of the previous snapshot. No timer is
/// needed, and a socket write costs one addition.
#[derive(Debug)]
struct Rates {
    at: Instant,
    input: Rate,
    output: Rate,
}

impl Default for Rates {
    fn default() -> Self {
        Self { at: Instant::now(), input: Rate::default(), output: Rate::default() }
    }
}

impl Rates {
    fn advance(&mut self, now: Instant, total_in: u64, total_out: u64) {
        let elapsed = now.saturating_duration_since(self.at);
        if elapsed.is_zero() {
            return;
        }
        self.at = now;
        self.input.advance(elapsed, total_in);
        self.output.advance(elapsed, total_out);
    }
}

/// The weighted rate of one direction.
#[derive(Debug, Default)]
struct Rate {
    total: u64,
    weighted: f64,
    /// The weight of the time observed so far, below 1. Dividing by it keeps the rates of the first seconds from
    /// being too low.
    weight: f64,
}

impl Rate {
    fn advance(&mut self, elapsed: Duration, total: u64) {
        let keep = (-elapsed.as_secs_f64() / WINDOW.as_secs_f64()).exp();
        let latest = (total - self.total) as f64 / elapsed.as_secs_f64();
        self.weighted = self.weighted * keep + latest * (1.0 - keep);
        self.weight = self.weight * keep + (1.0 - keep);
        self.total = total;
    }

    fn rate(&self) -> f64 {
        if self.weight > 0.0 { self.weighted / self.weight } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= expected.abs() * 1e-6 + 1e-6
    }

    #[test]
    fn bandwidth_rate_is_independent_of_snapshot_frequency() {
        let bandwidth = Bandwidth::default();
        let mut now = Instant::now();
        for millis in [1, 10, 250, 1_000, 30_000] {
            now += Duration::from_millis(millis);
            bandwidth.add_in(millis * 5);
            bandwidth.clone().add_out(millis * 70);
            let seen = bandwidth.snapshot_at(now);
            // The counters were created shortly before `now` was read, which lengthens the first interval a little.
            assert!((seen.rate_in / 5_000.0 - 1.0).abs() < 0.2 || millis == 1, "{millis} ms: {seen:?}");
            assert!(near(seen.rate_out, seen.rate_in * 14.0), "{millis} ms: {seen:?}");
        }
        assert_eq!(bandwidth.snapshot_at(now).total_in, 31_261 * 5);
        assert_eq!(bandwidth.snapshot_at(now).total_out, 31_261 * 70);
    }

    #[test]
    fn a_rate_fades_when_the_flow_stops() {
        let bandwidth = Bandwidth::default();
        let start = Instant::now();
        bandwidth.add_out(1_000_000);
        let busy = bandwidth.snapshot_at(start + WINDOW).rate_out;
        assert!((busy / 100_000.0 - 1.0).abs() < 0.01, "{busy}");
        let later = bandwidth.snapshot_at(start + WINDOW * 6);
        assert!(later.rate_out < busy / 50.0 && later.rate_out > 0.0, "{later:?}");
        assert_eq!((later.total_in, later.rate_in), (0, 0.0));
    }
}
