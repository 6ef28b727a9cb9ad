//! How long single answers take.

use std::time::Instant;

use anyhow::Result;

/// Times of single answers, in milliseconds.
#[derive(Debug, Default)]
pub struct Latencies(Vec<f64>);

impl Latencies {
    /// Notes the time of one more answer, in milliseconds.
    pub fn push(&mut self, milliseconds: f64) {
        self.0.push(milliseconds);
    }

    /// Takes over the times of others.
    pub fn extend(&mut self, others: &Self) {
        self.0.extend_from_slice(&others.0);
    }

    /// Times one exchange.
    ///
    /// # Errors
    /// That of the exchange, which has no time then.
    pub fn time(&mut self, exchange: impl FnOnce() -> Result<()>) -> Result<()> {
        let start = Instant::now();
        exchange()?;
        self.push(start.elapsed().as_secs_f64() * 1e3);
        Ok(())
    }

    /// The time that `share` of the answers (0 to 1) did not take longer than; 0 where there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        sorted.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
    }

    /// How many answers were timed.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Median, 99th percentile and longest, in milliseconds.
    #[must_use]
    pub fn show(&self) -> String {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| self.quantile(share));
        format!("p50 {p50:.3}, p99 {p99:.3}, longest {max:.2} ms ({} answers)", self.count())
    }
}
