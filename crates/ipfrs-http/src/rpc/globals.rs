//! Options that every command obeys: `timeout`, `encoding`, `offline` and `local`.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CACHE_CONTROL;
use http::{HeaderMap, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use ipfrs_core::{Error, ErrorKind};
use ipfrs_node::{Expected, RequestContext, with_context};
use ipfrs_rpc::duration;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use super::args::takes_trailers;
use super::encoding::Encoding;
use super::offline::OfflineBody;
use super::options::go_bool;
use super::output;
use crate::body::{X_STREAM_ERROR, header_text};
use crate::error::{RpcError, rpc_failure, rpc_failure_response};

/// The parsed options.
#[derive(Debug, Default)]
struct Globals {
    /// Time limit of the command, with its text in the option.
    timeout: Option<(Duration, String)>,
    /// Whether missing blocks are not retrieved (`offline`, `local`).
    offline: bool,
    encoding: Encoding,
}

impl Globals {
    fn read(query: &str) -> Result<Self, String> {
        let mut globals = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match name.as_ref() {
                "timeout" if !value.is_empty() => {
                    let timeout = duration::parse(&value).ok_or_else(|| {
                        format!("invalid value {value:?} for option \"timeout\": use a duration such as 30s or 1h30m")
                    })?;
                    globals.timeout = (!timeout.is_zero()).then(|| (timeout, value.into_owned()));
                }
                // Other values are refused with those of the command's own options.
                "offline" | "local" | "L" => globals.offline |= go_bool(&value) == Some(true),
                "encoding" | "enc" => {
                    globals.encoding = Encoding::named(&value).ok_or_else(|| format!("invalid encoding: {value}"))?;
                }
                _ => {}
            }
        }
        Ok(globals)
    }
}

/// Parses the options, and enforces the time limit of the command.
pub(crate) async fn apply(mut request: Request, next: Next) -> Response {
    let globals = match Globals::read(request.uri().query().unwrap_or_default()) {
        Ok(globals) => globals,
        Err(text) => return RpcError::Request(text).into_response(),
    };
    request.extensions_mut().insert(globals.encoding);
    let offline = globals.offline;
    // As in Kubo, a command waits for peers that have the content later.
    let expected = expected(&request);
    let context = RequestContext { offline, expected, waits_for_peers: true, ..RequestContext::default() };
    let response = with_context(context, limited(globals, request, next)).await;
    if offline { response.map(OfflineBody::body) } else { response }
}

/// Returns the part that a command reads below the target of its path.
fn expected(request: &Request) -> Expected {
    match request.uri().path() {
        "/cat" => part_to_read(request),
        "/ls" => Expected::Entity,
        "/get" => Expected::All,
        _ => Expected::Block,
    }
}

/// Returns the part of the file that `cat` reads. The options are checked later.
fn part_to_read(request: &Request) -> Expected {
    let query = request.uri().query().unwrap_or_default();
    let (mut files, mut offset, mut length) = (0, 0, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match name.as_ref() {
            "arg" => files += 1,
            "offset" | "o" => offset = value.parse().unwrap_or(0),
            "length" | "l" => length = value.parse().ok(),
            _ => {}
        }
    }
    // Offset and length are those of all files together.
    if files == 1 { Expected::of_file(offset, length) } else { Expected::Entity }
}

/// Runs the command within its time limit.
async fn limited(globals: Globals, request: Request, next: Next) -> Response {
    let Some((timeout, text)) = globals.timeout else { return next.run(request).await };
    // A deadline that is not representable is no limit.
    let Some(deadline) = Instant::now().checked_add(timeout) else { return next.run(request).await };
    let takes_trailers = takes_trailers(request.headers());
    // The message begins like Kubo's, because clients search for that text.
    let expired = Error::new(ErrorKind::Timeout, format!("context deadline exceeded: timeout={text} expired"));
    match timeout_at(deadline, next.run(request)).await {
        Ok(response) => {
            let is_lines =
                response.headers().contains_key(output::X_CHUNKED_OUTPUT) && globals.encoding == Encoding::Json;
            let sleep = Box::pin(sleep_until(deadline));
            response.map(|inner| Body::new(Timed { inner, sleep, expired, takes_trailers, is_lines, end: End::NotYet }))
        }
        // Not logged: the client requested this timeout.
        Err(_) => {
            let body = rpc_failure_response(&rpc_failure(&expired));
            let headers = [(CACHE_CONTROL, "no-store")];
            globals.encoding.failure((StatusCode::INTERNAL_SERVER_ERROR, headers, body).into_response()).await
        }
    }
}

/// A response body that is cut off when the command's time limit expires, with the reason if the client can receive
/// it.
struct Timed {
    inner: Body,
    sleep: Pin<Box<Sleep>>,
    expired: Error,
    takes_trailers: bool,
    /// Whether the body is NDJSON, whose last line may be an error.
    is_lines: bool,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    /// The error line was sent; the reason is still to be sent.
    Line,
    Done,
}

impl Timed {
    /// Cuts off the body.
    fn expire(&mut self) -> Option<Result<Frame<Bytes>, axum::Error>> {
        // Dropping the body cancels the work behind it.
        self.inner = Body::empty();
        if self.is_lines && self.end == End::NotYet {
            self.end = End::Line;
            if let Ok(line) = output::line(&rpc_failure(&self.expired)) {
                return Some(Ok(Frame::data(line)));
            }
        }
        self.end = End::Done;
        let reason = self.expired.message();
        if self.takes_trailers {
            let trailers = HeaderMap::from_iter([(X_STREAM_ERROR, header_text(reason))]);
            return Some(Ok(Frame::trailers(trailers)));
        }
        Some(Err(axum::Error::new(Error::new(ErrorKind::Timeout, reason))))
    }
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.end {
            End::Done => return Poll::Ready(None),
            End::Line => return Poll::Ready(self.expire()),
            End::NotYet => {}
        }
        if self.sleep.as_mut().poll(cx).is_ready() {
            return Poll::Ready(self.expire());
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if frame.is_none() {
            self.end = End::Done;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.end != End::Line && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
