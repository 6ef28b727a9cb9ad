//! The one table from errors to HTTP: statuses, and the three forms that an error takes.
//!
//! * [`GatewayError`]: text, under `/ipfs` and for routes that do not exist.
//! * [`RpcError`]: Kubo's `{"Message","Code","Type"}`, under `/api/v0`.
//! * [`Problem`]: `application/problem+json` (RFC 9457), under `/v1`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use ipfrs_core::{Error, ErrorKind};
use ipfrs_node::RequestMemory;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::failure;
use crate::request_id::RequestId;

/// The HTTP status of each kind of error.
pub(crate) fn status(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        // As boxo: what is asked for may well exist, so that nobody is to remember that it does not.
        ErrorKind::Unresolvable => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorKind::InvalidInput => StatusCode::BAD_REQUEST,
        ErrorKind::InvalidContent => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorKind::Forbidden => StatusCode::FORBIDDEN,
        ErrorKind::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::Gone => StatusCode::GONE,
        ErrorKind::LegalReasons => StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS,
        ErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        ErrorKind::Corrupt | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Returns the message of an error as clients of every form are told it: without paths in the file system.
pub(crate) fn text(error: &Error) -> String {
    error.public_message().into_owned()
}

/// As [`text`], of an error that is part of a response. Nothing else logs what the client is not told.
pub(crate) fn part_text(error: &Error) -> String {
    let shown = error.public_message();
    if shown != error.message() {
        failure::withheld(error);
    }
    shown.into_owned()
}

/// Kind of an error by which a limit struck. It goes with the response, as an extension, to where it is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverLimit(pub(crate) ErrorKind);

/// Has logged what the operator must see; what a client did wrong is the client's to see.
fn noted(mut response: Response, error: &Error) -> Response {
    let is_counted = RequestMemory::is_refusal(error);
    if matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::RateLimited) && !is_counted {
        response.extensions_mut().insert(OverLimit(error.kind()));
    }
    let is_ours = status(error.kind()).is_server_error();
    let is_withheld = error.public_message() != error.message();
    if (is_ours || is_withheld) && !matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Unresolvable) {
        failure::note(&mut response, error);
    }
    response
}

fn finish(mut response: Response, status: StatusCode) -> Response {
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Why a gateway's answer failed: goes with its text as an extension, so that a browser may be shown a page instead.
#[derive(Debug, Clone)]
pub(crate) struct Reason {
    pub(crate) text: String,
    /// Whether the request's path is one below the only root of its host.
    pub(crate) is_isolated: bool,
}

/// A failed answer: its reason as text.
pub(crate) fn refused(status: StatusCode, reason: String) -> Response {
    let mut response = finish(format!("{reason}\n").into_response(), status);
    response.extensions_mut().insert(Reason { text: reason, is_isolated: false });
    response
}

/// An error as text.
#[derive(Debug)]
pub(crate) struct GatewayError(pub(crate) Error);

impl From<Error> for GatewayError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for GatewayError {
    fn into_response(self) -> Response {
        noted(refused(status(self.0.kind()), text(&self.0)), &self.0)
    }
}

/// 405 with the methods that are allowed, as text.
pub(crate) fn method_not_allowed(allow: &'static str) -> Response {
    let mut response = refused(StatusCode::METHOD_NOT_ALLOWED, format!("method not allowed: use {allow}"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}

/// An error of a command of the RPC.
#[derive(Debug)]
pub(crate) enum RpcError {
    /// The command ran and failed.
    Command(Error),
    /// The request could not be read as a command: Kubo answers that as text with status 400.
    Request(String),
    /// The request asks for what is not offered, which is known before the command runs: status 400.
    Refused(Error),
}

impl From<Error> for RpcError {
    fn from(error: Error) -> Self {
        Self::Command(error)
    }
}

/// The body of a failed command.
#[derive(Debug, Serialize)]
pub(crate) struct RpcErrorBody {
    #[serde(rename = "Message")]
    message: String,
    #[serde(rename = "Code")]
    code: u8,
    #[serde(rename = "Type")]
    object: &'static str,
    /// The code of the native API, which says more than a status of 500.
    #[serde(rename = "Kind")]
    kind: &'static str,
}

impl RpcErrorBody {
    pub(crate) fn of(error: &Error) -> Self {
        let kind = error.kind();
        Self { message: rpc_message(error), code: rpc_status(kind).1, object: "error", kind: kind.code() }
    }
}

/// The code of go-ipfs-cmds for what is wrong with a request.
const CLIENT_ERROR: u8 = 1;

/// Returns the text of an error, with the words by which Kubo's clients know it.
pub(crate) fn rpc_message(error: &Error) -> String {
    in_words_of_kubo(error, text(error))
}

/// Returns the same text for an error that is part of a response, as [`part_text`] does.
pub(crate) fn rpc_part_message(error: &Error) -> String {
    in_words_of_kubo(error, part_text(error))
}

fn in_words_of_kubo(error: &Error, text: String) -> String {
    match error.missing_block() {
        // The client in Go reads from it which block is missing.
        Some(cid) => format!("{text}: block was not found locally (offline): ipld: could not find {cid}"),
        None if error.kind() == ErrorKind::Unresolvable => format!("could not resolve name: {text}"),
        None => text,
    }
}

impl IntoResponse for RpcErrorBody {
    /// A line, as all JSON of the RPC.
    fn into_response(self) -> Response {
        // Texts and a number always serialise.
        let line = serde_json::to_string(&self).unwrap_or_default() + "\n";
        ([(CONTENT_TYPE, "application/json")], line).into_response()
    }
}

/// Kubo answers a command's failure with 500 whatever the reason; the codes are those of go-ipfs-cmds.
fn rpc_status(kind: ErrorKind) -> (StatusCode, u8) {
    match kind {
        ErrorKind::RateLimited => (StatusCode::TOO_MANY_REQUESTS, 3),
        ErrorKind::Forbidden | ErrorKind::Unauthenticated => (StatusCode::FORBIDDEN, 4),
        ErrorKind::NotFound
        | ErrorKind::Unresolvable
        | ErrorKind::InvalidInput
        | ErrorKind::InvalidContent
        | ErrorKind::Unsupported
        | ErrorKind::TooLarge
        | ErrorKind::Conflict
        | ErrorKind::Gone
        | ErrorKind::LegalReasons
        | ErrorKind::Timeout
        | ErrorKind::Unavailable
        | ErrorKind::Corrupt
        | ErrorKind::NoSpace
        | ErrorKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, 0),
    }
}

impl IntoResponse for RpcError {
    fn into_response(self) -> Response {
        match self {
            Self::Command(error) => {
                noted(finish(RpcErrorBody::of(&error).into_response(), rpc_status(error.kind()).0), &error)
            }
            Self::Refused(error) => {
                let body = RpcErrorBody { code: CLIENT_ERROR, ..RpcErrorBody::of(&error) };
                finish(body.into_response(), StatusCode::BAD_REQUEST)
            }
            Self::Request(text) => finish(format!("{text}\n").into_response(), StatusCode::BAD_REQUEST),
        }
    }
}

/// An error of the native API, with members of its own where a route documents some.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) error: Error,
    pub(crate) request_id: RequestId,
    pub(crate) members: Map<String, Value>,
}

impl Problem {
    pub(crate) fn new(error: Error, request_id: &RequestId) -> Self {
        Self { error, request_id: request_id.clone(), members: Map::new() }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, code) = (status(self.error.kind()), self.error.kind().code());
        noted(problem(status, code, &text(&self.error), &self.request_id, self.members), &self.error)
    }
}

/// A problem document. `type` is `about:blank`: the status and `code` say which problem it is.
pub(crate) fn problem(
    status: StatusCode,
    code: &str,
    detail: &str,
    request_id: &RequestId,
    members: Map<String, Value>,
) -> Response {
    let mut document = Map::new();
    document.insert("type".into(), "about:blank".into());
    document.insert("title".into(), status.canonical_reason().unwrap_or("Error").into());
    document.insert("status".into(), status.as_u16().into());
    document.insert("detail".into(), detail.into());
    document.insert("code".into(), code.into());
    document.insert("request_id".into(), request_id.as_str().into());
    document.extend(members);
    let mut response = finish(Json(Value::Object(document)).into_response(), status);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}
