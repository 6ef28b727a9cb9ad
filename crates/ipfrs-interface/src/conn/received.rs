//! Request bodies whose arriving bytes extend the deadline of the request.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};
use ipfrs_middleware::RequestDeadline;

/// Body of a request. Each piece extends the deadline.
#[derive(Debug)]
pub(crate) struct Received {
    /// `None` if the request has no body.
    inner: Option<Incoming>,
    deadline: RequestDeadline,
}

impl Received {
    pub(crate) fn new(inner: Incoming, deadline: RequestDeadline) -> Self {
        Self { inner: Some(inner), deadline }
    }

    /// Returns an empty body.
    pub(crate) fn empty(deadline: RequestDeadline) -> Self {
        Self { inner: None, deadline }
    }
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(inner).poll_frame(cx));
        if matches!(frame, Some(Ok(_))) {
            self.deadline.extend();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}
