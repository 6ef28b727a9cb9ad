//! An exporter of traces that logs the first of a series of failures. The library logs none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

/// Exports spans with another exporter.
#[derive(Debug)]
pub(crate) struct LoggedExporter<E> {
    exporter: E,
    /// Whether the last export failed.
    has_failed: AtomicBool,
}

impl<E> LoggedExporter<E> {
    pub(crate) fn new(exporter: E) -> Self {
        Self { exporter, has_failed: AtomicBool::new(false) }
    }

    fn note(&self, result: &OTelSdkResult) {
        let had_failed = self.has_failed.swap(result.is_err(), Ordering::Relaxed);
        match result {
            Err(error) if !had_failed => {
                tracing::warn!(%error, "traces cannot be exported to log.otlp_endpoint, and are lost until they can");
            }
            Ok(()) if had_failed => tracing::info!("traces are exported again"),
            _ => {}
        }
    }
}

impl<E: SpanExporter> SpanExporter for LoggedExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let result = self.exporter.export(batch).await;
        self.note(&result);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
