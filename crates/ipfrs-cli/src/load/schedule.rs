//! Numbering and timing of requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// Minimum pause between two checks for due requests. Requests that become due meanwhile are sent together.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
/// Maximum pause. The thread notices the end of the run after at most this time.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Permission to send one request.
#[derive(Debug)]
pub(super) struct Ticket {
    /// Number of the request among all requests, from 0.
    pub(super) number: u64,
    /// Time at which the request was due. Without a rate, the current time.
    pub(super) start: Instant,
    /// Whether the request counts, because it is not part of the warm-up.
    pub(super) counts: bool,
}

/// Source of tickets.
#[derive(Debug)]
pub(super) struct Schedule {
    begin: Instant,
    measured_from: Instant,
    /// Maximum number of requests that count.
    most: Option<u64>,
    /// Number of requests that do not count. With a rate, those due during the warm-up, and otherwise those sent
    /// during it.
    warm: AtomicU64,
    /// Number of tickets taken that count. It exceeds `most` after the last one. With a rate, it includes the
    /// warm-up.
    taken: AtomicU64,
    pace: Option<Pace>,
    is_over: AtomicBool,
}

/// Requests due at fixed times.
#[derive(Debug)]
struct Pace {
    per_second: f64,
    /// One permit for each request that is due but not taken.
    due: Semaphore,
}

impl Schedule {
    /// Creates a schedule that begins now.
    pub(super) fn new(warmup: Duration, most: Option<u64>, rate: Option<f64>) -> Self {
        let begin = Instant::now();
        let pace = rate.map(|per_second| Pace { per_second, due: Semaphore::new(0) });
        // The number of requests due before the end of the warm-up. A request due exactly at its end counts.
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

    /// Returns the time from which requests count.
    pub(super) fn measured_from(&self) -> Instant {
        self.measured_from
    }

    /// Waits until the next request is due. Returns `None` if there are no more requests.
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

    /// Returns the number of the first request beyond the limit, for a schedule with a rate.
    fn last(&self) -> Option<u64> {
        self.most.map(|most| most.saturating_add(self.warm.load(Ordering::Relaxed)))
    }

    /// Releases requests when they are due, until all are released or [`Self::end`] is called. This function blocks
    /// its thread: the runtime's timers have millisecond precision, and latencies are measured from the due time.
    /// `waiting` is the number of tasks that wait for tickets.
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
                // Wake all waiting tasks, so that they see that there are no more requests.
                pace.due.add_permits(waiting);
                return;
            }
            let next = Duration::from_secs_f64((released as f64 / pace.per_second - elapsed).max(0.0));
            std::thread::sleep(next.clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
        }
    }

    /// Ends the run. No more tickets are handed out, and requests that finish later do not count.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Returns the number of counting requests that were taken, and the number that were due at `end` but not taken.
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
    /// Returns the number of requests due after this many seconds. The first is due immediately.
    fn due_after(&self, seconds: f64) -> u64 {
        (seconds * self.per_second).floor() as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn paced_ticket_starts_at_due_time_even_if_taken_late() {
        let schedule = Schedule::new(Duration::from_millis(2), Some(3), Some(1000.0));
        // `keep_pace` returns when all requests are released, the last one after 4 ms.
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
    async fn due_requests_not_taken_are_reported_as_unsent() {
        let schedule = Schedule::new(Duration::ZERO, None, Some(100.0));
        assert_eq!(schedule.taken_and_left(schedule.begin + Duration::from_secs(1)), (0, 101));
        let most = Schedule::new(Duration::from_secs(1), Some(7), Some(100.0));
        assert_eq!(most.taken_and_left(most.begin), (0, 0), "only the warm-up's are due");
        assert_eq!(most.taken_and_left(most.begin + Duration::from_secs(60)), (0, 7));
    }
}
