//! Bodies of requests that must not retrieve anything.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use ipfrs_node::{RequestContext, within_context};

/// A body that is still being written, by streams that would otherwise retrieve missing blocks.
pub(super) struct OfflineBody {
    inner: Body,
    context: RequestContext,
}

impl OfflineBody {
    pub(super) fn body(inner: Body) -> Body {
        Body::new(Self { inner, context: RequestContext { offline: true, ..RequestContext::default() } })
    }
}

impl HttpBody for OfflineBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let context = self.context.clone();
        within_context(context, || Pin::new(&mut self.inner).poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
