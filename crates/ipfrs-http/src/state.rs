//! The state that all handlers share: handles, and nothing that serves a request.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use http::HeaderValue;
use ipfrs_middleware::auth::Auth;
use ipfrs_middleware::rate_limit::RateLimiter;
use ipfrs_middleware::websocket::WebSockets;
use ipfrs_middleware::{Client, FairPool, MemoryPool, RequestIds, RequestPermits};
use ipfrs_node::Node;
use prometheus::Registry;

use crate::access_rule::Access;
use crate::command_log::CommandLog;
use crate::compression::Compression;
use crate::configuration::Shown;
use crate::events::sent_messages::SentMessages;
use crate::gateway::hosts::Hosts;
use crate::gateway::page::Pages;
use crate::gateway::path_cache::PathCache;
use crate::gateway::response_cache::ResponseCache;
use crate::ingest::memory::IngestMemory;
use crate::{ApiConfig, GatewayConfig, HttpMetrics, Lifecycle, LogLevels};

/// Shared state of all handlers. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct AppState(Arc<Shared>);

impl AppState {
    pub(crate) fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }
}

/// Fields of [`AppState`].
#[derive(Debug)]
pub(crate) struct Shared {
    /// Node that all content is read from and written to.
    pub(crate) node: Node,
    /// HTTP metrics.
    pub(crate) metrics: HttpMetrics,
    /// Permits of requests in progress.
    pub(crate) permits: RequestPermits,
    /// Permits of connections that send objects.
    pub(crate) ingest_permits: FairPool<Client>,
    /// Memory for the messages of these connections.
    pub(crate) ingest_memory: IngestMemory,
    /// Memory for request bodies that must be held as a whole.
    pub(crate) memory: MemoryPool,
    /// Decides who may do what.
    pub(crate) auth: Auth,
    /// Returns what requests to a route need.
    pub(crate) access_rule: fn(&str) -> Access,
    /// Returns the OpenAPI document.
    pub(crate) openapi: fn() -> &'static str,
    /// Rate limits of clients and callers.
    pub(crate) rate_limits: RateLimiter,
    /// The metrics registry of the process, for `/metrics`.
    pub(crate) registry: Registry,
    /// Readiness and shutdown.
    pub(crate) lifecycle: Lifecycle,
    /// Generator of request and transaction IDs.
    pub(crate) request_ids: RequestIds,
    /// Port of the listener: pages served from it count as the daemon's own.
    pub(crate) port: u16,
    /// Limits of gateway responses.
    pub(crate) config: GatewayConfig,
    /// Settings of the RPC.
    pub(crate) api: ApiConfig,
    /// `Cache-Control` value of immutable responses.
    pub(crate) immutable: HeaderValue,
    /// Data shared by all pages that the daemon renders.
    pub(crate) pages: Pages,
    /// Configured hosts.
    pub(crate) hosts: Hosts,
    /// Cache of resolved paths.
    pub(crate) path_cache: PathCache,
    /// Response cache for small files and blocks.
    pub(crate) response_cache: ResponseCache,
    /// WebSocket connections.
    pub(crate) websockets: WebSockets,
    /// Counters of the messages of `/ws`.
    pub(crate) sent_messages: SentMessages,
    /// Content codings of responses.
    pub(crate) compression: Compression,
    /// Addresses of dedicated gRPC listeners, as host and port.
    pub(crate) grpc: OnceLock<Vec<String>>,
    /// Addresses of the API listener, as host and port.
    pub(crate) api_addresses: OnceLock<Vec<String>>,
    /// The configuration.
    pub(crate) configuration: OnceLock<Shown>,
    /// Log of the process.
    pub(crate) log: OnceLock<Arc<dyn LogLevels>>,
    /// RPC commands that run or ended lately.
    pub(crate) command_log: CommandLog,
}

impl Deref for AppState {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
