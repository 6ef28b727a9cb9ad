//! Latencies of single responses.

use std::time::Instant;

use anyhow::Result;

/// Latencies of single responses, in milliseconds.
#[derive(Debug, Default)]
pub struct Latencies(Vec<f64>);

impl Latencies {
    /// Adds the latency of another response, in milliseconds.
    pub fn push(&mut self, milliseconds: f64) {
        self.0.push(milliseconds);
    }

    /// Adds all latencies of `others`.
    pub fn extend(&mut self, others: &Self) {
        self.0.extend_from_slice(&others.0);
    }

    /// Measures the latency of one exchange.
    ///
    /// # Errors
    /// Returns the error of the exchange. No latency is recorded then.
    pub fn time(&mut self, exchange: impl FnOnce() -> Result<()>) -> Result<()> {
        let start = Instant::now();
        exchange()?;
        self.push(start.elapsed().as_secs_f64() * 1e3);
        Ok(())
    }

    /// Returns the latency that `share` of the responses (0 to 1) did not exceed, or 0 if there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        sorted.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
    }

    /// Returns the number of recorded responses.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Formats the median, the 99th percentile and the maximum, in milliseconds.
    #[must_use]
    pub fn show(&self) -> String {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| self.quantile(share));
        format!("p50 {p50:.3}, p99 {p99:.3}, longest {max:.2} ms ({} responses)", self.count())
    }
}
