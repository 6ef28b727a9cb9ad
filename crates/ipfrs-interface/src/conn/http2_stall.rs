//! Detection of HTTP/2 streams whose clients read nothing, or too little within the time of the request. The window
//! of a stream may stay closed while the connection is active, so the socket does not show this. The task that sends
//! the stream notices it, because it stops polling the body.

use std::cell::{Cell, OnceCell};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderValue;
use axum::http::header::{CONNECTION, CONTENT_TYPE, DATE};
use hyper::Response;
use hyper::body::{Frame, SizeHint};
use hyper::rt::Executor;
use ipfrs_http::log_broken_off;
use ipfrs_middleware::RequestDeadline;
use ipfrs_node::{Limit, Node};
use ipfrs_stream::Traffic;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep};

use super::corked_body::CorkedBody;
use super::date;
use super::deadlines::{DEADLINE_GRACE, Draining};
use super::http2_idle::OpenStream;
use super::one_request::RequestState;

/// Maximum number of bytes that are passed to a stream at once. The client must accept them within the timeout.
const PIECE_BYTES: usize = 16 * 1024;

/// Progress of the body of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    /// Number of pieces passed on.
    pieces: u64,
    /// Whether the body waits for the client to accept the last piece.
    is_clients_turn: bool,
}

tokio::task_local! {
    /// Progress of the stream that the current task sends.
    static PROGRESS: Cell<Progress>;
    /// Deadline of its request, once it is known.
    static DEADLINE: OnceCell<RequestDeadline>;
}

/// Executor for the tasks of HTTP/2 connections. It drops tasks whose clients accept nothing for too long, which
/// resets the stream.
#[derive(Debug, Clone)]
pub(crate) struct StreamExecutor {
    pub(crate) node: Node,
    pub(crate) longest: Duration,
}

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, sending: F) {
        let seen = Progress::default();
        let stream = Stream { sending, executor: self.clone(), timer: None, seen, over: None };
        tokio::spawn(DEADLINE.scope(OnceCell::new(), PROGRESS.scope(Cell::default(), stream)));
    }
}

pin_project! {
    struct Stream<F> {
        #[pin]
        sending: F,
        executor: StreamExecutor,
        // Set once the task has waited for the client. The timer is not reset on progress, which is checked when it
        // expires.
        timer: Option<Pin<Box<Sleep>>>,
        // Progress when the timer was set.
        seen: Progress,
        // Timer for the deadline of the request.
        over: Option<Pin<Box<Sleep>>>,
    }
}

impl<F: Future> Future for Stream<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.sending.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let is_over = DEADLINE.try_with(|deadline| {
            let over = deadline.get().map(|deadline| (deadline, deadline.poll_over(this.over, DEADLINE_GRACE, cx)));
            over.filter(|(_, over)| over.is_ready())
                .map(|(deadline, _)| deadline.cut().as_ref().map(log_broken_off))
                .is_some()
        });
        if is_over.unwrap_or_default() {
            return Poll::Ready(());
        }
        let progress = PROGRESS.try_with(Cell::get).unwrap_or_default();
        if this.timer.is_none() && !progress.is_clients_turn {
            return Poll::Pending;
        }
        let longest = this.executor.longest;
        let timer = this.timer.get_or_insert_with(|| {
            *this.seen = progress;
            Box::pin(sleep(longest))
        });
        while timer.as_mut().poll(cx).is_ready() {
            if progress.is_clients_turn && progress == *this.seen {
                this.executor.node.count_refusal(Limit::WriteTimeout);
                return Poll::Ready(());
            }
            *this.seen = progress;
            timer.as_mut().reset(Instant::now() + longest);
        }
        Poll::Pending
    }
}

pin_project! {
    /// A response whose body reports its progress: over HTTP/2 to the task of its stream, and over HTTP/1.1 to the
    /// socket of the connection.
    pub(crate) struct Watched<A> {
        #[pin]
        handler: A,
        // The open stream, for HTTP/2.
        stream: Option<OpenStream>,
        // Whether the daemon drains; `None` if the response does not have to state it.
        draining: Option<Draining>,
        traffic: Traffic,
        // State of the request, for HTTP/1.1.
        state: Arc<RequestState>,
        deadline: RequestDeadline,
    }
}

impl<A> Watched<A> {
    /// Watches the response to a request on a connection with this `traffic`: of HTTP/2 on an open `stream`, else of
    /// HTTP/1.1 to a request in this `state`. Once the daemon is `draining`, the response says that the connection is
    /// closed then. A stream is cut at the `deadline`.
    pub(crate) fn new(
        handler: A,
        stream: Option<OpenStream>,
        draining: Option<Draining>,
        traffic: Traffic,
        state: Arc<RequestState>,
        deadline: RequestDeadline,
    ) -> Self {
        Self { handler, stream, draining, traffic, state, deadline }
    }
}

impl<A: Future<Output = Result<Response<Body>, Infallible>>> Future for Watched<A> {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // Only the task of an HTTP/2 stream has this variable.
        let _ = DEADLINE.try_with(|deadline_cell| {
            deadline_cell.get_or_init(|| this.deadline.clone());
        });
        let Ok(mut response) = ready!(this.handler.poll(cx));
        if let Some(date) = date::corrected() {
            response.headers_mut().insert(DATE, date);
        }
        if this.draining.as_ref().is_some_and(Draining::has_begun) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if response.body().is_end_stream() {
            return Poll::Ready(Ok(response));
        }
        let Some(stream) = this.stream.take() else {
            if response.headers().get(CONTENT_TYPE).is_none_or(|kind| kind != "text/event-stream") {
                this.state.allow_half_close();
            }
            return Poll::Ready(Ok(CorkedBody::watch(response, this.traffic)));
        };
        Poll::Ready(Ok(response.map(|inner| Body::new(WatchedBody { inner, rest: Bytes::new(), _stream: stream }))))
    }
}

struct WatchedBody {
    inner: Body,
    /// Rest of a piece that was too large.
    rest: Bytes,
    _stream: OpenStream,
}

impl WatchedBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => return Poll::Ready(other),
            }
        }
        let len = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(len)))))
    }
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = self.poll_piece(cx);
        // Only the task of an HTTP/2 stream has this variable. Otherwise the progress is not needed.
        let _ = PROGRESS.try_with(|progress| {
            let is_clients_turn = polled.is_ready();
            let pieces = progress.get().pieces + u64::from(is_clients_turn);
            progress.set(Progress { pieces, is_clients_turn });
        });
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, inner) = (self.rest.len() as u64, self.inner.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
