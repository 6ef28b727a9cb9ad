//! Operations over server-sent events: the distinct connections mode of graphql-sse
//! (<https://github.com/enisdenjo/graphql-sse/blob/master/PROTOCOL.md>).

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use http::HeaderName;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use ipfrs_middleware::Lifecycle;
use tokio::time::timeout;

use super::serialized::serialized;
use crate::operation::Answer;

/// Time without an event after which a comment is sent, so that proxies do not consider the connection dead.
const HEARTBEAT: Duration = Duration::from_secs(12);

/// Header that asks proxies, such as nginx, to forward each event immediately.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

const COMPLETE: Bytes = Bytes::from_static(b"event: complete\ndata:\n\n");

/// Returns the response to an operation that was not executed.
pub(super) async fn refused(answer: Answer) -> Response {
    stream(stream::iter([answer]).boxed(), Lifecycle::new()).await
}

/// Returns the results of an operation as events.
pub(super) async fn stream(answers: BoxStream<'static, Answer>, lifecycle: Lifecycle) -> Response {
    let mut answers = answers.peekable();
    // Events from now on belong to the subscription: the first bytes tell the client that it is open.
    let _begun = futures::poll!(Pin::new(&mut answers).peek());
    let events = stream::unfold(Some((answers, lifecycle)), |state| async move {
        let (mut answers, lifecycle) = state?;
        Some(match timeout(HEARTBEAT, answers.next()).await {
            Ok(Some(answer)) => (next(answer), Some((answers, lifecycle))),
            // The client shall connect again, to the next daemon.
            Ok(None) if lifecycle.is_draining() => return None,
            Ok(None) => (COMPLETE, None),
            Err(_) => (Bytes::from_static(b":\n\n"), Some((answers, lifecycle))),
        })
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store"), (X_ACCEL_BUFFERING, "no")];
    // The first bytes go out at once: clients wait for them before they consider the connection open.
    let opened = stream::iter([Bytes::from_static(b":\n\n")]);
    (headers, Body::from_stream(opened.chain(events).map(Ok::<_, Infallible>))).into_response()
}

fn next(answer: Answer) -> Bytes {
    serialized(answer, "event: next\ndata: ", "\n\n").0
}
