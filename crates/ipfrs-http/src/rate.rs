//! Requests for which the rate limits have taken a token.

use axum::body::Body;
use axum::response::Response;
use http::Extensions;
use http_body::Body as _;
use ipfrs_middleware::rate_limit::{Paced, Ticket};

/// Extension of a request for which the rate limits have decided: with the ticket, unless the client has no limits.
#[derive(Debug, Clone)]
pub(crate) struct Paid(pub(crate) Option<Ticket>);

/// Extension of a request whose client has paid for a DNS lookup, when no caller was known yet. It has paid for the
/// request too, unless there is a caller.
#[derive(Debug, Clone)]
pub(crate) struct PaidLookup(pub(crate) Ticket);

/// Returns the response to a request with these extensions: it tells what is left, and its body is paced.
pub(crate) fn paid_response(extensions: &Extensions, response: Response) -> Response {
    match extensions.get::<Paid>() {
        Some(Paid(ticket)) => paid(response, ticket.clone()),
        None => response,
    }
}

/// Same as [`paid_response`], with the ticket.
pub(crate) fn paid(mut response: Response, ticket: Option<Ticket>) -> Response {
    let Some(ticket) = ticket else { return response };
    ticket.describe(response.headers_mut());
    match ticket.limits_bytes() && !response.body().is_end_stream() {
        true => response.map(|body| Body::new(Paced::new(body, ticket))),
        false => response,
    }
}
