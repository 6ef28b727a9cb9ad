//! Another front-end's routes on this listener: gRPC-Web.

use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::request_id::{RequestId, X_REQUEST_ID};
use crate::router::AppState;
use crate::{Service, metrics, origin};

impl Service {
    /// Serves `routes`, those of gRPC-Web, beside the others, with the same limits and the same rule about who may call.
    /// `addresses` are those of the listeners that are for gRPC alone, for `/health` to name.
    pub fn mount_grpc(&mut self, routes: Router, addresses: Vec<String>) {
        // Whoever mounts twice has said it before.
        let _ = self.state.grpc.set(addresses);
        let guarded = routes.layer(from_fn_with_state(self.state.clone(), guard));
        let routes = guarded.layer(from_fn_with_state(self.state.clone(), metrics::observe));
        self.router = self.router.clone().merge(routes);
    }
}

/// Calls are not for pages of others. The ID of the request goes on with it.
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
