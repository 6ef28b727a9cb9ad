//! The deadline for the head of a response.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::response::Response;
use ipfrs_core::Error;
use ipfrs_middleware::RequestDeadline;

/// Returns the response if its head is available before the `deadline`, else 504, rendered by `refuse`. The
/// connection cuts off a response that takes longer after its head. A response that is available immediately needs no
/// timer, and a request without a connection has no deadline.
pub(crate) async fn in_time(
    deadline: Option<RequestDeadline>,
    handler: impl Future<Output = Response>,
    refuse: impl FnOnce(Error) -> Response,
) -> Response {
    let Some(deadline) = deadline else { return handler.await };
    let (mut handler, mut timer) = (pin!(handler), None);
    let response = poll_fn(|cx| match handler.as_mut().poll(cx) {
        Poll::Ready(response) => Poll::Ready(Some(response)),
        Poll::Pending => deadline.poll_over(&mut timer, Duration::ZERO, cx).map(|()| None),
    });
    match response.await {
        Some(response) => response,
        None => refuse(deadline.strike()),
    }
}
