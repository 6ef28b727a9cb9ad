//! Connections while hyper answers what comes on them: HTTP/2 to its end, HTTP/1.1 until the connection is between two requests.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, Response, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use ipfrs_node::Node;
use ipfrs_stream::{Socket, Traffic};
use tokio::time::Instant;

use crate::ServerConfig;
use crate::connection::FrontEnd;
use crate::ends::{Draining, Ends};
use crate::parked::Parked;
use crate::request_log::Logged;
use crate::stalled_streams::{StreamExecutor, Watched};
use crate::tunnel::Asked;

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

/// hyper, set up.
#[derive(Debug)]
pub(crate) struct Protocols {
    http1: http1::Builder,
    http2: http2::Builder<StreamExecutor>,
}

/// What is left of a connection when hyper is done with it.
pub(crate) enum Left<F> {
    /// One between two requests.
    Parked(Socket),
    /// One that is a tunnel now, in which HTTP begins anew, with the front-end for what is in it.
    Tunnel(Socket, F),
    /// One to be closed.
    Closing(Socket),
    /// Nothing.
    Closed,
}

/// Why hyper is done.
enum Done {
    /// All requests are answered, and it waits for the next.
    Idle,
    /// The next took too long.
    Silent,
    /// HTTP says so.
    Ended,
    /// It has no more time.
    Cut,
}

impl Protocols {
    pub(crate) fn new(config: &ServerConfig, node: Node) -> Self {
        let header_bytes = u32::try_from(config.max_header_bytes).unwrap_or(u32::MAX);
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            // A client may close its sending side and still read the answer, as `nc -N` and some proxies do. It also keeps hyper
            // from reading while it answers, which is how it is known when the connection is idle.
            .half_close(true)
            .header_read_timeout(config.header_timeout())
            .max_buf_size(config.max_header_bytes);
        let mut http2 = http2::Builder::new(StreamExecutor { node, longest: config.write_timeout() });
        http2
            .timer(TokioTimer::new())
            .max_header_list_size(header_bytes)
            .max_concurrent_streams(H2_STREAMS)
            .initial_stream_window_size(H2_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(H2_CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(H2_SEND_BUFFER_BYTES)
            .keep_alive_interval(H2_PING_INTERVAL);
        Self { http1, http2 }
    }

    /// Answers what comes on the `socket` of a connection that was `parked` until now.
    ///
    /// # Errors
    /// When the connection failed.
    pub(crate) async fn answer<F: FrontEnd>(
        &self,
        socket: Socket,
        is_http2: bool,
        parked: &Parked<F>,
        ends: &mut Ends<'_, '_>,
    ) -> hyper::Result<Left<F>> {
        let (front_end, peer) = parked.parties();
        let front = Front {
            front_end,
            peer,
            asked: Arc::default(),
            traffic: socket.traffic(),
            draining: ends.draining().clone(),
        };
        if is_http2 {
            self.http2(socket, front, parked.since(), ends).await?;
            return Ok(Left::Closed);
        }
        self.http1(socket, front, parked.since(), ends).await
    }

    async fn http1<F: FrontEnd>(
        &self,
        socket: Socket,
        front: Front<F>,
        since: Instant,
        ends: &mut Ends<'_, '_>,
    ) -> hyper::Result<Left<F>> {
        let (asked, traffic) = (Arc::clone(&front.asked), socket.traffic());
        let mut connection = self.http1.serve_connection(TokioIo::new(socket), front);
        let mut is_ending = false;
        let done = poll_fn(|cx| {
            loop {
                if let Poll::Ready(end) = Pin::new(&mut connection).poll(cx) {
                    return Poll::Ready(end.map(|()| Done::Ended));
                }
                // Behind a request without a body hyper reads the next request, and that only after the answer was sent and flushed.
                if asked.is_all_read() && traffic.waits_to_read() {
                    return Poll::Ready(Ok(Done::Idle));
                }
                if !asked.has_asked() && ends.is_silent(since, cx) {
                    return Poll::Ready(Ok(Done::Silent));
                }
                if !ends.is_draining(cx) {
                    return Poll::Pending;
                }
                // Where the next request is there already, it is answered, and its answer says that it is the last.
                if is_ending || !traffic.waits_to_read() {
                    return ends.poll_cut(cx).map(|()| Ok(Done::Cut));
                }
                Pin::new(&mut connection).graceful_shutdown();
                is_ending = true;
            }
        })
        .await;
        let done = match done {
            // Its client may still be taking the last answer from the kernel: it gets the ordinary end, and no reset.
            Err(error) if error.is_timeout() => Done::Silent,
            done => done?,
        };
        // In the buffer is what hyper has read of the next request, or of what is in the tunnel.
        let parts = connection.into_parts();
        let (socket, read) = (parts.io.into_inner(), parts.read_buf);
        Ok(match (done, asked.take_tunnel()) {
            (Done::Idle, _) => Left::Parked(socket.with_unread(read)),
            (Done::Ended, Some(front_end)) => Left::Tunnel(socket.with_unread(read), front_end),
            // hyper leaves the end of a connection to us on which there was talk of another protocol. A client that asks for more
            // than it is answered may go on.
            (Done::Ended, None) => Left::Closing(socket.with_unread(read)),
            (Done::Silent, _) => Left::Closing(socket),
            (Done::Cut, _) => Left::Closed,
        })
    }

    async fn http2<F: FrontEnd>(
        &self,
        socket: Socket,
        front: Front<F>,
        since: Instant,
        ends: &mut Ends<'_, '_>,
    ) -> hyper::Result<()> {
        let asked = Arc::clone(&front.asked);
        let mut connection = pin!(self.http2.serve_connection(TokioIo::new(socket), front));
        let mut is_ending = false;
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(end) = connection.as_mut().poll(cx) {
                    return Poll::Ready(end);
                }
                if is_ending {
                    return ends.poll_cut(cx).map(Ok);
                }
                let is_silent = !asked.has_asked() && ends.is_silent(since, cx);
                if !is_silent && !ends.is_draining(cx) {
                    return Poll::Pending;
                }
                connection.as_mut().graceful_shutdown();
                is_ending = true;
            }
        })
        .await
    }
}

/// The front-end as hyper calls it, which also notes what the connection is asked for.
#[derive(Debug, Clone)]
struct Front<F> {
    front_end: F,
    /// The address of whoever connected.
    peer: IpAddr,
    asked: Arc<Asked<F>>,
    traffic: Traffic,
    /// Whether the daemon drains.
    draining: Draining,
}

impl<F: FrontEnd> hyper::service::Service<Request<Incoming>> for Front<F> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Watched<Logged<F::Answering>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.asked.note(&request, &self.front_end);
        let version = request.version();
        // HTTP/2 has its own way to say that an answer is the last. What opens a tunnel never is.
        let says_the_end = version != Version::HTTP_2 && request.method() != Method::CONNECT;
        let ends = says_the_end.then(|| self.draining.clone());
        let answer = |request| self.front_end.answer(request, self.peer);
        Watched::new(Logged::new(request, self.peer, answer), version, ends, self.traffic.clone())
    }
}
