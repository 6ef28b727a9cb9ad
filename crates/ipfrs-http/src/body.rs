//! Message bodies: with a known length, with a byte counter, or with a trailer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::header::CONNECTION;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use ipfrs_core::{Error, ErrorKind, Result};
pub(crate) use ipfrs_middleware::broken_body;
use ipfrs_middleware::{IdleTimer, MemoryPool, RequestMemory};
use ipfrs_node::{Limit, Node};
use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::error::rpc_message;
pub(crate) use crate::failure::broken_off;

/// A body whose length is known in advance. If the stream fails or ends early, the body fails, which resets the
/// connection. The client therefore cannot mistake a partial body for a complete one.
pub(crate) struct Sized<S> {
    stream: S,
    remaining: u64,
}

impl<S: Stream<Item = Result<Bytes>> + Send + Unpin + 'static> Sized<S> {
    pub(crate) fn body(stream: S, length: u64) -> Body {
        Body::new(Self { stream, remaining: length })
    }
}

impl<S: Stream<Item = Result<Bytes>> + Unpin> HttpBody for Sized<S> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        if self.remaining == 0 {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(match ready!(self.stream.poll_next_unpin(cx)) {
            Some(Ok(piece)) if piece.len() as u64 <= self.remaining => {
                self.remaining -= piece.len() as u64;
                Ok(Frame::data(piece))
            }
            Some(Ok(_)) => Err(broken_off(Error::corrupt("the content is longer than its root node declares"))),
            Some(Err(e)) => Err(broken_off(e)),
            None => Err(broken_off(Error::corrupt("the content is shorter than its root node declares"))),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

/// Header that marks an RPC response as a stream of bytes.
pub(crate) const X_STREAM_OUTPUT: HeaderName = HeaderName::from_static("x-stream-output");

/// Trailer with the reason why an RPC stream failed.
pub(crate) const X_STREAM_ERROR: HeaderName = HeaderName::from_static("x-stream-error");

/// A body of unknown length. If the stream fails, a client that accepts trailers receives the reason in
/// `X-Stream-Error`. For other clients the connection is reset, so that the body does not appear complete.
pub(crate) struct Chunked<S> {
    stream: S,
    takes_trailers: bool,
    ended: bool,
}

impl<S: Stream<Item = Result<Bytes>> + Send + Unpin + 'static> Chunked<S> {
    pub(crate) fn body(stream: S, takes_trailers: bool) -> Body {
        Body::new(Self { stream, takes_trailers, ended: false })
    }
}

impl<S: Stream<Item = Result<Bytes>> + Unpin> HttpBody for Chunked<S> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(self.stream.poll_next_unpin(cx)) {
            Some(Ok(piece)) => Some(Ok(Frame::data(piece))),
            Some(Err(e)) if self.takes_trailers => {
                self.ended = true;
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(X_STREAM_ERROR, header_text(&rpc_message(&e)));
                Some(Ok(Frame::trailers(trailers)))
            }
            Some(Err(e)) => Some(Err(broken_off(e))),
            None => None,
        })
    }
}

/// Returns the body of a HEAD response whose length is also unknown for GET. An empty body would state a length of 0.
pub(crate) fn unknown_length() -> Body {
    Body::from_stream(stream::empty::<Result<Bytes>>())
}

/// Bytes of a stream to read before the head of its response is sent.
pub(crate) const BEGINNING_BYTES: usize = 64 * 1024;

/// Returns the same stream after reading its beginning, so that an early failure can set the status.
///
/// # Errors
/// The error of the stream if it fails within its first [`BEGINNING_BYTES`].
pub(crate) async fn begun<S>(mut pieces: S) -> Result<impl Stream<Item = Result<Bytes>> + Send + Unpin + use<S>>
where
    S: Stream<Item = Result<Bytes>> + Send + Unpin,
{
    let (mut first, mut bytes) = (Vec::new(), 0);
    while bytes < BEGINNING_BYTES {
        let Some(piece) = pieces.next().await.transpose()? else { break };
        bytes += piece.len();
        first.push(Ok(piece));
    }
    Ok(stream::iter(first).chain(pieces))
}

/// Returns the same stream after reading its beginning, so that an early limit error can set the status. Any other
/// error stays in its place in the stream, because the data before it is useful.
///
/// # Errors
/// [`ErrorKind::TooLarge`] if the stream fails with it within its first [`BEGINNING_BYTES`].
pub(crate) async fn begun_within_limits<S>(
    mut pieces: S,
) -> Result<impl Stream<Item = Result<Bytes>> + Send + Unpin + use<S>>
where
    S: Stream<Item = Result<Bytes>> + Send + Unpin,
{
    let (mut first, mut bytes) = (Vec::new(), 0);
    while bytes < BEGINNING_BYTES {
        match pieces.next().await {
            Some(Err(error)) if error.kind() == ErrorKind::TooLarge => return Err(error),
            Some(piece) => {
                bytes = piece.as_ref().map_or(BEGINNING_BYTES, |piece| bytes + piece.len());
                first.push(piece);
            }
            None => break,
        }
    }
    Ok(stream::iter(first).chain(pieces))
}

/// Returns `text` as a header value, with `?` in place of characters that a header must not contain.
pub(crate) fn header_text(text: &str) -> HeaderValue {
    // `from_str` rejects control characters but accepts tabs and non-ASCII bytes.
    if let Ok(value) = HeaderValue::from_str(text)
        && text.is_ascii()
        && !text.contains('\t')
    {
        return value;
    }
    let safe: String = text.chars().map(|c| if (' '..='~').contains(&c) { c } else { '?' }).collect();
    HeaderValue::try_from(safe).unwrap_or_else(|_| HeaderValue::from_static("?"))
}

pin_project! {
    /// A body that reports how many bytes it delivered when it ends or is dropped. An error is delayed by one poll:
    /// hyper drops unsent data when a body fails, and the last line may state the reason.
    pub(crate) struct Observed<F: FnMut(u64)> {
        #[pin]
        inner: Body,
        bytes: u64,
        report: F,
        failed: Option<axum::Error>,
    }

    impl<F: FnMut(u64)> PinnedDrop for Observed<F> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            (this.report)(*this.bytes);
        }
    }
}

impl<F: FnMut(u64)> Observed<F> {
    pub(crate) fn new(inner: Body, report: F) -> Self {
        Self { inner, bytes: 0, report, failed: None }
    }
}

impl<F: FnMut(u64)> HttpBody for Observed<F> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.project();
        if let Some(error) = this.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let frame = ready!(this.inner.poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => *this.bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) => {
                *this.failed = frame.and_then(Result::err);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            None => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Limits for reading the unwanted rest of a request body: bytes and time.
const DRAIN_BYTES: usize = 64 * 1024 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(10);

/// Time that a response waits for the rest of the request.
const REST_TIME: Duration = Duration::from_millis(500);

/// A request body whose rest is read and discarded, within limits, if the handler drops it early. Closing a
/// connection while the client still sends can destroy the response in transit (RFC 9112, 9.6).
pub(crate) struct Drained {
    inner: Option<Body>,
    rest: watch::Sender<Rest>,
}

/// State of the rest of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Read by the handler, or not needed.
    Handled,
    /// Being discarded.
    Unwanted,
    Discarded,
}

impl Drained {
    /// Returns the body, and what the response waits for.
    pub(crate) fn new(inner: Body) -> (Self, RestOfBody) {
        let (rest, receiver) = watch::channel(Rest::Handled);
        (Self { inner: Some(inner), rest }, RestOfBody(receiver))
    }
}

/// The rest of a request body that the handler has dropped.
pub(crate) struct RestOfBody(watch::Receiver<Rest>);

impl RestOfBody {
    /// Waits for a moment until the rest of a request that has failed has arrived, as Go's servers do. If it has not,
    /// the connection ends with this response: aiohttp up to 3.9 may send its next request in place of the rest.
    pub(crate) async fn settle(mut self, response: &mut Response) {
        if *self.0.borrow() == Rest::Handled {
            return;
        }
        let discarded = timeout(REST_TIME, self.0.wait_for(|rest| *rest == Rest::Discarded)).await;
        if !matches!(discarded, Ok(Ok(_))) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

impl HttpBody for Drained {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(inner).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.inner = None;
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

impl Drop for Drained {
    fn drop(&mut self) {
        let Some(rest) = self.inner.take().filter(|rest| !rest.is_end_stream()) else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let state = self.rest.clone();
        state.send_replace(Rest::Unwanted);
        runtime.spawn(timeout(DRAIN_TIME, async move {
            let mut rest = http_body_util::Limited::new(rest, DRAIN_BYTES).into_data_stream();
            loop {
                match rest.next().await {
                    Some(Ok(_)) => {}
                    Some(Err(_)) => return,
                    None => break,
                }
            }
            state.send_replace(Rest::Discarded);
        }));
    }
}

pin_project! {
    /// A request body that fails if the client pauses for too long; see [`IdleTimer`].
    pub(crate) struct IdleTimeoutBody {
        #[pin]
        inner: Body,
        node: Node,
        timer: IdleTimer,
        // Whether the client has paused for too long. Every further read fails with this error again, and never ends
        // the body: readers stop at the first error.
        is_over: bool,
    }
}

impl IdleTimeoutBody {
    pub(crate) fn new(inner: Body, idle_limit: Duration, node: Node) -> Self {
        Self { inner, node, timer: IdleTimer::new(idle_limit), is_over: false }
    }
}

impl HttpBody for IdleTimeoutBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.project();
        if !*this.is_over {
            if let Poll::Ready(frame) = this.inner.poll_frame(cx) {
                let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
                this.timer.received(data.map_or(0, Bytes::len));
                return Poll::Ready(frame);
            }
            ready!(this.timer.poll_exceeded(cx));
            *this.is_over = true;
            this.node.count_refusal(Limit::UploadIdle);
        }
        let seconds = this.timer.limit().as_secs();
        let what = format!("the upload paused for {seconds} s (gateway.upload_idle_seconds = {seconds})");
        let why = format!("{what} and was aborted: send it again without pauses, or raise the limit");
        Poll::Ready(Some(Err(axum::Error::new(Error::incomplete_request(why)))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Returns the pieces of a request body, with errors worded for the client.
pub(crate) fn pieces(body: Body) -> impl Stream<Item = Result<Bytes>> + Send + Unpin {
    body.into_data_stream().map(|piece| piece.map_err(|e| broken_body(e.into())))
}

/// A complete request body, or a part of one, with the memory that is reserved for it until this value is dropped.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    pub(crate) memory: RequestMemory,
}

/// Appends a piece to `content` and reserves memory for it: the bytes received so far plus at most a quarter.
/// `memory` already holds `before` bytes for other data.
///
/// # Errors
/// [`ErrorKind::RateLimited`] if the memory for request bodies is exhausted.
pub(crate) fn append(content: &mut Vec<u8>, piece: &[u8], memory: &mut RequestMemory, before: usize) -> Result<()> {
    let needed = content.len() + piece.len();
    if needed > content.capacity() {
        let capacity = needed + content.len() / 4;
        memory.grow_to(before + capacity)?;
        content.reserve_exact(capacity - content.len());
    }
    content.extend_from_slice(piece);
    Ok(())
}

/// Reads a complete request body. Memory is reserved as bytes arrive, not in advance.
///
/// # Errors
/// [`ErrorKind::TooLarge`] above `limit` bytes, with the configuration key `key` and the `remedy` in its message;
/// [`ErrorKind::RateLimited`] if the memory for request bodies is exhausted.
pub(crate) async fn whole(pool: &MemoryPool, body: Body, limit: usize, key: &str, remedy: &str) -> Result<Whole> {
    let declared = http_body::Body::size_hint(&body).lower();
    let too_large = || {
        Error::new(
            ErrorKind::TooLarge,
            format!("the request body exceeds the limit of {limit} bytes ({key}): {remedy}"),
        )
    };
    if declared > limit as u64 {
        return Err(too_large());
    }
    let (mut pieces, mut content, mut memory) = (pieces(body), Vec::new(), pool.reservation());
    while let Some(piece) = pieces.next().await.transpose()? {
        if piece.len() > limit - content.len() {
            return Err(too_large());
        }
        append(&mut content, &piece, &mut memory, 0)?;
    }
    Ok(Whole { bytes: content.into(), memory })
}
