//! Accepts connections and serves them until the daemon drains. Between requests, a connection is [`IdleConnection`].
//! Requests without a cached response are served by [hyper](crate::conn::hyper).

mod busy_poll;
pub(crate) mod connection_permits;
mod corked_body;
mod date;
mod deadlines;
mod departure;
mod direct;
mod fast_path;
pub(crate) mod front_end;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod get_head;
mod http2_frames;
mod http2_idle;
mod http2_stall;
mod hyper;
mod log_limiter;
mod one_request;
pub(crate) mod refused;
pub(crate) mod request_head;
mod tunnel;
mod unsent;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ipfrs_http::log_broken_off;
use ipfrs_middleware::{Client, Protection, RequestDeadline, Share, catch_panic};
use ipfrs_node::{Limit, Node};
use ipfrs_stream::Socket;
use prometheus::IntGauge;
use tokio::io::AsyncWrite;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::TaskTracker;

use crate::ServerConfig;
use crate::conn::connection_permits::ConnectionPermits;
use crate::conn::deadlines::{Deadlines, Drain};
use crate::conn::fast_path::{IdleConnection, Wakeup};
use crate::conn::front_end::FrontEnd;
use crate::conn::hyper::{Outcome, Protocols};
use crate::conn::log_limiter::LogLimiter;
use crate::conn::request_head::Refusal;
use crate::this_machine::is_this_machine;
use crate::tls::{Accepted, Tls};

/// Pause after a failed accept, which is usually caused by a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// State that the connections of all listeners share.
#[derive(Debug)]
pub(crate) struct Connections {
    protocols: Protocols,
    node: Node,
    active: IntGauge,
    connection_permits: ConnectionPermits,
    /// Limits the log of connections that were closed because of their client.
    crowded: LogLimiter,
    tracker: TaskTracker,
    drain: Drain,
    max_request: Duration,
    header_timeout: Duration,
    write_timeout: Duration,
    /// Settings of idle connections.
    idle: Arc<fast_path::Settings>,
}

/// A connection whose first request is awaited.
struct Opened<F> {
    socket: Socket,
    front_end: F,
    /// Whether TLS chose HTTP/2.
    is_http2: bool,
}

/// An open connection. It is counted and holds its connection permit until this value is dropped.
struct Open {
    active: IntGauge,
    _permit: OwnedSemaphorePermit,
    /// Empty for a connection that counts for no client.
    _share: Share<Client>,
}

impl Open {
    fn count(active: &IntGauge, permit: OwnedSemaphorePermit, share: Share<Client>) -> Self {
        active.inc();
        Self { active: active.clone(), _permit: permit, _share: share }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.active.dec();
    }
}

impl Connections {
    /// `max_request` is the maximum duration of a request. With `has_api`, the API listener has connections of its own.
    pub(crate) fn new(
        config: &ServerConfig,
        has_api: bool,
        max_request: Duration,
        node: Node,
        active: IntGauge,
    ) -> Arc<Self> {
        Arc::new(Self {
            protocols: Protocols::new(config, max_request, node.clone()),
            idle: Arc::new(fast_path::Settings {
                node: node.clone(),
                max_request,
                is_fast_path_enabled: config.fast_path,
                max_header_bytes: config.max_header_bytes,
                busy_poll: config.busy_poll(),
            }),
            node,
            active,
            connection_permits: ConnectionPermits::new(config.max_connections, has_api),
            crowded: LogLimiter::default(),
            tracker: TaskTracker::new(),
            drain: Drain::default(),
            max_request,
            header_timeout: config.header_timeout(),
            write_timeout: config.write_timeout(),
        })
    }

    /// Changes `server.max_connections`.
    pub(crate) fn resize(&self, max_connections: usize) {
        self.connection_permits.resize(max_connections);
    }

    /// Accepts connections from `listener` for as long as this future is polled. `front_end` handles their requests.
    /// With `tls`, connections may be encrypted. `is_api` is set for the API listener.
    pub(crate) async fn accept<F: FrontEnd>(
        self: Arc<Self>,
        listener: TcpListener,
        front_end: F,
        tls: Option<Tls>,
        is_api: bool,
    ) {
        let mut is_failing = false;
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    is_failing = false;
                    let peer = peer.ip();
                    let own = stream.local_addr().ok().map(|own| own.ip());
                    let is_exempt = is_api || front_end.trusts(peer);
                    let Some(share) = self.share_of(peer, own, is_exempt) else { continue };
                    // The permit is acquired after accepting, so that a listener without connections holds none.
                    let Some(permit) = self.connection_permits.take(is_api).await else { return };
                    self.spawn(stream, peer, (permit, share), front_end.clone(), tls.clone());
                }
                // The client closed the connection before it was accepted.
                Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) => {}
                Err(error) => {
                    if !is_failing {
                        tracing::warn!(%error, "cannot accept connections; retrying until it succeeds");
                    }
                    is_failing = true;
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Returns the share of a new connection from `peer` to `own`, an address of this machine. It is empty if the
    /// connection counts for no client: programs on this machine and trusted proxies may stand for many. Returns `None`
    /// if the client has as many connections as are left for all others, and counts and logs that.
    fn share_of(&self, peer: IpAddr, own: Option<IpAddr>, is_exempt: bool) -> Option<Share<Client>> {
        let client = Client::of(peer);
        if is_exempt || own.is_some_and(|own| is_this_machine(peer, own)) {
            return Some(self.connection_permits.empty_share(client));
        }
        let share = self.connection_permits.share(client);
        if share.is_none() {
            self.node.count_refusal(Limit::ConnectionsPerClient);
            if let Some(left_out) = self.crowded.take(std::time::Instant::now()) {
                tracing::warn!(
                    %peer,
                    connections = self.connection_permits.held(client),
                    left_out,
                    "closed a connection: its client has as many as are left for all others. If it stands for many \
                     clients, raise server.max_connections and the limit on open files (LimitNOFILE, ulimit -n)"
                );
            }
        }
        share
    }

    fn spawn<F: FrontEnd>(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: IpAddr,
        (permit, share): (OwnedSemaphorePermit, Share<Client>),
        front_end: F,
        tls: Option<Tls>,
    ) {
        let connections = Arc::clone(self);
        self.tracker.spawn(async move {
            let _open = Open::count(&connections.active, permit, share);
            if let Some(opened) = connections.open(stream, peer, front_end, tls).await {
                connections.serve(opened, peer).await;
            }
        });
    }

    /// Prepares a new connection, with the handshake of TLS if its client begins one. Returns `None` if it ends before
    /// the first request.
    async fn open<F: FrontEnd>(
        &self,
        stream: TcpStream,
        peer: IpAddr,
        front_end: F,
        tls: Option<Tls>,
    ) -> Option<Opened<F>> {
        // Responses are written whole, so Nagle's algorithm would only delay them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::trace!(%error, "the connection was closed before it was served");
            return None;
        }
        let (mappings, bandwidth) = (self.node.mappings(), self.node.bandwidth());
        let Some(tls) = tls else {
            let socket = Socket::new(stream, mappings, bandwidth);
            return Some(Opened { socket, front_end, is_http2: false });
        };
        let own = stream.local_addr().ok()?;
        // Boxed, because a handshake is short and its state is large.
        let accepted = Box::pin(tls.accept(stream, F::ALPN, Instant::now() + self.header_timeout));
        let accepted = self.drain.started.run_until_cancelled(accepted).await??;
        Some(match accepted {
            Accepted::Plain(stream) => {
                let protection = tls.without(peer, own, front_end.trusts(peer));
                let socket = Socket::new(stream, mappings, bandwidth);
                Opened { socket, front_end: front_end.protected(protection), is_http2: false }
            }
            Accepted::Tls { stream, over_tls, is_http2 } => {
                let socket = Socket::encrypted(stream, mappings, bandwidth);
                Opened { socket, front_end: front_end.protected(Protection::Tls(over_tls)), is_http2 }
            }
        })
    }

    async fn serve<F: FrontEnd>(&self, opened: Opened<F>, peer: IpAddr) {
        let Opened { mut socket, front_end, is_http2 } = opened;
        if F::SENDS_AT_ONCE {
            socket = socket.sending_at_once();
        }
        if let Err(error) = socket.set_write_timeout(self.write_timeout) {
            tracing::debug!(%error, "cannot set the write timeout: clients that read nothing are not disconnected");
        }
        let started = pin!(self.drain.started.cancelled());
        let cut = pin!(self.drain.cut.cancelled());
        let mut deadlines = Deadlines::new(&self.drain, started, cut, self.header_timeout);
        let mut idle = IdleConnection::new(front_end, peer, is_http2, Arc::clone(&self.idle));
        loop {
            let asks = match poll_fn(|cx| self.poll_idle(&mut idle, &mut socket, &mut deadlines, cx)).await {
                Ok(Wakeup::Asks(asks)) => asks,
                Ok(Wakeup::Ended) => return close(socket, &mut deadlines).await,
                Ok(Wakeup::Cut) => return,
                Err(error) => return self.log_end(&error),
            };
            // Boxed, so that the state of hyper exists only while it serves a request, and not while the connection
            // is idle.
            let is_new = match Box::pin(self.protocols.answer(socket, asks, &mut idle, &mut deadlines)).await {
                Ok(Outcome::IdleConnection(left)) => {
                    socket = left;
                    false
                }
                // The content of a tunnel shares the permit and the limits of its connection.
                Ok(Outcome::Tunnel(left, front_end)) => {
                    idle.enter(front_end);
                    socket = left;
                    true
                }
                Ok(Outcome::WebSocket(left, session)) => {
                    drop(idle);
                    let session = catch_panic(session(Box::new(left)), || ());
                    futures::future::select(pin!(session), pin!(poll_fn(|cx| deadlines.poll_cut(cx)))).await;
                    return;
                }
                Ok(Outcome::Closing(left)) => return close(left, &mut deadlines).await,
                Ok(Outcome::Closed) => return,
                Err(error) => return self.log_end(&error),
            };
            idle.park(is_new);
        }
    }

    /// Waits for a request without a cached response, or for the end of the connection.
    fn poll_idle<F: FrontEnd>(
        &self,
        idle: &mut IdleConnection<F>,
        socket: &mut Socket,
        deadlines: &mut Deadlines<'_, '_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Wakeup>> {
        if let Poll::Ready(wakeup) = idle.poll(socket, deadlines, cx) {
            return Poll::Ready(wakeup);
        }
        if idle.is_responding() {
            if deadlines.is_over(idle.since() + self.max_request, cx) {
                RequestDeadline::new(&self.node, self.max_request).cut().as_ref().map(log_broken_off);
                return Poll::Ready(Ok(Wakeup::Cut));
            }
            return deadlines.poll_cut(cx).map(|()| Ok(Wakeup::Cut));
        }
        if deadlines.is_draining(cx) {
            if !socket.has_arrived() {
                return Poll::Ready(Ok(Wakeup::Ended));
            }
            // The request arrived before the connection could be closed.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if !deadlines.is_silent(idle.since(), cx) {
            return Poll::Pending;
        }
        if !idle.has_begun() {
            return Poll::Ready(Ok(Wakeup::Ended));
        }
        idle.refuse(&Refusal::late_head(self.header_timeout));
        socket.expect_more();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Logs the error of a connection, and counts it if the write timeout caused it.
    fn log_end(&self, error: &(dyn Error + 'static)) {
        let mut cause = Some(error);
        while let Some(this) = cause {
            if this.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::TimedOut) {
                self.node.count_refusal(Limit::WriteTimeout);
            }
            cause = this.source();
        }
        tracing::trace!(%error, "connection ended");
    }

    /// Lets running requests complete for at most `grace`, then closes the remaining connections. Returns how many
    /// were closed.
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

/// Closes a connection between two responses.
async fn close(mut socket: Socket, deadlines: &mut Deadlines<'_, '_>) {
    let closed = poll_fn(|cx| match Pin::new(&mut socket).poll_shutdown(cx) {
        Poll::Pending => deadlines.poll_cut(cx).map(Ok),
        closed => closed,
    });
    if let Err(error) = closed.await {
        tracing::trace!(%error, "the client disconnected before its connection was closed");
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;

    #[tokio::test]
    async fn client_with_its_share_of_connections_gets_no_more() {
        let (repo, registry) = (tempfile::tempdir().unwrap(), Registry::new());
        let node = Node::builder(repo.path()).registry(&registry).open().await.unwrap();
        let config = ServerConfig { max_connections: 40, ..ServerConfig::default() };
        let active = IntGauge::new("active", "connections").unwrap();
        let connections = Connections::new(&config, false, Duration::from_secs(60), node, active);
        let [crowding, other, daemon] = [1_u8, 2, 3].map(|number| IpAddr::from([192, 0, 2, number]));
        let own = Some(daemon);
        let mut held = Vec::new();
        while let Some(share) = connections.share_of(crowding, own, false) {
            held.push(share);
        }
        assert_eq!((held.len(), connections.connection_permits.held(Client::of(crowding))), (20, 20));
        assert!(connections.share_of(crowding, own, false).is_none());
        let units = |peer, own, is_exempt| connections.share_of(peer, own, is_exempt).unwrap().units();
        assert_eq!((units(crowding, own, true), units(other, own, false), units(other, None, false)), (0, 1, 1));
        assert_eq!(units(daemon, own, false), 0, "a program on this machine, by its own address");
        let families = registry.gather();
        let refusals = families.iter().find(|family| family.name() == "ipfrs_refusals_total").unwrap();
        let crowded = Limit::ConnectionsPerClient.name();
        let crowded = refusals.get_metric().iter().find(|metric| metric.get_label()[0].value() == crowded).unwrap();
        assert_eq!(crowded.get_counter().get_value(), 2.0);
    }
}
