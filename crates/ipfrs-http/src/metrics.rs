//! HTTP metrics, and the layer that records them.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use futures::future::Either;
use http::{Method, StatusCode};
use ipfrs_core::{Error, Result};
use ipfrs_node::{Client, RequestSlot};
use parking_lot::RwLock;
use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use crate::body::{Drained, Observed, Patient};
use crate::failure;
use crate::gateway::error_page::{self, Browser};
use crate::limits::{self, Permitted};
use crate::request_id::{self, RequestId, X_REQUEST_ID};
use crate::router::AppState;

/// Endpoint label of requests that match no route.
pub(crate) const UNMATCHED: &str = "unmatched";

/// Handles of the HTTP metrics. Clones share them.
#[derive(Debug, Clone)]
pub struct HttpMetrics {
    /// Gauge of open connections, maintained by the accept loop.
    pub connections_active: IntGauge,
    /// Gauge of requests in progress.
    pub(crate) requests_active: IntGauge,
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
            requests_active: registered(
                registry,
                IntGauge::new("ipfrs_http_requests_active", "Requests being answered, to the end of the answer's body"),
            )?,
            requests: registered(registry, IntCounterVec::new(requests, &labels))?,
            duration: histogram(
                "ipfrs_http_request_duration_seconds",
                "From the request's head to the end of the answer's body",
                seconds,
            )?,
            request_size: histogram("ipfrs_http_request_size_bytes", "Bytes of request bodies", bytes.clone())?,
            response_size: histogram("ipfrs_http_response_size_bytes", "Bytes of answer bodies", bytes)?,
            families: Arc::default(),
        })
    }
}

fn registered<C: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<C>) -> Result<C> {
    let failed = |e| Error::internal("a metric could not be registered").with_source(e);
    let metric = metric.map_err(failed)?;
    registry.register(Box::new(metric.clone())).map_err(failed)?;
    Ok(metric)
}

/// Families by route, then by method.
type Families = HashMap<String, HashMap<&'static str, Arc<Family>>>;

/// The metrics of one route and method.
#[derive(Debug, Clone)]
pub(crate) struct Family {
    endpoint: String,
    /// Whether its requests count toward the limit of requests in progress.
    is_counted: bool,
    method: &'static str,
    requests: IntCounterVec,
    duration: Histogram,
    request_size: Histogram,
    response_size: Histogram,
    /// The counter of `requests` with status 200.
    ok: IntCounter,
}

impl Family {
    /// Counts a response that was available immediately, without recording its size and duration.
    pub(crate) fn ended_at_once(&self, status: StatusCode) {
        self.requests.with_label_values(&[&self.endpoint, self.method, status.as_str()]).inc();
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
            is_counted: limits::is_counted(endpoint),
            method,
            ok: self.requests.with_label_values(&[endpoint, method, StatusCode::OK.as_str()]),
            requests: self.requests.clone(),
            duration: self.duration.with_label_values(&labels),
            request_size: self.request_size.with_label_values(&labels),
            response_size: self.response_size.with_label_values(&labels),
        });
        self.families.write().entry(endpoint.to_owned()).or_default().insert(method, family.clone());
        family
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
        Method::CONNECT => "CONNECT",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}

/// Permit of a request that took it before its route was known, attached to the request as an extension.
#[derive(Debug, Clone)]
struct Taken(Arc<RequestSlot>);

/// Attaches the client to a request, and the permit that was already taken for it.
pub(crate) fn come_from<B>(request: &mut http::Request<B>, client: Client, taken: Option<RequestSlot>) {
    request.extensions_mut().insert(client);
    if let Some(slot) = taken {
        request.extensions_mut().insert(Taken(Arc::new(slot)));
    }
}

/// Arrival time of a request whose route was not known immediately, attached to it as an extension.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived(pub(crate) Instant);

/// Layer for all routes that do not record their own metrics.
pub(crate) async fn observe(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let endpoint = request.extensions().get::<MatchedPath>().map_or(UNMATCHED, MatchedPath::as_str);
    let family = state.metrics.family(endpoint, request.method());
    observed(&state, family, request, |request| next.run(request)).await
}

/// Processes a request: assigns its ID, takes its permit, and renders and compresses its response. Counts the request
/// when the head of the response is known, and records size and duration when its body ends. A handler that panics is
/// a bug, and the response is 500.
pub(crate) async fn observed<A: Future<Output = Response>>(
    state: &AppState,
    family: Arc<Family>,
    mut request: Request,
    answer: impl FnOnce(Request) -> A,
) -> Response {
    let start = request.extensions_mut().remove().map_or_else(Instant::now, |Arrived(at)| at);
    let id = request_id::of(request.headers(), &state.request_ids);
    let asked = state.compression.asked(&request);
    let browser = Browser::of(&request, &id);
    request.extensions_mut().insert(RequestId(id.clone()));
    let client = request.extensions().get::<Client>().copied().unwrap_or_default();
    let taken = request.extensions_mut().remove().and_then(|Taken(slot)| Arc::into_inner(slot));
    let has_body = !http_body::Body::is_end_stream(request.body());
    if has_body {
        let patience = state.config.idle_patience();
        let size = family.request_size.clone();
        // A client that waits for 100 (Continue) (RFC 9110, 10.1.1) has not sent any of its body yet.
        let waits = request.headers().contains_key(http::header::EXPECT);
        request = request.map(|body| {
            let body = if waits { body } else { Body::new(Drained::new(body)) };
            let body = Body::new(Patient::new(body, patience, state.node.clone()));
            Body::new(Observed::new(body, move |bytes| size.observe(to_f64(bytes))))
        });
    }
    let permit = family.is_counted.then(|| taken.map_or_else(|| state.slots.take(client), Ok)).transpose();
    let (permit, mut response) = match permit {
        Err(refused) => (None, limits::too_many(state, refused, &family.endpoint, &id)),
        Ok(permit) => {
            // Memory is reserved only for request bodies.
            let answer = answer(request);
            let answer = if has_body { Either::Left(client.scope(answer)) } else { Either::Right(answer) };
            let answer = AssertUnwindSafe(answer).catch_unwind().await;
            let mut response = answer.unwrap_or_else(|panic| panicked(panic.as_ref()));
            limits::count(state, &mut response, has_body);
            (permit, response)
        }
    };
    failure::log(&mut response, &family.endpoint, &id);
    let response = error_page::shown(state, browser, response);
    let mut response = state.compression.apply(asked, response).await;
    response.headers_mut().insert(X_REQUEST_ID, id);
    family.requests.with_label_values(&[&family.endpoint, family.method, response.status().as_str()]).inc();
    response.map(|body| {
        let body = match permit {
            Some(permit) if !http_body::Body::is_end_stream(&body) => Body::new(Permitted::new(permit.hold(body))),
            _ => body,
        };
        Body::new(Observed::new(body, move |bytes| {
            family.response_size.observe(to_f64(bytes));
            family.duration.observe(start.elapsed().as_secs_f64());
        }))
    })
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("unknown"), "a handler panicked: this is a defect");
    (StatusCode::INTERNAL_SERVER_ERROR, "internal error: the daemon's log says more\n").into_response()
}
