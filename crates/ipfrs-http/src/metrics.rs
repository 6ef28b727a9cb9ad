//! The HTTP metric families, and the layer that keeps them.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{Method, StatusCode};
use ipfrs_core::{Error, Result};
use prometheus::core::Collector;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry};

use crate::body::Observed;
use crate::request_id::{RequestId, X_REQUEST_ID};
use crate::router::AppState;

/// Handles of the HTTP metrics. Cloning shares them.
#[derive(Debug, Clone)]
pub struct HttpMetrics {
    /// Connections that are open; kept by whoever accepts them.
    pub connections_active: IntGauge,
    requests: IntCounterVec,
    duration: HistogramVec,
    request_size: HistogramVec,
    response_size: HistogramVec,
}

impl HttpMetrics {
    /// Makes the families and registers them.
    ///
    /// # Errors
    /// When one of the names is taken in `registry`.
    pub fn register(registry: &Registry) -> Result<Self> {
        let seconds = vec![1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
        let bytes = vec![256.0, 4_096.0, 65_536.0, 1_048_576.0, 16_777_216.0, 268_435_456.0, 4_294_967_296.0];
        let labels = ["endpoint", "method", "status"];
        let histogram = |name: &str, help: &str, buckets: Vec<f64>| {
            let options = HistogramOpts::new(name, help).buckets(buckets);
            registered(registry, HistogramVec::new(options, &labels[..2]))
        };
        let requests = Opts::new("ipfrs_http_requests_total", "Requests answered, by route, method and status");
        Ok(Self {
            connections_active: registered(
                registry,
                IntGauge::new("ipfrs_http_connections_active", "Open HTTP connections"),
            )?,
            requests: registered(registry, IntCounterVec::new(requests, &labels))?,
            duration: histogram(
                "ipfrs_http_request_duration_seconds",
                "From the request's head to the end of the answer's body",
                seconds,
            )?,
            request_size: histogram("ipfrs_http_request_size_bytes", "Bytes of request bodies", bytes.clone())?,
            response_size: histogram("ipfrs_http_response_size_bytes", "Bytes of answer bodies", bytes)?,
        })
    }
}

fn registered<C: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<C>) -> Result<C> {
    let failed = |e| Error::internal("a metric could not be registered").with_source(e);
    let metric = metric.map_err(failed)?;
    registry.register(Box::new(metric.clone())).map_err(failed)?;
    Ok(metric)
}

/// What is known of a request until its answer has been sent.
#[derive(Debug)]
pub(crate) struct Observation {
    metrics: HttpMetrics,
    endpoint: Option<MatchedPath>,
    method: &'static str,
    start: Instant,
}

impl Observation {
    /// The request's body ended, or was left, after `bytes`.
    pub(crate) fn request_body(&self, bytes: u64) {
        self.metrics.request_size.with_label_values(&self.labels()).observe(to_f64(bytes));
    }

    /// The answer's body ended, or broke off, after `bytes`.
    pub(crate) fn response_body(&self, bytes: u64) {
        self.metrics.response_size.with_label_values(&self.labels()).observe(to_f64(bytes));
        self.metrics.duration.with_label_values(&self.labels()).observe(self.start.elapsed().as_secs_f64());
    }

    fn answered(&self, status: StatusCode) {
        let [endpoint, method] = self.labels();
        self.metrics.requests.with_label_values(&[endpoint, method, status.as_str()]).inc();
    }

    /// Route template and method: a bounded set, whatever clients ask for.
    fn labels(&self) -> [&str; 2] {
        [self.endpoint.as_ref().map_or("unmatched", MatchedPath::as_str), self.method]
    }
}

#[expect(clippy::cast_precision_loss, reason = "a histogram does not need the last digits")]
fn to_f64(bytes: u64) -> f64 {
    bytes as f64
}

fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}

/// Gives each request its ID and counts it: once when the head of the answer is known, once when its body has ended.
pub(crate) async fn observe(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let observation = Arc::new(Observation {
        metrics: state.metrics.clone(),
        endpoint: request.extensions().get::<MatchedPath>().cloned(),
        method: method_label(request.method()),
        start: Instant::now(),
    });
    let id = state.request_ids.of(request.headers());
    request.extensions_mut().insert(RequestId(id.clone()));
    let has_body = !http_body::Body::is_end_stream(request.body());
    if has_body {
        let seen = observation.clone();
        request = request.map(|body| Body::new(Observed::new(body, move |bytes| seen.request_body(bytes))));
    }
    let mut response = next.run(request).await;
    response.headers_mut().insert(X_REQUEST_ID, id);
    observation.answered(response.status());
    response.map(|body| Body::new(Observed::new(body, move |bytes| observation.response_body(bytes))))
}
