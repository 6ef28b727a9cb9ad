//! Accepting connections and serving HTTP/1.1 and HTTP/2 on them until the daemon drains.

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use ipfrs_grpc::Grpc;
use ipfrs_http::Service;
use ipfrs_node::{Limit, Node};
use ipfrs_stream::{Socket, Traffic};
use prometheus::IntGauge;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ServerConfig;
use crate::request_log::Logged;
use crate::stalled_streams::{StreamExecutor, Watched};
use crate::tunnel::Asked;

/// How long accepting rests after the system refused a connection, for lack of descriptors as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Requests that one HTTP/2 connection may have open.
const H2_STREAMS: u32 = 256;
/// Upload bytes that one HTTP/2 stream may send ahead of us.
const H2_STREAM_WINDOW_BYTES: u32 = 512 * 1024;
/// The same of one connection, which is so much more because h2 ends a connection whose frames of DATA that wait to be read
/// lack more than half of this to 256 bytes each. A client that streams messages of 16 bytes or more faster than they are
/// answered stays below that, and waits.
const H2_CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Answer bytes that one HTTP/2 stream buffers for a slow client.
const H2_SEND_BUFFER_BYTES: usize = 1 << 20;
/// A client that has been silent for this long is asked whether it is still there.
const H2_PING_INTERVAL: Duration = Duration::from_secs(30);

/// What answers the requests of a listener. Clones are the same.
pub(crate) trait FrontEnd: Clone + Send + Sync + 'static {
    /// An answer on its way.
    type Answering: Future<Output = Result<Response<Body>, Infallible>> + Send;

    /// Answers a request from `peer`.
    fn answer(&self, request: Request<Incoming>, peer: IpAddr) -> Self::Answering;
}

impl FrontEnd for Service {
    type Answering = ipfrs_http::Answering;

    fn answer(&self, request: Request<Incoming>, peer: IpAddr) -> Self::Answering {
        self.answer(request, Some(peer))
    }
}

impl FrontEnd for Grpc {
    type Answering = ipfrs_grpc::Answering;

    fn answer(&self, request: Request<Incoming>, _peer: IpAddr) -> Self::Answering {
        self.answer(request)
    }
}

/// What all connections share, of whichever listener.
#[derive(Debug)]
pub(crate) struct Connections {
    builder: Builder<StreamExecutor>,
    node: Node,
    active: IntGauge,
    slots: Arc<Semaphore>,
    tracker: TaskTracker,
    drain: Drain,
    header_timeout: Duration,
    write_timeout: Duration,
}

/// A connection that is open: counted, and in its slot, until this is dropped, however it ends.
struct Open {
    active: IntGauge,
    _slot: OwnedSemaphorePermit,
}

impl Open {
    fn count(active: &IntGauge, slot: OwnedSemaphorePermit) -> Self {
        active.inc();
        Self { active: active.clone(), _slot: slot }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.active.dec();
    }
}

/// The two steps of ending: connections finish what they do, then whatever is left is cut.
#[derive(Debug, Default)]
struct Drain {
    /// The same as `started`, for a look that takes no lock.
    is_draining: AtomicBool,
    started: CancellationToken,
    cut: CancellationToken,
}

impl Connections {
    pub(crate) fn new(config: &ServerConfig, node: Node, active: IntGauge) -> Arc<Self> {
        Arc::new(Self {
            builder: http_builder(config, node.clone()),
            node,
            active,
            slots: Arc::new(Semaphore::new(config.max_connections)),
            tracker: TaskTracker::new(),
            drain: Drain::default(),
            header_timeout: config.header_timeout(),
            write_timeout: config.write_timeout(),
        })
    }

    /// Takes connections from `listener` for as long as it is polled, and lets `front_end` answer their requests.
    pub(crate) async fn accept<F: FrontEnd>(self: Arc<Self>, listener: TcpListener, front_end: F) {
        let mut is_failing = false;
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    is_failing = false;
                    // Only now: a listener to which nobody comes keeps no slot from the others.
                    let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await else { return };
                    self.spawn(stream, peer.ip(), slot, front_end.clone());
                }
                // The client gave up between its request to connect and our taking it.
                Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) => {}
                Err(error) => {
                    if !is_failing {
                        tracing::warn!(%error, "no connection can be accepted; trying again until it succeeds");
                    }
                    is_failing = true;
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn spawn<F: FrontEnd>(self: &Arc<Self>, stream: TcpStream, peer: IpAddr, slot: OwnedSemaphorePermit, front_end: F) {
        let connections = Arc::clone(self);
        self.tracker.spawn(async move {
            let _open = Open::count(&connections.active, slot);
            connections.serve(stream, peer, front_end).await;
        });
    }

    async fn serve<F: FrontEnd>(&self, stream: TcpStream, peer: IpAddr, front_end: F) {
        // Answers are written whole, so waiting for more to send only delays them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::trace!(%error, "the connection was gone before it was served");
            return;
        }
        let socket = Socket::new(stream, self.node.mappings(), self.node.bandwidth());
        if let Err(error) = socket.set_write_timeout(self.write_timeout) {
            tracing::debug!(%error, "a client that takes nothing cannot be given up here");
        }
        let mut socket = Some(socket);
        // What is in a tunnel has the slot and the limits of the connection that it is in.
        while let Some(current) = socket {
            socket = self.serve_http(current, peer, front_end.clone()).await;
        }
    }

    /// Serves HTTP until it ends. Gives the socket back where it ended in a tunnel, in which HTTP begins anew.
    async fn serve_http<F: FrontEnd>(&self, socket: Socket, peer: IpAddr, front_end: F) -> Option<Socket> {
        let asked = Arc::new(Asked::default());
        let front = Front { front_end, peer, asked: Arc::clone(&asked), traffic: socket.traffic() };
        let mut connection = pin!(self.builder.serve_connection_with_upgrades(TokioIo::new(socket), front));
        let mut started = pin!(self.drain.started.cancelled());
        let mut cut = pin!(self.drain.cut.cancelled());
        // hyper limits the time for a request's head, but not the time until it knows which version of HTTP it is.
        let mut silence = pin!(sleep(self.header_timeout));
        let mut is_registered = false;
        let mut is_ending = false;
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(end) = connection.as_mut().poll(cx) {
                    if let Err(error) = end {
                        self.note(error.as_ref());
                    }
                    return Poll::Ready(());
                }
                if is_ending {
                    return cut.as_mut().poll(cx);
                }
                // One poll leaves the task's waker with the token; after that, looking at the flag is enough.
                let is_draining = if is_registered {
                    self.drain.is_draining.load(Ordering::Acquire)
                } else {
                    is_registered = true;
                    started.as_mut().poll(cx).is_ready()
                };
                let is_silent = !asked.has_asked() && silence.as_mut().poll(cx).is_ready();
                if !is_draining && !is_silent {
                    return Poll::Pending;
                }
                connection.as_mut().graceful_shutdown();
                is_ending = true;
            }
        })
        .await;
        asked.tunnel().await
    }

    /// Counts a client that was given up.
    fn note(&self, error: &(dyn Error + 'static)) {
        let mut cause = Some(error);
        while let Some(this) = cause {
            if this.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::TimedOut) {
                self.node.count_refusal(Limit::WriteTimeout);
            }
            cause = this.source();
        }
        tracing::trace!(%error, "connection ended");
    }

    /// Lets running requests end for at most `grace`, then cuts what is left. Returns how many connections were cut.
    pub(crate) async fn drain(&self, grace: Duration) -> usize {
        self.drain.is_draining.store(true, Ordering::Release);
        self.drain.started.cancel();
        self.tracker.close();
        if timeout(grace, self.tracker.wait()).await.is_ok() {
            return 0;
        }
        let left = self.tracker.len();
        self.drain.cut.cancel();
        self.tracker.wait().await;
        left
    }
}

fn http_builder(config: &ServerConfig, node: Node) -> Builder<StreamExecutor> {
    let header_bytes = u32::try_from(config.max_header_bytes).unwrap_or(u32::MAX);
    let mut builder = Builder::new(StreamExecutor { node, longest: config.write_timeout() });
    builder
        .http1()
        .timer(TokioTimer::new())
        // A client may close its sending side and still read the answer, as `nc -N` and some proxies do.
        .half_close(true)
        .header_read_timeout(config.header_timeout())
        .max_buf_size(config.max_header_bytes);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(header_bytes)
        .max_concurrent_streams(H2_STREAMS)
        .initial_stream_window_size(H2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(H2_CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(H2_SEND_BUFFER_BYTES)
        .keep_alive_interval(H2_PING_INTERVAL);
    builder
}

/// The front-end as hyper calls it, which also notes that the connection has asked for something.
#[derive(Debug, Clone)]
struct Front<F> {
    front_end: F,
    /// The address of whoever connected.
    peer: IpAddr,
    asked: Arc<Asked>,
    traffic: Traffic,
}

impl<F: FrontEnd> hyper::service::Service<Request<Incoming>> for Front<F> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Watched<Logged<F::Answering>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.asked.note(&mut request);
        let version = request.version();
        let answer = |request| self.front_end.answer(request, self.peer);
        Watched::new(Logged::new(request, self.peer, answer), version, self.traffic.clone())
    }
}
