//! gRPC-Web routes, served on the HTTP listener.

use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::request_id::{RequestId, X_REQUEST_ID};
use crate::state::AppState;
use crate::{Service, origin, request_lifecycle};

impl Service {
    /// Adds `routes`, which serve gRPC-Web, with the same limits and access rules as all other routes. `addresses`
    /// are those of the dedicated gRPC listeners, which `/health` reports.
    pub fn mount_grpc(&mut self, routes: Router, addresses: Vec<String>) {
        // A second call keeps the addresses of the first.
        let _ = self.state.grpc.set(addresses);
        let guarded = routes.layer(from_fn_with_state(self.state.clone(), guard));
        let routes = guarded.layer(from_fn_with_state(self.state.clone(), request_lifecycle::observe));
        self.router = self.router.clone().merge(routes);
    }
}

/// Refuses calls from pages of other origins, and passes the request ID on to the service.
async fn guard(
    State(state): State<AppState>,
    Extension(RequestId(id)): Extension<RequestId>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Err(e) = origin::check(&request, state.port) {
        return (StatusCode::FORBIDDEN, format!("403 - Forbidden: {e}\n")).into_response();
    }
    request.headers_mut().insert(X_REQUEST_ID, id);
    next.run(request).await
}
