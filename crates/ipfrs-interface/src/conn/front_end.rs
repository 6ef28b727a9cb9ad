//! The interface between a connection and the front-end that serves its requests.

use std::convert::Infallible;
use std::net::IpAddr;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::Incoming;
use ipfrs_grpc::Grpc;
use ipfrs_http::{CacheableRequest, SerializedResponse, Service};

use super::received::Received;
use super::request_head::Refusal;

/// Handler for the requests of a listener. Clones share the same state.
pub(crate) trait FrontEnd: Clone + Send + Sync + 'static {
    /// Whether each short HTTP/2 response is sent separately, before other responses that are ready at the same time.
    const SENDS_AT_ONCE: bool;

    /// Paths at which connections can become WebSockets.
    const WEBSOCKET_PATHS: &'static [&'static str];

    /// Future of a response.
    type Answering: Future<Output = Result<Response<Body>, Infallible>> + Send;

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
        path: &str,
        cacheable: &CacheableRequest,
        head: &mut Vec<u8>,
    ) -> Option<SerializedResponse>;

    /// Counts a request whose head is refused, and returns its request ID.
    fn count_refused(&self, refusal: &Refusal) -> HeaderValue;
}

impl FrontEnd for Service {
    const SENDS_AT_ONCE: bool = false;

    const WEBSOCKET_PATHS: &'static [&'static str] = ipfrs_http::WEBSOCKET_PATHS;

    type Answering = ipfrs_http::Answering;

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
        path: &str,
        cacheable: &CacheableRequest,
        head: &mut Vec<u8>,
    ) -> Option<SerializedResponse> {
        self.serialized_response(path, cacheable, head)
    }

    fn count_refused(&self, refusal: &Refusal) -> HeaderValue {
        self.count_refused(&refusal.method, refusal.status, refusal.limit, &refusal.headers)
    }
}

impl FrontEnd for Grpc {
    /// A client can process each response while the server prepares the next ones.
    const SENDS_AT_ONCE: bool = true;

    const WEBSOCKET_PATHS: &'static [&'static str] = &[];

    type Answering = ipfrs_grpc::Answering;

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
