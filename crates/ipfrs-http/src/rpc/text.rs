//! `encoding=text`: responses as Kubo's command line prints them.

mod body;
mod forms;
mod node;

use axum::body::to_bytes;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRAILER};
use http::{HeaderValue, StatusCode};
use http_body::Body as _;
use ipfrs_core::Error;
use ipfrs_middleware::MemoryPool;
use serde_json::Value;

use super::args::Args;
use super::definition::Command;
use super::globals::TEXT;
use crate::error::RpcError;

/// Maximum length of the body of an error, and of an object that is converted before the response begins, in bytes.
const MAX_ERROR_BYTES: usize = 64 * 1024;
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain");

/// Writes the text of a response, or of one of its lines. An error ends the response.
type Form = fn(&Value, &Args, &mut String) -> Result<(), String>;

/// The form of a command's text.
#[derive(Debug)]
pub(super) struct Text {
    form: Option<Form>,
    args: Args,
}

impl Text {
    /// Returns the form of a command.
    ///
    /// # Errors
    /// The command sends JSON and has no form.
    pub(super) fn of(command: &Command, args: Args) -> Result<Self, RpcError> {
        let form = forms::of(command.path);
        if form.is_none() && !is_without_json(command.path) {
            let path = command.path;
            return Err(RpcError::Request(format!("encoding \"text\" is not supported for {path}: use json")));
        }
        if command.path == "ls" && args.is_set("long") {
            return Err(RpcError::Request("encoding \"text\" is not supported for ls with long: use json".to_owned()));
        }
        Ok(Self { form, args })
    }

    /// Converts a response to text. What is not JSON stays.
    pub(super) async fn of_response(self, memory: &MemoryPool, response: Response) -> Response {
        let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
        if !is_json {
            return response;
        }
        if response.status() != StatusCode::OK {
            return of_failure(response).await;
        }
        let Some(form) = self.form else { return response };
        let (mut parts, body) = response.into_parts();
        parts.headers.insert(CONTENT_TYPE, PLAIN);
        parts.headers.remove(CONTENT_LENGTH);
        if body.size_hint().exact().is_none_or(|length| length > MAX_ERROR_BYTES as u64) {
            // An object that was whole may have a text that is cut off.
            parts.headers.insert(TRAILER, HeaderValue::from_static("X-Stream-Error"));
            let body = body::Lines::body(body, form, self.args, memory.reservation());
            return Response::from_parts(parts, body);
        }
        // A short object can still fail as a whole.
        let body = to_bytes(body, MAX_ERROR_BYTES).await.unwrap_or_default();
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut text = String::new();
        match form(&value, &self.args, &mut text) {
            Ok(()) => (parts, text).into_response(),
            Err(why) => of_failure(RpcError::Command(Error::invalid(why)).into_response()).await,
        }
    }
}

/// Whether the query of a request asks for text.
pub(super) fn is_wanted(query: &str) -> bool {
    form_urlencoded::parse(query.as_bytes()).any(|(name, value)| matches!(&*name, "encoding" | "enc") && value == TEXT)
}

/// Converts the response of a failed command to its message.
pub(super) async fn of_failure(response: Response) -> Response {
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
