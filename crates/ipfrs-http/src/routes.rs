//! Route templates, which label metrics, and which of them need a request permit.

/// Route of content under `/ipfs`, as named in metrics.
pub const IPFS_ROUTE: &str = "/ipfs/{*path}";

/// Route of content under `/ipns`, as named in metrics.
pub(crate) const IPNS_ROUTE: &str = "/ipns/{*path}";

/// Endpoint label of requests that match no route.
pub const UNMATCHED: &str = "unmatched";

/// Routes that load balancers probe. They have no limits: a daemon that does not respond there gets no more requests.
pub(crate) const PROBES: [&str; 3] = ["/health", "/health/live", "/health/ready"];

/// Route of the metrics.
pub(crate) const METRICS: &str = "/metrics";

/// Route of the metrics in Kubo, for which its users have configured Prometheus.
pub(crate) const METRICS_OF_KUBO: &str = "/debug/metrics/prometheus";

/// Other routes that an operator needs to inspect and stop a busy daemon.
const WITHOUT_PERMIT: [&str; 3] = [METRICS, METRICS_OF_KUBO, "/api/v0/shutdown"];

/// Whether requests of a route take a [permit](ipfrs_middleware::RequestPermit). Cached responses take none: they hold
/// no resources, and sending them costs no more than refusing the request.
pub(crate) fn takes_request_permit(endpoint: &str) -> bool {
    !PROBES.contains(&endpoint) && !WITHOUT_PERMIT.contains(&endpoint)
}
