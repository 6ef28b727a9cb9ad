//! The access log, with a line for each finished request, and the spans of traced requests. A request that is neither
//! logged nor traced costs a few comparisons.

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::{Frame, SizeHint};
use ipfrs_http::{CacheableRequest, IPFS_ROUTE, SerializedResponse, UNMATCHED};
use ipfrs_middleware::{Route, TraceContext, Watched};
use pin_project_lite::pin_project;
use tracing::Span;

use crate::access_log::{self, Line};
use crate::conn::request_head::Refusal;
use crate::traces;

/// Header that tells a client the trace of its request
/// (<https://w3c.github.io/trace-context/#trace-context-http-response-headers-format>).
const TRACERESPONSE: HeaderName = HeaderName::from_static("traceresponse");

/// Details of a request when it arrives.
struct Entry {
    started: Instant,
    client: IpAddr,
    host: String,
    method: Method,
    path: String,
    /// The trace of the request, whether it is recorded or not.
    trace: Option<TraceContext>,
    /// None, if the request is not traced.
    span: Span,
}

/// Details of a request once its response starts.
struct Finish {
    entry: Entry,
    status: StatusCode,
    route: String,
    id: String,
    /// Time from the request's arrival to the first bytes of the response's body, or to its end if it has no body.
    first_byte: Option<Duration>,
    sent_bytes: u64,
    complete: bool,
}

impl Drop for Finish {
    /// Logs the request and ends its span. The body is dropped after it was sent, or when the client disconnects.
    fn drop(&mut self) {
        let Self { entry, status, route, id, first_byte, sent_bytes, complete } = self;
        let duration = entry.started.elapsed();
        access_log::write(&Line {
            client: entry.client,
            host: &entry.host,
            method: entry.method.as_str(),
            path: &entry.path,
            route,
            status: status.as_u16(),
            sent_bytes: *sent_bytes,
            complete: *complete,
            first_byte: first_byte.unwrap_or(duration),
            duration,
            request_id: id,
            trace: entry.trace,
        });
        traces::finish(&entry.span, entry.method.as_str(), route, *status, *sent_bytes);
    }
}

pin_project! {
    /// Future of a response, which is logged once its body was sent.
    pub(crate) struct Logged<F> {
        #[pin]
        inner: F,
        entry: Option<Box<Entry>>,
    }
}

impl<F> Logged<F> {
    /// Logs and traces the request, whose response `answer` creates. `client` is the address of the peer, which may
    /// be a proxy. `is_chosen` is whether to trace the request if its caller has not decided; `None` leaves it to
    /// chance.
    pub(crate) fn new<B>(
        mut request: Request<B>,
        client: IpAddr,
        is_chosen: Option<bool>,
        answer: impl FnOnce(Request<B>) -> F,
    ) -> Self {
        let caller = TraceContext::of(request.headers());
        let span = traces::span_of(&request, client, caller, || is_chosen.unwrap_or_else(traces::is_chosen));
        let trace = traces::context_of(&span).or(caller);
        let is_recorded = trace.is_some_and(|trace| trace.is_sampled);
        if !is_recorded && !access_log::is_enabled() {
            return Self { inner: answer(request), entry: None };
        }
        request.extensions_mut().insert(Watched { trace: trace.filter(|_| is_recorded) });
        let entry = Entry {
            started: Instant::now(),
            client: client.to_canonical(),
            host: host_of(&request).to_owned(),
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            trace,
            span,
        };
        let inner = entry.span.in_scope(|| answer(request));
        Self { inner, entry: Some(Box::new(entry)) }
    }
}

/// Logs a GET request for `target` from `client`, whose response has the given `head`.
pub(crate) fn written(
    target: &str,
    cacheable: &CacheableRequest,
    client: IpAddr,
    head: &[u8],
    answer: &SerializedResponse,
) {
    if !access_log::is_enabled() {
        return;
    }
    let duration = answer.start.elapsed();
    access_log::write(&Line {
        client: client.to_canonical(),
        host: cacheable.host.to_str().unwrap_or_default(),
        method: Method::GET.as_str(),
        path: path_of(target),
        route: IPFS_ROUTE,
        status: StatusCode::OK.as_u16(),
        sent_bytes: answer.body.len() as u64,
        complete: true,
        first_byte: duration,
        duration,
        request_id: std::str::from_utf8(&head[answer.request_id.clone()]).unwrap_or_default(),
        trace: None,
    });
}

/// Logs a request from `client` that is refused because of its head.
pub(crate) fn refused(refusal: &Refusal, client: IpAddr, id: &HeaderValue) {
    if !access_log::is_enabled() {
        return;
    }
    access_log::write(&Line {
        client: client.to_canonical(),
        host: "",
        method: refusal.method.as_str(),
        path: path_of(&refusal.target),
        route: UNMATCHED,
        status: refusal.status.as_u16(),
        sent_bytes: refusal.text.len() as u64 + 1,
        complete: true,
        first_byte: Duration::ZERO,
        duration: Duration::ZERO,
        request_id: id.to_str().unwrap_or_default(),
        trace: TraceContext::of(&refusal.headers),
    });
}

/// Returns the path of a target. Its query and the user information of a URL may be secret.
fn path_of(target: &str) -> &str {
    let target = target.split(['?', '#']).next().unwrap_or_default();
    match target.split_once("://") {
        // A path may contain a URL.
        Some((_, rest)) if !target.starts_with('/') => rest.find('/').map_or("/", |slash| &rest[slash..]),
        _ => target,
    }
}

/// Returns the host of a request, as sent by the client.
fn host_of<B>(request: &Request<B>) -> &str {
    let by_header = || request.headers().get(HOST)?.to_str().ok();
    request.uri().authority().map(Authority::as_str).or_else(by_header).unwrap_or_default()
}

impl<F> fmt::Debug for Logged<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logged").finish_non_exhaustive()
    }
}

impl<F: Future<Output = Result<Response<Body>, Infallible>>> Future for Logged<F> {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let polled = match this.entry {
            Some(entry) => entry.span.in_scope(|| this.inner.poll(cx)),
            None => this.inner.poll(cx),
        };
        let mut response = match ready!(polled) {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let Some(entry) = this.entry.take() else { return Poll::Ready(Ok(response)) };
        if let Some(trace) = traces::context_of(&entry.span).and_then(|trace| trace.to_string().parse().ok()) {
            response.headers_mut().insert(TRACERESPONSE, trace);
        }
        let id = response.headers().get("x-request-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
        let route = response.extensions_mut().remove().map_or_else(|| UNMATCHED.to_owned(), |Route(route)| route);
        let complete = response.body().is_end_stream();
        let first_byte = complete.then(|| entry.started.elapsed());
        let status = response.status();
        let finish = Finish { entry: *entry, status, route, id, first_byte, sent_bytes: 0, complete };
        Poll::Ready(Ok(response.map(|inner| Body::new(LoggedBody { inner, finish }))))
    }
}

struct LoggedBody {
    inner: Body,
    finish: Finish,
}

impl HttpBody for LoggedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Self { inner, finish } = &mut *self;
        let frame = ready!(finish.entry.span.in_scope(|| Pin::new(inner).poll_frame(cx)));
        finish.first_byte.get_or_insert_with(|| finish.entry.started.elapsed());
        match &frame {
            Some(Ok(frame)) => {
                self.finish.sent_bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                self.finish.complete = self.inner.is_end_stream();
            }
            Some(Err(_)) => {}
            None => self.finish.complete = true,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_target_has_no_query_or_host() {
        for (target, path) in [
            ("/ipfs/bafy/a?format=raw", "/ipfs/bafy/a"),
            ("/ipfs/bafy/http://x/a?b#c", "/ipfs/bafy/http://x/a"),
            ("http://user:secret@x/ipfs/bafy?a", "/ipfs/bafy"),
            ("http://x?a=/b", "/"),
            ("*", "*"),
        ] {
            assert_eq!(path_of(target), path, "{target}");
        }
    }
}
