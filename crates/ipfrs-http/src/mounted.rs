//! Routes of other front-ends, served on the HTTP listener: gRPC-Web and GraphQL.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http::header::ACCEPT_ENCODING;
use http::{HeaderValue, StatusCode};
use ipfrs_core::Error;
use ipfrs_middleware::Client;

use crate::access::BodyAudit;
use crate::configuration::{Configuration, RunningConfiguration, Shown};
use crate::error::plain;
use crate::head_deadline::in_time;
use crate::log_levels::LogLevels;
use crate::request_id::{RequestId, X_REQUEST_ID};
use crate::state::AppState;
use crate::{Service, compression, origin, request_lifecycle, ui};

impl Service {
    /// Adds `routes`, which serve gRPC-Web, with the same limits and access rules as all other routes. `addresses`
    /// are those of the dedicated gRPC listeners, which `/health` reports. `is_change` tells by the path of a call
    /// whether refusals belong into the audit log; `routes` write the lines of all other calls.
    pub fn mount_grpc(&mut self, routes: Router, addresses: Vec<String>, is_change: fn(&str) -> bool) {
        // A second call keeps the addresses of the first.
        let _ = self.state.grpc.set(addresses);
        let guarded = routes.layer(from_fn_with_state(self.state.clone(), guard));
        let undecided = (self.state.clone(), is_change);
        let routes = guarded.layer(from_fn_with_state(undecided, request_lifecycle::observe_undecided));
        self.router = self.router.clone().merge(routes);
    }
}

impl Service {
    /// Sets the effective configuration, as JSON without credentials, and where the RPC reads and changes it. A second
    /// call has no effect.
    pub fn show_configuration(&self, json: String, source: Option<Arc<dyn Configuration>>) {
        let _ = self.state.configuration.set(Shown::new(json, source));
    }

    /// Returns the configuration that [`show_configuration`](Self::show_configuration) has set.
    #[must_use]
    pub fn running_configuration(&self) -> Option<Arc<RunningConfiguration>> {
        self.state.configuration.get().map(|shown| Arc::clone(&shown.running))
    }

    /// Sets the log whose levels the RPC shows and changes. A second call has no effect.
    pub fn offer_log(&self, log: Arc<dyn LogLevels>) {
        let _ = self.state.log.set(log);
    }

    /// Adds `routes`, which serve GraphQL, with the same limits and access rules as all other routes.
    pub fn mount_graphql(&mut self, routes: Router) {
        let guarded = routes.layer(from_fn_with_state(self.state.clone(), graphql_guard));
        let routes = guarded.layer(from_fn_with_state(self.state.clone(), request_lifecycle::observe));
        self.router = self.router.clone().merge(routes);
    }
}

/// Refuses requests from pages of other origins and bodies in content codings, passes the request ID on to the service,
/// and enforces the request deadline.
async fn graphql_guard(
    State(state): State<AppState>,
    Extension(RequestId(id)): Extension<RequestId>,
    mut request: Request,
    next: Next,
) -> Response {
    if ui::asks_for_graphql_page(&request) {
        return ui::graphql_page(&state, &request);
    }
    if let Err(e) = origin::check(&request, state.port) {
        return graphql_error(StatusCode::FORBIDDEN, &e);
    }
    if let Some(why) = compression::upload::refusal(request.headers()) {
        let mut response = graphql_error(StatusCode::UNSUPPORTED_MEDIA_TYPE, &Error::unsupported(why));
        response.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        return response;
    }
    request.headers_mut().insert(X_REQUEST_ID, id);
    let deadline = request.extensions().get().cloned();
    // The memory of responses counts for the client.
    let client = request.extensions().get::<Client>().copied().unwrap_or_default();
    let mut response =
        in_time(deadline, client.scope(next.run(request)), |e| graphql_error(StatusCode::GATEWAY_TIMEOUT, &e)).await;
    origin::isolate(response.headers_mut());
    response
}

fn graphql_error(status: StatusCode, error: &Error) -> Response {
    let (message, code) = (error.public_message(), error.kind().code());
    let error = serde_json::json!({ "errors": [{ "message": message, "extensions": { "code": code } }] });
    (status, axum::Json(error)).into_response()
}

/// Refuses calls from pages of other origins, and passes the request ID on to the service.
async fn guard(
    State(state): State<AppState>,
    Extension(RequestId(id)): Extension<RequestId>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Err(e) = origin::check(&request, state.port) {
        if let Some(audit) = request.extensions().get::<BodyAudit>() {
            audit.note_refusal(&request, StatusCode::FORBIDDEN);
        }
        return plain(StatusCode::FORBIDDEN, format!("403 - Forbidden: {e}\n"));
    }
    request.headers_mut().insert(X_REQUEST_ID, id);
    next.run(request).await
}
