//! Requests for which the rate limits have taken a token.

use axum::body::Body;
use axum::response::Response;
use http_body::Body as _;
use ipfrs_middleware::rate_limit::{Paced, Ticket};

/// Extension of a request that needs no token of the rate limits, or for which they have taken one already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HasTicket;

/// Returns the response to a request with a ticket: it tells what is left, and its body is paced.
pub(crate) fn paid(mut response: Response, ticket: Ticket) -> Response {
    ticket.describe(response.headers_mut());
    match ticket.limits_bytes() && !response.body().is_end_stream() {
        true => response.map(|body| Body::new(Paced::new(body, ticket))),
        false => response,
    }
}
