//! Parts of metrics that all capabilities use.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

/// Guard that increments a gauge for as long as it lives.
#[derive(Debug)]
pub(crate) struct Active(IntGauge);

impl Active {
    pub(crate) fn begin(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Metrics of a cache.
#[derive(Debug, Clone)]
pub struct CacheMeter {
    /// Lookups that found an entry.
    pub hits: IntCounter,
    /// Lookups that found no entry.
    pub misses: IntCounter,
    /// Approximate size, in bytes.
    pub bytes: IntGauge,
}

impl CacheMeter {
    /// Counts a lookup.
    pub fn looked_up(&self, is_hit: bool) {
        let counter = if is_hit { &self.hits } else { &self.misses };
        counter.inc();
    }

    /// Sets the size, in bytes.
    pub fn set_bytes(&self, bytes: u64) {
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

/// Returns the metrics of the cache with this name.
pub(crate) fn cache_meter(cache: &str, hits: &IntCounterVec, misses: &IntCounterVec, size: &IntGaugeVec) -> CacheMeter {
    CacheMeter {
        hits: hits.with_label_values(&[cache]),
        misses: misses.with_label_values(&[cache]),
        bytes: size.with_label_values(&[cache]),
    }
}
