//! `encoding=text`: responses as Kubo's command line prints them.

mod body;
mod forms;
mod node;
mod writing;

use axum::body::to_bytes;
use axum::extract::{Extension, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRAILER};
use http::{HeaderValue, StatusCode};
use http_body::Body as _;
use ipfrs_core::Error;
use serde_json::Value;

use super::args::Args;
use super::definition::Command;
use super::output::TEXT;
use crate::error::RpcError;
use crate::state::AppState;

/// Maximum length of the body of an error, and of an object that is converted before the response begins, in bytes.
const MAX_ERROR_BYTES: usize = 64 * 1024;
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain");

/// Middleware around the arguments of a command: a failure is its message.
pub(super) async fn failures(request: Request, next: Next) -> Response {
    let is_text = is_wanted(&request);
    let response = next.run(request).await;
    if is_text && response.status() != StatusCode::OK { of_failure(response).await } else { response }
}

/// Middleware between the arguments of a command and its handler: converts the response.
pub(super) async fn convert(
    State(state): State<AppState>,
    Extension(command): Extension<&'static Command>,
    mut request: Request,
    next: Next,
) -> Response {
    if !is_wanted(&request) {
        return next.run(request).await;
    }
    let Some(args) = request.extensions_mut().get_mut::<Args>() else { return next.run(request).await };
    if command.path == "pin/ls" {
        // The text of a stream is the same, and needs no memory for all pins.
        args.set("stream");
    }
    let path = command.path;
    let form = forms::of(path);
    if form.is_none() && !is_without_json(path) {
        let why = format!("encoding \"text\" is not supported for {path}: use json");
        return RpcError::Request(why).into_response();
    }
    if path == "ls" && args.is_set("long") {
        let why = "encoding \"text\" is not supported for ls with long: use json".to_owned();
        return RpcError::Request(why).into_response();
    }
    let args = args.clone();
    let response = next.run(request).await;
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let (Some(form), true, StatusCode::OK) = (form, is_json, response.status()) else { return response };
    let (mut parts, body) = response.into_parts();
    parts.headers.insert(CONTENT_TYPE, PLAIN);
    parts.headers.remove(CONTENT_LENGTH);
    if body.size_hint().exact().is_none_or(|length| length > MAX_ERROR_BYTES as u64) {
        // An object that was whole may have a text that is cut off.
        parts.headers.insert(TRAILER, HeaderValue::from_static("X-Stream-Error"));
        return Response::from_parts(parts, body::Lines::body(body, form, args, state.memory.reservation()));
    }
    // A short object can still fail as a whole.
    let body = to_bytes(body, MAX_ERROR_BYTES).await.unwrap_or_default();
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut text = String::new();
    match form(&value, &args, &mut text) {
        Ok(()) => (parts, text).into_response(),
        Err(why) => RpcError::Command(Error::invalid(why)).into_response(),
    }
}

/// Whether the query of a request asks for text.
fn is_wanted(request: &Request) -> bool {
    let query = request.uri().query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).any(|(name, value)| matches!(&*name, "encoding" | "enc") && value == TEXT)
}

/// Converts the response of a failed command to its message.
async fn of_failure(response: Response) -> Response {
    if response.headers().get(CONTENT_TYPE).is_none_or(|kind| kind != "application/json") {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.insert(CONTENT_TYPE, PLAIN);
    parts.headers.remove(CONTENT_LENGTH);
    let body = to_bytes(body, MAX_ERROR_BYTES).await.unwrap_or_default();
    let failure: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = failure["Message"].as_str().unwrap_or("the command failed").to_owned();
    (parts, text).into_response()
}

/// Whether a command sends bytes or nothing.
fn is_without_json(path: &str) -> bool {
    matches!(
        path,
        "block/get"
            | "cat"
            | "get"
            | "dag/get"
            | "dag/export"
            | "name/get"
            | "config/replace"
            | "shutdown"
            | "diag/cmds/clear"
            | "diag/cmds/set-time"
            | "multibase/encode"
            | "multibase/decode"
            | "multibase/transcode"
    ) || path.starts_with("files/") && !matches!(path, "files/flush" | "files/stat" | "files/ls")
        || matches!(path, "pin/remote/rm" | "pin/remote/service/add" | "pin/remote/service/rm")
}
