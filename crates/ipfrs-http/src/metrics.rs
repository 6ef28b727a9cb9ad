//! HTTP metrics, and the layer that records them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::{Method, StatusCode};
use ipfrs_core::Result;
use ipfrs_middleware::{TraceContext, registered};
use parking_lot::{Mutex, RwLock};
use prometheus::proto::LabelPair;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use crate::openmetrics::Exemplar;
use crate::routes::takes_request_permit;

/// Name of the histogram that has exemplars.
pub(crate) const DURATION: &str = "ipfrs_http_request_duration_seconds";

/// Bounds of the buckets of durations.
const SECONDS: [f64; 15] = [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Handles of the HTTP metrics. Clones share them.
#[derive(Debug, Clone)]
pub struct HttpMetrics {
    /// Gauge of open connections, maintained by the accept loop.
    pub connections_active: IntGauge,
    /// Gauge of requests in progress.
    pub(crate) requests_active: IntGauge,
    /// Responses by the code path that served them.
    pub(crate) served: Served,
    requests: IntCounterVec,
    duration: HistogramVec,
    request_size: HistogramVec,
    response_size: HistogramVec,
    /// Families in use, by route and method.
    families: Arc<RwLock<Families>>,
}

impl HttpMetrics {
    /// Creates the families and registers them.
    ///
    /// # Errors
    /// If a name is already in use in `registry`.
    pub fn register(registry: &Registry) -> Result<Self> {
        let bytes = vec![256.0, 4_096.0, 65_536.0, 1_048_576.0, 16_777_216.0, 268_435_456.0, 4_294_967_296.0];
        let labels = ["endpoint", "method", "status"];
        let histogram = |name: &str, help: &str, buckets: Vec<f64>| {
            let options = HistogramOpts::new(name, help).buckets(buckets);
            registered(registry, HistogramVec::new(options, &labels[..2]))
        };
        let requests = Opts::new("ipfrs_http_requests_total", "Requests, by route, method and status");
        Ok(Self {
            connections_active: registered(
                registry,
                IntGauge::new("ipfrs_http_connections_active", "Open HTTP connections"),
            )?,
            requests_active: registered(
                registry,
                IntGauge::new("ipfrs_http_requests_active", "Active requests, until the end of their response bodies"),
            )?,
            served: Served::register(registry)?,
            requests: registered(registry, IntCounterVec::new(requests, &labels))?,
            duration: histogram(
                DURATION,
                "Time from the request's head to the end of the response body",
                SECONDS.to_vec(),
            )?,
            request_size: histogram("ipfrs_http_request_size_bytes", "Bytes of request bodies", bytes.clone())?,
            response_size: histogram("ipfrs_http_response_size_bytes", "Bytes of response bodies", bytes)?,
            families: Arc::default(),
        })
    }
}

/// Responses by the code path that served them.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    /// The fast path of a connection.
    pub(crate) fast_path: IntCounter,
    /// The response cache, behind the HTTP library.
    pub(crate) response_cache: IntCounter,
    /// A handler.
    pub(crate) handler: IntCounter,
}

impl Served {
    fn register(registry: &Registry) -> Result<Self> {
        let options = Opts::new("ipfrs_http_served_total", "Responses, by the code path that served them");
        let served = registered(registry, IntCounterVec::new(options, &["path"]))?;
        let of = |path: &str| served.with_label_values(&[path]);
        Ok(Self { fast_path: of("fast_path"), response_cache: of("response_cache"), handler: of("handler") })
    }
}

/// Families by route, then by method.
type Families = HashMap<String, HashMap<&'static str, Arc<Family>>>;

/// The metrics of one route and method.
#[derive(Debug, Clone)]
pub(crate) struct Family {
    pub(crate) endpoint: String,
    /// Whether its requests count toward the limit of requests in progress.
    pub(crate) takes_permit: bool,
    pub(crate) method: &'static str,
    pub(crate) requests: IntCounterVec,
    pub(crate) duration: Histogram,
    pub(crate) request_size: Histogram,
    pub(crate) response_size: Histogram,
    /// The counter of `requests` with status 200.
    ok: IntCounter,
    /// The latest traced request of each bucket of `duration`.
    exemplars: Arc<Mutex<[Option<Exemplar>; SECONDS.len() + 1]>>,
}

impl Family {
    /// Counts a response that was available immediately, without recording its size and duration.
    pub(crate) fn ended_at_once(&self, status: StatusCode) {
        self.requests.with_label_values(&[&self.endpoint, self.method, status.as_str()]).inc();
    }

    /// Notes a request that took `seconds` if its trace is recorded.
    pub(crate) fn note_exemplar(&self, trace: Option<TraceContext>, seconds: f64) {
        let Some(trace) = trace.filter(|trace| trace.is_sampled) else { return };
        let bucket = SECONDS.partition_point(|bound| *bound < seconds);
        self.exemplars.lock()[bucket] = Some(Exemplar { trace, value: seconds, time: SystemTime::now() });
    }

    /// Counts a response of status 200 whose `bytes` bytes are all handed over immediately.
    pub(crate) fn answered_at_once(&self, bytes: u64, start: Instant) {
        self.ok.inc();
        self.response_size.observe(to_f64(bytes));
        self.duration.observe(start.elapsed().as_secs_f64());
    }
}

impl HttpMetrics {
    /// Returns the metrics of a route template. The set of templates is bounded, whatever clients request.
    pub(crate) fn family(&self, endpoint: &str, method: &Method) -> Arc<Family> {
        let method = method_label(method);
        if let Some(family) = self.families.read().get(endpoint).and_then(|methods| methods.get(method)) {
            return family.clone();
        }
        let labels = [endpoint, method];
        let family = Arc::new(Family {
            endpoint: endpoint.to_owned(),
            takes_permit: takes_request_permit(endpoint),
            method,
            ok: self.requests.with_label_values(&[endpoint, method, StatusCode::OK.as_str()]),
            requests: self.requests.clone(),
            duration: self.duration.with_label_values(&labels),
            request_size: self.request_size.with_label_values(&labels),
            response_size: self.response_size.with_label_values(&labels),
            exemplars: Arc::default(),
        });
        self.families.write().entry(endpoint.to_owned()).or_default().insert(method, family.clone());
        family
    }
}

impl HttpMetrics {
    /// Returns the exemplars of the buckets of a histogram.
    pub(crate) fn exemplars(&self, histogram: &str, labels: &[LabelPair]) -> Vec<Option<Exemplar>> {
        if histogram != DURATION {
            return Vec::new();
        }
        let label = |name: &str| labels.iter().find(|label| label.name() == name).map(LabelPair::value);
        let families = self.families.read();
        let family =
            label("endpoint").zip(label("method")).and_then(|(endpoint, method)| families.get(endpoint)?.get(method));
        family.map(|family| family.exemplars.lock().to_vec()).unwrap_or_default()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a histogram does not need the last digits")]
pub(crate) fn to_f64(bytes: u64) -> f64 {
    bytes as f64
}

fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::CONNECT => "CONNECT",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}
