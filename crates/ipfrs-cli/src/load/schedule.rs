//! Which request is next, and when.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// Shortest pause between two looks at what is due; what falls due meanwhile is sent together.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
/// Longest one: the end is seen after this time.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The leave to send one request.
#[derive(Debug)]
pub(super) struct Ticket {
    /// Counts all requests, from 0.
    pub(super) number: u64,
    /// When it was due; without a rate, now.
    pub(super) start: Instant,
    /// Whether it counts: it is none of the warm-up's.
    pub(super) counts: bool,
}

/// Hands out tickets.
#[derive(Debug)]
pub(super) struct Schedule {
    begin: Instant,
    measured_from: Instant,
    /// Requests that count, at most.
    most: Option<u64>,
    /// Requests that do not count: with a rate those that are due during the warm-up, else those that were sent then.
    warm: AtomicU64,
    /// Requests that were taken and count; more than `most` once all were. With a rate, those of the warm-up too.
    taken: AtomicU64,
    pace: Option<Pace>,
    is_over: AtomicBool,
}

/// Requests that are due at fixed times.
#[derive(Debug)]
struct Pace {
    per_second: f64,
    /// One permit for each that is due and not taken.
    due: Semaphore,
}

impl Schedule {
    /// Begins now.
    pub(super) fn new(warmup: Duration, most: Option<u64>, rate: Option<f64>) -> Self {
        let begin = Instant::now();
        let pace = rate.map(|per_second| Pace { per_second, due: Semaphore::new(0) });
        // As many as fall due before the warm-up is over; the one at its very end counts.
        let warm = pace.as_ref().map_or(0, |pace| (warmup.as_secs_f64() * pace.per_second).ceil() as u64);
        Self {
            begin,
            measured_from: begin + warmup,
            most,
            warm: AtomicU64::new(warm),
            taken: AtomicU64::new(0),
            pace,
            is_over: AtomicBool::new(false),
        }
    }

    /// From when on requests count.
    pub(super) fn measured_from(&self) -> Instant {
        self.measured_from
    }

    /// The next request, once it is due; nothing when there are no more.
    pub(super) async fn next(&self) -> Option<Ticket> {
        let Some(pace) = &self.pace else { return self.at_once() };
        pace.due.acquire().await.ok()?.forget();
        if self.is_over() {
            return None;
        }
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        let warm = self.warm.load(Ordering::Relaxed);
        if self.last().is_some_and(|last| number >= last) {
            return None;
        }
        let start = self.begin + Duration::from_secs_f64(number as f64 / pace.per_second);
        Some(Ticket { number, start, counts: number >= warm })
    }

    fn at_once(&self) -> Option<Ticket> {
        let start = Instant::now();
        if self.is_over() {
            return None;
        }
        if start < self.measured_from {
            let number = self.warm.fetch_add(1, Ordering::Relaxed);
            return Some(Ticket { number, start, counts: false });
        }
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        let is_left = self.most.is_none_or(|most| number < most);
        is_left.then_some(Ticket { number, start, counts: true })
    }

    /// The number of the first request that is one too many, with a rate.
    fn last(&self) -> Option<u64> {
        self.most.map(|most| most.saturating_add(self.warm.load(Ordering::Relaxed)))
    }

    /// Releases requests when they are due, until all are or [`Self::end`]. Blocks: timers of the runtime are good for
    /// milliseconds, and latencies count from the due time. `waiting` is the number of those who wait for tickets.
    pub(super) fn keep_pace(&self, waiting: usize) {
        let Some(pace) = &self.pace else { return };
        let last = self.last();
        let mut released = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            let elapsed = self.begin.elapsed().as_secs_f64();
            let due = pace.due_after(elapsed);
            let due = last.map_or(due, |last| due.min(last));
            pace.due.add_permits(usize::try_from(due - released).unwrap_or_default());
            released = due;
            if Some(released) == last {
                // Everybody learns that there are no more.
                pace.due.add_permits(waiting);
                return;
            }
            let next = Duration::from_secs_f64((released as f64 / pace.per_second - elapsed).max(0.0));
            std::thread::sleep(next.clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
        }
    }

    /// No more requests are handed out, and none that ends now counts.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Requests that count: those that were taken, and those that were due at `end` and were not.
    pub(super) fn taken_and_left(&self, end: Instant) -> (u64, u64) {
        let taken = self.taken.load(Ordering::Relaxed);
        let Some(pace) = &self.pace else { return (self.most.map_or(taken, |most| taken.min(most)), 0) };
        let warm = self.warm.load(Ordering::Relaxed);
        let within = |count: u64| self.last().map_or(count, |last| count.min(last)).saturating_sub(warm);
        let due = pace.due_after(end.saturating_duration_since(self.begin).as_secs_f64());
        let taken = within(taken);
        (taken, within(due).saturating_sub(taken))
    }
}

impl Pace {
    /// Requests that are due after this many seconds, the first at once.
    fn due_after(&self, seconds: f64) -> u64 {
        (seconds * self.per_second).floor() as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn with_a_rate_requests_start_when_they_were_due_however_late_they_are_taken() {
        let schedule = Schedule::new(Duration::from_millis(2), Some(3), Some(1000.0));
        // Returns when all are released, the last after 4 ms.
        schedule.keep_pace(1);
        for (number, counts) in [false, false, true, true, true].into_iter().enumerate() {
            let ticket = schedule.next().await.unwrap();
            let due = schedule.begin + Duration::from_millis(number as u64);
            assert_eq!((ticket.number, ticket.start, ticket.counts), (number as u64, due, counts));
        }
        assert!(schedule.next().await.is_none());
        assert_eq!(schedule.taken_and_left(schedule.begin + Duration::from_secs(60)), (3, 0));
    }

    #[tokio::test]
    async fn what_is_due_and_not_taken_is_left() {
        let schedule = Schedule::new(Duration::ZERO, None, Some(100.0));
        assert_eq!(schedule.taken_and_left(schedule.begin + Duration::from_secs(1)), (0, 101));
        let most = Schedule::new(Duration::from_secs(1), Some(7), Some(100.0));
        assert_eq!(most.taken_and_left(most.begin), (0, 0), "only the warm-up's are due");
        assert_eq!(most.taken_and_left(most.begin + Duration::from_secs(60)), (0, 7));
    }
}
