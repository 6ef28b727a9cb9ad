//! `/v1/auth/session`: who the caller is, and the sessions of the console.

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::response::Response;
use http::HeaderMap;
use http::header::{AUTHORIZATION, SET_COOKIE};
use ipfrs_core::{Error, ErrorKind};
use ipfrs_middleware::auth::{Caller, SESSION_COOKIE, Scope};
use ipfrs_rpc::types::AuthenticatedCaller;

use super::keys::unstored;
use crate::body::header_text;
use crate::error::Problem;
use crate::origin::Checked;
use crate::request_id::RequestId;
use crate::state::AppState;

/// `GET /v1/auth/session`: the caller, and what it may do.
pub(super) async fn show(State(state): State<AppState>, request: Request) -> Response {
    unstored(Json(described(&state, &Caller::of(request.extensions()))))
}

/// `POST /v1/auth/session`: begins a session of the console for the key in `Authorization`, on the API listener only.
/// Elsewhere, content of anyone shares the origin.
pub(super) async fn begin(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Problem> {
    if request.extensions().get::<Checked>().is_none() {
        let text = "sessions begin on the API listener: programs send their key with each request";
        return Err(Problem::new(Error::new(ErrorKind::Forbidden, text), &id));
    }
    if !request.headers().contains_key(AUTHORIZATION) {
        let text = "a session begins with a key in Authorization, and not with the cookie of another one";
        return Err(Problem::new(Error::new(ErrorKind::Forbidden, text), &id));
    }
    let caller = Caller::of(request.extensions());
    let (cookie, lifetime) = state.auth.begin_session(&caller).map_err(|e| Problem::new(e, &id))?;
    let mut response = unstored(Json(described(&state, &caller)));
    response.headers_mut().insert(SET_COOKIE, header_text(&set_cookie(&cookie, lifetime.as_secs())));
    Ok(response)
}

/// `DELETE /v1/auth/session`: ends the session of the request.
pub(super) async fn end(State(state): State<AppState>, headers: HeaderMap) -> Response {
    state.auth.end_session(&headers);
    let mut response = unstored(http::StatusCode::NO_CONTENT);
    response.headers_mut().insert(SET_COOKIE, header_text(&set_cookie("", 0)));
    response
}

fn set_cookie(value: &str, seconds: u64) -> String {
    format!("{SESSION_COOKIE}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Strict")
}

fn described(state: &AppState, caller: &Caller) -> AuthenticatedCaller {
    let principal = caller.principal();
    let scopes = principal.map(|principal| principal.scopes().iter().collect());
    let all = || vec![Scope::Admin];
    AuthenticatedCaller {
        enabled: state.auth.is_enabled(),
        principal: principal.map(|principal| principal.name().to_owned()),
        scopes: scopes.unwrap_or_else(all).iter().map(Scope::to_string).collect(),
        roots: principal.and_then(|it| it.roots()).unwrap_or_default().iter().map(ToString::to_string).collect(),
    }
}
