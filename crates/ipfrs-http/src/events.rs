//! `GET /ws`: events over a WebSocket. [`protocol`] has the messages, docs/API.md describes them.

mod filter;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod json;
mod protocol;
pub(crate) mod sent_messages;
mod session;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use ipfrs_middleware::rate_limit::RateLimiter;
use ipfrs_middleware::websocket::HandshakeError;
use serde_json::Map;

use crate::error::{Problem, problem};
use crate::origin;
use crate::request_id::RequestId;
use crate::state::AppState;

/// Refuses requests from pages of other origins, which browsers do not restrict for WebSockets (RFC 6455, 10.2).
pub(crate) async fn guard(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    request: Request,
    next: Next,
) -> Response {
    match origin::check(&request, state.port) {
        Ok(()) => next.run(request).await,
        Err(e) => Problem::new(e, &id).into_response(),
    }
}

/// Accepts a client.
pub(crate) async fn connect(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Response {
    let (shared, limits) = (state.clone(), message_limits(&state, &request));
    let accepted = state.websockets.accept(&request, &[], |mut socket, _| {
        socket.limit_rate(limits);
        session::run(shared, socket)
    });
    match accepted {
        Ok(response) => response.map(|()| Body::empty()),
        Err(error) => refused(&error, &id),
    }
}

/// Returns the rate limits of the messages that follow a handshake. Commands on this machine have none.
pub(crate) fn message_limits(state: &AppState, request: &Request) -> RateLimiter {
    match state.auth.is_unauthenticated_local_command(request.headers()) {
        true => RateLimiter::off(),
        false => state.rate_limits.clone(),
    }
}

/// Returns the response to a request whose handshake is refused.
pub(crate) fn refused(error: &HandshakeError, id: &RequestId) -> Response {
    let status = error.status();
    let code = match status {
        StatusCode::UPGRADE_REQUIRED => "upgrade_required",
        StatusCode::BAD_REQUEST => "invalid_input",
        StatusCode::NOT_IMPLEMENTED => "unsupported",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        _ => "rate_limited",
    };
    let mut response = problem(status, code, &error.text(), id, Map::new());
    response.headers_mut().extend(error.headers());
    response
}
