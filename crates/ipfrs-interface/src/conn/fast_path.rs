//! Idle connections, which hold their sockets and little other memory. The fast path is here: requests with a cached
//! response or a refused head, and requests without a body whose response is [ready at once](super::direct). All others
//! are passed to hyper, on the slow path, once their heads are complete and checked.

use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::HeaderMap;
use ipfrs_http::CacheableRequest;
use ipfrs_middleware::RequestDeadline;
use ipfrs_node::Node;
use ipfrs_stream::Socket;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

use super::deadlines::Deadlines;
use super::direct::{Begun, Complete};
use super::front_end::FrontEnd;
use super::get_head::Get;
use super::request_head::{self, BodyLength, Extent, Refusal};
use super::unsent::{Unsent, send};
use super::{busy_poll, refused};
use crate::{request_log, traces};

/// Connection preface of an HTTP/2 client (RFC 9113, 3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Maximum number of bytes to read at once. Requests with larger heads use the slow path.
const READ_BYTES: usize = 8 * 1024;

/// Maximum length of header lines that are stored for comparison.
const MAX_STORED_HEADER_BYTES: usize = 1024;

/// Scratch memory of a thread for processing a connection.
struct Scratch {
    read: Box<[u8]>,
    headers: HeaderMap,
    head: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        read: vec![0; READ_BYTES].into(),
        headers: HeaderMap::new(),
        head: Vec::new(),
    });
}

/// A request or connection for hyper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// An HTTP/1.1 request.
    Http1(Extent),
    /// An HTTP/1.1 request that may open a WebSocket.
    WebSocket(Extent),
    /// An HTTP/2 connection.
    Http2,
}

/// Reason why a connection stops being idle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wakeup {
    /// A request or connection for hyper, which can be read from the socket.
    Asks(Asks),
    /// The connection is to be closed: the client closed its sending side, or sent no request in time.
    Ended,
    /// The connection was terminated during a response, after its deadline.
    Cut,
}

/// An idle connection, or one whose responses are ready at once.
pub(crate) struct IdleConnection<F: FrontEnd> {
    front_end: F,
    /// Address of the peer.
    peer: IpAddr,
    /// Whether the connection has had no request yet, so that it may still start with HTTP/2.
    is_new: bool,
    /// Whether ALPN chose HTTP/2, so that nothing else may come.
    is_http2: bool,
    settings: Arc<Settings>,
    /// An incomplete head.
    partial_head: Vec<u8>,
    /// Headers of the last request with a cached response. Most clients repeat the same headers.
    last_headers: Option<Box<LastHeaders>>,
    /// Rest of a response, which the socket has not accepted yet.
    unsent: Option<Box<Unsent>>,
    /// The request for hyper, if the front-end has received it already.
    begun: Option<Box<Begun<F>>>,
    /// Time at which the connection became idle, or began to send a response.
    since: Instant,
    /// Whether there was a response since the task last waited for the socket.
    has_responded: bool,
    /// Whether the connection ends after the response, because the last request was refused.
    is_refused: bool,
}

/// Settings of idle connections.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) node: Node,
    /// Maximum duration of a request.
    pub(crate) max_request: Duration,
    /// `server.fast_path`: whether responses are sent from here.
    pub(crate) is_fast_path_enabled: bool,
    /// `server.max_header_bytes`.
    pub(crate) max_header_bytes: usize,
    /// `server.busy_poll_microseconds`: how long to poll for the next request before waiting for it.
    pub(crate) busy_poll: Duration,
}

/// Headers of an earlier request.
struct LastHeaders {
    lines: Box<[u8]>,
    cacheable: CacheableRequest,
}

impl<F: FrontEnd> IdleConnection<F> {
    /// Creates the state of a connection from `peer` that has had no request yet. `is_http2` says that ALPN chose
    /// HTTP/2.
    pub(crate) fn new(front_end: F, peer: IpAddr, is_http2: bool, settings: Arc<Settings>) -> Self {
        Self {
            front_end,
            peer,
            is_new: true,
            is_http2,
            settings,
            partial_head: Vec::new(),
            last_headers: None,
            unsent: None,
            begun: None,
            since: Instant::now(),
            has_responded: false,
            is_refused: false,
        }
    }

    /// Marks the connection as idle. `is_new` means that the next request starts its own version of HTTP.
    pub(crate) fn park(&mut self, is_new: bool) {
        self.is_new = is_new;
        self.since = Instant::now();
        self.has_responded = true;
    }

    /// Continues in a tunnel, with `front_end` for its requests.
    pub(crate) fn enter(&mut self, front_end: F) {
        self.front_end = front_end;
        self.last_headers = None;
    }

    /// Returns the front-end and the address of the peer.
    pub(crate) fn parties(&self) -> (F, IpAddr) {
        (self.front_end.clone(), self.peer)
    }

    /// Returns the request for hyper, if the front-end has received it already.
    pub(crate) fn take_begun(&mut self) -> Option<Begun<F>> {
        self.begun.take().map(|begun| *begun)
    }

    /// Returns the time since when the connection waits for a request.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Whether a response is being sent.
    pub(crate) fn is_responding(&self) -> bool {
        self.unsent.is_some()
    }

    /// Whether a part of an HTTP/1 request head has arrived.
    pub(crate) fn has_begun(&self) -> bool {
        !self.partial_head.is_empty() && (!self.is_new || !PREFACE.starts_with(&self.partial_head))
    }

    /// Sends responses that are ready at once, until a request needs hyper, or a response must state that it is the
    /// last one.
    ///
    /// # Errors
    /// The error of the socket.
    pub(crate) fn poll(
        &mut self,
        socket: &mut Socket,
        deadlines: &Deadlines<'_, '_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Wakeup>> {
        loop {
            if let Some(unsent) = &mut self.unsent {
                ready!(unsent.poll_send(socket, cx))?;
                self.unsent = None;
                self.since = Instant::now();
            }
            if self.is_refused {
                return Poll::Ready(Ok(Wakeup::Ended));
            }
            let wakeup = SCRATCH.with_borrow_mut(|scratch| self.poll_requests(socket, deadlines, scratch, cx));
            match wakeup? {
                Poll::Ready(Some(wakeup)) => return Poll::Ready(Ok(wakeup)),
                Poll::Ready(None) => {}
                Poll::Pending => {
                    self.look(socket);
                    return Poll::Pending;
                }
            }
        }
    }

    /// Polls for the next request if a response was just sent. The socket stays registered for wakeups.
    fn look(&mut self, socket: &mut Socket) {
        let busy_poll = self.settings.busy_poll;
        if std::mem::take(&mut self.has_responded) && !busy_poll.is_zero() {
            busy_poll::look(std::ptr::from_ref(self).addr(), busy_poll, || socket.has_arrived());
        }
    }

    /// Reads once, and sends the responses to the requests that are ready at once. Returns `None` if there may be more
    /// requests.
    fn poll_requests(
        &mut self,
        socket: &mut Socket,
        deadlines: &Deadlines<'_, '_>,
        scratch: &mut Scratch,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Wakeup>>> {
        let mut buf = ReadBuf::new(&mut scratch.read);
        ready!(Pin::new(&mut *socket).poll_read(cx, &mut buf))?;
        let mut partial_head = std::mem::take(&mut self.partial_head);
        if buf.filled().is_empty() {
            return Poll::Ready(Ok(Some(Wakeup::Ended)));
        }
        let seen = partial_head.len();
        let read = if seen == 0 {
            buf.filled()
        } else {
            partial_head.extend_from_slice(buf.filled());
            &partial_head
        };
        if self.is_http2 && (read.len() >= PREFACE.len() || !PREFACE.starts_with(read)) {
            // The client cannot read a refusal of HTTP/1.1: hyper ends a malformed preface (RFC 9113, 3.4).
            socket.unread(Bytes::copy_from_slice(read));
            return Poll::Ready(Ok(Some(Wakeup::Asks(Asks::Http2))));
        }
        let mut rest = &read[request_head::empty_lines(read)..];
        // An HTTP/2 preface can only start at the first byte of a connection.
        self.is_new &= rest.len() == read.len();
        // A head that arrives in many pieces is parsed only once its end has arrived, not for each piece.
        let is_worth_parsing = seen == 0 || request_head::has_end(read, seen) || ends_first_line(read, seen);
        while !rest.is_empty() && is_worth_parsing && self.unsent.is_none() && !deadlines.draining().has_begun() {
            scratch.head.clear();
            let Some((len, complete)) = self.respond(rest, &mut scratch.headers, &mut scratch.head, cx) else { break };
            rest = &rest[len..];
            rest = &rest[request_head::empty_lines(rest)..];
            self.is_new = false;
            self.has_responded = true;
            self.unsent = send(socket, cx, &scratch.head, complete)?;
        }
        if rest.is_empty() || self.unsent.is_some() {
            socket.unread(Bytes::copy_from_slice(rest));
            return Poll::Ready(Ok(None));
        }
        if self.is_new && rest.starts_with(PREFACE) {
            socket.unread(Bytes::copy_from_slice(rest));
            return Poll::Ready(Ok(Some(Wakeup::Asks(Asks::Http2))));
        }
        let max_header_bytes = self.settings.max_header_bytes;
        let may_go_on = rest.len() < max_header_bytes;
        let is_partial = !is_worth_parsing || (self.is_new && PREFACE.starts_with(rest));
        let checked = if is_partial && may_go_on { Ok(None) } else { request_head::check(rest, max_header_bytes) };
        Poll::Ready(Ok(match checked {
            Ok(Some(extent)) => {
                if opens_websocket::<F>(&rest[..extent.head]) {
                    socket.unread(Bytes::copy_from_slice(rest));
                    Some(Wakeup::Asks(Asks::WebSocket(extent)))
                } else {
                    socket.unread(without_upgrade(rest, extent.head));
                    Some(Wakeup::Asks(Asks::Http1(extent)))
                }
            }
            Ok(None) => {
                let before = read.len() - rest.len();
                self.partial_head = if seen == 0 { rest.to_vec() } else { without_first(partial_head, before) };
                None
            }
            Err(refusal) => {
                self.refuse(&refusal);
                socket.expect_more();
                None
            }
        }))
    }

    /// Responds to a request whose head is refused, and ends the connection.
    pub(crate) fn refuse(&mut self, refusal: &Refusal) {
        self.partial_head = Vec::new();
        let head = refused::serialized(&self.front_end, refusal, self.peer);
        self.since = Instant::now();
        self.is_refused = true;
        self.unsent = Some(Box::new(Unsent::new(head)));
    }

    /// Returns the length of the request at the start of `bytes` and the body of its response, and writes the head to
    /// `head`. Returns `None` if the response is not ready, or if the request is not that of a [`Get`].
    fn respond(
        &mut self,
        bytes: &[u8],
        headers: &mut HeaderMap,
        head: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Option<(usize, Complete)> {
        if !self.settings.is_fast_path_enabled {
            return None;
        }
        let max_header_bytes = self.settings.max_header_bytes;
        let is_chosen = traces::is_chosen();
        let repeated = self
            .last_headers
            .as_ref()
            .filter(|_| !is_chosen)
            .and_then(|last_headers| Some((Get::like(bytes, &last_headers.lines)?, &last_headers.cacheable)));
        if let Some((get, cacheable)) = repeated.filter(|(get, _)| get.len <= max_header_bytes)
            && let Some(answer) = self.front_end.serialized_response(get.target, cacheable, head)
        {
            request_log::written(get.target, cacheable, self.peer, head, &answer);
            self.since = answer.start.into();
            return Some((get.len, Complete::cached(answer.body)));
        }
        let get = Get::parse(bytes, headers).filter(|get| get.len <= max_header_bytes)?;
        if get.is_cacheable
            && !is_chosen
            && let Some(cacheable) = self.front_end.cacheable_request(headers, self.peer)
            && let Some(answer) = self.front_end.serialized_response(get.target, &cacheable, head)
        {
            request_log::written(get.target, &cacheable, self.peer, head, &answer);
            if cacheable.is_memoizable() && !get.lines.is_empty() && get.lines.len() <= MAX_STORED_HEADER_BYTES {
                self.last_headers = Some(Box::new(LastHeaders { lines: get.lines.into(), cacheable }));
            }
            self.since = answer.start.into();
            return Some((get.len, Complete::cached(answer.body)));
        }
        // The limits of heads.
        let extent = request_head::check(bytes, max_header_bytes).ok()??;
        if extent != Extent::new(get.len, BodyLength::Bytes(0)) {
            return None;
        }
        let now = Instant::now();
        let deadline = RequestDeadline::new(&self.settings.node, self.settings.max_request);
        let begun = Begun::new(&self.front_end, self.peer, &get, headers, deadline, is_chosen)?;
        match begun.complete(&get.method, now, head, cx) {
            Ok(complete) => {
                self.since = now;
                Some((get.len, complete))
            }
            Err(begun) => {
                self.begun = Some(begun);
                None
            }
        }
    }
}

/// Whether the first line of a head ends behind the first `seen` bytes.
fn ends_first_line(bytes: &[u8], seen: usize) -> bool {
    memchr::memchr(b'\n', &bytes[seen..]).is_some() && memchr::memchr(b'\n', &bytes[..seen]).is_none()
}

/// Whether a head belongs to the handshake of a WebSocket at a path that has one. Its response is short, so it is sent
/// before hyper ends the connection.
fn opens_websocket<F: FrontEnd>(head: &[u8]) -> bool {
    let target = head.strip_prefix(b"GET ").and_then(|rest| rest.split(|byte| matches!(byte, b' ' | b'?')).next());
    let has_path = target.is_some_and(|target| F::WEBSOCKET_PATHS.iter().any(|path| path.as_bytes() == target));
    // Not h2c, which a server may ignore.
    has_path
        && head.split(|byte| *byte == b'\n').any(|line| {
            let line = line.to_ascii_lowercase();
            line.strip_prefix(b"upgrade:").is_some_and(|value| memchr::memmem::find(value, b"websocket").is_some())
        })
}

/// Returns a head for hyper, in which `Upgrade` has another name: hyper would end the connection for it, and with that
/// what it has not yet sent of the response. A server may ignore the header (RFC 9110, 7.8).
fn without_upgrade(head: &[u8], len: usize) -> Bytes {
    const LINE: &[u8] = b"\nupgrade:";
    let mut bytes = head.to_vec();
    let lines: Vec<_> = memchr::memchr_iter(b'\n', &head[..len]).collect();
    for start in lines {
        let line = bytes.get_mut(start..start + LINE.len()).filter(|line| line.eq_ignore_ascii_case(LINE));
        if let Some(line) = line {
            line[1..8].copy_from_slice(b"x-upgrd");
        }
    }
    bytes.into()
}

fn without_first(mut bytes: Vec<u8>, count: usize) -> Vec<u8> {
    bytes.drain(..count);
    bytes
}

#[cfg(test)]
mod tests;
