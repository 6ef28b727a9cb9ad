//! Limit on failed attempts.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::client::Client;

/// Number of cells. Clients that share a cell, by a hash with a random key, share their attempts.
const CELLS: usize = 16_384;

/// Time in which `auth.max_failures_per_minute` attempts may fail.
const WINDOW: Duration = Duration::from_secs(60);

/// Counts failed attempts of clients by the generic cell rate algorithm, in a table of fixed size: 128 KiB. A client
/// may fail as often as the window allows at once, and then at that rate.
#[derive(Debug)]
pub(super) struct Attempts {
    /// For each cell the time at which all its failures are forgotten, in milliseconds since `start`.
    cells: Box<[AtomicU64]>,
    hasher: RandomState,
    start: Instant,
    /// Time in which one failure is forgotten, in milliseconds.
    interval: AtomicU64,
}

/// Returns the time in which one failure is forgotten, in milliseconds.
fn interval(max_failures_per_minute: u32) -> u64 {
    WINDOW.as_millis() as u64 / u64::from(max_failures_per_minute.max(1))
}

impl Attempts {
    pub(super) fn new(max_failures_per_minute: u32) -> Self {
        let interval = AtomicU64::new(interval(max_failures_per_minute));
        let cells = (0..CELLS).map(|_| AtomicU64::new(0)).collect();
        Self { cells, hasher: RandomState::new(), start: Instant::now(), interval }
    }

    /// Changes the limit. Failures until now count as long as before.
    pub(super) fn set(&self, max_failures_per_minute: u32) {
        self.interval.store(interval(max_failures_per_minute), Ordering::Relaxed);
    }

    /// Returns the time to wait if the client has failed too often.
    pub(super) fn check(&self, client: Client) -> Result<(), Duration> {
        self.check_at(client, self.start.elapsed())
    }

    /// Notes a failure of the client.
    pub(super) fn fail(&self, client: Client) {
        self.fail_at(client, self.start.elapsed());
    }

    fn check_at(&self, client: Client, now: Duration) -> Result<(), Duration> {
        let forgotten = self.cell(client).load(Ordering::Relaxed);
        let latest = now.as_millis() as u64 + WINDOW.as_millis() as u64 - self.interval.load(Ordering::Relaxed);
        if forgotten <= latest { Ok(()) } else { Err(Duration::from_millis(forgotten - latest)) }
    }

    fn fail_at(&self, client: Client, now: Duration) {
        let now = now.as_millis() as u64;
        let most = now + WINDOW.as_millis() as u64;
        let interval = self.interval.load(Ordering::Relaxed);
        let later = |forgotten: u64| Some((forgotten.max(now) + interval).min(most));
        let _ = self.cell(client).fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    fn cell(&self, client: Client) -> &AtomicU64 {
        &self.cells[self.hasher.hash_one(client) as usize % CELLS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_waits_after_too_many_failures_and_others_do_not() {
        let attempts = Attempts::new(3);
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|address| Client::of(address.parse().unwrap()));
        let at = Duration::from_secs;
        for _ in 0..3 {
            assert_eq!(attempts.check_at(one, at(100)), Ok(()));
            attempts.fail_at(one, at(100));
        }
        assert_eq!(attempts.check_at(one, at(100)), Err(at(20)));
        assert_eq!(attempts.check_at(one, at(119)), Err(at(1)));
        // Failures while waiting do not extend the time without limit.
        (0..100).for_each(|_| attempts.fail_at(one, at(110)));
        assert_eq!(attempts.check_at(one, at(130)), Ok(()));
        if !std::ptr::eq(attempts.cell(one), attempts.cell(other)) {
            assert_eq!(attempts.check_at(other, at(100)), Ok(()));
        }
    }
}
