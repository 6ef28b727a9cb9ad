//! `/routing/v1/ipns/{name}`: the record of a name.

use std::time::SystemTime;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, EXPIRES, LAST_MODIFIED, VARY};
use http::{HeaderMap, StatusCode};
use ipfrs_core::ErrorKind;
use ipfrs_node::{MAX_RECORD_BYTES, Name, Record};

use super::response::{HandlerResult, InPath, accepted};
use crate::body::{self, header_text};
use crate::error::{self, GatewayError, refused};
use crate::gateway::format::IPNS_RECORD_MEDIA_TYPE;
use crate::gateway::ipns_record;
use crate::state::AppState;

/// `Cache-Control` of the response if there is no record.
const NONE_CACHE_CONTROL: &str = "public, max-age=15";

/// `GET`: the record. If there is none, the response is 200 with a text instead of 404, as the request itself is
/// valid (<https://specs.ipfs.tech/ipips/ipip-0513/>).
pub(super) async fn get(State(state): State<AppState>, InPath(name): InPath, headers: HeaderMap) -> HandlerResult {
    let name = Name::parse(&name)?;
    if !accepted(&headers, IPNS_RECORD_MEDIA_TYPE) {
        return Ok(not_acceptable(&format!(
            "a record is available only as {IPNS_RECORD_MEDIA_TYPE}: retry with Accept: {IPNS_RECORD_MEDIA_TYPE}"
        )));
    }
    match state.node.ipns_record(&name).await {
        Ok(record) => Ok(answer(&state, &name, &record, &headers)),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let head =
                [(CACHE_CONTROL, NONE_CACHE_CONTROL), (CONTENT_TYPE, "text/plain; charset=utf-8"), (VARY, "Accept")];
            Ok((head, format!("{}\n", error::text(&e))).into_response())
        }
        Err(e) => Err(e.into()),
    }
}

fn answer(state: &AppState, name: &Name, record: &Record, request: &HeaderMap) -> Response {
    let now = SystemTime::now();
    let left = record.validity().duration_since(now).unwrap_or_default().as_secs();
    let max_age = record.lifetime(now, state.node.config().ipns.record_ttl()).as_secs();
    let cache = format!("public, max-age={max_age}, stale-while-revalidate={left}, stale-if-error={left}");
    let mut response = ipns_record::answer(record, &ipns_record::file_name(name), &cache, request);
    let headers = response.headers_mut();
    headers.insert(EXPIRES, header_text(&httpdate::fmt_http_date(record.validity())));
    headers.insert(LAST_MODIFIED, header_text(&httpdate::fmt_http_date(now)));
    response
}

/// `PUT`: stores the record if it is valid for the name and no better one is stored.
pub(super) async fn put(State(state): State<AppState>, InPath(name): InPath, request: Request) -> HandlerResult {
    let name = Name::parse(&name)?;
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if content_type.split(';').next().unwrap_or_default().trim() != IPNS_RECORD_MEDIA_TYPE {
        return Ok(not_acceptable(&format!(
            "a record requires Content-Type: {IPNS_RECORD_MEDIA_TYPE}, not {content_type:?}"
        )));
    }
    let (body, remedy) = (request.into_body(), "sign a record with a shorter value");
    let record = body::whole(&state.memory, body, MAX_RECORD_BYTES, "maximum record size", remedy);
    let record = record.await.map_err(GatewayError)?;
    state.node.put_ipns_record(&name, record.bytes).await?;
    Ok(StatusCode::OK.into_response())
}

fn not_acceptable(why: &str) -> Response {
    refused(StatusCode::NOT_ACCEPTABLE, why.to_owned())
}
