//! Log of finished requests, one line each, at debug level. If that level is off, a request costs one comparison.

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::{Frame, SizeHint};
use ipfrs_http::{CacheableRequest, SerializedResponse};
use pin_project_lite::pin_project;

use crate::conn::request_head::Refusal;

/// Log target, which `RUST_LOG=ipfrs_interface=debug` enables.
const TARGET: &str = "ipfrs_interface";

/// Details of a request when it arrives.
struct Entry {
    started: Instant,
    client: IpAddr,
    host: String,
    method: Method,
    path: String,
}

/// Details of a request once its response starts.
struct Finish {
    entry: Entry,
    status: StatusCode,
    id: String,
    sent_bytes: u64,
    complete: bool,
}

impl Drop for Finish {
    /// Logs the request. The body is dropped after it was sent, or when the client disconnects.
    fn drop(&mut self) {
        tracing::debug!(
            target: TARGET,
            client = %self.entry.client,
            host = %self.entry.host,
            method = %self.entry.method,
            path = %self.entry.path,
            status = self.status.as_u16(),
            sent_bytes = self.sent_bytes,
            complete = self.complete,
            duration_seconds = self.entry.started.elapsed().as_secs_f64(),
            request_id = %self.id,
            "request"
        );
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
    /// Logs the response that `answer` creates for `request`. `client` is the address of the peer, which may be a
    /// proxy.
    pub(crate) fn new<B>(request: Request<B>, client: IpAddr, answer: impl FnOnce(Request<B>) -> F) -> Self {
        let entry = tracing::enabled!(target: TARGET, tracing::Level::DEBUG).then(|| {
            Box::new(Entry {
                started: Instant::now(),
                client: client.to_canonical(),
                host: host_of(&request).to_owned(),
                method: request.method().clone(),
                path: request.uri().path().to_owned(),
            })
        });
        Self { inner: answer(request), entry }
    }
}

/// Logs a GET request for `path` from `client`, whose response has the given `head`.
pub(crate) fn written(
    path: &str,
    cacheable: &CacheableRequest,
    client: IpAddr,
    head: &[u8],
    answer: &SerializedResponse,
) {
    if !tracing::enabled!(target: TARGET, tracing::Level::DEBUG) {
        return;
    }
    let entry = Entry {
        started: answer.start,
        client: client.to_canonical(),
        host: cacheable.host.to_str().unwrap_or_default().to_owned(),
        method: Method::GET,
        path: path.to_owned(),
    };
    let id = String::from_utf8_lossy(&head[answer.request_id.clone()]).into_owned();
    drop(Finish { entry, status: StatusCode::OK, id, sent_bytes: answer.body.len() as u64, complete: true });
}

/// Logs a request from `client` that is refused because of its head.
pub(crate) fn refused(refusal: &Refusal, client: IpAddr, id: &HeaderValue) {
    if !tracing::enabled!(target: TARGET, tracing::Level::DEBUG) {
        return;
    }
    let entry = Entry {
        started: Instant::now(),
        client: client.to_canonical(),
        host: String::new(),
        method: refusal.method.clone(),
        path: path_of(&refusal.target).to_owned(),
    };
    let id = id.to_str().unwrap_or_default().to_owned();
    let sent_bytes = refusal.text.len() as u64 + 1;
    drop(Finish { entry, status: refusal.status, id, sent_bytes, complete: true });
}

/// Returns the path of a target. Its query and the user information of a URL may be secret.
fn path_of(target: &str) -> &str {
    let target = target.split(['?', '#']).next().unwrap_or_default();
    match target.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |slash| &rest[slash..]),
        None => target,
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
        let response = match ready!(this.inner.poll(cx)) {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let Some(entry) = this.entry.take() else { return Poll::Ready(Ok(response)) };
        let id = response.headers().get("x-request-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
        let complete = response.body().is_end_stream();
        let finish = Finish { entry: *entry, status: response.status(), id, sent_bytes: 0, complete };
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
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
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
