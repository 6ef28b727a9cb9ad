//! The route table.

use std::sync::OnceLock;

use axum::Router;
use axum::extract::{Extension, OriginalUri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use http::{HeaderValue, Method, Uri};
use ipfrs_core::{Error, Result};
use ipfrs_middleware::websocket::WebSockets;
use ipfrs_middleware::{FairPool, MemoryPool, Protection, RequestIds, RequestPermits, Requests, Rules};
use ipfrs_node::Node;
use prometheus::Registry;

use crate::command_log::CommandLog;
use crate::compression::Compression;
use crate::error::GatewayError;
use crate::events;
use crate::events::sent_messages::SentMessages;
use crate::gateway::hosts::Hosts;
use crate::gateway::page::Pages;
use crate::gateway::path_cache::PathCache;
use crate::gateway::proxied::Tunnels;
use crate::gateway::response_cache::ResponseCache;
use crate::ingest::memory::IngestMemory;
use crate::listed_routes::ListedRoutes;
use crate::request_id::RequestId;
use crate::route_table::{self, Part};
use crate::state::{AppState, Shared};
use crate::{
    HttpConfig, HttpMetrics, Lifecycle, Service, gateway, health, leading_slashes, openapi, pinning, request_lifecycle,
    routes, routing, rpc, v1,
};

/// The front-end, ready to be bound to sockets.
#[derive(Debug)]
pub struct App {
    /// All routes.
    pub service: Service,
    /// HTTP metrics; the accept loop updates the connection gauge.
    pub metrics: HttpMetrics,
    /// WebSocket connections, for other front-ends on the same listeners.
    pub websockets: WebSockets,
    /// Permits of requests in progress, whose number can be changed.
    pub permits: RequestPermits,
}

/// Builds the front-end over a node. `port` is the port that it will be bound to: pages served from this port may
/// call the RPC. `rules` decide about callers and clients.
///
/// # Errors
/// If `config` is out of range, or if the metrics are already registered.
pub fn app(
    node: Node,
    config: &HttpConfig,
    port: u16,
    lifecycle: Lifecycle,
    memory: MemoryPool,
    rules: Rules,
    registry: &Registry,
) -> Result<App> {
    config.validate()?;
    let metrics = HttpMetrics::register(registry)?;
    let max_age = node.config().cache.max_age_seconds;
    let response_cache = ResponseCache::new(&node, &metrics, config.gateway.deserialized);
    let (most, per_client) = (config.gateway.max_concurrent_requests, config.gateway.max_requests_per_client);
    let permits = RequestPermits::new(&node, Requests::Http, metrics.requests_active.clone(), most, per_client);
    let websockets = WebSockets::register(&node, &config.websocket, lifecycle.clone(), registry)?;
    let state = AppState::new(Shared {
        sent_messages: SentMessages::new(&websockets),
        websockets: websockets.clone(),
        path_cache: PathCache::new(&node),
        response_cache,
        permits: permits.clone(),
        ingest_permits: FairPool::new(node.config().ingest.max_connections, 1, usize::MAX),
        ingest_memory: IngestMemory::new(&node.config().ingest),
        memory,
        auth: rules.auth,
        rate_limits: rules.rate_limits,
        access_rule: route_table::rule,
        openapi: openapi::text,
        hosts: Hosts::new(&config.gateway, &config.hosts),
        compression: Compression::new(&config.compression, &node, registry)?,
        node,
        metrics: metrics.clone(),
        registry: registry.clone(),
        lifecycle,
        request_ids: RequestIds::new(),
        port,
        config: config.gateway.clone(),
        api: config.api.clone(),
        immutable: HeaderValue::try_from(format!("public, max-age={max_age}, immutable"))
            .map_err(|e| Error::internal("the Cache-Control header could not be created").with_source(e))?,
        pages: Pages::new(),
        grpc: OnceLock::new(),
        api_addresses: OnceLock::new(),
        configuration: OnceLock::new(),
        log: OnceLock::new(),
        command_log: CommandLog::default(),
    });
    let router = router(&state);
    Ok(App {
        service: Service {
            state,
            router,
            tunnels: Tunnels::default(),
            protection: Protection::Plain,
            is_content_only: false,
            api: None,
        },
        metrics,
        websockets,
        permits,
    })
}

/// Returns all routes. The parts have guards of their own.
fn router(state: &AppState) -> Router {
    let rpc_guard = from_fn_with_state(state.clone(), rpc::guard);
    let v1_guard = from_fn_with_state(state.clone(), v1::guard);
    let health_guard = from_fn_with_state(state.clone(), health::guard);
    let events_guard = from_fn_with_state(state.clone(), events::guard);
    let routing_guard = from_fn_with_state(state.clone(), routing::guard);
    let pinning_guard = from_fn_with_state(state.clone(), pinning::guard);
    let rpc = rpc::router(state).layer(from_fn(rpc::globals::apply)).layer(rpc_guard).layer(from_fn(rpc::only_post));
    let mut router = Router::new().nest("/api/v0", rpc);
    for (part, ListedRoutes { router: routes, .. }) in route_table::routes() {
        router = match part {
            Part::Native => router.nest("/v1", v1::with_fallbacks(routes).layer(v1_guard.clone())),
            Part::Routing => router.nest("/routing/v1", routing::with_fallback(routes).layer(routing_guard.clone())),
            Part::Pinning => router.nest("/pinning/v1", pinning::with_fallback(routes).layer(pinning_guard.clone())),
            Part::Health => router.merge(routes.layer(health_guard.clone())),
            Part::Events => router.merge(routes.layer(events_guard.clone())),
            Part::Pages => router.merge(routes),
        };
    }
    let router = router
        .fallback(no_such_route)
        .method_not_allowed_fallback(async || crate::error::method_not_allowed("GET, HEAD"))
        .layer(from_fn_with_state(state.clone(), request_lifecycle::observe));
    with_content_routes(router).with_state(state.clone())
}

/// Returns the routes of a service that has content only.
pub(crate) fn content_router(state: AppState) -> Router {
    let router = Router::new()
        .route(gateway::manifest::ROUTE, get(gateway::manifest::protocols))
        .fallback(no_content)
        .method_not_allowed_fallback(async || crate::error::method_not_allowed("GET, HEAD"))
        .layer(from_fn_with_state(state.clone(), request_lifecycle::observe));
    with_content_routes(router).with_state(state)
}

fn with_content_routes(router: Router<AppState>) -> Router<AppState> {
    router
        .route(routes::IPFS_ROUTE, any(gateway::handler::handle))
        .route(routes::IPNS_ROUTE, any(gateway::handler::handle))
        .route("/ipfs", any(gateway::handler::handle))
        .route("/ipfs/", any(gateway::handler::handle))
        .route("/ipns", any(gateway::handler::handle))
        .route("/ipns/", any(gateway::handler::handle))
}

async fn no_content(uri: Uri) -> Response {
    leading_slashes::redirect(&uri).unwrap_or_else(|| {
        GatewayError(Error::not_found(format!(
            "no content at {}: it is under /ipfs/{{cid}} and /ipns/{{name}}",
            uri.path()
        )))
        .into_response()
    })
}

/// Responds to paths without a route. A prefix with a final slash is among them: axum does not pass it to the fallback
/// of the routes below the prefix.
async fn no_such_route(Extension(id): Extension<RequestId>, method: Method, uri: Uri) -> Response {
    match uri.path() {
        "/api/v0/" => rpc::refusal_of_method(&method).unwrap_or_else(rpc::not_found),
        "/v1/" => v1::no_such_route(Extension(id), OriginalUri(uri.clone())).await.into_response(),
        "/pinning/v1/" => pinning::no_such_resource().await.into_response(),
        path => leading_slashes::redirect(&uri).unwrap_or_else(|| {
            GatewayError(Error::not_found(format!(
                "no route {path}: content is under /ipfs/{{cid}}, the RPC under /api/v0, the native API under /v1"
            )))
            .into_response()
        }),
    }
}
