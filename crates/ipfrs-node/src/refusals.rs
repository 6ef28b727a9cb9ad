//! Request limits: the list of all limits, and the count of their refusals.

use ipfrs_core::{Error, ErrorKind};
use prometheus::{IntCounter, IntCounterVec};

/// Reasons to refuse a request or to abort it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The store did not return a block in time (`gateway.retrieval_timeout_seconds`).
    RetrievalTimeout,
    /// The whole request took too long (`gateway.max_request_seconds`).
    RequestTime,
    /// There were too many requests at the same time (`gateway.max_concurrent_requests`).
    ConcurrentRequests,
    /// One client had too many requests at the same time (`gateway.max_requests_per_client`, or its share of all).
    RequestsPerClient,
    /// One client had its share of all connections (`server.max_connections`).
    ConnectionsPerClient,
    /// There were too many gRPC calls at the same time (`grpc.max_concurrent_calls`).
    ConcurrentCalls,
    /// One client had too many gRPC calls at the same time (`grpc.max_calls_per_client`, or its share of all).
    CallsPerClient,
    /// Permits were short, and the client did not read its response.
    StalledResponse,
    /// Request bodies used all of the memory for them.
    RequestMemory,
    /// The request bodies of one client used the client's share of the memory for them.
    RequestMemoryShare,
    /// The client did not read its response for too long (`server.write_timeout_seconds`).
    WriteTimeout,
    /// The content is too large for a response that cannot be verified (`gateway.max_deserialized_bytes`).
    DeserializedBytes,
    /// The client requested a range of a file that is too large for range requests
    /// (`gateway.max_range_request_bytes`).
    RangeRequestBytes,
    /// A DAG, a block or a path exceeds one of the bounds of [`ipfrs_core::limits`].
    Dag,
    /// The head of a request was too large or had too many headers (`server.max_header_bytes`).
    HeaderBytes,
    /// The target of a request was too long.
    TargetBytes,
    /// The head of a request was not complete in time (`server.header_timeout_seconds`).
    HeaderTimeout,
    /// An upload paused for too long (`gateway.upload_idle_seconds`).
    UploadIdle,
    /// The body of a request, or a part of it, was too large: the limits of batches, blocks and uploads.
    BodyBytes,
    /// There were too many WebSocket connections (`websocket.max_connections`).
    WebSockets,
    /// One client had too many WebSocket connections (`websocket.max_connections_per_client`, or its share of all).
    WebSocketsPerClient,
    /// A WebSocket client did not respond to a ping (`websocket.heartbeat_seconds`).
    WebSocketIdle,
    /// A shared resource was exhausted: imports, memory for work on requests, operations, records.
    Capacity,
}

impl Limit {
    /// All limits.
    pub const ALL: [Self; 23] = [
        Self::RetrievalTimeout,
        Self::RequestTime,
        Self::ConcurrentRequests,
        Self::RequestsPerClient,
        Self::ConnectionsPerClient,
        Self::ConcurrentCalls,
        Self::CallsPerClient,
        Self::StalledResponse,
        Self::RequestMemory,
        Self::RequestMemoryShare,
        Self::WriteTimeout,
        Self::DeserializedBytes,
        Self::RangeRequestBytes,
        Self::Dag,
        Self::HeaderBytes,
        Self::TargetBytes,
        Self::HeaderTimeout,
        Self::UploadIdle,
        Self::BodyBytes,
        Self::WebSockets,
        Self::WebSocketsPerClient,
        Self::WebSocketIdle,
        Self::Capacity,
    ];

    /// Returns the name in metrics: the configuration key without section and unit.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RetrievalTimeout => "retrieval_timeout",
            Self::RequestTime => "max_request",
            Self::ConcurrentRequests => "max_concurrent_requests",
            Self::RequestsPerClient => "max_requests_per_client",
            Self::ConnectionsPerClient => "connections_per_client",
            Self::ConcurrentCalls => "max_concurrent_calls",
            Self::CallsPerClient => "max_calls_per_client",
            Self::StalledResponse => "stalled_response",
            Self::RequestMemory => "request_memory",
            Self::RequestMemoryShare => "request_memory_share",
            Self::WriteTimeout => "write_timeout",
            Self::DeserializedBytes => "max_deserialized",
            Self::RangeRequestBytes => "max_range_request",
            Self::Dag => "dag",
            Self::HeaderBytes => "max_header",
            Self::TargetBytes => "max_target",
            Self::HeaderTimeout => "header_timeout",
            Self::UploadIdle => "upload_idle",
            Self::BodyBytes => "max_body",
            Self::WebSockets => "max_websockets",
            Self::WebSocketsPerClient => "max_websockets_per_client",
            Self::WebSocketIdle => "websocket_heartbeat",
            Self::Capacity => "capacity",
        }
    }
}

/// Counts of how often each limit refused or aborted a request. Clones share the counts.
#[derive(Debug, Clone)]
pub(crate) struct Refusals(IntCounterVec);

impl Refusals {
    /// Counts in `family`, whose label is the limit.
    pub(crate) fn new(family: IntCounterVec) -> Self {
        for limit in Limit::ALL {
            family.with_label_values(&[limit.name()]);
        }
        Self(family)
    }

    pub(crate) fn counter(&self, limit: Limit) -> IntCounter {
        self.0.with_label_values(&[limit.name()])
    }

    /// Counts an error if it exceeds a bound of DAGs.
    pub(crate) fn note(&self, error: &Error) {
        if error.kind() == ErrorKind::TooLarge {
            self.counter(Limit::Dag).inc();
        }
    }
}
