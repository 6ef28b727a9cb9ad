//! Common handling of all calls: request ID, deadlines, codings, metrics and the final status.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use futures::future::Either;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body as HttpBody, Frame, SizeHint};
use ipfrs_core::Error;
use ipfrs_middleware::auth::{AuditLine, Caller, Denied, Need, Proof};
use ipfrs_middleware::rate_limit::{Paced, Ticket};
use ipfrs_middleware::{
    Client, Held, MemoryPool, OverTls, RequestIds, RequestMemory, RequestPermit, Rules, Watched, catch_panic, log_panic,
};
use ipfrs_node::Node;
use tonic::{Code, Status};

use crate::access;
use crate::audit_target::AuditTarget;
use crate::compression::{self, Coder, Codings, GRPC_ENCODING};
use crate::deadlines::{Deadlines, check_timeout};
use crate::error;
use crate::inbound::{OneMessage, Sent};
use crate::metrics::{GrpcMetrics, Method, code_name};
use crate::not_a_call::no_call;
use crate::request_id::{self, X_REQUEST_ID};
use crate::shortcut::Shortcuts;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Extension of a request that came through the gRPC listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnListener;

/// State that all calls share.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) node: Node,
    pub(crate) rules: Rules,
    pub(crate) memory: MemoryPool,
    pub(crate) metrics: GrpcMetrics,
    pub(crate) shortcuts: Shortcuts,
    pub(crate) ids: RequestIds,
    /// How long a client may pause within its only message.
    pub(crate) upload_idle: Duration,
    /// Maximum size of a message of any method, in bytes.
    pub(crate) max_message_bytes: usize,
    pub(crate) coder: Coder,
}

impl Calls {
    /// Returns the decoded body of a request. It fails if the client pauses for too long while a message is expected.
    fn inbound<B>(&self, body: B, codings: Codings, method: &Method) -> Body
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    {
        let idle_timeout = method.ends_when_idle.then_some(self.upload_idle);
        let sent = Body::new(Sent::new(body, idle_timeout, self.memory.reservation()));
        let sent = match codings.request {
            Some(coding) => self.coder.decompress(sent, coding, self.max_message_bytes),
            None => sent,
        };
        if method.takes_one { Body::new(OneMessage::new(sent)) } else { sent }
    }

    /// Decides about a call. The HTTP front-end has already identified the caller of a call with gRPC-Web.
    fn admit<'a, B>(
        &'a self,
        request: &http::Request<B>,
    ) -> impl Future<Output = Result<Caller, Denied>> + Send + use<'a, B> {
        // The request has a body, which tasks must not share.
        let headers = request.headers().clone();
        let client = client_of(request);
        let caller = request.extensions().get::<Caller>().cloned();
        let certified = request.extensions().get::<OverTls>().and_then(OverTls::certified);
        let need = access::need(request.uri().path());
        async move {
            match caller {
                Some(caller) => match caller.meet(need) {
                    Ok(()) => Ok(caller),
                    Err(error) => Err(Denied { error, caller }),
                },
                None => self.rules.auth.admit(&headers, certified.as_ref(), client, Proof::Header, need).await,
            }
        }
    }

    /// Returns the line of a call in the audit log, if it would change something.
    pub(crate) fn audit_line<B>(
        &self,
        request: &http::Request<B>,
        client: Client,
        caller: &Caller,
        id: &HeaderValue,
    ) -> Option<AuditLine> {
        let path = request.uri().path();
        if !self.rules.auth.is_enabled() || !access::need(path).is_change() {
            return None;
        }
        let id = id.to_str().unwrap_or_default();
        Some(AuditLine::new(caller.clone(), client, path.to_owned(), id.to_owned()))
    }

    /// Takes a token of the rate limits for a call on the gRPC listener. For others the HTTP front-end has done so.
    fn take_ticket<B>(&self, request: &http::Request<B>, caller: Option<&Caller>) -> Result<Option<Ticket>, Error> {
        let extensions = request.extensions();
        let is_probe = access::need(request.uri().path()) == Need::Nothing;
        if is_probe || extensions.get::<OwnListener>().is_none() {
            return Ok(None);
        }
        self.rules.rate_limits.take(client_of(request), caller)
    }

    /// Returns a response in the coding for the client. A response without messages is not changed.
    fn outbound(&self, response: Response, codings: Codings) -> Response {
        let coding = codings.answer.filter(|_| !response.headers().contains_key(GRPC_STATUS));
        let Some(coding) = coding else { return response };
        let (mut head, body) = response.into_parts();
        match self.coder.compress(body, coding) {
            Ok(body) => {
                head.headers.insert(GRPC_ENCODING, HeaderValue::from_static(coding.name()));
                Response::from_parts(head, body)
            }
            Err(body) => Response::from_parts(head, body),
        }
    }
}

fn client_of<B>(request: &http::Request<B>) -> Client {
    request.extensions().get::<Client>().copied().unwrap_or_default()
}

/// Memory that is reserved for a response. A method adds it to the extensions of the response, and it is released
/// once the response has been sent.
pub(crate) type Kept = Arc<RequestMemory>;

/// Why a call is refused before its method runs.
enum Refused {
    /// Its caller may not call the method.
    Caller(Status),
    /// The coding of its messages is not supported.
    Coding(Status),
}

/// Layer around all methods: assigns a request ID, enforces the deadlines, and counts the call when its response
/// ends. A panic in a method results in INTERNAL. Requests that are not gRPC calls are refused, because other
/// services share the listener.
pub(crate) async fn observe(State(calls): State<Arc<Calls>>, request: Request, next: Next) -> Response {
    if let Some(refusal) = no_call(&request) {
        return refusal;
    }
    observed(calls, request, |request| next.run(request), None).await
}

/// Same as [`observe`], for a shortcut or the handler `routed`. The call holds its request permit until its response
/// ends.
pub(crate) async fn observed<B, A>(
    calls: Arc<Calls>,
    mut request: http::Request<B>,
    routed: impl FnOnce(Request) -> A,
    permit: Option<RequestPermit>,
) -> Response
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    A: Future<Output = Response>,
{
    let method = calls.metrics.of(request.uri().path());
    let mut end = End { method, start: std::time::Instant::now(), code: None, change: None };
    let id = request_id::of(request.headers(), &calls.ids);
    let is_watched = request.extensions().get::<Watched>().is_some();
    let mut deadlines = Deadlines::of(&request, &end.method);
    request.headers_mut().insert(X_REQUEST_ID, id.clone());
    let admitted = match calls.rules.auth.is_enabled() {
        true => calls.admit(&request).await,
        false => Ok(Caller::unrestricted()),
    };
    // A caller that is not admitted pays as the client.
    let (admitted, ticket) = match (calls.take_ticket(&request, admitted.as_ref().ok()), admitted) {
        (Ok(ticket), admitted) => (admitted, ticket),
        (Err(error), Ok(caller) | Err(Denied { caller, .. })) => (Err(Denied { error, caller }), None),
    };
    let (caller, refusal) = match &admitted {
        Ok(caller) => (caller, None),
        Err(Denied { error, caller }) => (caller, Some(error)),
    };
    if let Some(line) = calls.audit_line(&request, client_of(&request), caller, &id) {
        match refusal {
            Some(error) => line.write(error.kind().code()),
            None => {
                let target = AuditTarget::default();
                request.extensions_mut().insert(target.clone());
                end.change = Some((line, target));
            }
        }
    }
    let admitted = admitted.map(|caller| deadlines.end_with(caller)).map_err(|denied| denied.error);
    let codings = match admitted.and_then(|()| check_timeout(request.headers())) {
        Ok(()) => request_id::within(&id, || Codings::take(request.headers_mut())).map_err(Refused::Coding),
        Err(error) => Err(Refused::Caller(request_id::within(&id, || error::status(error)))),
    };
    let mut response = match codings {
        Ok(codings) => {
            let request = request.map(|body| calls.inbound(body, codings, &end.method));
            let answer = match calls.shortcuts.to(request.uri().path()) {
                Some(method) => Either::Left(method(request)),
                None => Either::Right(routed(request)),
            };
            calls.outbound(answered(answer, &mut deadlines, &id).await, codings)
        }
        Err(Refused::Caller(status)) => status.into_http(),
        Err(Refused::Coding(unread)) => {
            let mut response = unread.into_http();
            compression::advertise(response.headers_mut());
            response
        }
    };
    end.code = request_id::within(&id, || error::complete(response.headers_mut()));
    response.headers_mut().insert(X_REQUEST_ID, id.clone());
    let kept = response.extensions_mut().remove::<Kept>();
    if is_watched {
        response.extensions_mut().insert(end.method.route());
    }
    response.map(|inner| {
        let deadlines = if end.code.is_none() { deadlines } else { Deadlines::default() };
        let inner = match ticket.filter(Ticket::limits_bytes) {
            Some(ticket) => Body::new(Paced::new(inner, ticket)),
            None => inner,
        };
        let inner = match permit {
            Some(permit) => Some(Inner::Permitted(permit.hold(inner))),
            None => Some(Inner::Plain(inner)),
        };
        Body::new(Answer { inner, id, end, deadlines, _kept: kept })
    })
}

/// Awaits the response of a method until a deadline passes.
async fn answered(answer: impl Future<Output = Response>, deadlines: &mut Deadlines, id: &HeaderValue) -> Response {
    let mut answer = pin!(catch_panic(request_id::scope(id.clone(), answer), || panicked(id).into_http()));
    poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(answer),
        Poll::Pending => deadlines.poll_over(id, cx).map(Status::into_http),
    })
    .await
}

fn panicked(id: &HeaderValue) -> Status {
    request_id::within(id, || error::status(Error::internal("internal error: see the daemon's log")))
}

/// Body of a response: the messages and the status of a call.
struct Answer {
    /// `None` after the end.
    inner: Option<Inner>,
    id: HeaderValue,
    end: End,
    deadlines: Deadlines,
    _kept: Option<Kept>,
}

/// The response of a method.
enum Inner {
    /// With the permit of the call, which may be reclaimed.
    Permitted(Held<Body>),
    /// Without a permit, because the call uses gRPC-Web or is a health check.
    Plain(Body),
}

/// A frame of a response, or its end.
type NextFrame = Option<Result<Frame<Bytes>, axum::Error>>;

impl Inner {
    /// Polls for the next frame. Returns `None` if the permit was reclaimed.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Option<Poll<NextFrame>> {
        match self {
            Self::Permitted(held) => held.poll(|body| Pin::new(body).poll_frame(cx)),
            Self::Plain(body) => Some(Pin::new(body).poll_frame(cx)),
        }
    }

    fn look<R>(&self, look: impl FnOnce(&Body) -> R) -> Option<R> {
        match self {
            Self::Permitted(held) => held.look(look),
            Self::Plain(body) => Some(look(body)),
        }
    }
}

impl Answer {
    /// Ends the response with a status and drops the body of the method.
    fn end(&mut self, status: &Status) -> Poll<NextFrame> {
        self.inner = None;
        self.end.code = Some(status.code());
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(match status.add_header(&mut trailers) {
            Ok(()) => Ok(Frame::trailers(trailers)),
            Err(unfit) => Err(axum::Error::new(unfit)),
        }))
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if this.inner.is_some()
            && let Poll::Ready(status) = this.deadlines.poll_over(&this.id, cx)
        {
            return this.end(&status);
        }
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        let polled =
            request_id::within(&this.id, || std::panic::catch_unwind(AssertUnwindSafe(|| inner.poll_frame(cx))));
        let frame = match polled {
            Ok(Some(polled)) => ready!(polled),
            Ok(None) => {
                let Inner::Permitted(held) = inner else { return Poll::Ready(None) };
                let given_up = held.given_up();
                let status = request_id::within(&this.id, || error::status(given_up));
                return this.end(&status);
            }
            Err(panic) => {
                log_panic(panic.as_ref());
                let status = panicked(&this.id);
                return this.end(&status);
            }
        };
        Poll::Ready(match frame {
            Some(Ok(mut frame)) => {
                if let Some(trailers) = frame.trailers_mut() {
                    let code = request_id::within(&this.id, || error::complete(trailers));
                    this.end.code = code.or(this.end.code);
                }
                Some(Ok(frame))
            }
            ended => {
                this.inner = None;
                ended
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        // A response whose permit was reclaimed still has to send a status.
        self.inner.as_ref().is_none_or(|inner| inner.look(HttpBody::is_end_stream).unwrap_or(false))
    }

    fn size_hint(&self) -> SizeHint {
        let of = |inner: &Inner| inner.look(HttpBody::size_hint).unwrap_or_default();
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), of)
    }
}

/// Measurement of a call, which is counted when this is dropped.
struct End {
    method: Arc<Method>,
    start: std::time::Instant,
    /// Final status code, once known.
    code: Option<Code>,
    /// Line of the audit log, if the call changes something.
    change: Option<(AuditLine, AuditTarget)>,
}

impl Drop for End {
    /// Counts a call without a status as cancelled, because the client disconnected before the end.
    fn drop(&mut self) {
        if let Some((mut line, target)) = self.change.take() {
            target.text().into_iter().for_each(|text| line.set_target(&text));
            // Otherwise, the line is written as that of an aborted call.
            if let Some(code) = self.code {
                line.write(code_name(code));
            }
        }
        self.method.ended(self.code.unwrap_or(Code::Cancelled), self.start);
    }
}

#[cfg(test)]
mod tests {
    use futures::stream::{self, BoxStream};
    use ipfrs_proto::block::v1::{GetBlockRequest, GetBlockResponse};
    use prometheus::Registry;

    use super::*;

    async fn defect(_: GetBlockRequest) -> Result<BoxStream<'static, Result<GetBlockResponse, Status>>, Status> {
        panic!("in a shortcut")
    }

    /// Returns the status of a response, from its headers or its trailers.
    async fn status(mut response: Response) -> HeaderValue {
        if let Some(status) = response.headers_mut().remove(GRPC_STATUS) {
            return status;
        }
        let mut body = Box::pin(response.into_body());
        loop {
            let frame = poll_fn(|cx| body.as_mut().poll_frame(cx)).await.unwrap().unwrap();
            if let Some(status) = frame.trailers_ref().and_then(|trailers| trailers.get(GRPC_STATUS)) {
                return status.clone();
            }
        }
    }

    #[tokio::test]
    async fn panic_in_a_method_returns_internal() {
        let (repo, registry) = (tempfile::tempdir().unwrap(), Registry::new());
        let node = Node::builder(repo.path()).registry(&registry).open();
        let node = node.await.unwrap();
        let mut shortcuts = Shortcuts::default();
        shortcuts.add("/ipfrs.block.v1.BlockService/GetBlock", 1_000, defect);
        let calls = Arc::new(Calls {
            rules: Rules::none(&node),
            memory: MemoryPool::register(&node, &registry).unwrap(),
            node,
            metrics: GrpcMetrics::register(&registry, &[ipfrs_proto::FILE_DESCRIPTOR_SET]).unwrap(),
            shortcuts,
            ids: RequestIds::new(),
            upload_idle: Duration::from_secs(60),
            max_message_bytes: 1_000,
            coder: Coder::new(true),
        });
        for method in ["GetBlock", "HasBlock", "PutBlock"] {
            let routed = |_| async move {
                assert_ne!(method, "HasBlock");
                Response::new(Body::from_stream(stream::poll_fn(|_| -> Poll<Option<Result<Bytes, Status>>> {
                    panic!("in the body")
                })))
            };
            let request = http::Request::post(format!("/ipfrs.block.v1.BlockService/{method}"));
            let request = request.header(X_REQUEST_ID, "mine").body(Body::from(vec![0; 5])).unwrap();
            let response = observed(calls.clone(), request, routed, None).await;
            assert_eq!(response.headers()[X_REQUEST_ID], "mine");
            assert_eq!(status(response).await, "13", "{method}");
        }
        let counted =
            registry.gather().iter().find(|family| family.name() == "ipfrs_grpc_requests_total").unwrap().clone();
        let internal = counted.get_metric().iter().filter(|metric| metric.get_label()[0].value() == "INTERNAL");
        assert_eq!(internal.map(|metric| metric.get_counter().get_value()).collect::<Vec<_>>(), [1.0; 3]);
    }
}
