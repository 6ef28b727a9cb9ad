//! Accepting connections and serving them until the daemon drains. Between requests a connection is [`Parked`]; what is not ready
//! is answered by [hyper](crate::hyper_connection).

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::Incoming;
use ipfrs_grpc::Grpc;
use ipfrs_http::{Plain, Service, Written, log_broken_off};
use ipfrs_node::{Limit, Node, RequestDeadline};
use ipfrs_stream::Socket;
use prometheus::IntGauge;
use tokio::io::AsyncWrite;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

use crate::ServerConfig;
use crate::ends::{Drain, Ends};
use crate::hyper_connection::{Left, Protocols};
use crate::parked::{Parked, Woken};
use crate::received::Received;
use crate::request_head::Refusal;

/// How long accepting rests after the system refused a connection, for lack of descriptors as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What answers the requests of a listener. Clones are the same.
pub(crate) trait FrontEnd: Clone + Send + Sync + 'static {
    /// Whether short answers over HTTP/2 are sent each by itself, before those that are ready at the same time.
    const SENDS_AT_ONCE: bool;

    /// An answer on its way.
    type Answering: Future<Output = Result<Response<Body>, Infallible>> + Send;

    /// Answers a request from `peer`.
    fn answer(&self, request: Request<Received>, peer: IpAddr) -> Self::Answering;

    /// Returns the front-end for what follows on the connection where `connect` opens a tunnel: see
    /// [`Service::tunnel`].
    fn tunnel(&self, connect: &Request<Incoming>) -> Option<Self>;

    /// What the headers of a GET from `peer` say, where that is nothing unusual: see [`Service::plain`].
    fn plain(&self, headers: &HeaderMap, peer: IpAddr) -> Option<Plain>;

    /// The answer to a GET of HTTP/1.1 where it is ready: see [`Service::answer_written`].
    fn answer_written(&self, path: &str, plain: &Plain, head: &mut Vec<u8>) -> Option<Written>;

    /// Counts a request whose head is refused, and gives it an ID.
    fn count_refused(&self, refusal: &Refusal) -> HeaderValue;
}

impl FrontEnd for Service {
    const SENDS_AT_ONCE: bool = false;

    type Answering = ipfrs_http::Answering;

    fn answer(&self, request: Request<Received>, peer: IpAddr) -> Self::Answering {
        self.answer(request, Some(peer))
    }

    fn tunnel(&self, connect: &Request<Incoming>) -> Option<Self> {
        self.tunnel(connect)
    }

    fn plain(&self, headers: &HeaderMap, peer: IpAddr) -> Option<Plain> {
        self.plain(headers, Some(peer))
    }

    fn answer_written(&self, path: &str, plain: &Plain, head: &mut Vec<u8>) -> Option<Written> {
        self.answer_written(path, plain, head)
    }

    fn count_refused(&self, refusal: &Refusal) -> HeaderValue {
        self.count_refused(&refusal.method, refusal.status, refusal.limit, &refusal.headers)
    }
}

impl FrontEnd for Grpc {
    /// A caller has work of its own to do for each answer, beside which the next ones are made.
    const SENDS_AT_ONCE: bool = true;

    type Answering = ipfrs_grpc::Answering;

    fn answer(&self, request: Request<Received>, peer: IpAddr) -> Self::Answering {
        self.answer(request, Some(peer))
    }

    /// Opens none.
    fn tunnel(&self, _: &Request<Incoming>) -> Option<Self> {
        None
    }

    /// Nothing is: its calls are POSTs.
    fn plain(&self, _: &HeaderMap, _: IpAddr) -> Option<Plain> {
        None
    }

    fn answer_written(&self, _: &str, _: &Plain, _: &mut Vec<u8>) -> Option<Written> {
        None
    }

    fn count_refused(&self, refusal: &Refusal) -> HeaderValue {
        self.count_refused(refusal.limit, &refusal.headers)
    }
}

/// What all connections share, of whichever listener.
#[derive(Debug)]
pub(crate) struct Connections {
    protocols: Protocols,
    node: Node,
    active: IntGauge,
    slots: Arc<Semaphore>,
    tracker: TaskTracker,
    drain: Drain,
    max_header_bytes: usize,
    max_request: Duration,
    header_timeout: Duration,
    write_timeout: Duration,
    busy_poll: Duration,
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

impl Connections {
    /// A request may take `max_request`.
    pub(crate) fn new(config: &ServerConfig, max_request: Duration, node: Node, active: IntGauge) -> Arc<Self> {
        Arc::new(Self {
            protocols: Protocols::new(config, max_request, node.clone()),
            node,
            active,
            slots: Arc::new(Semaphore::new(config.max_connections)),
            tracker: TaskTracker::new(),
            drain: Drain::default(),
            max_header_bytes: config.max_header_bytes,
            max_request,
            header_timeout: config.header_timeout(),
            write_timeout: config.write_timeout(),
            busy_poll: config.busy_poll(),
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
        let mut socket = Socket::new(stream, self.node.mappings(), self.node.bandwidth());
        if F::SENDS_AT_ONCE {
            socket = socket.sending_at_once();
        }
        if let Err(error) = socket.set_write_timeout(self.write_timeout) {
            tracing::debug!(%error, "a client that takes nothing cannot be given up here");
        }
        let started = pin!(self.drain.started.cancelled());
        let cut = pin!(self.drain.cut.cancelled());
        let mut ends = Ends::new(&self.drain, started, cut, self.header_timeout);
        let mut parked = Parked::new(front_end, peer, self.max_header_bytes, self.busy_poll);
        loop {
            let asks = match poll_fn(|cx| self.poll_parked(&mut parked, &mut socket, &mut ends, cx)).await {
                Ok(Woken::Asks(asks)) => asks,
                Ok(Woken::Ends) => return close(socket, &mut ends).await,
                Ok(Woken::Cut) => return,
                Err(error) => return self.note(&error),
            };
            // In a box: what hyper needs is there while it answers, and not while the connection is idle.
            let is_new = match Box::pin(self.protocols.answer(socket, asks, &parked, &mut ends)).await {
                Ok(Left::Parked(left)) => {
                    socket = left;
                    false
                }
                // What is in a tunnel has the slot and the limits of the connection that it is in.
                Ok(Left::Tunnel(left, front_end)) => {
                    parked.enter(front_end);
                    socket = left;
                    true
                }
                Ok(Left::Closing(left)) => return close(left, &mut ends).await,
                Ok(Left::Closed) => return,
                Err(error) => return self.note(&error),
            };
            parked.park(is_new);
        }
    }

    /// Waits for a request that is not ready, or the end.
    fn poll_parked<F: FrontEnd>(
        &self,
        parked: &mut Parked<F>,
        socket: &mut Socket,
        ends: &mut Ends<'_, '_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Woken>> {
        if let Poll::Ready(woken) = parked.poll(socket, ends, cx) {
            return Poll::Ready(woken);
        }
        if parked.is_answering() {
            if ends.is_over(parked.since() + self.max_request, cx) {
                RequestDeadline::new(&self.node, self.max_request).cut().as_ref().map(log_broken_off);
                return Poll::Ready(Ok(Woken::Cut));
            }
            return ends.poll_cut(cx).map(|()| Ok(Woken::Cut));
        }
        if ends.is_draining(cx) {
            if !socket.has_arrived() {
                return Poll::Ready(Ok(Woken::Ends));
            }
            // It has asked before it was told.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if !ends.is_silent(parked.since(), cx) {
            return Poll::Pending;
        }
        if !parked.has_begun() {
            return Poll::Ready(Ok(Woken::Ends));
        }
        parked.refuse(&Refusal::late_head(self.header_timeout));
        socket.expect_more();
        cx.waker().wake_by_ref();
        Poll::Pending
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
        self.drain.start();
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

/// Ends a connection between two answers.
async fn close(mut socket: Socket, ends: &mut Ends<'_, '_>) {
    let closed = poll_fn(|cx| match Pin::new(&mut socket).poll_shutdown(cx) {
        Poll::Pending => ends.poll_cut(cx).map(Ok),
        closed => closed,
    });
    if let Err(error) = closed.await {
        tracing::trace!(%error, "the client was gone before its connection was closed");
    }
}
