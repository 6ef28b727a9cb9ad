//! Mapping of errors to GraphQL: `extensions.code` has the kind of the error.

use async_graphql::{ErrorExtensions, ServerError, Value};
use ipfrs_core::{Error, ErrorKind};
use ipfrs_middleware::broken_body;

/// Code of a subscription that is too slow.
pub(crate) const LAGGED: &str = "lagged";

/// Result of a resolver.
pub(crate) type FieldResult<T> = Result<T, async_graphql::Error>;

/// Returns the error of a field.
pub(crate) fn failed(error: Error) -> async_graphql::Error {
    log(&error);
    let code = error.kind().code();
    async_graphql::Error::new(short(error.public_message().into_owned()))
        .extend_with(|_, extensions| extensions.set("code", code))
}

/// Returns the code of the error of a field.
pub(crate) fn code_of(error: &async_graphql::Error) -> &str {
    match error.extensions.as_ref().and_then(|extensions| extensions.get("code")) {
        Some(Value::String(code)) => code,
        _ => ErrorKind::InvalidInput.code(),
    }
}

/// Returns the error for a request without a document.
pub(crate) fn no_query() -> Error {
    Error::invalid("the request has no query: send {\"query\": \"{ version { version } }\"}")
}

/// Returns the error of a whole request.
pub(crate) fn request_error(error: &Error) -> ServerError {
    log(error);
    with_code(ServerError::new(error.public_message(), None), error.kind().code())
}

/// Gives an error of the library, which is about the document, the code of invalid input.
pub(crate) fn coded(error: ServerError) -> ServerError {
    match &error.extensions {
        Some(extensions) if extensions.get("code").is_some() => error,
        _ => with_code(error, ErrorKind::InvalidInput.code()),
    }
}

/// Maximum length of a message, in bytes: the library quotes the document.
const MAX_MESSAGE_BYTES: usize = 1_024;

/// Shortens a long message.
pub(crate) fn shortened(mut error: ServerError) -> ServerError {
    error.message = short(error.message);
    error
}

fn short(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        let end = (0..=MAX_MESSAGE_BYTES).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
        message.truncate(end);
        message.shrink_to_fit();
        message.push_str(" ...");
    }
    message
}

/// Sets the code of an error.
pub(crate) fn with_code(mut error: ServerError, code: &str) -> ServerError {
    let mut extensions = error.extensions.take().unwrap_or_default();
    extensions.set("code", Value::from(code));
    error.extensions = Some(extensions);
    error
}

/// Logs an error that the operator has to know about, or whose message for the client omits a part.
fn log(error: &Error) {
    let is_ours = matches!(error.kind(), ErrorKind::Internal | ErrorKind::Corrupt | ErrorKind::NoSpace);
    if is_ours || error.public_message() != error.message() {
        tracing::warn!(%error, "a GraphQL field failed");
    }
}

/// Returns the error for a multipart body that ended early or is malformed.
pub(crate) fn unreadable(error: multer::Error) -> Error {
    match error {
        multer::Error::StreamReadFailed(cause) => broken_body(cause),
        error => Error::invalid(format!("the body cannot be read: {error}")).with_source(error),
    }
}
