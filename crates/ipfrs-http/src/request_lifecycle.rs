//! The lifecycle of a request, around every handler: its ID, permit, metrics, log entry, error page and compression.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use ipfrs_core::{ErrorKind, Result};
use ipfrs_middleware::auth::Caller;
use ipfrs_middleware::rate_limit::Ticket;
use ipfrs_middleware::{Client, Held, NoPermit, RequestPermit, Route, Watched, catch_panic};
use ipfrs_node::Limit;

use crate::access::{Admitted, AuditedLater, admit, failure, refusal};
use crate::access_rule::Access;
use crate::body::{Drained, IdleTimeoutBody, Observed, RestOfBody, broken_off};
use crate::error::OverLimit;
use crate::failure;
use crate::gateway::error_page::{self, Form};
use crate::metrics::{Family, to_f64};
use crate::rate::{Paid, PaidLookup, paid};
use crate::request_id::{self, RequestId, X_REQUEST_ID};
use crate::revocable::RevocableBody;
use crate::routes::{PROBES, UNMATCHED};
use crate::rpc;
use crate::state::AppState;

/// Permit of a request that took it before its route was known, attached to the request as an extension.
#[derive(Debug, Clone)]
struct TakenPermit(Arc<RequestPermit>);

/// Attaches the client to a request, and the permit that was already taken for it.
pub(crate) fn set_client<B>(request: &mut http::Request<B>, client: Client, taken_permit: Option<RequestPermit>) {
    request.extensions_mut().insert(client);
    if let Some(permit) = taken_permit {
        request.extensions_mut().insert(TakenPermit(Arc::new(permit)));
    }
}

/// Arrival time of a request whose route was not known immediately, attached to it as an extension.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived(pub(crate) Instant);

/// Layer for all routes that do not record their own metrics.
pub(crate) async fn observe(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let endpoint = request.extensions().get::<MatchedPath>().map_or(UNMATCHED, MatchedPath::as_str);
    let family = state.metrics.family(rpc::label(endpoint), request.method());
    let access = if state.auth.is_enabled() { (state.access_rule)(&family.endpoint) } else { Access::OPEN };
    with_request_lifecycle(&state, family, access, request, |request| next.run(request)).await
}

/// Tells by the path of a request whether it changes something.
pub(crate) type IsChange = fn(&str) -> bool;

/// Layer for routes whose front-end decides itself what a request needs, once it has read it.
pub(crate) async fn observe_undecided(
    State((state, is_change)): State<(AppState, IsChange)>,
    mut request: Request,
    next: Next,
) -> Response {
    if request.method() == Method::POST && is_change(request.uri().path()) {
        request.extensions_mut().insert(AuditedLater);
    }
    let endpoint = request.extensions().get::<MatchedPath>().map_or(UNMATCHED, MatchedPath::as_str);
    let family = state.metrics.family(endpoint, request.method());
    with_request_lifecycle(&state, family, Access::LATER, request, |request| next.run(request)).await
}

/// The caller of a request, if callers are known, or the response to a request that is refused.
type Admission = std::result::Result<Option<Admitted>, Box<Response>>;

/// Processes a request: assigns its ID, checks that its caller has what `access` demands, takes its permit, and
/// renders and compresses its response. Counts the request when the head of the response is known, and records size
/// and duration when its body ends. A handler that panics is a bug, and the response is 500.
pub(crate) async fn with_request_lifecycle<A: Future<Output = Response>>(
    state: &AppState,
    family: Arc<Family>,
    access: Access,
    mut request: Request,
    answer: impl FnOnce(Request) -> A,
) -> Response {
    let start = request.extensions_mut().remove().map_or_else(Instant::now, |Arrived(at)| at);
    let id = request_id::of(request.headers(), &state.request_ids);
    let asked = state.compression.asked(&request);
    let form = Form::of(&request, &id);
    request.extensions_mut().insert(RequestId(id.clone()));
    let client = request.extensions().get::<Client>().copied().unwrap_or_default();
    let taken_permit = request.extensions_mut().remove().and_then(|TakenPermit(permit)| Arc::into_inner(permit));
    let watched = request.extensions().get::<Watched>().copied();
    let has_body = !request.body().is_end_stream();
    let is_http1 = is_http1(&request);
    let (mut request, rest_of_body) =
        if has_body { with_limited_body(state, &family, request) } else { (request, None) };
    let admitted = match state.auth.is_enabled() {
        true => admit(state, &request, access, &family.endpoint, client, &id).await.map(Some),
        false => Ok(None),
    };
    let (admitted, ticket) = charged(state, &family.endpoint, &mut request, client, &id, admitted);
    let permit = family.takes_permit && admitted.is_ok();
    let permit = permit.then(|| taken_permit.map_or_else(|| state.permits.take(client), Ok)).transpose();
    let (permit, mut response) = match (admitted, permit) {
        (Err(refusal), _) => {
            drop(request);
            (None, *refusal)
        }
        (Ok(admitted), Err(refused)) => {
            drop(request);
            let response = too_many(state, refused, &family.endpoint, &id);
            admitted.into_iter().for_each(|admitted| admitted.finished(&response));
            (None, response)
        }
        (Ok(admitted), Ok(permit)) => {
            let mut response = handled(state, admitted, client, has_body, request, answer).await;
            count(state, &mut response, has_body);
            (permit, response)
        }
    };
    // The permit of a request that has failed is free while the rest of its body arrives.
    let permit = permit.filter(|_| !has_failed(&response));
    if let Some(rest) = rest_of_body.filter(|_| has_failed(&response)) {
        rest.settle(&mut response).await;
    }
    // The rest of the request may still arrive, and nothing is known about when (RFC 9110, 15.5.9).
    if is_http1 && response.status() == StatusCode::REQUEST_TIMEOUT {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    failure::log(&mut response, &family.endpoint, &id);
    state.metrics.served.handler.inc();
    let response = error_page::shown(state, form, response);
    let mut response = state.compression.apply(asked, response).await;
    response.headers_mut().insert(X_REQUEST_ID, id);
    family.requests.with_label_values(&[&family.endpoint, family.method, response.status().as_str()]).inc();
    if watched.is_some() {
        response.extensions_mut().insert(Route(family.endpoint.clone()));
    }
    let response = paid(response, ticket);
    response.map(|body| {
        let body = match permit {
            Some(permit) if !http_body::Body::is_end_stream(&body) => Body::new(PermittedBody::new(permit.hold(body))),
            _ => body,
        };
        Body::new(Observed::new(body, move |bytes| {
            family.response_size.observe(to_f64(bytes));
            let seconds = start.elapsed().as_secs_f64();
            family.duration.observe(seconds);
            family.note_exemplar(watched.and_then(|watched| watched.trace), seconds);
        }))
    })
}

/// Runs the handler of a request that has its permit. `admitted` is its caller, if callers are known.
async fn handled<A: Future<Output = Response>>(
    state: &AppState,
    mut admitted: Option<Admitted>,
    client: Client,
    has_body: bool,
    mut request: Request,
    answer: impl FnOnce(Request) -> A,
) -> Response {
    if let Some(admitted) = &mut admitted {
        admitted.extend(request.extensions_mut());
        if has_body {
            request = request.map(|body| RevocableBody::of(&admitted.caller, body));
        }
    }
    let response = catch_panic(client.scope(answer(request)), panicked).await;
    let Some(admitted) = admitted else { return response };
    let mut response = admitted.finished_by(response);
    if state.auth.protects_content() {
        keep_from_shared_caches(response.headers_mut());
    }
    response
}

/// Takes a token of the rate limits for a request. Returns its admission, which is a refusal if there is no token. A
/// caller that is not admitted pays as the client.
fn charged(
    state: &AppState,
    endpoint: &str,
    request: &mut Request,
    client: Client,
    id: &HeaderValue,
    admitted: Admission,
) -> (Admission, Option<Ticket>) {
    let caller = admitted.as_ref().ok().and_then(Option::as_ref).map(|admitted| admitted.caller.clone());
    match take_ticket(state, endpoint, request, client, caller.as_ref()) {
        Ok(ticket) => (admitted, ticket),
        Err(error) => {
            let mut refused = refusal(request.headers(), error, endpoint, id);
            state.rate_limits.describe_refusal(caller.as_ref(), refused.headers_mut());
            admitted.ok().flatten().into_iter().for_each(|admitted| admitted.finished(&refused));
            (Err(Box::new(refused)), None)
        }
    }
}

fn is_http1(request: &Request) -> bool {
    request.version() <= Version::HTTP_11
}

/// Returns a request whose body may not pause for long and is measured. Over HTTP/1.1, returns also the rest of the
/// body, which is read although the request has failed.
fn with_limited_body(state: &AppState, family: &Family, request: Request) -> (Request, Option<RestOfBody>) {
    let (idle_limit, size) = (state.config.idle_patience(), family.request_size.clone());
    let is_http1 = is_http1(&request);
    // A client that waits for 100 (Continue) (RFC 9110, 10.1.1) has not sent any of its body yet.
    let expects_continue = request.headers().contains_key(http::header::EXPECT);
    let mut rest_of_body = None;
    let request = request.map(|body| {
        let body = if expects_continue {
            body
        } else {
            let (body, rest) = Drained::new(body);
            rest_of_body = is_http1.then_some(rest);
            Body::new(body)
        };
        let body = Body::new(IdleTimeoutBody::new(body, idle_limit, state.node.clone()));
        Body::new(Observed::new(body, move |bytes| size.observe(to_f64(bytes))))
    });
    (request, rest_of_body)
}

/// Takes a token of the rate limits for a request that has not paid yet.
fn take_ticket(
    state: &AppState,
    endpoint: &str,
    request: &mut Request,
    client: Client,
    caller: Option<&Caller>,
) -> Result<Option<Ticket>> {
    let lookup = request.extensions_mut().remove().map(|PaidLookup(ticket)| ticket);
    match (request.extensions_mut().remove(), lookup) {
        (Some(Paid(ticket)), _) => Ok(ticket),
        (None, _) if PROBES.contains(&endpoint) => Ok(None),
        (None, Some(ticket)) if caller.and_then(Caller::principal).is_none() => Ok(Some(ticket)),
        (None, _) => state.rate_limits.take(client, caller),
    }
}

fn has_failed(response: &Response) -> bool {
    response.status().is_client_error() || response.status().is_server_error()
}

fn panicked() -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, "internal error: see the daemon's log\n").into_response()
}

/// Returns a 429 response in the format of the API that `endpoint` belongs to.
pub(crate) fn too_many(state: &AppState, refused: NoPermit, endpoint: &str, id: &HeaderValue) -> Response {
    failure(state.permits.refusal(refused), endpoint, id)
}

/// Keeps a response out of shared caches, which would serve it to callers without credentials (RFC 9111, 3.5).
fn keep_from_shared_caches(headers: &mut HeaderMap) {
    let public = headers.get(CACHE_CONTROL).and_then(|value| value.to_str().ok()?.strip_prefix("public"));
    if let Some(private) = public.and_then(|rest| HeaderValue::try_from(format!("private{rest}")).ok()) {
        headers.insert(CACHE_CONTROL, private);
    }
}

/// Counts a response to a request whose body exceeded a limit, or that found shared work at capacity. Other limits
/// are counted elsewhere: DAG limits where the DAG is read, too many requests where permits are granted, and body
/// memory where it is reserved.
pub(crate) fn count(state: &AppState, response: &mut Response, has_body: bool) {
    match response.extensions_mut().remove() {
        Some(OverLimit(ErrorKind::RateLimited)) => state.node.count_refusal(Limit::Capacity),
        Some(OverLimit(ErrorKind::TooLarge)) if has_body => state.node.count_refusal(Limit::BodyBytes),
        _ => {}
    }
}

/// Body of a response that holds a permit. It fails if the permit is revoked for another request because the client
/// stopped reading.
struct PermittedBody {
    held: Held<Body>,
    /// Whether the body has already failed.
    has_failed: bool,
}

impl PermittedBody {
    fn new(held: Held<Body>) -> Self {
        Self { held, has_failed: false }
    }
}

impl HttpBody for PermittedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(polled) = self.held.poll(|body| Pin::new(body).poll_frame(cx)) {
            return polled;
        }
        if std::mem::replace(&mut self.has_failed, true) {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Err(axum::Error::new(broken_off(self.held.given_up())))))
    }

    fn is_end_stream(&self) -> bool {
        self.held.look(HttpBody::is_end_stream).unwrap_or(false)
    }

    fn size_hint(&self) -> SizeHint {
        self.held.look(HttpBody::size_hint).unwrap_or_default()
    }
}
