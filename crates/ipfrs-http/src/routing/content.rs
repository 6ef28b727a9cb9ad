//! `/routing/v1/providers` and `/routing/v1/peers`: providers of content, and addresses of peers.

use std::time::SystemTime;

use axum::body::Body;
use axum::extract::Path;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LAST_MODIFIED, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use ipfrs_core::{Error, parse_cid};
use ipfrs_node::Name;
use serde::Serialize;
use utoipa::ToSchema;

use super::response::{HandlerResult, accepted, names};
use crate::body::header_text;
use crate::error::{GatewayError, refused};

const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";

/// Response with providers.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct FoundProviders {
    #[schema(value_type = Vec<Object>)]
    providers: [(); 0],
}

/// Response with addresses of peers.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct FoundPeers {
    #[schema(value_type = Vec<Object>)]
    peers: [(); 0],
}

/// `GET /providers/{cid}`: always empty. This node knows no peers, and peers cannot fetch from it over libp2p.
pub(super) async fn providers(Path(cid): Path<String>, headers: HeaderMap) -> HandlerResult {
    parse_cid(&cid)?;
    Ok(respond(&FoundProviders { providers: [] }, &headers))
}

/// `GET /peers/{peer_id}`: always empty, because the node knows no addresses.
pub(super) async fn peers(Path(peer_id): Path<String>, headers: HeaderMap) -> HandlerResult {
    Name::parse(&peer_id).map_err(|e| Error::invalid(format!("{peer_id:?} is not a peer ID: {}", e.message())))?;
    Ok(respond(&FoundPeers { peers: [] }, &headers))
}

/// `GET /dht/closest/peers/{key}`: 501.
pub(super) async fn closest_peers() -> GatewayError {
    GatewayError(Error::unsupported("this node is not part of a distributed hash table: use another router"))
}

/// Returns an empty list in the requested format.
fn respond(list: &impl Serialize, request: &HeaderMap) -> Response {
    // NDJSON is sent only to clients that name it, whatever else they accept.
    let listed = names(request, NDJSON).then_some(NDJSON);
    let Some(media_type) = listed.or_else(|| accepted(request, JSON).then_some(JSON)) else {
        return refused(StatusCode::NOT_ACCEPTABLE, format!("responses are {JSON} or {NDJSON}: accept one of these"));
    };
    // An empty list always serializes.
    let body = if media_type == JSON { serde_json::to_string(list).unwrap_or_default() } else { String::new() };
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=15"));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    headers.insert(LAST_MODIFIED, header_text(&httpdate::fmt_http_date(SystemTime::now())));
    response
}
