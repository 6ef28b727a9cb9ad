//! Bodies of requests whose callers may lose their rights while they send.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use ipfrs_middleware::auth::{Caller, credentials_ended};

/// A request body that fails once the credentials of its caller have expired or were revoked.
pub(crate) struct RevocableBody {
    inner: Body,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
    has_ended: bool,
}

impl RevocableBody {
    /// Returns the body itself if its caller has no credentials.
    pub(crate) fn of(caller: &Caller, inner: Body) -> Body {
        if caller.principal().is_none() {
            return inner;
        }
        let caller = caller.clone();
        Body::new(Self { inner, end: Box::pin(async move { caller.ended().await }), has_ended: false })
    }
}

impl HttpBody for RevocableBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        if self.end.as_mut().poll(cx).is_ready() {
            self.has_ended = true;
            return Poll::Ready(Some(Err(axum::Error::new(credentials_ended()))));
        }
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
