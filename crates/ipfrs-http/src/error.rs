//! Mapping from errors to HTTP: the statuses, and the four forms of an error response.
//!
//! * [`GatewayError`]: text, under `/ipfs` and for unknown routes.
//! * [`RpcError`]: Kubo's `{"Message","Code","Type"}`, under `/api/v0`.
//! * [`Problem`]: `application/problem+json` (RFC 9457), under `/v1`.
//! * [`PinningProblem`]: `{"error":{"reason","details"}}`, under `/pinning/v1`.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode};
use ipfrs_core::{Cid, Error, ErrorKind, NotUnixfs};
use ipfrs_middleware::{RequestMemory, retry_after};
use ipfrs_node::{Attempt, Unretrieved};
use ipfrs_rpc::types::{PinningError, PinningFailure, RpcFailure};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::failure;
use crate::request_id::RequestId;
use crate::retrieval_report;

/// Returns the HTTP status of an error.
pub(crate) fn status(error: &Error) -> StatusCode {
    match error.kind() {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        // DNSLink gateway specification, "Host".
        ErrorKind::Unresolvable if error.is_endless_dnslink() => StatusCode::BAD_REQUEST,
        // As in boxo: the content may well exist, and caches must not remember that it does not.
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
        // The client is late, not a source of content (RFC 9110, 15.5.9).
        ErrorKind::Timeout if error.is_incomplete_request() => StatusCode::REQUEST_TIMEOUT,
        ErrorKind::Timeout | ErrorKind::Unretrievable => StatusCode::GATEWAY_TIMEOUT,
        ErrorKind::BadSource => StatusCode::BAD_GATEWAY,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        ErrorKind::Corrupt | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Returns the message of an error for the client, without file system paths.
pub(crate) fn text(error: &Error) -> String {
    error.public_message().into_owned()
}

/// Same as [`text`], for an error inside a response. Logs the error if the client's message omits part of it, because
/// it is not logged elsewhere.
pub(crate) fn part_text(error: &Error) -> String {
    let shown = error.public_message();
    if shown != error.message() {
        failure::withheld(error);
    }
    shown.into_owned()
}

/// Kind of an error caused by a limit, attached to the response as an extension so that it can be counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverLimit(pub(crate) ErrorKind);

/// Attaches the error to the response for counting and for the operator's log, and says when to retry if the error
/// does. Client errors are not logged.
fn noted(mut response: Response, error: &Error) -> Response {
    if let Some(seconds) = retry_after(error) {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    let is_counted = RequestMemory::is_refusal(error);
    if matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::RateLimited) && !is_counted {
        response.extensions_mut().insert(OverLimit(error.kind()));
    }
    let is_of_network = matches!(error.kind(), ErrorKind::Unretrievable | ErrorKind::BadSource);
    let is_ours = status(error).is_server_error() && !is_of_network;
    let is_withheld = error.public_message() != error.message();
    if (is_ours || is_withheld) && !matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Unresolvable) {
        failure::note(&mut response, error);
    }
    response
}

/// Returns a refusal as text, which browsers must not take for another type.
pub(crate) fn plain(status: StatusCode, text: impl Into<String>) -> Response {
    (status, [(X_CONTENT_TYPE_OPTIONS, "nosniff")], text.into()).into_response()
}

fn finish(mut response: Response, status: StatusCode) -> Response {
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let retry_after = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => "1",
        // The sources of the network may recover.
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => "10",
        _ => return response,
    };
    headers.insert(RETRY_AFTER, HeaderValue::from_static(retry_after));
    response
}

/// Reason why a gateway request failed, attached to its text response as an extension, so that a browser can be shown
/// a page instead.
#[derive(Debug, Clone)]
pub(crate) struct Reason {
    pub(crate) text: String,
    /// Whether the request's path is below the only root of its host.
    pub(crate) is_isolated: bool,
    /// Sources that were tried to retrieve the content.
    pub(crate) attempts: Option<Arc<[Attempt]>>,
}

/// Returns an error response with its reason as text.
pub(crate) fn refused(status: StatusCode, reason: String) -> Response {
    let mut response = finish(format!("{reason}\n").into_response(), status);
    response.extensions_mut().insert(Reason { text: reason, is_isolated: false, attempts: None });
    response
}

/// An error sent as text.
#[derive(Debug)]
pub(crate) struct GatewayError(pub(crate) Error);

impl From<Error> for GatewayError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for GatewayError {
    fn into_response(self) -> Response {
        let (status, reason) = (status(&self.0), text(&self.0));
        let response = match Unretrieved::of(&self.0) {
            None => refused(status, reason),
            Some(unretrieved) => {
                let attempts = Arc::clone(&unretrieved.attempts);
                let report = retrieval_report::text(&attempts);
                let mut response = finish(format!("{reason}\n{report}").into_response(), status);
                let reason = Reason { text: reason, is_isolated: false, attempts: Some(attempts) };
                response.extensions_mut().insert(reason);
                response
            }
        };
        noted(response, &self.0)
    }
}

/// Returns a text response with status 405 and the allowed methods.
pub(crate) fn method_not_allowed(allow: &'static str) -> Response {
    let mut response = refused(StatusCode::METHOD_NOT_ALLOWED, format!("method not allowed: use {allow}"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}

/// An error of an RPC command.
#[derive(Debug)]
pub(crate) enum RpcError {
    /// The command ran and failed.
    Command(Error),
    /// The request could not be parsed as a command: like Kubo, status 400 with text.
    Request(String),
    /// The request needs an unsupported feature, which was detected before the command ran: status 400.
    Refused(Error),
}

impl From<Error> for RpcError {
    fn from(error: Error) -> Self {
        Self::Command(error)
    }
}

/// Returns the body of a failed command's response.
pub(crate) fn rpc_failure(error: &Error) -> RpcFailure {
    let (code, kind) = (rpc_status(error.kind()).1, error.kind().code().to_owned());
    RpcFailure { message: rpc_message(error), code, r#type: "error".to_owned(), kind }
}

/// Beginning of the errors of pins, before the root.
const CANNOT_PIN: &str = "cannot pin ";

/// Code of go-ipfs-cmds for a faulty request.
const CLIENT_ERROR: u8 = 1;

/// Returns the message of an error in the wording that Kubo's clients recognize.
pub(crate) fn rpc_message(error: &Error) -> String {
    in_words_of_kubo(error, text(error))
}

/// Same as [`rpc_message`], for an error inside a response; see [`part_text`].
pub(crate) fn rpc_part_message(error: &Error) -> String {
    in_words_of_kubo(error, part_text(error))
}

/// Same as [`rpc_part_message`], for a pin whose root is named beside the message.
pub(crate) fn rpc_pin_message(error: &Error, root: &Cid) -> String {
    let text = part_text(error);
    let text = match text.strip_prefix(&format!("{CANNOT_PIN}{root}: ")) {
        Some(why) => why.to_owned(),
        None => text,
    };
    in_words_of_kubo(error, text)
}

/// Same as [`rpc_part_message`], for a block that was not removed. Kubo does not say there where it looked.
pub(crate) fn rpc_removal_message(error: &Error) -> String {
    match error.missing_block() {
        Some(cid) => format!("ipld: could not find {cid}"),
        None => rpc_part_message(error),
    }
}

/// Returns the error for a caller who lacks what a command needs, if there are users of the RPC (`auth.rpc`): with the
/// status and the text by which clients of Kubo recognise it.
pub(crate) fn rpc_refusal(error: Error) -> Error {
    if !matches!(error.kind(), ErrorKind::Unauthenticated | ErrorKind::Forbidden) {
        return error;
    }
    let text = format!(
        "Kubo RPC Access Denied: Please provide a valid authorization token as defined in the API.Authorizations \
         configuration. (Here, that is auth.rpc: {})",
        error.message()
    );
    Error::new(ErrorKind::Forbidden, text)
}

/// Returns the error of a setting that was not changed, in the words of Kubo.
pub(crate) fn rpc_not_set(error: &Error) -> Error {
    let text = format!("failed to set config value: {}", error.public_message());
    match error.kind() {
        ErrorKind::InvalidInput => Error::unsupported(format!("{text} (maybe use --json?)")),
        // The caller may set it, but the daemon would refuse it.
        ErrorKind::Forbidden => Error::unsupported(text),
        kind => Error::new(kind, text),
    }
}

fn in_words_of_kubo(error: &Error, text: String) -> String {
    let text = pin_in_words_of_kubo(error, text);
    match error.missing_block() {
        // The Go client parses the CID of the missing block from this text.
        Some(cid) => {
            let kubo = format!("block was not found locally (offline): ipld: could not find {cid}");
            let plain = format!("block {cid} is not in this store");
            if text.contains(&plain) { text.replacen(&plain, &kubo, 1) } else { format!("{text}: {kubo}") }
        }
        None if let Some(missing) = Unretrieved::of(error) => format!("{text}: ipld: could not find {}", missing.cid),
        None if error.kind() == ErrorKind::Unresolvable => format!("could not resolve name: {text}"),
        None => match error.not_unixfs_reason() {
            Some(NotUnixfs::WithoutData) => format!("proto: required field \"Type\" not set: {text}"),
            Some(NotUnixfs::OtherCodec) => format!("unknown node type: {text}"),
            None => text,
        },
    }
}

/// Returns the text of a failed pin as Kubo begins it. The root is at its end if nothing else names a block.
fn pin_in_words_of_kubo(error: &Error, text: String) -> String {
    match text.strip_prefix(CANNOT_PIN).and_then(|rest| rest.split_once(": ")) {
        Some((root, why)) if error.missing_block().is_some() || why.contains(root) => format!("pin: {why}"),
        Some((root, why)) => format!("pin: {why} (pin of {root})"),
        None => text,
    }
}

/// Renders a failure as one line, like all JSON of the RPC.
pub(crate) fn rpc_failure_response(failure: &RpcFailure) -> Response {
    // Strings and numbers always serialize.
    let line = serde_json::to_string(failure).unwrap_or_default() + "\n";
    ([(CONTENT_TYPE, "application/json")], line).into_response()
}

/// Returns the status and the go-ipfs-cmds code of a failed command. Like Kubo, most failures have status 500.
fn rpc_status(kind: ErrorKind) -> (StatusCode, u8) {
    match kind {
        ErrorKind::RateLimited => (StatusCode::TOO_MANY_REQUESTS, 3),
        ErrorKind::Forbidden => (StatusCode::FORBIDDEN, 4),
        ErrorKind::Unauthenticated => (StatusCode::UNAUTHORIZED, 4),
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
        | ErrorKind::Unretrievable
        | ErrorKind::BadSource
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
                noted(finish(rpc_failure_response(&rpc_failure(&error)), rpc_status(error.kind()).0), &error)
            }
            Self::Refused(error) => {
                let failure = RpcFailure { code: CLIENT_ERROR, ..rpc_failure(&error) };
                finish(rpc_failure_response(&failure), StatusCode::BAD_REQUEST)
            }
            Self::Request(text) => finish(format!("{text}\n").into_response(), StatusCode::BAD_REQUEST),
        }
    }
}

/// An error of the native API, with the additional members that some routes document.
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
    fn into_response(mut self) -> Response {
        let (status, code) = (status(&self.error), self.error.kind().code());
        if let Some(unretrieved) = Unretrieved::of(&self.error) {
            self.members.insert("attempts".to_owned(), retrieval_report::json(&unretrieved.attempts));
        }
        noted(problem(status, code, &text(&self.error), &self.request_id, self.members), &self.error)
    }
}

/// An error of the pinning service API.
#[derive(Debug)]
pub(crate) struct PinningProblem(pub(crate) Error);

impl From<Error> for PinningProblem {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for PinningProblem {
    fn into_response(self) -> Response {
        let status = status(&self.0);
        let reason = match status {
            StatusCode::BAD_REQUEST => "BAD_REQUEST".to_owned(),
            StatusCode::UNAUTHORIZED => "UNAUTHORIZED".to_owned(),
            StatusCode::INTERNAL_SERVER_ERROR => "INTERNAL_SERVER_ERROR".to_owned(),
            _ => self.0.kind().code().to_uppercase(),
        };
        let failure = PinningFailure { error: PinningError { reason, details: text(&self.0) } };
        noted(finish(Json(failure).into_response(), status), &self.0)
    }
}

/// Returns the response of the pinning service API for a method that a route does not have.
pub(crate) fn pinning_method_not_allowed(allow: &'static str) -> Response {
    let error =
        PinningError { reason: "METHOD_NOT_ALLOWED".to_owned(), details: format!("method not allowed: use {allow}") };
    let response = finish(Json(PinningFailure { error }).into_response(), StatusCode::METHOD_NOT_ALLOWED);
    ([(ALLOW, allow)], response).into_response()
}

/// A problem document (RFC 9457).
#[derive(Serialize, ToSchema)]
pub(crate) struct ProblemDocument<'a> {
    /// Always `about:blank`: `status` and `code` identify the problem.
    r#type: &'a str,
    /// Reason phrase of the status.
    title: &'a str,
    status: u16,
    /// Description of the error and its remedy.
    detail: &'a str,
    /// Kind of the error, the same in all APIs.
    code: &'a str,
    request_id: &'a str,
    #[serde(flatten)]
    members: Map<String, Value>,
}

/// Renders a problem document. `type` is `about:blank`: the status and `code` identify the problem.
pub(crate) fn problem(
    status: StatusCode,
    code: &str,
    detail: &str,
    request_id: &RequestId,
    members: Map<String, Value>,
) -> Response {
    let document = ProblemDocument {
        r#type: "about:blank",
        title: status.canonical_reason().unwrap_or("Error"),
        status: status.as_u16(),
        detail,
        code,
        request_id: request_id.as_str(),
        members,
    };
    let mut response = finish(Json(document).into_response(), status);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}
