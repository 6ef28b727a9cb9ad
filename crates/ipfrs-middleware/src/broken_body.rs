//! Errors of request bodies, in words for the client.

use std::io;

use ipfrs_core::Error;

/// Converts the error of a request body that ended early or is malformed, keeping the kind and message of an [`Error`]
/// among its causes.
#[must_use]
pub fn broken_body(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error.as_ref());
    while let Some(this) = cause {
        if let Some(original) = this.downcast_ref::<Error>() {
            // Its own causes show whether it was already counted.
            return Error::new(original.kind(), original.message()).with_source(error);
        }
        // Errors of a socket have a number of the system.
        let of_chunks = this.downcast_ref::<io::Error>().filter(|e| {
            matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) && e.raw_os_error().is_none()
        });
        if let Some(of_chunks) = of_chunks {
            let message = format!("the chunks of the request body are malformed (RFC 9112, 7.1): {of_chunks}");
            return Error::invalid(message).with_source(error);
        }
        cause = this.source();
    }
    Error::invalid("the request body ended early").with_source(error)
}
