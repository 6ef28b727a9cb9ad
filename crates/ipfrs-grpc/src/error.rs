//! The one table from errors to gRPC: codes, and the details that go with them (`google.rpc`, as in
//! <https://google.aip.dev/193>).

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use ipfrs_core::{Error, ErrorKind};
use ipfrs_proto::block::v1::BlockError;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::request_id;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// Whose reasons `ErrorInfo` names.
const DOMAIN: &str = "ipfrs";
/// When to try again what may be tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Longest message that is sent. It stands in trailers three times at most, and clients take 8 KiB of those; of many blocks it is
/// kept until the last of them is answered.
const MAX_MESSAGE_BYTES: usize = 1_024;
/// Longer texts are no content IDs.
const MAX_CID_BYTES: usize = 512;

/// The code of each kind of error.
pub(crate) fn code(error: &Error) -> Code {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::Unresolvable => Code::NotFound,
        ErrorKind::InvalidInput => Code::InvalidArgument,
        ErrorKind::Unsupported => Code::Unimplemented,
        ErrorKind::TooLarge | ErrorKind::RateLimited | ErrorKind::NoSpace => Code::ResourceExhausted,
        ErrorKind::Unauthenticated => Code::Unauthenticated,
        // Nobody's rights change that.
        ErrorKind::Forbidden if error.is_read_only() => Code::FailedPrecondition,
        // What a denylist blocks may well be here: it is not given.
        ErrorKind::Forbidden | ErrorKind::Gone | ErrorKind::LegalReasons => Code::PermissionDenied,
        ErrorKind::Conflict | ErrorKind::InvalidContent => Code::FailedPrecondition,
        ErrorKind::Timeout => Code::DeadlineExceeded,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Corrupt => Code::DataLoss,
        ErrorKind::Internal => Code::Internal,
    }
}

/// Why a request cannot be answered, and which field of it is to blame, where one is.
#[derive(Debug)]
pub(crate) struct Fault {
    field: Option<&'static str>,
    error: Error,
}

/// What is wrong with a field of the request, by its name there: `options.codec`.
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
    /// The same for one block among others. `cid` is that of the request; empty where there is none yet. What is too long for one
    /// is not given back.
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

/// An error as the status of a call.
pub(crate) fn status(error: Error) -> Status {
    Fault::from(error).into()
}

/// Returns the code of a response that has one among its `headers` or trailers. An error gets the details that it
/// lacks: those of the libraries around the methods have none.
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
    // A message that cannot be a header leaves the status as it was.
    let _ = status.add_header(headers);
    Some(status.code())
}

/// The same status with details.
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

/// Adds the details that every error has.
fn common_details(kind: ErrorKind, mut details: ErrorDetails) -> ErrorDetails {
    details.set_error_info(kind.code().to_ascii_uppercase(), DOMAIN, HashMap::new());
    details.set_request_info(request_id::current(), "");
    if matches!(kind, ErrorKind::RateLimited | ErrorKind::Unavailable) {
        details.set_retry_info(Some(RETRY_AFTER));
    }
    details
}

/// The same status, in our words where it is that of a message which is too large for its method.
pub(crate) fn clarified(status: Status) -> Status {
    if status.code() != Code::OutOfRange {
        return status;
    }
    let why = format!("{}: a block is at most 2 MiB, a node 4 MiB, other messages as proto/ says", status.message());
    self::status(Error::too_large(why))
}

fn with_details(error: &Error, details: ErrorDetails) -> Status {
    let code = code(error);
    log(error, code);
    let mut details = common_details(error.kind(), details);
    if let Some(cid) = error.missing_block() {
        details.set_resource_info("block", cid.to_string(), "", "the block is not in this store");
    }
    Status::with_error_details(code, cut(&error.public_message()), details)
}

/// A message as it is sent: the names and paths that it quotes are the client's, and as long as a request may be.
fn cut(message: &str) -> Cow<'_, str> {
    if message.len() <= MAX_MESSAGE_BYTES {
        return Cow::Borrowed(message);
    }
    Cow::Owned(format!("{}…", &message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)]))
}

/// Logs what the operator must see; what a client did wrong is the client's to see.
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
    fn what_a_client_wrote_comes_back_cut() {
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
