//! Headers with one value.

use http::{HeaderMap, HeaderName, HeaderValue};
use ipfrs_core::{Error, Result};

/// Returns the value of a header.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the header is there twice: one would be ignored.
pub(crate) fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h HeaderValue>> {
    let mut values = headers.get_all(name).into_iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(Error::invalid(format!("the header {name} is there twice: send it once"))),
        (value, None) => Ok(value),
    }
}
