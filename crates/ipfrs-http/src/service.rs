//! The entry point of the front-end, called by each connection.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing::future::RouteFuture;
use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, Version};
use http_body::Body as _;
use ipfrs_middleware::Protection;
use ipfrs_node::Limit;
use pin_project_lite::pin_project;
use tower::Service as _;

use crate::access;
use crate::api_listener::{self, ApiListener, Decision};
use crate::config::Namespace;
use crate::error;
use crate::gateway::cors;
use crate::gateway::error_page::{self, Form};
use crate::gateway::handler::serve_site;
use crate::gateway::hosted;
use crate::gateway::hosts::{RequestHost, Route};
use crate::gateway::proxied::Tunnels;
use crate::gateway::response_cache::{CacheableRequest, SerializedResponse};
use crate::gateway::site::Site;
use crate::https;
use crate::rate::{Paid, paid_response};
use crate::request_id::{self, X_REQUEST_ID};
use crate::request_lifecycle::set_client;
use crate::router::content_router;
use crate::routes::{PROBES, UNMATCHED};
use crate::state::AppState;

/// Path prefix of immutable content.
const IPFS_PREFIX: &str = "/ipfs/";

/// Paths at which connections can become WebSockets.
pub const WEBSOCKET_PATHS: &[&str] = &["/ws", "/ws/ingest", "/graphql", "/graphql/ws"];

/// Methods that some resource has, for `OPTIONS *` (RFC 9110, 9.3.7).
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, CONNECT";

/// All routes, with a fast path for cached responses. Clones share the same state.
#[derive(Debug, Clone)]
pub struct Service {
    pub(crate) state: AppState,
    pub(crate) router: Router,
    /// Hosts of the tunnels that this connection's requests passed through.
    pub(crate) tunnels: Tunnels,
    /// How the connection is protected.
    pub(crate) protection: Protection,
    /// Whether there is content only. Hosts that are not configured are never looked up then.
    pub(crate) is_content_only: bool,
    /// Rules of the API listener, if this is its service.
    pub(crate) api: Option<Arc<ApiListener>>,
}

impl Service {
    /// Responds to a request. `peer` is the address of the sender, or `None` if it has no address.
    pub fn answer<B>(&self, request: Request<B>, peer: Option<IpAddr>) -> Answering
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let is_head = request.method() == Method::HEAD;
        let hsts = https::hsts(&self.protection).cloned();
        let mut request = request;
        if let Protection::Tls(over_tls) = &self.protection {
            request.extensions_mut().insert(over_tls.clone());
        }
        if !self.state.rate_limits.is_enabled() || self.is_paid_later(&request) {
            return Answering { step: self.step(request, peer), is_head, hsts };
        }
        let taken = match self.state.auth.is_unauthenticated_local_command(request.headers()) {
            true => Ok(None),
            false => self.state.rate_limits.take(self.state.hosts.client(peer, request.headers()), None),
        };
        match taken {
            Ok(ticket) => {
                request.extensions_mut().insert(Paid(ticket));
                Answering { step: self.step(request, peer), is_head, hsts }
            }
            Err(error) => Answering { step: self.over_limit(&request, peer, error), is_head, hsts },
        }
    }

    /// Whether the rate limits take a token only once the route and the caller are known: a request may have a caller
    /// who pays for it, or be a probe, which needs none.
    fn is_paid_later<B>(&self, request: &Request<B>) -> bool {
        let headers = request.headers();
        let has_session = || self.api.is_some() && headers.contains_key(COOKIE);
        let may_have_caller = || headers.contains_key(AUTHORIZATION) || has_session();
        PROBES.contains(&request.uri().path()) || (self.state.auth.is_enabled() && may_have_caller())
    }

    /// Refuses a request because of the rate limits.
    fn over_limit<B>(&self, request: &Request<B>, peer: Option<IpAddr>, error: ipfrs_core::Error) -> Step {
        let id = request_id::of(request.headers(), &self.state.request_ids);
        let (path, form) = (request.uri().path(), Form::of(request, &id));
        let mut response = access::refusal(request.headers(), error, path, &id);
        self.state.rate_limits.describe_refusal(None, response.headers_mut());
        let hosts = &self.state.hosts;
        let is_hosted = || {
            let host = hosts.read(request, peer, &self.tunnels).ok();
            host.is_some_and(|host| matches!(hosts.route(&host, path), Route::Hosted(_)))
        };
        let is_content = Namespace::of_path(path).is_some() || path.starts_with("/routing/v1/") || is_hosted();
        // A page of another origin learns the status, and when to come back.
        if self.api.is_none() && is_content {
            cors::add(response.headers_mut());
        }
        self.counted(request, error_page::shown(&self.state, form, response))
    }

    /// Reads the headers of an HTTP/1.1 GET request from `peer`, for
    /// [`serialized_response`](Self::serialized_response). `headers` must not contain lines about the connection.
    /// Returns `None` if anything besides the target can affect the response.
    pub fn cacheable_request(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Option<CacheableRequest> {
        // Rate limits count every request.
        let is_limited = self.state.rate_limits.is_enabled();
        let lacks_tls = matches!(self.protection, Protection::Missing { .. });
        let depends_on_more = self.tunnels.is_open() || self.api.is_some() || is_limited || lacks_tls;
        if lacks_host(Version::HTTP_11, headers) || depends_on_more {
            return None;
        }
        let origin = Uri::default();
        let request_host = RequestHost::read(&origin, headers, self.state.hosts.trusts(peer), false).ok()?;
        self.state.hosts.check_known(&request_host).ok()?;
        let is_ipfs_only = match self.state.hosts.route(&request_host, IPFS_PREFIX) {
            Route::Daemon => false,
            Route::Gateway => true,
            Route::Hosted(_) => return None,
        };
        CacheableRequest::of(&self.state, headers.get(HOST)?, headers, is_ipfs_only)
    }

    /// Returns the cached response to an HTTP/1.1 GET without a body whose headers are `cacheable`. The head is written
    /// to `head`, and the bytes are those of the slow path. `target` is the path of the request with its query. Returns
    /// `None`, without side effects, if no such response is cached.
    pub fn serialized_response(
        &self,
        target: &str,
        cacheable: &CacheableRequest,
        head: &mut Vec<u8>,
    ) -> Option<SerializedResponse> {
        // Limits that were set since the headers were read count every request.
        if (cacheable.is_ipfs_only && !target.starts_with(IPFS_PREFIX)) || self.state.rate_limits.is_enabled() {
            return None;
        }
        let response = self.state.response_cache.get_serialized(&self.state, target, cacheable, head)?;
        https::write_hsts(&self.protection, head);
        Some(response)
    }

    /// Decides how to respond to a request.
    fn step<B>(&self, mut request: Request<B>, peer: Option<IpAddr>) -> Step
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        if lacks_host(request.version(), request.headers()) {
            let text = "an HTTP/1.1 request needs a Host header, and no request may have several (RFC 9112, 3.2)\n";
            return self.refused(&request, peer, text);
        }
        if request.version() == Version::HTTP_2 && is_malformed(&request) {
            let text = "the request has a target other than a path, or a field whose value begins or ends with a space \
                        (RFC 9113, 8.2.1 and 8.3.1)\n";
            return self.refused(&request, peer, text);
        }
        if let Some(refusal) = https::refusal(&self.protection, &request) {
            return self.at_once(&request, peer, refusal);
        }
        if request.method() == Method::OPTIONS && request.uri().path() == "*" {
            return self.at_once(&request, peer, (StatusCode::NO_CONTENT, [(ALLOW, METHODS)]).into_response());
        }
        if request.method() == Method::CONNECT {
            return self.connect(&request, peer);
        }
        if let Some(api) = &self.api {
            return self.api_step(api, request, peer);
        }
        let hosts = &self.state.hosts;
        let client = hosts.client(peer, request.headers());
        let request_host = hosts.read(&request, peer, &self.tunnels);
        let request_host = request_host.and_then(|host| hosts.check_known(&host).map(|()| host));
        let route = request_host.map(|request_host| match hosts.route(&request_host, request.uri().path()) {
            Route::Hosted(hosted_request) if self.is_content_only => hosted_request.without_websites(),
            route => route,
        });
        match route {
            Ok(Route::Daemon | Route::Gateway) => {
                match self.state.response_cache.get(&self.state, &request, request.uri().path(), client) {
                    Ok(response) => {
                        return Step::Ready { response: Some(paid_response(request.extensions(), response)) };
                    }
                    Err(request_permit) => set_client(&mut request, client, request_permit),
                }
                // Same result as the router, with fewer instructions.
                if Namespace::of_path(request.uri().path()).is_some() {
                    let answer = serve_site(
                        self.state.clone(),
                        Site::paths(self.state.config.deserialized),
                        request.map(Body::new),
                    );
                    return Step::Content { inner: Box::pin(answer) };
                }
                Step::Routed { inner: self.router.clone().call(request) }
            }
            Ok(Route::Hosted(hosted_request)) => {
                set_client(&mut request, client, None);
                let request = request.map(Body::new);
                let answer = hosted::answer(self.state.clone(), self.router.clone(), *hosted_request, request);
                Step::Content { inner: Box::pin(answer) }
            }
            Err(e) => self.refused_with(error::status(&e), &request, peer, &format!("{e}\n")),
        }
    }

    /// Decides how to respond to a request on the API listener.
    fn api_step<B>(&self, api: &Arc<ApiListener>, mut request: Request<B>, peer: Option<IpAddr>) -> Step
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        match api.decide(&request) {
            Decision::Answer(mut response) => {
                api.add_headers(response.headers_mut());
                self.at_once(&request, peer, response)
            }
            Decision::Serve(origin) => {
                let client = self.state.hosts.client(peer, request.headers());
                set_client(&mut request, client, None);
                let answer = api_listener::serve(Arc::clone(api), self.router.clone(), request.map(Body::new), origin);
                Step::Content { inner: Box::pin(answer) }
            }
        }
    }

    /// Responds to CONNECT, with 200 if it opens a tunnel.
    fn connect<B>(&self, request: &Request<B>, peer: Option<IpAddr>) -> Step {
        match self.opened(request) {
            // The requests in the tunnel are paid for.
            Ok(_) => self.counted(request, StatusCode::OK.into_response()),
            // The bytes that follow may be meant for the tunnel and must not be read as requests.
            Err((status, text)) => self.refused_with(status, request, peer, &text),
        }
    }

    /// Returns the routes for the rest of the connection if `connect` is granted, and `None` if it is refused. The
    /// rest is HTTP, and the daemon responds to it itself, whatever host the tunnel names: it opens no connection to
    /// another host.
    pub fn tunnel<B>(&self, connect: &Request<B>) -> Option<Self> {
        let is_connect = connect.method() == Method::CONNECT && !lacks_host(connect.version(), connect.headers());
        let tunnels = is_connect.then(|| self.opened(connect).ok()).flatten()?;
        Some(Self { tunnels, ..self.clone() })
    }

    fn opened<B>(&self, connect: &Request<B>) -> Result<Tunnels, (StatusCode, String)> {
        if !self.state.hosts.is_proxy || self.api.is_some() {
            let text = "CONNECT is not served: this gateway is not a forward proxy ([gateway] proxy = false)\n";
            return Err((StatusCode::NOT_IMPLEMENTED, text.to_owned()));
        }
        if connect.version() > Version::HTTP_11 {
            let text = "tunnels require an HTTP/1.1 connection: send requests without a tunnel\n";
            return Err((StatusCode::NOT_IMPLEMENTED, text.to_owned()));
        }
        let target = connect.uri();
        let authority =
            target.authority().filter(|authority| target.scheme().is_none() && authority.port_u16().is_some());
        let Some(authority) = authority else {
            let text = "CONNECT must name a host and a port (RFC 9110, 9.3.6)\n";
            return Err((StatusCode::BAD_REQUEST, text.to_owned()));
        };
        let tunnels = self.state.hosts.tunnel(authority.as_str(), connect.headers(), &self.tunnels);
        tunnels.map_err(|e| (error::status(&e), format!("{e}\n")))
    }

    /// Refuses the request with status 400.
    fn refused<B>(&self, request: &Request<B>, peer: Option<IpAddr>, text: &str) -> Step {
        self.refused_with(StatusCode::BAD_REQUEST, request, peer, text)
    }

    /// Refuses the request with `status` and closes the connection.
    fn refused_with<B>(&self, status: StatusCode, request: &Request<B>, peer: Option<IpAddr>, text: &str) -> Step {
        self.at_once(request, peer, ([(CONNECTION, "close")], error::plain(status, text)).into_response())
    }

    /// Returns a response that is available immediately. The client pays for it, because no caller is known.
    fn at_once<B>(&self, request: &Request<B>, peer: Option<IpAddr>, response: Response) -> Step {
        let is_paid = request.extensions().get::<Paid>().is_some() || PROBES.contains(&request.uri().path());
        if self.state.rate_limits.is_enabled() && !is_paid {
            let client = self.state.hosts.client(peer, request.headers());
            if let Err(error) = self.state.rate_limits.take(client, None) {
                return self.over_limit(request, peer, error);
            }
        }
        self.counted(request, response)
    }

    /// Counts and returns a response that is available immediately.
    fn counted<B>(&self, request: &Request<B>, mut response: Response) -> Step {
        response.headers_mut().insert(X_REQUEST_ID, request_id::of(request.headers(), &self.state.request_ids));
        self.state.metrics.family(UNMATCHED, request.method()).ended_at_once(response.status());
        Step::Ready { response: Some(response) }
    }

    /// Counts a request whose head is refused with `status` because of `limit`, and returns a request ID for it: the
    /// one in `headers`, or a new one.
    pub fn count_refused(
        &self,
        method: &Method,
        status: StatusCode,
        limit: Option<Limit>,
        headers: &HeaderMap,
    ) -> HeaderValue {
        limit.into_iter().for_each(|limit| self.state.node.count_refusal(limit));
        self.state.metrics.family(UNMATCHED, method).ended_at_once(status);
        request_id::of(headers, &self.state.request_ids)
    }

    /// Returns the same front-end with content only: `/ipfs`, `/ipns` and the configured hosts, but neither the RPC nor
    /// the native API nor metrics.
    #[must_use]
    pub fn content_only(&self) -> Self {
        Self { router: content_router(self.state.clone()), is_content_only: true, ..self.clone() }
    }

    /// Returns the service of the API listener: all routes, with redirects to `gateway_port` in place of content. Its
    /// addresses are those that `/health` reports.
    #[must_use]
    pub fn api_listener(&self, gateway_port: u16, addresses: Vec<String>) -> Self {
        // A second call keeps the addresses of the first.
        let _ = self.state.api_addresses.set(addresses);
        Self { api: Some(ApiListener::new(&self.state.api, gateway_port)), ..self.clone() }
    }

    /// Returns the same front-end for one connection, which is protected in this way.
    #[must_use]
    pub fn protected(&self, protection: Protection) -> Self {
        Self { protection, ..self.clone() }
    }

    /// Returns whether an address belongs to a trusted proxy.
    #[must_use]
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.state.hosts.trusts(Some(peer))
    }

    /// Returns the routes without the fast path.
    pub fn router(&self) -> Router {
        self.router.clone()
    }
}

/// Whether a request has several `Host` headers, or is HTTP/1.1 and has none. With several, a proxy in front may have
/// used another one.
fn lacks_host(version: Version, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    match hosts.next() {
        Some(_) => hosts.next().is_some(),
        None => version == Version::HTTP_11,
    }
}

/// Whether a request violates rules of HTTP/2 that the library does not check. HTTP/1.1 refuses such a target before,
/// and removes spaces around values.
fn is_malformed<B>(request: &Request<B>) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let has_spaces = |value: &HeaderValue| is_space(value.as_bytes().first()) || is_space(value.as_bytes().last());
    let is_asterisk = request.uri().path() == "*" && request.method() != Method::OPTIONS;
    is_asterisk || request.headers().values().any(has_spaces)
}

pin_project! {
    #[project = Projected]
    enum Step {
        // The response is available.
        Ready { response: Option<Response> },
        // The router makes the response.
        Routed { #[pin] inner: RouteFuture<Infallible> },
        // A content response, or one that depends on the host.
        Content { inner: Pin<Box<dyn Future<Output = Response> + Send>> },
    }
}

pin_project! {
    /// Future of a response.
    pub struct Answering {
        #[pin]
        step: Step,
        is_head: bool,
        // Value of `Strict-Transport-Security`.
        hsts: Option<HeaderValue>,
    }
}

impl Future for Answering {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = match this.step.project() {
            Projected::Ready { response } => response.take().unwrap_or_default(),
            Projected::Routed { inner } => ready!(inner.poll(cx))?,
            Projected::Content { inner } => ready!(inner.as_mut().poll(cx)),
        };
        let mut response = if *this.is_head { without_body(response) } else { response };
        // RFC 9110, 8.6. axum sets the length of each empty body, and hyper removes it only for HTTP/1.1.
        if response.status() == StatusCode::NO_CONTENT {
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        https::add_hsts(this.hsts.as_ref(), response.headers_mut());
        Poll::Ready(Ok(response))
    }
}

/// Returns the HEAD response for a GET response. hyper drops the body of HEAD responses only for HTTP/1.1.
fn without_body(mut response: Response) -> Response {
    let length = response.body().size_hint().exact().filter(|length| *length > 0);
    if let Some(length) = length {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    response.map(|_| Body::empty())
}
