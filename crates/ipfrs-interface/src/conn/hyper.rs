//! Connections that hyper serves: HTTP/2 connections until they end, and HTTP/1.1 connections for one request.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, Response, Version};
use futures::future::Either;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use ipfrs_http::log_broken_off;
use ipfrs_middleware::RequestDeadline;
use ipfrs_middleware::overhead::CountedSocket;
use ipfrs_middleware::websocket::Session;
use ipfrs_node::Node;
use ipfrs_stream::{Socket, Traffic};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::deadlines::{DEADLINE_GRACE, Deadlines, Draining};
use super::departure::Departure;
use super::direct::{Answer, Answering, Begun};
use super::fast_path::{Asks, IdleConnection};
use super::front_end::{FrontEnd, Received};
use super::http2_frames::Frames;
use super::http2_idle::OpenStreams;
use super::http2_stall::{StreamExecutor, Watched};
use super::one_request::{OneRequest, RequestState, TAKES_TRAILERS};
use super::refused;
use super::request_head::Refusal;
use super::tunnel::RequestRecord;
use crate::ServerConfig;
use crate::request_log::Logged;

/// Maximum number of concurrent requests on an HTTP/2 connection.
const H2_STREAMS: u32 = 256;
/// Number of upload bytes that a client may send on an HTTP/2 stream before they are read.
const H2_STREAM_WINDOW_BYTES: u32 = 512 * 1024;
/// Same limit for a connection. For each buffered DATA frame shorter than 256 bytes, h2 counts the difference, and
/// closes the connection if the sum exceeds half of this window. It has a setting for that sum (`data_frame_budget`),
/// which hyper 1.12 does not pass on. A client that streams messages of 16 bytes or more faster than they are processed
/// stays below that, and is throttled by its window. gRPC streams of blocks, which may be smaller, are read ahead
/// (`ipfrs_grpc`, `block/pipeline.rs`).
const H2_CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Number of response bytes that an HTTP/2 stream buffers for a slow client.
const H2_SEND_BUFFER_BYTES: usize = 1 << 20;
/// Interval of inactivity after which the server sends a PING frame.
const H2_PING_INTERVAL: Duration = Duration::from_secs(30);

/// Number of header bytes beyond the limit that h2 accepts on HTTP/2, so that the response can explain the refusal.
/// h2 refuses larger headers without a text.
const H2_MORE_HEADER_BYTES: u32 = 64 * 1024;
/// Number of bytes that each header counts in addition to its name and value (RFC 9113, 6.5.2).
const H2_HEADER_BYTES: usize = 32;
/// hyper with the configuration of the daemon.
#[derive(Debug)]
pub(crate) struct Protocols {
    node: Node,
    max_header_bytes: usize,
    max_request: Duration,
    http1: http1::Builder,
    http2: http2::Builder<StreamExecutor>,
}

/// State of a connection after hyper has served it.
pub(crate) enum Outcome<F> {
    /// Idle between two requests.
    IdleConnection(Socket),
    /// A tunnel, in which HTTP starts again, with the front-end for its requests.
    Tunnel(Socket, F),
    /// A WebSocket, with the session that uses it.
    WebSocket(Socket, Session),
    /// To be closed.
    Closing(Socket),
    /// Already closed.
    Closed,
}

/// Reason why hyper returned the connection.
enum Done {
    /// All responses were sent, and the connection waits for the next request.
    Idle,
    /// The next request did not arrive in time.
    Silent,
    /// The connection ends according to HTTP.
    Ended,
    /// A deadline has passed, or the client has left.
    Cut,
}

impl Protocols {
    pub(crate) fn new(config: &ServerConfig, max_request: Duration, node: Node) -> Self {
        let header_bytes = u32::try_from(config.max_header_bytes).unwrap_or(u32::MAX);
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            // A client may close its sending side and still read the response, as `nc -N` and some proxies do. This
            // setting also prevents hyper from reading during a response, which is how an idle connection is
            // detected.
            .half_close(true)
            // As other servers write them. Programs that look for names in capitals are wrong, but there are many.
            .title_case_headers(true)
            .header_read_timeout(config.header_timeout())
            .max_buf_size(config.max_header_bytes + TAKES_TRAILERS.len());
        let mut http2 = http2::Builder::new(StreamExecutor { node: node.clone(), longest: config.write_timeout() });
        http2
            .timer(TokioTimer::new())
            .max_header_list_size(header_bytes.saturating_add(H2_MORE_HEADER_BYTES))
            .max_concurrent_streams(H2_STREAMS)
            .initial_stream_window_size(H2_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(H2_CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(H2_SEND_BUFFER_BYTES)
            .keep_alive_interval(H2_PING_INTERVAL);
        Self { node, max_header_bytes: config.max_header_bytes, max_request, http1, http2 }
    }

    /// Serves the request or connection on `socket`, which belongs to a connection in the state `idle`.
    ///
    /// # Errors
    /// The connection failed.
    pub(crate) async fn answer<F: FrontEnd>(
        &self,
        socket: Socket,
        asks: Asks,
        idle: &mut IdleConnection<F>,
        deadlines: &mut Deadlines<'_, '_>,
    ) -> hyper::Result<Outcome<F>> {
        let (front_end, peer) = idle.parties();
        let front = Front {
            front_end,
            peer,
            record: Arc::default(),
            begun: Mutex::new(idle.take_begun()).into(),
            streams: Arc::default(),
            state: Arc::default(),
            deadline: Arc::default(),
            node: self.node.clone(),
            max_header_bytes: self.max_header_bytes,
            max_request: self.max_request,
            traffic: socket.traffic(),
            draining: deadlines.draining().clone(),
        };
        match asks {
            Asks::Http1(extent) => self.http1(OneRequest::new(socket, extent), front, deadlines).await,
            Asks::WebSocket(extent) => {
                self.http1(OneRequest::new(socket, extent).of_websocket(), front, deadlines).await
            }
            Asks::Http2 => {
                self.http2(socket, front, idle.since(), deadlines).await?;
                Ok(Outcome::Closed)
            }
        }
    }

    async fn http1<F: FrontEnd>(
        &self,
        request: OneRequest,
        mut front: Front<F>,
        deadlines: &mut Deadlines<'_, '_>,
    ) -> hyper::Result<Outcome<F>> {
        let (record, deadline, state) = (Arc::clone(&front.record), Arc::clone(&front.deadline), request.state());
        front.state = Arc::clone(&state);
        let mut connection = self.http1.serve_connection(TokioIo::new(request), front);
        let mut departure = Departure::default();
        let done = poll_fn(|cx| {
            departure.request(&state.presence, cx);
            if let Poll::Ready(end) = Pin::new(&mut connection).poll(cx) {
                return Poll::Ready(end.map(|()| Done::Ended));
            }
            // hyper may ask for the next request while a part of the response is still in its buffer, namely when the
            // body of the request ended after the response did.
            if state.is_over() && state.is_flushed() {
                return Poll::Ready(Ok(Done::Idle));
            }
            if let Some(deadline) = deadline.get().filter(|_| !state.is_shut())
                && let Some(at) = deadline.at()
                && deadlines.is_over(at + DEADLINE_GRACE, cx)
            {
                deadline.cut().as_ref().map(log_broken_off);
                return Poll::Ready(Ok(Done::Cut));
            }
            if state.is_waiting() && departure.has_happened(&state.presence, state.may_half_close(), cx) {
                return Poll::Ready(Ok(Done::Cut));
            }
            // While the daemon drains, new responses state that they are the last one.
            if deadlines.is_draining(cx) { deadlines.poll_cut(cx).map(|()| Ok(Done::Cut)) } else { Poll::Pending }
        })
        .await;
        let done = match done {
            // The client may still be reading the last response from the kernel, so the connection is closed without
            // a reset.
            Err(error) if error.is_timeout() => Done::Silent,
            done => done?,
        };
        // The buffer contains bytes that hyper has read but not used, of the request or of the tunnel.
        let parts = connection.into_parts();
        let (socket, read) = (parts.io.into_inner().into_socket(), parts.read_buf);
        Ok(match (done, record.take_tunnel()) {
            // The rest of the response is lost: a reset tells the client.
            (Done::Ended, _) if !state.is_flushed() => Outcome::Closed,
            (Done::Idle, _) => Outcome::IdleConnection(socket.with_unread(read)),
            (Done::Ended, None) if let Some(session) = record.take_session() => {
                Outcome::WebSocket(socket.with_unread(read), session)
            }
            (Done::Ended, Some(front_end)) => Outcome::Tunnel(socket.with_unread(read), front_end),
            // hyper leaves a connection open if its client requested a protocol upgrade. The client may still be
            // sending.
            (Done::Ended, None) => Outcome::Closing(socket.with_unread(read)),
            (Done::Silent, _) => Outcome::Closing(socket),
            (Done::Cut, _) => Outcome::Closed,
        })
    }

    async fn http2<F: FrontEnd>(
        &self,
        socket: Socket,
        front: Front<F>,
        since: Instant,
        deadlines: &mut Deadlines<'_, '_>,
    ) -> hyper::Result<()> {
        let streams = Arc::clone(&front.streams);
        let socket = CountedSocket::new(socket, Frames::default(), since);
        let mut connection = pin!(self.http2.serve_connection(TokioIo::new(socket), front));
        let mut ending: Option<Instant> = None;
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(end) = connection.as_mut().poll(cx) {
                    return Poll::Ready(end);
                }
                if let Some(ending) = ending {
                    // A client need not respond to the end of the connection.
                    let is_idle =
                        streams.idle_since(ending, cx).is_some_and(|idle| deadlines.is_silent(idle.max(ending), cx));
                    return if is_idle { Poll::Ready(Ok(())) } else { deadlines.poll_cut(cx).map(Ok) };
                }
                let is_silent = streams.idle_since(since, cx).is_some_and(|since| deadlines.is_silent(since, cx));
                if !is_silent && !deadlines.is_draining(cx) {
                    return Poll::Pending;
                }
                connection.as_mut().graceful_shutdown();
                ending = Some(Instant::now());
            }
        })
        .await
    }
}

/// The front-end as a hyper service, which also records the requests of the connection.
#[derive(Clone)]
struct Front<F: FrontEnd> {
    front_end: F,
    /// Address of the peer.
    peer: IpAddr,
    record: Arc<RequestRecord<F>>,
    /// The request, if the front-end has received it already.
    begun: Arc<Mutex<Option<Begun<F>>>>,
    /// The streams of HTTP/2.
    streams: Arc<OpenStreams>,
    /// State of the HTTP/1.1 request.
    state: Arc<RequestState>,
    /// Deadline of the HTTP/1.1 request.
    deadline: Arc<OnceLock<RequestDeadline>>,
    node: Node,
    max_header_bytes: usize,
    max_request: Duration,
    traffic: Traffic,
    /// Whether the daemon drains.
    draining: Draining,
}

impl<F: FrontEnd> hyper::service::Service<Request<Incoming>> for Front<F> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Watched<Either<Answering<F>, Ready<Result<Response<Body>, Infallible>>>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let version = request.version();
        if version != Version::HTTP_2 {
            self.record.note(&mut request, &self.front_end);
        }
        let begun = self.begun.lock().take();
        let new_deadline = || RequestDeadline::new(&self.node, self.max_request);
        let deadline = begun.as_ref().map_or_else(new_deadline, |begun| begun.deadline.clone());
        if version != Version::HTTP_2 {
            let _first = self.deadline.set(deadline.clone());
        }
        // HTTP/2 announces the end of a connection with its own frame. A response that opens a tunnel is never the
        // last one.
        let announces_close = version != Version::HTTP_2 && request.method() != Method::CONNECT;
        let deadlines = announces_close.then(|| self.draining.clone());
        let answer = if let Some(begun) = begun {
            match begun.answer {
                Answer::Pending(answering) => Either::Left(answering),
                Answer::Ready(response) => Either::Right(ready(Ok(response))),
            }
        } else if version == Version::HTTP_2 && header_list_bytes(&request) > self.max_header_bytes {
            let refusal = Refusal::large_head(self.max_header_bytes).of_http2(&request);
            Either::Right(ready(Ok(refused::response(&self.front_end, &refusal, self.peer))))
        } else {
            Either::Left(self.logged_response(request, &deadline))
        };
        let open = (version == Version::HTTP_2).then(|| OpenStreams::open(&self.streams));
        Watched::new(answer, open, deadlines, self.traffic.clone(), Arc::clone(&self.state), deadline)
    }
}

impl<F: FrontEnd> Front<F> {
    fn logged_response(&self, request: Request<Incoming>, deadline: &RequestDeadline) -> Answering<F> {
        let mut request = request.map(|body| Received::new(body, deadline.clone()));
        request.extensions_mut().insert(deadline.clone());
        Box::pin(Logged::new(request, self.peer, None, |request| self.front_end.answer(request, self.peer)))
    }
}

/// Returns the size of the header list as defined in RFC 9113, 6.5.2, including the pseudo-headers.
fn header_list_bytes<B>(request: &Request<B>) -> usize {
    let size = |name: usize, value: usize| name + value + H2_HEADER_BYTES;
    let uri = request.uri();
    let target = uri.path_and_query().map_or(0, |target| size(":path".len(), target.as_str().len()))
        + uri.authority().map_or(0, |authority| size(":authority".len(), authority.as_str().len()))
        + uri.scheme_str().map_or(0, |scheme| size(":scheme".len(), scheme.len()))
        + size(":method".len(), request.method().as_str().len());
    request.headers().iter().fold(target, |sum, (name, value)| sum + size(name.as_str().len(), value.len()))
}
