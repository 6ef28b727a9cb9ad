//! Requests without a body, which the front-end receives without hyper. A response that is ready at once and in one
//! piece is written to the socket directly. hyper sends all others.

use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{CONNECTION, DATE, TRAILER, TRANSFER_ENCODING};
use axum::http::{HeaderMap, HeaderName, Method, Request, Response, Uri};
use hyper::body::{Frame, SizeHint};
use ipfrs_http::write_head;
use ipfrs_middleware::RequestDeadline;
use tokio::time::Instant;

use super::corked_body::LARGE_BYTES;
use super::front_end::FrontEnd;
use super::get_head::Get;
use super::received::Received;
use crate::request_log::Logged;

/// Headers whose meaning depends on how hyper sends the body.
const OF_HYPER: [HeaderName; 4] = [CONNECTION, DATE, TRAILER, TRANSFER_ENCODING];

/// Future of a response.
pub(crate) type Answering<F> = Pin<Box<Logged<<F as FrontEnd>::Answering>>>;

/// A request that the front-end has received.
pub(crate) struct Begun<F: FrontEnd> {
    pub(crate) deadline: RequestDeadline,
    pub(crate) answer: Answer<F>,
}

/// The response to a request.
pub(crate) enum Answer<F: FrontEnd> {
    Pending(Answering<F>),
    Ready(Response<Body>),
}

/// The body of a response whose head is written.
pub(crate) struct Complete {
    pub(crate) bytes: Bytes,
    /// The body that `bytes` came from, unless the response is cached. It holds the permit of the request, and records
    /// the response when it is dropped.
    pub(crate) body: Option<Body>,
}

impl<F: FrontEnd> Begun<F> {
    /// Passes a request from `peer` to the front-end. Returns `None` if hyper has to interpret its target.
    pub(crate) fn new(
        front_end: &F,
        peer: IpAddr,
        get: &Get<'_>,
        headers: &mut HeaderMap,
        deadline: RequestDeadline,
    ) -> Option<Self> {
        let uri: Uri = get.target.parse().ok()?;
        let mut request = Request::new(Received::empty(deadline.clone()));
        *request.method_mut() = get.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = std::mem::take(headers);
        request.extensions_mut().insert(deadline.clone());
        let answering = Logged::new(request, peer, |request| front_end.answer(request, peer));
        Some(Self { deadline, answer: Answer::Pending(Box::pin(answering)) })
    }

    /// Returns the response if it is ready and whole, and appends its head to `head`.
    ///
    /// # Errors
    /// Returns the request, which hyper has to complete.
    pub(crate) fn complete(
        self,
        method: &Method,
        now: Instant,
        head: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Result<Complete, Self> {
        let Self { deadline, answer } = self;
        let polled = match answer {
            Answer::Pending(mut answering) => match answering.as_mut().poll(cx) {
                Poll::Ready(response) => response,
                Poll::Pending => return Err(Self { deadline, answer: Answer::Pending(answering) }),
            },
            Answer::Ready(response) => Ok(response),
        };
        let Ok(response) = polled;
        let (parts, body) = response.into_parts();
        let complete = match parts.headers.keys().any(|name| OF_HYPER.contains(name)) {
            true => Err(body),
            false => whole(body, cx),
        };
        match complete {
            Ok(complete) => {
                write_head(head, method, parts.status, &parts.headers, complete.bytes.len(), now.into_std());
                Ok(complete)
            }
            Err(body) => Err(Self { deadline, answer: Answer::Ready(Response::from_parts(parts, body)) }),
        }
    }
}

/// Returns the content of a body if it is ready and in one piece. Longer bodies are sent by hyper, which corks the
/// socket for them.
fn whole(mut body: Body, cx: &mut Context<'_>) -> Result<Complete, Body> {
    if body.is_end_stream() {
        return Ok(Complete { bytes: Bytes::new(), body: Some(body) });
    }
    let Some(length) = body.size_hint().exact().filter(|length| (1..LARGE_BYTES).contains(length)) else {
        return Err(body);
    };
    match Pin::new(&mut body).poll_frame(cx) {
        Poll::Pending => Err(body),
        Poll::Ready(None) => Err(body),
        Poll::Ready(Some(first)) => match first.map(Frame::into_data) {
            Ok(Ok(bytes)) if bytes.len() as u64 == length => Ok(Complete { bytes, body: Some(body) }),
            first => {
                let first = first.map(|frame| frame.map_or_else(|frame| frame, Frame::data));
                Err(Body::new(Started { first: Some(first), rest: body }))
            }
        },
    }
}

/// A body whose first frame was read.
struct Started {
    first: Option<Result<Frame<Bytes>, axum::Error>>,
    rest: Body,
}

impl HttpBody for Started {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().and_then(|first| first.as_ref().ok()?.data_ref());
        let (first, rest) = (first.map_or(0, |data| data.len() as u64), self.rest.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + first);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + first);
        }
        hint
    }
}
