//! The delegated routing API (<https://specs.ipfs.tech/routing/http-routing-v1/>): IPNS records, providers and peers.

mod content;
mod ipns;
mod response;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
pub(crate) use content::{FoundPeers, FoundProviders};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ALLOW,
};
use http::{HeaderValue, StatusCode};
use ipfrs_middleware::auth::{Need, Scope};

use crate::access_rule::Access;
use crate::error::{GatewayError, method_not_allowed};
use crate::head_deadline::in_time;
use crate::listed_routes::ListedRoutes;
use crate::origin;
use crate::state::AppState;

/// Methods allowed for IPNS records.
const ALLOW_WRITING: &str = "GET, HEAD, PUT, OPTIONS";
/// Methods allowed for all other routes, and for pages of other origins.
const ALLOW_READING: &str = "GET, HEAD, OPTIONS";

/// Returns the routes under `/routing/v1`.
pub(crate) fn routes() -> ListedRoutes {
    let writing = async || method_not_allowed(ALLOW_WRITING);
    ListedRoutes::new()
        .route(
            "/ipns/{name}",
            Access::RECORDS.with_write(Need::Scope(Scope::Names)),
            get(ipns::get).put(ipns::put).options(allowed_writing).fallback(writing),
        )
        .route("/providers/{cid}", Access::RECORDS, get(content::providers).options(allowed_reading))
        .route("/peers/{peer_id}", Access::RECORDS, get(content::peers).options(allowed_reading))
        .route("/dht/closest/peers/{key}", Access::RECORDS, get(content::closest_peers).options(allowed_reading))
}

/// Returns the routes under `/routing/v1`, with a response to other methods.
pub(crate) fn with_fallback(routes: Router<AppState>) -> Router<AppState> {
    routes.method_not_allowed_fallback(async || method_not_allowed(ALLOW_READING))
}

async fn allowed_writing() -> Response {
    (StatusCode::NO_CONTENT, [(ALLOW, ALLOW_WRITING)]).into_response()
}

async fn allowed_reading() -> Response {
    (StatusCode::NO_CONTENT, [(ALLOW, ALLOW_READING)]).into_response()
}

/// Lets pages of other origins read, but not store, records. Records are self-certifying, but storing them uses disk
/// space.
pub(crate) async fn guard(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let deadline = request.extensions().get().cloned();
    let mut response = match origin::check_write(&request, state.port) {
        Ok(()) => in_time(deadline, next.run(request), |error| GatewayError(error).into_response()).await,
        Err(e) => GatewayError(e).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(ALLOW_READING));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("Content-Type"));
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Content-Length, ETag, Expires"));
    response
}
