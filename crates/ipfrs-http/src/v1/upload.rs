//! `POST /v1/stream/upload`: imports the body as a file while it is received.

use std::collections::HashSet;

use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use ipfrs_core::{Error, Result};
use ipfrs_node::{OperationId, UploadOptions, Uploaded};
use serde::Serialize;
use utoipa::ToSchema;

use super::parameters::{pairs, repeated};
use super::refusal::Refusal;
use crate::access::StoredObject;
use crate::body::{self, header_text};
use crate::request_id::{RequestId, X_OPERATION_ID, operation_id};
use crate::state::AppState;

/// Names of the query options.
const OPTIONS: &str = "filename, operation_id, wrap, pin, cid-version, raw-leaves, chunker, hash, profile";

/// Response of an upload.
#[derive(Serialize, ToSchema)]
pub(crate) struct UploadResponse {
    cid: String,
    size: u64,
    blocks: u64,
    operation_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<String>,
}

/// Imports the body as one file. The response is sent once the import is durable.
pub(super) async fn upload(state: &AppState, request: Request, id: &RequestId) -> Response {
    let query = match Query::read(&request) {
        Ok(query) => query,
        Err(refusal) => return refusal.answer(id),
    };
    let operation = header_text(query.operation.as_str());
    let mut response = match import(state, query, request).await {
        Ok(answer) => {
            let stored = StoredObject(answer.cid.clone());
            let mut response = Json(answer).into_response();
            response.extensions_mut().insert(stored);
            response
        }
        Err(refusal) => refusal.answer(id),
    };
    response.headers_mut().insert(X_OPERATION_ID, operation);
    response
}

async fn import(state: &AppState, query: Query, request: Request) -> Result<UploadResponse, Refusal> {
    check_body(request.headers())?;
    let length = http_body::Body::size_hint(request.body()).exact();
    let pieces = body::pieces(request.into_body());
    let Query { options, operation } = query;
    let operation_id = operation.to_string();
    let Uploaded { cid, size, blocks } = state.node.upload(&options, operation, length, pieces).await?;
    Ok(UploadResponse { cid: cid.to_string(), size, blocks, operation_id, filename: options.filename })
}

/// Checks that the body is the file itself and not a form.
fn check_body(headers: &HeaderMap) -> Result<(), Refusal> {
    let media = headers.get(CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
    if media.is_some_and(|media| media.trim_ascii_start().starts_with(b"multipart/")) {
        return Err(Refusal::media_type(
            "the body is a form and would be imported with its boundaries: send the bytes of the file (curl -T FILE, or \
             --data-binary @FILE), or the form to /api/v0/add",
        ));
    }
    Ok(())
}

/// Options of an upload, from the query and the headers.
pub(super) struct Query {
    pub(super) options: UploadOptions,
    pub(super) operation: OperationId,
}

impl Query {
    /// Parses the options, which are named as in `add`. If the client chose no operation ID, a random one is used.
    pub(super) fn read(request: &Request) -> Result<Self, Refusal> {
        let mut options = UploadOptions::default();
        let mut operation = operation_id(request.headers())?;
        let mut names = HashSet::new();
        for (name, value) in pairs(request.uri().query().unwrap_or_default())? {
            let value = value.into_owned();
            if !names.insert(name.clone()) {
                return Err(repeated(&name).into());
            }
            match name.as_ref() {
                "filename" => options.filename = Some(value),
                "operation_id" => {
                    let named = value.parse()?;
                    if operation.replace(named).is_some_and(|of_header| Some(of_header) != operation) {
                        let text = "operation_id names another operation than X-Operation-Id: send one of them";
                        return Err(Error::invalid(text).into());
                    }
                }
                "wrap" => options.wrap = flag(&name, &value)?,
                "pin" => options.pin = flag(&name, &value)?,
                "raw-leaves" => options.raw_leaves = Some(flag(&name, &value)?),
                "cid-version" => {
                    let version = value.parse();
                    options.cid_version = Some(
                        version.map_err(|_| Error::invalid(format!("invalid cid-version {value:?}: use 0 or 1")))?,
                    );
                }
                "chunker" => options.chunker = Some(value),
                "hash" => options.hash = Some(value),
                "profile" => options.profile = Some(value),
                other => {
                    return Err(Error::invalid(format!("unknown option {other:?}: the options are {OPTIONS}")).into());
                }
            }
        }
        let operation = operation.map_or_else(OperationId::random, Ok)?;
        Ok(Self { options, operation })
    }
}

fn flag(name: &str, value: &str) -> Result<bool> {
    match value {
        "" | "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        other => Err(Error::invalid(format!("invalid value {other:?} for {name}: use true or false"))),
    }
}
