//! The body of a response that holds a request permit.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use ipfrs_middleware::Held;

use crate::body::broken_off;

/// Body of a response that holds a permit. It fails if the permit is revoked for another request because the client
/// stopped reading.
pub(crate) struct PermittedBody {
    held: Held<Body>,
    /// Whether the body has already failed.
    has_failed: bool,
}

impl PermittedBody {
    pub(crate) fn new(held: Held<Body>) -> Self {
        Self { held, has_failed: false }
    }
}

impl HttpBody for PermittedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(polled) = self.held.poll(|body| Pin::new(body).poll_frame(cx)) {
            return polled;
        }
        if std::mem::replace(&mut self.has_failed, true) {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Err(axum::Error::new(broken_off(self.held.given_up())))))
    }

    fn is_end_stream(&self) -> bool {
        self.held.look(HttpBody::is_end_stream).unwrap_or(false)
    }

    fn size_hint(&self) -> SizeHint {
        self.held.look(HttpBody::size_hint).unwrap_or_default()
    }
}
