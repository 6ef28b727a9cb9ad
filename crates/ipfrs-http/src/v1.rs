//! The native API under `/v1`.

mod batch_body;
mod batch_get;
mod batch_put;
mod configuration;
mod download;
mod keys;
mod parameters;
pub(crate) mod progress;
mod refusal;
mod retrieve;
mod session;
mod snapshots;
mod tensor;
mod tus;
mod upload;
use axum::Router;
use axum::extract::{Extension, OriginalUri, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, delete, get, post};
use http::header::ACCEPT_ENCODING;
use http::{HeaderValue, StatusCode};
use ipfrs_core::Error;
use ipfrs_middleware::auth::{Need, Scope};

use refusal::Refusal;
#[cfg(fuzzing)]
pub(crate) use tus::fuzzing;
pub(crate) use upload::UploadResponse;

use crate::access_rule::Access;
use crate::error::{Problem, problem};
use crate::head_deadline::in_time;
use crate::listed_routes::ListedRoutes;
use crate::request_id::RequestId;
use crate::state::AppState;
use crate::{compression, origin};

/// Returns the routes under `/v1`.
pub(crate) fn routes() -> ListedRoutes {
    // Routes without parameters. The handlers of the others refuse unknown ones.
    let plain = |methods: MethodRouter<AppState>| methods.layer(from_fn(parameters::none));
    ListedRoutes::new()
        .route("/block/batch/get", Access::READ, plain(post(batch_get::get)))
        .route("/block/batch/has", Access::READ, plain(post(batch_get::has)))
        .route("/block/batch/put", Access::WRITE, post(batch_put::put))
        .route("/stream/upload", Access::WRITE, any(tus::collection))
        .route("/stream/upload/{id}", Access::WRITE, any(tus::one))
        .route("/stream/download/{*path}", Access::PATH, get(download::download))
        .route("/tensor/{*path}", Access::PATH, get(tensor::tensor))
        .route("/progress", Access::READ, plain(get(progress::list)))
        .route(
            "/progress/{id}",
            Access::READ.with_write(Need::Scope(Scope::Write)),
            get(progress::follow).merge(plain(delete(progress::cancel))),
        )
        .route("/retrieve/{*path}", Access::WRITE, post(retrieve::retrieve))
        .route("/config", Access::ADMIN, plain(get(configuration::show)))
        .route("/repo/snapshots", Access::ADMIN, plain(post(snapshots::create)))
        .route("/auth/keys", Access::ADMIN, plain(get(keys::list).post(keys::create)))
        .route("/auth/keys/{id}", Access::ADMIN, plain(delete(keys::revoke)))
        .route(
            "/auth/session",
            Access::both(Need::Any),
            plain(get(session::show).post(session::begin).delete(session::end)),
        )
}

/// Returns the routes under `/v1`, with responses to all other requests.
pub(crate) fn with_fallbacks(routes: Router<AppState>) -> Router<AppState> {
    routes.fallback(no_such_route).method_not_allowed_fallback(method_not_allowed)
}

/// Refuses requests from pages of other origins and bodies in content codings, and enforces the request deadline.
pub(crate) async fn guard(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    request: Request,
    next: Next,
) -> Response {
    let is_tus = tus::is_spoken(request.headers());
    let mut response = if let Err(e) = origin::check(&request, state.port) {
        Problem::new(e, &id).into_response()
    } else if let Some(why) = compression::upload::refusal(request.headers()) {
        let mut response = Refusal::media_type(why).answer(&id);
        response.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        response
    } else {
        let deadline = request.extensions().get().cloned();
        in_time(deadline, next.run(request), |error| Problem::new(error, &id).into_response()).await
    };
    if is_tus {
        tus::tell_version(response.headers_mut());
    }
    origin::isolate(response.headers_mut());
    response
}

pub(crate) async fn no_such_route(Extension(id): Extension<RequestId>, OriginalUri(uri): OriginalUri) -> Problem {
    Problem::new(Error::not_found(format!("no route {}", uri.path())), &id)
}

async fn method_not_allowed(Extension(id): Extension<RequestId>) -> Response {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    // The router adds `Allow`.
    problem(status, "method_not_allowed", "the route accepts the methods in Allow", &id, serde_json::Map::new())
}
