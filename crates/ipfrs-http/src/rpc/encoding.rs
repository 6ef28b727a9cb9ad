//! `encoding`: responses of JSON are converted to texts, as Kubo's command line prints them, or to XML.

mod lines;

use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRAILER};
use http::{HeaderValue, StatusCode};
use http_body::Body as _;
use ipfrs_core::Error;
use serde_json::Value;

use self::lines::Lines;
use super::args::Args;
use super::command::Command;
use super::text::{self, Done, Form};
use super::xml::{self, Shape};
use crate::error::RpcError;
use crate::state::AppState;

/// Maximum length of the body of an error, and of an object that is converted before the response begins, in bytes.
const MAX_ERROR_BYTES: usize = 64 * 1024;
const STREAM_ERROR: HeaderValue = HeaderValue::from_static("X-Stream-Error");

/// Encoding of a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Encoding {
    #[default]
    Json,
    Text,
    Xml,
}

impl Encoding {
    /// Returns the encoding with a name.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "json" => Some(Self::Json),
            "text" => Some(Self::Text),
            "xml" => Some(Self::Xml),
            _ => None,
        }
    }

    /// Returns the encoding that the global options of a request have.
    fn of(request: &Request) -> Self {
        request.extensions().get().copied().unwrap_or_default()
    }

    /// Converts the response of a failed command.
    pub(super) async fn failure(self, response: Response) -> Response {
        if self == Self::Json || !is_json(&response) {
            return response;
        }
        let (response, body) = self.take_body(response);
        let body = to_bytes(body, MAX_ERROR_BYTES).await.unwrap_or_default();
        let failure: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = match self {
            Self::Xml => xml::failure(&failure),
            _ => failure["Message"].as_str().unwrap_or("the command failed").to_owned(),
        };
        response.map(|()| text.into())
    }

    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Json => "application/json",
            Self::Text => "text/plain",
            Self::Xml => "application/xml",
        })
    }

    /// Separates the body of JSON, and sets the headers of the converted response.
    fn take_body(self, response: Response) -> (http::Response<()>, Body) {
        let (mut parts, body) = response.into_parts();
        parts.headers.insert(CONTENT_TYPE, self.content_type());
        parts.headers.remove(CONTENT_LENGTH);
        (http::Response::from_parts(parts, ()), body)
    }
}

fn is_json(response: &Response) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json")
}

/// Conversion of the values of a command.
#[derive(Debug, Clone, Copy)]
enum Conversion {
    Text(Form),
    Xml(&'static Shape),
}

impl Conversion {
    /// Returns the conversion for a command, if it has one.
    fn of(encoding: Encoding, path: &str) -> Option<Self> {
        match encoding {
            Encoding::Json => None,
            Encoding::Text => text::form_of(path).map(Self::Text),
            Encoding::Xml => xml::shape_of(path).map(Self::Xml),
        }
    }

    fn write(self, value: &Value, args: &Args, out: &mut String) -> Done {
        match self {
            Self::Text(form) => form(value, args, out),
            Self::Xml(shape) => shape.write(value, out),
        }
    }

    /// Returns the error if no value can be converted.
    fn fails(self) -> Option<String> {
        match self {
            Self::Text(_) => None,
            Self::Xml(shape) => shape.fails(),
        }
    }
}

/// Middleware around the arguments of a command: a failure is converted.
pub(super) async fn failures(request: Request, next: Next) -> Response {
    let encoding = Encoding::of(&request);
    let response = next.run(request).await;
    if response.status() == StatusCode::OK { response } else { encoding.failure(response).await }
}

/// Middleware between the arguments of a command and its handler: converts the response.
pub(super) async fn convert(
    State(state): State<AppState>,
    Extension(command): Extension<&'static Command>,
    mut request: Request,
    next: Next,
) -> Response {
    let (encoding, path) = (Encoding::of(&request), command.definition.path);
    if encoding == Encoding::Json {
        return next.run(request).await;
    }
    let Some(args) = request.extensions_mut().get_mut::<Args>() else { return next.run(request).await };
    if encoding == Encoding::Text && path == "pin/ls" {
        // The text of a stream is the same, and needs no memory for all pins.
        args.set("stream");
    }
    // The others send bytes, nothing, or an error.
    let conversion = Conversion::of(encoding, path);
    let args = args.clone();
    let mut response = next.run(request).await;
    if response.status() != StatusCode::OK {
        return response;
    }
    let is_bytes = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/plain");
    match conversion {
        Some(conversion) if is_json(&response) => {
            let (response, body) = encoding.take_body(response);
            converted(response, body, conversion, (path, args, &state)).await
        }
        // An empty body, or bytes without a type of their own.
        _ if is_json(&response) || is_bytes => {
            response.headers_mut().insert(CONTENT_TYPE, encoding.content_type());
            response
        }
        _ => response,
    }
}

async fn converted(
    mut response: http::Response<()>,
    body: Body,
    conversion: Conversion,
    (path, args, state): (&str, Args, &AppState),
) -> Response {
    let is_short = body.size_hint().exact().is_some_and(|length| length <= MAX_ERROR_BYTES as u64);
    // As in Kubo, an object that is no XML is an error at the end of the body.
    if !is_short || matches!(conversion, Conversion::Xml(_)) {
        // An object that was whole may have a text that is cut off.
        response.headers_mut().insert(TRAILER, STREAM_ERROR);
        let lines = Lines::body(body, conversion, args, state.memory.reservation());
        return response.map(|()| lines);
    }
    // A short object can still fail as a whole.
    let body = to_bytes(body, MAX_ERROR_BYTES).await.unwrap_or_default();
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    if path == "routing/get" {
        // The only text that is no UTF-8: the record.
        return response.map(|()| STANDARD.decode(text::text(&value["Extra"])).unwrap_or_default().into());
    }
    let mut text = String::new();
    match conversion.write(&value, &args, &mut text) {
        Ok(()) => response.map(|()| text.into()),
        Err(why) => RpcError::Command(Error::invalid(why)).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use ipfrs_rpc::commands;

    use super::*;
    use crate::rpc::xml::always_fails;

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
        ) || path.starts_with("files/") && !matches!(path, "files/flush" | "files/rm" | "files/stat" | "files/ls")
            || matches!(path, "pin/remote/rm" | "pin/remote/service/add" | "pin/remote/service/rm")
    }

    #[test]
    fn every_command_can_respond_with_text_and_xml() {
        for command in commands::all() {
            let has_shape = Conversion::of(Encoding::Xml, command.path).is_some();
            let has_text = Conversion::of(Encoding::Text, command.path).is_some();
            assert_eq!(has_text, has_shape, "{}", command.path);
            // Commands that always fail have no response.
            let is_covered = has_shape || is_without_json(command.path) || always_fails(command.path);
            assert!(is_covered, "{}", command.path);
            assert!(!(has_shape && is_without_json(command.path)), "{} has a shape and no values", command.path);
        }
    }
}
