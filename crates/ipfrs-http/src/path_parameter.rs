//! Parameters in the paths of routes. The library's own response to a malformed one has the form of no API.

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use ipfrs_core::{Error, Result};

/// Returns the only parameter in the path of a route.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if it is not UTF-8.
pub(crate) async fn only<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<String> {
    let parameter = Path::<String>::from_request_parts(parts, state).await;
    parameter.map(|Path(text)| text).map_err(|_| Error::invalid("the path is not UTF-8"))
}
