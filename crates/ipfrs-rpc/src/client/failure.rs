//! Failures of requests, converted to the error kinds of a node in the process.

use std::error::Error as StdError;

use http::StatusCode;
use http::header::{HeaderMap, LOCATION};
use ipfrs_core::{Error, ErrorKind};

use crate::types::Failure;

/// Text with which the RPC API names a missing block to Kubo clients. The message before it already says so.
const MISSING: &str = ": ipld: could not find ";

/// Text with which the RPC API says that no other node was queried.
const OFFLINE: &str = "block was not found locally (offline)";

/// Texts of Kubo that identify the kind of a failure when no kind is given, because byte streams end with a message
/// only.
const TEXTS: [(&str, ErrorKind); 3] = [
    (MISSING, ErrorKind::NotFound),
    ("is blocked and cannot be provided", ErrorKind::Gone),
    ("context deadline exceeded", ErrorKind::Timeout),
];

/// Maximum number of bytes shown of an error text that is not JSON.
const MAX_TEXT_BYTES: usize = 1_024;

fn error_of(failure: Failure) -> Error {
    let kind = failure.kind.as_deref().map(kind_of_code);
    of_message(kind, &failure.message)
}

/// Creates an error of the given kind, or else of the kind that its text implies, as Kubo clients determine it.
fn of_message(kind: Option<ErrorKind>, message: &str) -> Error {
    let by_text = || TEXTS.iter().find(|(text, _)| message.contains(text)).map(|(_, kind)| *kind);
    let kind = kind.or_else(by_text).unwrap_or(ErrorKind::Internal);
    let (text, missing) = message.split_once(MISSING).unwrap_or((message, ""));
    Error::new(
        kind,
        match text.strip_suffix(OFFLINE) {
            // As in the texts of Kubo, only the end names the block.
            Some(text) if !text.contains(missing) => message,
            Some(text) => text.strip_suffix(": ").unwrap_or(text),
            None => text,
        },
    )
}

/// Returns the error kind of a code. Some codes exist only in the HTTP API.
fn kind_of_code(code: &str) -> ErrorKind {
    ErrorKind::from_code(code).unwrap_or(match code {
        "method_not_allowed" => ErrorKind::Unsupported,
        "precondition_failed" | "range_not_satisfiable" | "unsupported_media_type" => ErrorKind::InvalidInput,
        _ => ErrorKind::Internal,
    })
}

/// Returns the failure that the last line of a stream reports, if the line reports one.
pub(super) fn of_line(line: &[u8]) -> Option<Error> {
    // Only failures begin with this key.
    let is_failure = line.starts_with(b"{\"Message\":");
    is_failure.then(|| serde_json::from_slice::<Failure>(line).ok()).flatten().map(error_of)
}

/// Returns the failure that the trailer of a stream reports.
pub(super) fn of_trailer(trailers: &HeaderMap) -> Option<Error> {
    let reported = trailers.get("x-stream-error").filter(|reported| !reported.is_empty())?;
    Some(of_message(None, &String::from_utf8_lossy(reported.as_bytes())))
}

/// Returns the failure that a response reports.
pub(super) fn of_response(url: &str, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Error {
    if let Ok(failure) = serde_json::from_slice::<Failure>(body) {
        return error_of(failure);
    }
    if let (true, Some(location)) = (status.is_redirection(), headers.get(LOCATION)) {
        let location = String::from_utf8_lossy(location.as_bytes());
        return Error::invalid(format!("{url} redirects to {location}: use the URL of the daemon itself"));
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(MAX_TEXT_BYTES)]);
    let reason = match text.trim() {
        "" => status.to_string(),
        text => format!("{status}: {text}"),
    };
    match status {
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Error::unsupported(format!(
            "{url} does not support this request ({reason}): is it an ipfrs gateway of this version?"
        )),
        _ => Error::new(kind_of_status(status), format!("{url} responded with {reason}")),
    }
}

fn kind_of_status(status: StatusCode) -> ErrorKind {
    match status.as_u16() {
        401 | 407 => ErrorKind::Unauthenticated,
        403 => ErrorKind::Forbidden,
        408 | 504 => ErrorKind::Timeout,
        409 => ErrorKind::Conflict,
        410 => ErrorKind::Gone,
        413 | 414 => ErrorKind::TooLarge,
        422 => ErrorKind::InvalidContent,
        429 => ErrorKind::RateLimited,
        451 => ErrorKind::LegalReasons,
        501 => ErrorKind::Unsupported,
        502 | 503 => ErrorKind::Unavailable,
        507 => ErrorKind::NoSpace,
        400..=499 => ErrorKind::InvalidInput,
        _ => ErrorKind::Internal,
    }
}

/// Returns the error for a request without a response.
pub(super) fn no_response(url: &str, error: &reqwest::Error) -> Error {
    let cause = root(error);
    let message = match error.is_connect() {
        true => format!(
            "no daemon responds at {url} ({cause}): is it running (`ipfrs-cli gateway start`), and is the URL right?"
        ),
        false => {
            format!("the connection to {url} was lost before the response ({cause}): is the daemon still running?")
        }
    };
    Error::new(ErrorKind::Unavailable, message)
}

/// Returns the error for a response that ended early.
pub(super) fn ended_early(url: &str, received: u64, error: &(dyn StdError + 'static)) -> Error {
    incomplete(url, received, &root(error))
}

/// Returns the error for a response that is shorter than it should be.
pub(super) fn incomplete(url: &str, received: u64, why: &str) -> Error {
    let what = format!("the response from {url} ended early after {received} bytes ({why})");
    Error::new(ErrorKind::Unavailable, format!("{what}: the daemon's log may say more"))
}

/// Whether a request failed because the daemon had closed the idle connection that it was sent on.
pub(super) fn is_of_idle_connection(error: &reqwest::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    let is_closed = |cause: &(dyn StdError + 'static)| {
        let io = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        let is_cut = cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message);
        is_cut || matches!(io, Some(BrokenPipe | ConnectionAborted | ConnectionReset))
    };
    !error.is_connect() && !error.is_timeout() && chain(error).any(is_closed)
}

fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn root(error: &(dyn StdError + 'static)) -> String {
    chain(error).last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_loses_only_what_kubo_clients_need() {
        let of = |message| of_message(None, message).message().to_owned();
        let ours = "block bafy is missing: block was not found locally (offline): ipld: could not find bafy";
        assert_eq!(of(ours), "block bafy is missing");
        let kubo = "block was not found locally (offline): ipld: could not find bafy";
        assert_eq!(of(kubo), kubo);
        let of_command = format!("pin: {kubo}");
        assert_eq!(of(&of_command), of_command);
    }
}
