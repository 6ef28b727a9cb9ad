//! Errors of authentication, and the headers that go with them.

use std::time::Duration;

use http::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use ipfrs_core::{Error, ErrorKind};

use super::metrics::Outcome;
use crate::retry_after::limited;

/// Header by which a browser says what the response is for. Scripts send `empty`.
const SEC_FETCH_DEST: &str = "sec-fetch-dest";

pub(super) fn no_credentials() -> Error {
    unauthenticated("this needs an API key or a token: send it as `Authorization: Bearer TOKEN`")
}

/// Returns the error of a request that ends with the credentials of its caller.
#[must_use]
pub fn credentials_ended() -> Error {
    unauthenticated("the credentials have expired or were revoked")
}

pub(super) fn unauthenticated(text: &str) -> Error {
    Error::new(ErrorKind::Unauthenticated, text)
}

/// Returns the error for credentials that are refused. It does not say more than their owner needs.
pub(super) fn refused(outcome: Outcome) -> Error {
    unauthenticated(match outcome {
        Outcome::Unavailable => {
            let why = "the token cannot be verified, because the keys of its issuer are not available: try again later";
            return Error::new(ErrorKind::Unavailable, why);
        }
        Outcome::Expired => {
            "the key, token or session has expired or is not valid yet: create a new one, or check the clock"
        }
        _ => "the key or token is not valid here: it is unknown or revoked, or from another issuer",
    })
}

pub(super) fn too_many_attempts(wait: Duration) -> Error {
    let text = "too many attempts with wrong credentials came from this address (auth.max_failures_per_minute)";
    limited(text, wait)
}

/// Adds the authentication schemes to a response to a request with the headers `asked`, if it is refused for lack of
/// credentials (RFC 9110, 11.6.1; RFC 6750, 3).
pub fn challenge(asked: &HeaderMap, error: &Error, headers: &mut HeaderMap) {
    if error.kind() != ErrorKind::Unauthenticated {
        return;
    }
    headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"ipfrs\""));
    // A browser would ask for a password in the middle of a page that has its own form.
    if asked.get(SEC_FETCH_DEST).is_none_or(|dest| dest != "empty") {
        headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"ipfrs\", charset=\"UTF-8\""));
    }
}
