//! `/v1/auth/keys`: creates, lists and revokes API keys.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CACHE_CONTROL;
use ipfrs_core::{Error, Result, parse_cid, timestamp};
use ipfrs_middleware::auth::{KeyInfo, NewKey, Scope};
use ipfrs_rpc::types::{ApiKey, ApiKeys, CreatedApiKey, NewApiKey};

use super::batch_body;
use super::parameters::InPath;
use crate::access::StoredObject;
use crate::body;
use crate::error::Problem;
use crate::request_id::RequestId;
use crate::state::AppState;

/// Maximum length of a body, in bytes: a thousand roots with their text.
const MAX_BODY_BYTES: usize = 256 * 1024;

/// `GET /v1/auth/keys`.
pub(super) async fn list(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
) -> std::result::Result<Response, Problem> {
    let keys = state.auth.keys().await.map_err(|e| Problem::new(e, &id))?;
    Ok(unstored(Json(ApiKeys { keys: keys.iter().map(shown).collect() })))
}

/// `POST /v1/auth/keys`. The response has the token, which is shown once.
pub(super) async fn create(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    body: Body,
) -> std::result::Result<Response, Problem> {
    let created = async {
        let created = state.auth.create_key(wanted(&state, body).await?).await?;
        Ok(CreatedApiKey { token: created.token.to_string(), key: shown(&created.info) })
    };
    let created = created.await.map_err(|e| Problem::new(e, &id))?;
    let stored = Extension(StoredObject(created.key.id.clone()));
    Ok((StatusCode::CREATED, stored, unstored(Json(created))).into_response())
}

/// `DELETE /v1/auth/keys/{id}`.
pub(super) async fn revoke(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    InPath(key): InPath,
) -> std::result::Result<Response, Problem> {
    let revoked = state.auth.revoke_key(&key).await.map_err(|e| Problem::new(e, &id))?;
    Ok(unstored(Json(shown(&revoked))))
}

/// Keeps a response out of caches.
pub(super) fn unstored(response: impl IntoResponse) -> Response {
    ([(CACHE_CONTROL, "no-store")], response).into_response()
}

async fn wanted(state: &AppState, body: Body) -> Result<NewKey> {
    let body = body::whole(&state.memory, body, MAX_BODY_BYTES, "body of a key", "use fewer roots").await?;
    let wanted: NewApiKey = batch_body::json(&body.bytes, r#"{"name": "ci", "scopes": ["read", "write"]}"#)?;
    if wanted.roots.as_ref().is_some_and(Vec::is_empty) {
        let why = "roots is empty, so that the key could read nothing: omit it for a key without a restriction";
        return Err(Error::invalid(why));
    }
    Ok(NewKey {
        name: wanted.name,
        scopes: wanted.scopes.iter().map(|scope| scope.parse()).collect::<Result<Vec<Scope>>>()?,
        roots: wanted.roots.iter().flatten().map(|root| parse_cid(root)).collect::<Result<_>>()?,
        valid_for: wanted.valid_seconds.map(Duration::from_secs),
    })
}

fn shown(key: &KeyInfo) -> ApiKey {
    ApiKey {
        id: key.id.clone(),
        name: key.name.clone(),
        scopes: key.scopes.iter().map(Scope::to_string).collect(),
        roots: key.roots.iter().map(ToString::to_string).collect(),
        created: timestamp::format_milliseconds(key.created),
        expires: key.expires.map(timestamp::format_milliseconds),
    }
}
