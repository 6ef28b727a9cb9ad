//! Parameters of routes. Unknown and repeated ones in a query are errors, since one of them would be ignored.

use axum::extract::{Extension, FromRequestParts, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::Uri;
use http::request::Parts;
use ipfrs_core::{Error, Result};
use percent_encoding::percent_decode_str;

use crate::error::Problem;
use crate::path_parameter;
use crate::request_id::RequestId;

/// The only parameter in the path of a route.
pub(super) struct InPath(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for InPath {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let Extension(id) =
            Extension::<RequestId>::from_request_parts(parts, state).await.map_err(IntoResponse::into_response)?;
        path_parameter::only(parts, state).await.map(Self).map_err(|e| Problem::new(e, &id).into_response())
    }
}

/// Refuses a query. A layer of the methods of routes without parameters.
pub(super) async fn none(Extension(id): Extension<RequestId>, request: Request, next: Next) -> Response {
    match check_none(request.uri()) {
        Ok(()) => next.run(request).await,
        Err(e) => Problem::new(e, &id).into_response(),
    }
}

/// Returns the names and values of a query.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for bytes that are not UTF-8, in place of which a name or value
/// would have other characters.
pub(super) fn pairs(query: &str) -> Result<form_urlencoded::Parse<'_>> {
    match percent_decode_str(query).decode_utf8() {
        Ok(_) => Ok(form_urlencoded::parse(query.as_bytes())),
        Err(e) => {
            Err(Error::invalid("the query has bytes that are not UTF-8: encode its text as UTF-8").with_source(e))
        }
    }
}

/// Checks that a request has no query.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) otherwise.
pub(super) fn check_none(uri: &Uri) -> Result<()> {
    match pairs(uri.query().unwrap_or_default())?.next() {
        Some((name, _)) => Err(unknown(&name, "this route has none")),
        None => Ok(()),
    }
}

/// Returns the value of the only parameter that a route has.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for another parameter, and if it is there twice.
pub(super) fn only(uri: &Uri, parameter: &str) -> Result<Option<String>> {
    let mut only = None;
    for (name, value) in pairs(uri.query().unwrap_or_default())? {
        if name != parameter {
            return Err(unknown(&name, &format!("use {parameter}")));
        }
        if only.replace(value.into_owned()).is_some() {
            return Err(repeated(parameter));
        }
    }
    Ok(only)
}

/// Returns the error for a parameter that a route does not have.
pub(super) fn unknown(name: &str, remedy: &str) -> Error {
    Error::invalid(format!("unknown parameter {name:?}: {remedy}"))
}

/// Returns the error for a parameter that is in a query several times, of which one would be ignored.
pub(super) fn repeated(name: &str) -> Error {
    Error::invalid(format!("{name} is in the query twice: send it once"))
}
