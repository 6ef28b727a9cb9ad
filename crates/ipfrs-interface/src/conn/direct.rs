//! Requests without a body, which the front-end receives without hyper. A response that is ready at once and in few
//! pieces is written to the socket directly. hyper sends all others.

use std::iter;
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
use super::front_end::{FrontEnd, Received};
use super::get_head::Get;
use crate::request_log::Logged;

/// Headers whose meaning depends on how hyper sends the body.
const OF_HYPER: [HeaderName; 4] = [CONNECTION, DATE, TRAILER, TRANSFER_ENCODING];

/// Maximum number of pieces of a body that is written directly. A range of less than [`LARGE_BYTES`] takes part of at
/// most five leaves of 256 KiB.
const MAX_PIECES: usize = 8;

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
    /// Pieces after `bytes`.
    pub(crate) more: Vec<Bytes>,
    /// The body that the pieces came from, unless the response is cached. It holds the permit of the request, and
    /// records the response when it is dropped.
    pub(crate) body: Option<Body>,
}

impl Complete {
    /// Creates the body of a cached response.
    pub(crate) fn cached(bytes: Bytes) -> Self {
        Self { bytes, more: Vec::new(), body: None }
    }

    /// Returns the length of the body, in bytes.
    pub(crate) fn length(&self) -> usize {
        self.bytes.len() + self.more.iter().map(Bytes::len).sum::<usize>()
    }
}

impl<F: FrontEnd> Begun<F> {
    /// Passes a request from `peer` to the front-end. `is_chosen` is whether to trace it if its caller has not decided.
    /// Returns `None` if hyper has to interpret its target.
    pub(crate) fn new(
        front_end: &F,
        peer: IpAddr,
        get: &Get<'_>,
        headers: &mut HeaderMap,
        deadline: RequestDeadline,
        is_chosen: bool,
    ) -> Option<Self> {
        let uri: Uri = get.target.parse().ok()?;
        let mut request = Request::new(Received::empty(deadline.clone()));
        *request.method_mut() = get.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = std::mem::take(headers);
        request.extensions_mut().insert(deadline.clone());
        let answering = Logged::new(request, peer, Some(is_chosen), |request| front_end.answer(request, peer));
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
    ) -> Result<Complete, Box<Self>> {
        let Self { deadline, answer } = self;
        let polled = match answer {
            Answer::Pending(mut answering) => match answering.as_mut().poll(cx) {
                Poll::Ready(response) => response,
                Poll::Pending => return Err(Box::new(Self { deadline, answer: Answer::Pending(answering) })),
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
                write_head(head, method, parts.status, &parts.headers, complete.length(), now.into_std());
                Ok(complete)
            }
            Err(body) => Err(Box::new(Self { deadline, answer: Answer::Ready(Response::from_parts(parts, body)) })),
        }
    }
}

/// Returns the content of a body if it is ready and in few pieces. Longer bodies are sent by hyper, which corks the
/// socket for them.
fn whole(mut body: Body, cx: &mut Context<'_>) -> Result<Complete, Body> {
    let mut complete = Complete::cached(Bytes::new());
    if body.is_end_stream() {
        complete.body = Some(body);
        return Ok(complete);
    }
    let Some(mut left) = body.size_hint().exact().filter(|length| (1..LARGE_BYTES).contains(length)) else {
        return Err(body);
    };
    for number in 0..MAX_PIECES {
        let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(cx) else { break };
        match frame.map(Frame::into_data) {
            Ok(Ok(bytes)) if bytes.len() as u64 <= left => {
                left -= bytes.len() as u64;
                match number {
                    0 => complete.bytes = bytes,
                    _ => complete.more.push(bytes),
                }
                if left == 0 {
                    complete.body = Some(body);
                    return Ok(complete);
                }
            }
            frame => {
                let frame = frame.map(|frame| frame.map_or_else(|frame| frame, Frame::data));
                body = Body::new(Started { first: Some(frame), rest: body });
                break;
            }
        }
    }
    let Complete { bytes, more, .. } = complete;
    let pieces = iter::once(bytes).chain(more).filter(|piece| !piece.is_empty()).rev();
    Err(pieces.fold(body, |rest, piece| Body::new(Started { first: Some(Ok(Frame::data(piece))), rest })))
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use std::task::Waker;
    use std::time::Duration;

    use axum::http::{HeaderValue, StatusCode};
    use hyper::body::Incoming;
    use ipfrs_http::{CacheableRequest, SerializedResponse};
    use ipfrs_node::{MemoryStore, Node, NodeConfig};

    use super::*;
    use crate::conn::request_head::Refusal;

    /// A front-end whose response to a path is ready at once.
    #[derive(Clone)]
    struct Paths;

    impl FrontEnd for Paths {
        const SENDS_AT_ONCE: bool = false;

        const WEBSOCKET_PATHS: &'static [&'static str] = &[];

        const ALPN: crate::tls::Alpn = &[];

        type Answering = Ready<Result<Response<Body>, Infallible>>;

        fn protected(&self, _: ipfrs_middleware::Protection) -> Self {
            self.clone()
        }

        fn trusts(&self, _: IpAddr) -> bool {
            false
        }

        fn answer(&self, request: Request<Received>, _: IpAddr) -> Self::Answering {
            let hello = || Response::new(Body::from("hello"));
            ready(Ok(match request.uri().path() {
                "/whole" => hello(),
                "/none" => Response::default(),
                "/not-found" => hello().map_status(StatusCode::NOT_FOUND),
                "/closing" => hello().with(CONNECTION, "close"),
                "/stream" => Response::new(Body::from_stream(futures::stream::iter([Ok::<_, Infallible>("hello")]))),
                "/pieces" => Response::new(Body::new(Started {
                    first: Some(Ok(Frame::data(Bytes::from_static(b"hel")))),
                    rest: Body::from("lo"),
                })),
                "/many" => Response::new((0..MAX_PIECES).fold(Body::from("o"), |rest, _| {
                    Body::new(Started { first: Some(Ok(Frame::data(Bytes::from_static(b"l")))), rest })
                })),
                "/too-long" => Response::new(Body::new(Started {
                    first: Some(Ok(Frame::data(Bytes::from_static(b"hel")))),
                    rest: Body::new(Announced(2, Body::from("lo!"))),
                })),
                _ => Response::new(Body::from(vec![0; usize::try_from(LARGE_BYTES).unwrap()])),
            }))
        }

        fn tunnel(&self, _: &Request<Incoming>) -> Option<Self> {
            None
        }

        fn cacheable_request(&self, _: &HeaderMap, _: IpAddr) -> Option<CacheableRequest> {
            None
        }

        fn serialized_response(&self, _: &str, _: &CacheableRequest, _: &mut Vec<u8>) -> Option<SerializedResponse> {
            None
        }

        fn count_refused(&self, _: &Refusal) -> HeaderValue {
            HeaderValue::from_static("id")
        }
    }

    /// A body that announces another length than it has.
    struct Announced(u64, Body);

    impl HttpBody for Announced {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            Pin::new(&mut self.1).poll_frame(cx)
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0)
        }
    }

    trait Changed {
        fn map_status(self, status: StatusCode) -> Self;
        fn with(self, name: HeaderName, value: &'static str) -> Self;
    }

    impl Changed for Response<Body> {
        fn map_status(mut self, status: StatusCode) -> Self {
            *self.status_mut() = status;
            self
        }

        fn with(mut self, name: HeaderName, value: &'static str) -> Self {
            self.headers_mut().insert(name, HeaderValue::from_static(value));
            self
        }
    }

    #[tokio::test]
    async fn whole_responses_are_written_and_others_are_left_to_hyper() {
        let (repo, config) = (tempfile::tempdir().unwrap(), NodeConfig::default());
        let node =
            Node::builder(repo.path()).engine(Arc::new(MemoryStore::default())).config(config).open().await.unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let mut respond = |path: &str| {
            let bytes = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
            let mut headers = HeaderMap::new();
            let get = Get::parse(bytes.as_bytes(), &mut headers).unwrap();
            let deadline = RequestDeadline::new(&node, Duration::from_secs(60));
            let begun = Begun::new(&Paths, Ipv4Addr::LOCALHOST.into(), &get, &mut headers, deadline, false).unwrap();
            let mut head = Vec::new();
            let complete = begun.complete(&get.method, Instant::now(), &mut head, &mut cx);
            let head = String::from_utf8(head).unwrap();
            complete.map(|complete| {
                let body = [&[complete.bytes][..], &complete.more[..]].concat().concat();
                (head.split("Date: ").next().unwrap().to_owned(), Bytes::from(body))
            })
        };
        let written = |path: &str, lines: &str, body: &'static str| {
            (path.to_owned(), format!("HTTP/1.1 {lines}\r\n"), Bytes::from_static(body.as_bytes()))
        };
        for (path, head, body) in [
            written("/whole", "200 OK\r\nContent-Length: 5", "hello"),
            written("/none", "200 OK\r\nContent-Length: 0", ""),
            written("/not-found", "404 Not Found\r\nContent-Length: 5", "hello"),
            written("/pieces", "200 OK\r\nContent-Length: 5", "hello"),
        ] {
            assert_eq!(respond(&path).map_err(|_| path), Ok((head, body)));
        }
        let large = vec![0_u8; usize::try_from(LARGE_BYTES).unwrap()];
        for (path, content) in [
            ("/closing", b"hello".as_slice()),
            ("/stream", b"hello".as_slice()),
            ("/many", b"llllllllo".as_slice()),
            ("/too-long", b"hello!".as_slice()),
            ("/large", large.as_slice()),
        ] {
            let Err(begun) = respond(path) else { panic!("{path}") };
            let Answer::Ready(response) = begun.answer else { panic!("{path}") };
            let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
            assert!(body == content, "{path}");
        }
    }
}
