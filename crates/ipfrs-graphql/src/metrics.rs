//! GraphQL metrics.

use std::time::Instant;

use async_graphql::parser::types::OperationType;
use ipfrs_core::Result;
use ipfrs_middleware::registered;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry};

/// Handles of the metrics. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    operations: IntCounterVec,
    duration: HistogramVec,
    subscriptions: IntGauge,
}

impl Metrics {
    pub(crate) fn register(registry: &Registry) -> Result<Self> {
        let operations = Opts::new("ipfrs_graphql_operations_total", "GraphQL operations, by type and outcome");
        let help = "Time from a GraphQL query or mutation to its result";
        let seconds = vec![1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
        let duration = HistogramOpts::new("ipfrs_graphql_operation_duration_seconds", help).buckets(seconds);
        let subscriptions = IntGauge::new("ipfrs_graphql_subscriptions_active", "Open GraphQL subscriptions");
        Ok(Self {
            operations: registered(registry, IntCounterVec::new(operations, &["type", "outcome"]))?,
            duration: registered(registry, HistogramVec::new(duration, &["type"]))?,
            subscriptions: registered(registry, subscriptions)?,
        })
    }

    /// Counts an operation.
    pub(crate) fn ended(&self, operation: OperationType, is_ok: bool) {
        let outcome = if is_ok { "ok" } else { "error" };
        self.operations.with_label_values(&[name(operation), outcome]).inc();
    }

    /// Records the duration of a query or mutation.
    pub(crate) fn took(&self, operation: OperationType, start: Instant) {
        self.duration.with_label_values(&[name(operation)]).observe(start.elapsed().as_secs_f64());
    }

    /// Counts an open subscription until the result is dropped.
    pub(crate) fn subscription(&self) -> OpenSubscription {
        self.subscriptions.inc();
        OpenSubscription(self.subscriptions.clone())
    }
}

/// An open subscription.
pub(crate) struct OpenSubscription(IntGauge);

impl Drop for OpenSubscription {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn name(operation: OperationType) -> &'static str {
    match operation {
        OperationType::Query => "query",
        OperationType::Mutation => "mutation",
        OperationType::Subscription => "subscription",
    }
}
