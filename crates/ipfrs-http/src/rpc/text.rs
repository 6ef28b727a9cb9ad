//! `encoding=text`: responses as Kubo's command line prints them.

mod body;
mod forms;
mod node;

use axum::body::to_bytes;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use ipfrs_middleware::MemoryPool;
use serde_json::Value;

use super::args::Args;
use super::definition::Command;
use crate::error::RpcError;

/// Maximum length of the body of an error, in bytes.
const MAX_ERROR_BYTES: usize = 64 * 1024;

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
        let (mut parts, body) = response.into_parts();
        parts.headers.insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain"));
        parts.headers.remove(CONTENT_LENGTH);
        if parts.status != StatusCode::OK {
            let body = to_bytes(body, MAX_ERROR_BYTES).await.unwrap_or_default();
            let failure: Value = serde_json::from_slice(&body).unwrap_or_default();
            let text = failure["Message"].as_str().unwrap_or_default().to_owned();
            return (parts, text).into_response();
        }
        match self.form {
            Some(form) => Response::from_parts(parts, body::Lines::body(body, form, self.args, memory.reservation())),
            None => Response::from_parts(parts, body),
        }
    }
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
