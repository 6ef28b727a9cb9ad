//! Registration of metrics.

use ipfrs_core::{Error, Result};
use prometheus::Registry;
use prometheus::core::Collector;

/// Registers a metric and returns it.
///
/// # Errors
/// If the metric could not be created, or its name is already in use in `registry`.
pub fn registered<C: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<C>) -> Result<C> {
    let failed = |e| Error::internal("a metric could not be registered").with_source(e);
    let metric = metric.map_err(failed)?;
    registry.register(Box::new(metric.clone())).map_err(failed)?;
    Ok(metric)
}
