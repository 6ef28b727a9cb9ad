//! Mapping of errors to gRPC: status codes, and their details (`google.rpc`, as in <https://google.aip.dev/193>).

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use ipfrs_core::{Error, ErrorKind};
use ipfrs_middleware::retry_after;
use ipfrs_proto::block::v1::BlockError;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::request_id;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// Domain of the reasons in `ErrorInfo`.
const DOMAIN: &str = "ipfrs";
/// Delay after which clients may retry a temporary error.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Maximum length of a message, in bytes. A message appears in trailers up to three times, and clients accept 8 KiB
/// of trailers. Messages about single blocks are kept in memory until the last block of a batch is processed.
const MAX_MESSAGE_BYTES: usize = 1_024;
/// Maximum length of a CID in an error; longer text is not a CID.
const MAX_CID_BYTES: usize = 512;

/// Returns the status code for an error.
pub(crate) fn code(error: &Error) -> Code {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::Unresolvable => Code::NotFound,
        ErrorKind::InvalidInput => Code::InvalidArgument,
        ErrorKind::Unsupported => Code::Unimplemented,
        ErrorKind::TooLarge | ErrorKind::RateLimited | ErrorKind::NoSpace => Code::ResourceExhausted,
        ErrorKind::Unauthenticated => Code::Unauthenticated,
        // No permission allows writing to a read-only repo.
        ErrorKind::Forbidden if error.is_read_only() => Code::FailedPrecondition,
        ErrorKind::Gone if error.is_cancelled() => Code::Aborted,
        // A blocked block may exist in the store, but access to it is denied.
        ErrorKind::Forbidden | ErrorKind::Gone | ErrorKind::LegalReasons => Code::PermissionDenied,
        ErrorKind::Conflict | ErrorKind::InvalidContent => Code::FailedPrecondition,
        ErrorKind::Timeout => Code::DeadlineExceeded,
        ErrorKind::Unavailable | ErrorKind::Unretrievable | ErrorKind::BadSource => Code::Unavailable,
        ErrorKind::Corrupt => Code::DataLoss,
        ErrorKind::Internal => Code::Internal,
    }
}

/// Error of a request, and the field that caused it, if any.
#[derive(Debug)]
pub(crate) struct Fault {
    field: Option<&'static str>,
    error: Error,
}

/// Attributes an error to a field of the request, named by its path: `options.codec`.
pub(crate) fn in_field(field: &'static str) -> impl FnOnce(Error) -> Fault {
    move |error| Fault { field: Some(field), error }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self { field: None, error }
    }
}

impl From<Fault> for Status {
    fn from(Fault { field, error }: Fault) -> Self {
        let mut details = ErrorDetails::new();
        let is_its_fault = matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported);
        if let Some(field) = field.filter(|_| is_its_fault) {
            details.add_bad_request_violation(field, cut(&error.public_message()));
        }
        with_details(&error, details)
    }
}

impl Fault {
    /// Converts the error to that of one block in a batch. `cid` is the text from the request, or empty if there is
    /// none. Text that is too long for a CID is omitted.
    pub(crate) fn of_block(self, cid: String) -> BlockError {
        let code = code(&self.error);
        log(&self.error, code);
        let message = match self.field {
            Some(field) => format!("{field}: {}", cut(&self.error.public_message())),
            None => cut(&self.error.public_message()).into_owned(),
        };
        let cid = if cid.len() > MAX_CID_BYTES { String::new() } else { cid };
        BlockError { cid, code: code.into(), message }
    }
}

/// Converts an error to the status of a call.
pub(crate) fn status(error: Error) -> Status {
    Fault::from(error).into()
}

/// Returns the code of a response that has a status in its `headers` or trailers. Adds missing details to an error,
/// because the libraries around the methods add none.
pub(crate) fn complete(headers: &mut HeaderMap) -> Option<Code> {
    let code = Code::from_bytes(headers.get(GRPC_STATUS)?.as_bytes());
    if code == Code::Ok || headers.contains_key(GRPC_STATUS_DETAILS) {
        return Some(code);
    }
    let status = Status::from_header_map(headers)?;
    let status = match clarified(status) {
        status if status.details().is_empty() => detailed(&status),
        status => status,
    };
    // If the message is not a valid header value, the status stays unchanged.
    let _ = status.add_header(headers);
    Some(status.code())
}

/// Returns the same status with details.
fn detailed(status: &Status) -> Status {
    let kind = match status.code() {
        Code::Ok | Code::Unknown | Code::Internal => ErrorKind::Internal,
        Code::Cancelled | Code::InvalidArgument | Code::OutOfRange => ErrorKind::InvalidInput,
        Code::DeadlineExceeded => ErrorKind::Timeout,
        Code::NotFound => ErrorKind::NotFound,
        Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => ErrorKind::Conflict,
        Code::PermissionDenied => ErrorKind::Forbidden,
        Code::ResourceExhausted => ErrorKind::TooLarge,
        Code::Unimplemented => ErrorKind::Unsupported,
        Code::Unavailable => ErrorKind::Unavailable,
        Code::DataLoss => ErrorKind::Corrupt,
        Code::Unauthenticated => ErrorKind::Unauthenticated,
    };
    let message = match status.message() {
        "" if status.code() == Code::Unimplemented => "there is no such method",
        message => message,
    };
    let details = common_details(kind, ErrorDetails::new());
    Status::with_error_details(status.code(), message, details)
}

/// Adds the details that all errors have.
fn common_details(kind: ErrorKind, mut details: ErrorDetails) -> ErrorDetails {
    details.set_error_info(kind.code().to_ascii_uppercase(), DOMAIN, HashMap::new());
    details.set_request_info(request_id::current(), "");
    if matches!(kind, ErrorKind::RateLimited | ErrorKind::Unavailable) {
        details.set_retry_info(Some(RETRY_AFTER));
    }
    details
}

/// Returns the same status, with a clearer message if a request message exceeds the limit of its method.
pub(crate) fn clarified(status: Status) -> Status {
    if status.code() != Code::OutOfRange {
        return status;
    }
    let why = format!("{}: blocks are limited to 2 MiB, nodes to 4 MiB, other messages as in proto/", status.message());
    self::status(Error::too_large(why))
}

fn with_details(error: &Error, details: ErrorDetails) -> Status {
    let code = code(error);
    log(error, code);
    let mut details = common_details(error.kind(), details);
    if let Some(seconds) = retry_after(error) {
        details.set_retry_info(Some(Duration::from_secs(seconds)));
    }
    if let Some(cid) = error.missing_block() {
        details.set_resource_info("block", cid.to_string(), "", "the block is not in this store");
    }
    Status::with_error_details(code, cut(&error.public_message()), details)
}

/// Limits the length of a message, which may quote names and paths as long as the client sent them.
fn cut(message: &str) -> Cow<'_, str> {
    if message.len() <= MAX_MESSAGE_BYTES {
        return Cow::Borrowed(message);
    }
    Cow::Owned(format!("{}…", &message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)]))
}

/// Logs errors that the operator needs to see. Errors of clients are only reported to them.
fn log(error: &Error, code: Code) {
    let is_withheld = error.public_message() != error.message();
    if matches!(code, Code::Internal | Code::DataLoss) || error.kind() == ErrorKind::NoSpace || is_withheld {
        let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
        let request_id = request_id::current();
        tracing::error!(kind = %error.kind(), %error, cause, request_id, "a call failed");
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn quoted_client_text_is_truncated() {
        let name = "ü".repeat(1024 * 1024);
        let fault = || in_field("options.codec")(Error::invalid(format!("unknown codec {name}")));
        let (status, mut trailers) = (Status::from(fault()), HeaderMap::new());
        status.add_header(&mut trailers).unwrap();
        assert!(status.message().starts_with("unknown codec ü"), "{status}");
        let sent: usize = trailers.iter().map(|(key, value)| key.as_str().len() + value.len()).sum();
        assert!(sent < 8 * 1024, "{sent} bytes of trailers");
        let block = fault().of_block(name.clone());
        assert!(block.cid.is_empty() && block.message.starts_with("options.codec: unknown codec ü"));
        assert!(block.encoded_len() < 2 * MAX_MESSAGE_BYTES);
        assert_eq!(fault().of_block("bafkqaaa".to_owned()).cid, "bafkqaaa");
    }
}
