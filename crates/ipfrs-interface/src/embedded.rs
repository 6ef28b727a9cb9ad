//! The Node and the front-end without a listener: for a host program with an HTTP server of its own, and for one
//! command while no daemon runs.

use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, StatusCode};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use ipfrs_core::{Error, Result};
use ipfrs_http::{Lifecycle, Service};
use ipfrs_middleware::Rules;
use ipfrs_node::{BlockStore, Node};

use crate::Config;
use crate::gateway::remove_stale_url;
use crate::parts::Parts;

/// A gateway without a listener. Its services are mounted in the HTTP server of a host program.
#[derive(Debug)]
pub struct Embedded {
    node: Node,
    service: Service,
    lifecycle: Lifecycle,
}

impl Embedded {
    /// Opens the repo, and creates it if it does not exist (unless `store.read_only`). `holder` identifies this
    /// process to others that find the repo locked. `[server]`, `[public]`, `[grpc]`, `[auth]` and `[rate_limit]` of
    /// the configuration have no effect, except that pages from `server.port` of this machine may call the RPC.
    ///
    /// # Errors
    /// The repo is locked by another process or cannot be opened.
    pub async fn open(config: &Config, repo: &Path, holder: &str) -> Result<Self> {
        config.validate()?;
        let this = Self::new(config, Parts::open(config, repo, holder).await?)?;
        if !config.store.read_only {
            remove_stale_url(repo);
        }
        Ok(this)
    }

    /// Same as [`open`](Self::open), with the given engine in place of the configuration in `[store]`: see
    /// [`NodeBuilder::engine`](ipfrs_node::NodeBuilder::engine).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn over(config: &Config, repo: &Path, engine: Arc<dyn BlockStore>) -> Result<Self> {
        config.validate()?;
        Self::new(config, Parts::over(config, repo, engine).await?)
    }

    fn new(config: &Config, parts: Parts) -> Result<Self> {
        let lifecycle = Lifecycle::new();
        let app = parts.app(config, config.server.port, &lifecycle, &Rules::none(&parts.node))?;
        lifecycle.set_ready();
        Ok(Self { node: parts.node, service: app.service, lifecycle })
    }

    /// Returns the node.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Starts the periodic work of a daemon; see [`Node::start_maintenance`].
    pub fn start_maintenance(&self) {
        self.node.start_maintenance();
    }

    /// Returns a service for content: `/ipfs` and `/ipns`, and on the hosts in `[gateway.hosts]` what they have. It
    /// changes nothing in the store. Hosts that are not configured are not looked up in DNS.
    ///
    /// A host with subdomains or a website has content at every path, `/` included. A program that also has pages of
    /// its own must pass requests for such hosts to this service before it matches paths.
    #[must_use]
    pub fn content(&self) -> GatewayService {
        GatewayService { service: self.service.content_only(), node: self.node.clone() }
    }

    /// Returns a service for everything that the daemon's HTTP port serves.
    ///
    /// **This includes the RPC without authentication.** A client that reaches it can add, unpin and delete content
    /// (`/api/v0/repo/gc`), use the node's keys, and request a shutdown
    /// ([`shutdown_requested`](Self::shutdown_requested)). Bind the server to loopback, or put your own
    /// authentication in front of it.
    #[must_use]
    pub fn everything(&self) -> GatewayService {
        GatewayService { service: self.service.clone(), node: self.node.clone() }
    }

    /// Waits until a client requests a shutdown (`/api/v0/shutdown`). The host program decides what to do.
    pub async fn shutdown_requested(&self) {
        self.lifecycle.shutdown_requested().await;
    }

    /// Returns a router for the requests of one command, which need no `Host` header.
    pub fn router(&self) -> Router {
        let node = self.node.clone();
        self.service.router().layer(from_fn(move |request, next: axum::middleware::Next| {
            let watch = Watch::begin(&node);
            async move { watch.over(next.run(request).await) }
        }))
    }

    /// Flushes the store and releases the repo. The services must not be used afterwards.
    ///
    /// # Errors
    /// The store could not be flushed.
    pub async fn close(self) -> Result<()> {
        self.lifecycle.drain();
        self.node.close().await
    }
}

/// A service of [`Embedded`] for any HTTP server that takes [`tower::Service`]s. Mount it at the root of the server,
/// not below a path, because the URLs of its responses start at the root.
///
/// Limits per client use the address in the extension [`ConnectInfo`], which axum's
/// `into_make_service_with_connect_info::<SocketAddr>()` provides; without it, all clients share the limits of one.
/// The limits of connections (size and duration of heads, clients that stop reading) are those of the host program's
/// server.
#[derive(Debug, Clone)]
pub struct GatewayService {
    service: Service,
    node: Node,
}

impl<B> tower::Service<Request<B>> for GatewayService
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if request.method() == Method::CONNECT {
            let text = "CONNECT is not served: a tunnel needs the gateway's own listener\n";
            return Box::pin(ready(Ok((StatusCode::NOT_IMPLEMENTED, text).into_response())));
        }
        let peer = request.extensions().get().map(|ConnectInfo(peer): &ConnectInfo<SocketAddr>| peer.ip());
        let watch = Watch::begin(&self.node);
        let answer = self.service.answer(request, peer);
        Box::pin(async move { answer.await.map(|response| watch.over(response)) })
    }
}

/// The state of the stored files when a response began.
struct Watch {
    node: Node,
    /// Value of [`Node::faults`].
    faults: u64,
}

impl Watch {
    fn begin(node: &Node) -> Self {
        Self { faults: node.faults(), node: node.clone() }
    }

    /// Makes the body of a response end with an error if bytes of a stored file turn out to be missing, as on a
    /// connection of the daemon. The check takes place before each piece and at the end, and so covers all bytes that
    /// were read before.
    fn over(self, response: Response) -> Response {
        response.map(|inner| Body::new(WatchedBody { inner, watch: self }))
    }
}

/// A body that succeeds only if all bytes that it yielded were present in the store.
struct WatchedBody {
    inner: Body,
    watch: Watch,
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if self.watch.node.faults() == self.watch.faults {
            return Poll::Ready(frame);
        }
        let lost = Error::corrupt(
            "a pack was truncated while it was read: its data may be wrong; restore the file from a copy, or try \
             again to continue without the lost data",
        );
        Poll::Ready(Some(Err(axum::Error::new(lost))))
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
