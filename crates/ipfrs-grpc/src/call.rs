//! What every call has, whatever its method: an ID, a deadline, a count, and an end that is told.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body as HttpBody, Frame, SizeHint};
use ipfrs_core::{Error, ErrorKind};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tonic::{Code, Status};

use crate::error;
use crate::inbound::Sent;
use crate::metrics::{GrpcMetrics, Method};
use crate::request_id::{self, RequestIds, X_REQUEST_ID};

const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
pub(crate) const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// What calls share.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) metrics: GrpcMetrics,
    pub(crate) ids: RequestIds,
    /// How long a client may pause in a message that is all it has to send.
    pub(crate) upload_idle: Duration,
}

/// The layer around all methods: it gives a call its ID, ends it at its deadline, and counts it when its answer has ended. A
/// method that panics is a defect, and answers INTERNAL.
pub(crate) async fn observe(State(calls): State<Arc<Calls>>, mut request: Request, next: Next) -> Response {
    let mut end = End { method: calls.metrics.of(request.uri().path()), start: std::time::Instant::now(), code: None };
    let id = calls.ids.of(request.headers());
    let deadline = timeout(request.headers()).and_then(|time| Instant::now().checked_add(time));
    request.headers_mut().insert(X_REQUEST_ID, id.clone());
    answer_in_kind(request.headers_mut());
    let patience = end.method.takes_one.then_some(calls.upload_idle);
    let request = request.map(|body| Body::new(Sent::new(body, patience)));
    let answer = AssertUnwindSafe(request_id::scope(id.clone(), next.run(request))).catch_unwind();
    let answer = match deadline {
        Some(deadline) => timeout_at(deadline, answer).await.unwrap_or_else(|_| Ok(over_time(&id).into_http())),
        None => answer.await,
    };
    let mut response = answer.unwrap_or_else(|panic| panicked(panic.as_ref(), &id).into_http());
    end.code = response.headers().get(GRPC_STATUS).map(|code| Code::from_bytes(code.as_bytes()));
    if end.code == Some(Code::OutOfRange) {
        let status = Status::from_header_map(response.headers()).unwrap_or_else(|| Status::out_of_range(""));
        let status = request_id::within(&id, || error::clarified(status));
        end.code = Some(status.code());
        response = status.into_http();
    }
    response.headers_mut().insert(X_REQUEST_ID, id.clone());
    response.map(|inner| {
        let deadline = deadline.filter(|_| end.code.is_none());
        Body::new(Answer { inner: Some(inner), id, end, deadline, timer: None })
    })
}

/// Compresses for those who compress: as the guide says (<https://grpc.io/docs/guides/compression/>), an answer is in the
/// encoding of the request unless its sender chose another. Many clients name all that they could read in each call, and ask
/// for none of it.
fn answer_in_kind(headers: &mut HeaderMap) {
    match headers.get(GRPC_ENCODING).cloned() {
        Some(encoding) => headers.insert(GRPC_ACCEPT_ENCODING, encoding),
        None => headers.remove(GRPC_ACCEPT_ENCODING),
    };
}

/// The time that a client gives a call: at most eight digits and a unit
/// (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let is_number = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let value: u64 = digits.parse().ok().filter(|_| is_number)?;
    match unit {
        "H" => Some(Duration::from_secs(value * 3_600)),
        "M" => Some(Duration::from_secs(value * 60)),
        "S" => Some(Duration::from_secs(value)),
        "m" => Some(Duration::from_millis(value)),
        "u" => Some(Duration::from_micros(value)),
        "n" => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

fn over_time(id: &HeaderValue) -> Status {
    let why = "the call did not end before its deadline (grpc-timeout): give it more time, or ask for less at a time";
    request_id::within(id, || error::status(Error::new(ErrorKind::Timeout, why)))
}

fn panicked(panic: &(dyn Any + Send), id: &HeaderValue) -> Status {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("unknown"), "a method panicked: this is a defect");
    request_id::within(id, || error::status(Error::internal("internal error: the daemon's log says more")))
}

/// The messages and the status of a call.
struct Answer {
    /// `None` after its end.
    inner: Option<Body>,
    id: HeaderValue,
    end: End,
    deadline: Option<Instant>,
    /// Once an end has had to be waited for.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Answer {
    fn is_over_time(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.deadline else { return false };
        self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline))).as_mut().poll(cx).is_ready()
    }

    /// Ends the answer with a status; what made it is dropped.
    fn end(&mut self, status: &Status) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.inner = None;
        self.end.code = Some(status.code());
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(match status.add_header(&mut trailers) {
            Ok(()) => Ok(Frame::trailers(trailers)),
            Err(unfit) => Err(axum::Error::new(unfit)),
        }))
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if this.inner.is_some() && this.is_over_time(cx) {
            let status = over_time(&this.id);
            return this.end(&status);
        }
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        let polled = request_id::within(&this.id, || {
            std::panic::catch_unwind(AssertUnwindSafe(|| Pin::new(inner).poll_frame(cx)))
        });
        let frame = match polled {
            Ok(polled) => ready!(polled),
            Err(panic) => {
                let status = panicked(panic.as_ref(), &this.id);
                return this.end(&status);
            }
        };
        match &frame {
            Some(Ok(frame)) => {
                if let Some(status) = frame.trailers_ref().and_then(|trailers| trailers.get(GRPC_STATUS)) {
                    this.end.code = Some(Code::from_bytes(status.as_bytes()));
                }
            }
            Some(Err(_)) | None => this.inner = None,
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

/// The end of a call, which is counted when this is dropped.
struct End {
    method: Arc<Method>,
    start: std::time::Instant,
    /// Once it is known.
    code: Option<Code>,
}

impl Drop for End {
    /// A client that goes away before the end, and be it before the answer begins, takes the status with it.
    fn drop(&mut self) {
        self.method.ended(self.code.unwrap_or(Code::Cancelled), self.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_up_to_eight_digits_and_a_unit() {
        let read =
            |text: &'static str| timeout(&HeaderMap::from_iter([(GRPC_TIMEOUT, HeaderValue::from_static(text))]));
        for (text, expected) in [
            ("1H", Some(Duration::from_secs(3_600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("100m", Some(Duration::from_millis(100))),
            ("99999999u", Some(Duration::from_micros(99_999_999))),
            ("0n", Some(Duration::ZERO)),
            ("", None),
            ("S", None),
            ("5", None),
            ("+5S", None),
            ("123456789S", None),
            ("5s", None),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
