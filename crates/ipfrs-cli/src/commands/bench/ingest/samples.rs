//! Durations of operations, and their mean.

use std::time::{Duration, Instant};

/// Number of groups that bursts in flight form: while several are in flight, one acknowledgment completes several.
const GROUPS_IN_FLIGHT: u64 = 4;

/// Durations of operations.
#[derive(Debug)]
pub(super) struct Samples {
    /// Seconds per operation.
    seconds: Vec<f64>,
    /// Number of operations that form a sample.
    group: u64,
    operations: u64,
    elapsed: Duration,
    /// Number of connections that measured at the same time.
    connections: f64,
    /// Operations since the last sample, and when they began.
    pending: (u64, Option<Instant>),
}

impl Samples {
    pub(super) fn new(in_flight: u64) -> Self {
        let group = if in_flight == 1 { 1 } else { in_flight * GROUPS_IN_FLIGHT };
        let (seconds, elapsed) = (Vec::new(), Duration::ZERO);
        Self { seconds, group, operations: 0, elapsed, connections: 1.0, pending: (0, None) }
    }

    /// Joins the samples of connections that measured at the same time.
    pub(super) fn joined(all: Vec<Self>) -> Self {
        let connections = all.len() as f64;
        let mut joined = Self { connections, ..Self::new(1) };
        for samples in all {
            joined.seconds.extend(samples.seconds);
            joined.operations += samples.operations;
            joined.elapsed = joined.elapsed.max(samples.elapsed);
        }
        joined
    }

    /// Begins to measure on a new connection.
    pub(super) fn begin(&mut self) {
        self.pending = (0, Some(Instant::now()));
    }

    /// Records operations that have ended.
    pub(super) fn ended(&mut self, operations: u64) {
        let now = Instant::now();
        let (count, begun) = self.pending;
        let (count, begun) = (count + operations, begun.unwrap_or(now));
        self.operations += operations;
        if count < self.group {
            self.pending = (count, Some(begun));
            return;
        }
        let duration = now.duration_since(begun);
        self.elapsed += duration;
        self.seconds.push(duration.as_secs_f64() / count as f64);
        self.pending = (0, Some(now));
    }

    pub(super) fn elapsed(&self) -> Duration {
        let open = self.pending.1.map_or(Duration::ZERO, |begun| begun.elapsed());
        self.elapsed + if self.pending.0 > 0 { open } else { Duration::ZERO }
    }

    pub(super) fn count(&self) -> usize {
        self.seconds.len()
    }

    fn mean(&self) -> f64 {
        self.seconds.iter().sum::<f64>() / self.seconds.len().max(1) as f64
    }

    /// Returns operations per second of all connections.
    pub(super) fn rate(&self) -> f64 {
        let mean = self.mean();
        if mean > 0.0 { self.connections / mean } else { 0.0 }
    }

    /// Returns half the width of the 95 % confidence interval of the mean, as a share of it.
    pub(super) fn margin(&self) -> Option<f64> {
        let (count, mean) = (self.seconds.len(), self.mean());
        if count < 2 || mean <= 0.0 {
            return None;
        }
        let squares: f64 = self.seconds.iter().map(|seconds| (seconds - mean).powi(2)).sum();
        let error = (squares / (count - 1) as f64 / count as f64).sqrt();
        Some(error * student_t(count - 1) / mean)
    }
}

/// Returns the 97.5 % quantile of Student's t-distribution.
fn student_t(freedom: usize) -> f64 {
    const SMALL: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    match SMALL.get(freedom.saturating_sub(1)) {
        Some(quantile) => *quantile,
        // Cornish-Fisher expansion around the normal quantile.
        None => 1.96 + 2.372 / freedom as f64 + 2.823 / (freedom as f64).powi(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margin_is_that_of_the_t_distribution() {
        let samples = Samples { seconds: vec![1.0, 2.0, 3.0], ..Samples::new(1) };
        assert!((samples.rate() - 0.5).abs() < 1e-9);
        // Standard deviation 1, error 1/sqrt(3), t 4.303, mean 2.
        assert!((samples.margin().unwrap() - 4.303 / 3.0_f64.sqrt() / 2.0).abs() < 1e-3);
        assert!((student_t(11) - 2.201).abs() < 0.01 && (student_t(100) - 1.984).abs() < 0.01);
        assert_eq!(Samples::new(1).margin(), None);
    }
}
