//! The interface between a connection and the front-end that serves its requests, and the bodies of these requests.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::{Frame, Incoming, SizeHint};
use ipfrs_grpc::Grpc;
use ipfrs_http::{CacheableRequest, SerializedResponse, Service};
use ipfrs_middleware::{Protection, RequestDeadline};

use super::request_head::Refusal;
use crate::tls::{Alpn, HTTP2};

/// Handler for the requests of a listener. Clones share the same state.
pub(crate) trait FrontEnd: Clone + Send + Sync + 'static {
    /// Whether each short HTTP/2 response is sent separately, before other responses that are ready at the same time.
    const SENDS_AT_ONCE: bool;

    /// Paths at which connections can become WebSockets.
    const WEBSOCKET_PATHS: &'static [&'static str];

    /// Protocols over TLS, in the order of preference.
    const ALPN: Alpn;

    /// Future of a response.
    type Answering: Future<Output = Result<Response<Body>, Infallible>> + Send;

    /// Returns the front-end for a connection that is protected in this way.
    fn protected(&self, protection: Protection) -> Self;

    /// Returns whether an address belongs to a trusted proxy.
    fn trusts(&self, peer: IpAddr) -> bool;

    /// Returns the response to a request from `peer`.
    fn answer(&self, request: Request<Received>, peer: IpAddr) -> Self::Answering;

    /// Returns the front-end for requests in the tunnel that `connect` opens: see [`Service::tunnel`].
    fn tunnel(&self, connect: &Request<Incoming>) -> Option<Self>;

    /// Returns the relevant headers of a GET request from `peer`, if none of them is unusual: see
    /// [`Service::cacheable_request`].
    fn cacheable_request(&self, headers: &HeaderMap, peer: IpAddr) -> Option<CacheableRequest>;

    /// Returns the response to an HTTP/1.1 GET request if it is cached: see [`Service::serialized_response`].
    fn serialized_response(
        &self,
        target: &str,
        cacheable: &CacheableRequest,
        head: &mut Vec<u8>,
    ) -> Option<SerializedResponse>;

    /// Counts a request whose head is refused, and returns its request ID.
    fn count_refused(&self, refusal: &Refusal) -> HeaderValue;
}

impl FrontEnd for Service {
    const SENDS_AT_ONCE: bool = false;

    const WEBSOCKET_PATHS: &'static [&'static str] = ipfrs_http::WEBSOCKET_PATHS;

    const ALPN: Alpn = &[HTTP2, b"http/1.1"];

    type Answering = ipfrs_http::Answering;

    fn protected(&self, protection: Protection) -> Self {
        self.protected(protection)
    }

    fn trusts(&self, peer: IpAddr) -> bool {
        self.trusts(peer)
    }

    fn answer(&self, request: Request<Received>, peer: IpAddr) -> Self::Answering {
        self.answer(request, Some(peer))
    }

    fn tunnel(&self, connect: &Request<Incoming>) -> Option<Self> {
        self.tunnel(connect)
    }

    fn cacheable_request(&self, headers: &HeaderMap, peer: IpAddr) -> Option<CacheableRequest> {
        self.cacheable_request(headers, Some(peer))
    }

    fn serialized_response(
        &self,
        target: &str,
        cacheable: &CacheableRequest,
        head: &mut Vec<u8>,
    ) -> Option<SerializedResponse> {
        self.serialized_response(target, cacheable, head)
    }

    fn count_refused(&self, refusal: &Refusal) -> HeaderValue {
        self.count_refused(&refusal.method, refusal.status, refusal.limit, &refusal.headers)
    }
}

impl FrontEnd for Grpc {
    /// A client can process each response while the server prepares the next ones.
    const SENDS_AT_ONCE: bool = true;

    const WEBSOCKET_PATHS: &'static [&'static str] = &[];

    const ALPN: Alpn = &[HTTP2];

    type Answering = ipfrs_grpc::Answering;

    fn protected(&self, protection: Protection) -> Self {
        self.protected(protection)
    }

    fn trusts(&self, peer: IpAddr) -> bool {
        self.trusts(peer)
    }

    fn answer(&self, request: Request<Received>, peer: IpAddr) -> Self::Answering {
        self.answer(request, Some(peer))
    }

    /// Returns `None`, because gRPC has no tunnels.
    fn tunnel(&self, _: &Request<Incoming>) -> Option<Self> {
        None
    }

    /// Returns `None`, because all calls are POST requests.
    fn cacheable_request(&self, _: &HeaderMap, _: IpAddr) -> Option<CacheableRequest> {
        None
    }

    fn serialized_response(&self, _: &str, _: &CacheableRequest, _: &mut Vec<u8>) -> Option<SerializedResponse> {
        None
    }

    fn count_refused(&self, refusal: &Refusal) -> HeaderValue {
        self.count_refused(refusal.limit, &refusal.headers)
    }
}

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
