//! The one table from errors to gRPC: codes, and the details that go with them (`google.rpc`, as in
//! <https://google.aip.dev/193>).

use std::collections::HashMap;
use std::time::Duration;

use ipfrs_core::{Error, ErrorKind};
use ipfrs_proto::block::v1::BlockError;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::request_id;

/// Whose reasons `ErrorInfo` names.
const DOMAIN: &str = "ipfrs";
/// When to try again what may be tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

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
        ErrorKind::Conflict => Code::FailedPrecondition,
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
            details.add_bad_request_violation(field, error.message());
        }
        with_details(&error, details)
    }
}

impl Fault {
    /// The same for one block among others. `cid` is that of the request; empty where there is none yet.
    pub(crate) fn of_block(self, cid: String) -> BlockError {
        let code = code(&self.error);
        log(&self.error, code);
        let message = match self.field {
            Some(field) => format!("{field}: {}", self.error.message()),
            None => self.error.message().to_owned(),
        };
        BlockError { cid, code: code.into(), message }
    }
}

/// An error as the status of a call.
pub(crate) fn status(error: Error) -> Status {
    Fault::from(error).into()
}

/// The same status, in our words where it is that of a message which is too large for its method.
pub(crate) fn clarified(status: Status) -> Status {
    if status.code() != Code::OutOfRange {
        return status;
    }
    let why = format!("{}: a block is at most 2 MiB, a node 4 MiB, other messages as proto/ says", status.message());
    self::status(Error::too_large(why))
}

fn with_details(error: &Error, mut details: ErrorDetails) -> Status {
    let code = code(error);
    log(error, code);
    details.set_error_info(error.kind().code().to_ascii_uppercase(), DOMAIN, HashMap::new());
    details.set_request_info(request_id::current(), "");
    if matches!(error.kind(), ErrorKind::RateLimited | ErrorKind::Unavailable) {
        details.set_retry_info(Some(RETRY_AFTER));
    }
    if let Some(cid) = error.missing_block() {
        details.set_resource_info("block", cid.to_string(), "", "the block is not in this store");
    }
    Status::with_error_details(code, error.message(), details)
}

/// Logs what the operator must see; what a client did wrong is the client's to see.
fn log(error: &Error, code: Code) {
    if matches!(code, Code::Internal | Code::DataLoss) || error.kind() == ErrorKind::NoSpace {
        let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
        let request_id = request_id::current();
        tracing::error!(kind = %error.kind(), %error, cause, request_id, "a call failed");
    }
}
