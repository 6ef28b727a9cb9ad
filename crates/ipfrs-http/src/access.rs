//! Decides about requests by the access rules of their routes, and refuses them in the form of each API.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{Extensions, HeaderMap, HeaderValue, StatusCode};
use ipfrs_core::{Cid, Error, Result, parse_cid};
use ipfrs_middleware::auth::{Caller, Denied, Need, Proof, audit, challenge, shortened_argument, stored_blocks};
use ipfrs_middleware::{Client, OverTls};
use parking_lot::Mutex;

use crate::access_rule::Access;
use crate::body::Observed;
use crate::error::{GatewayError, PinningProblem, Problem, RpcError, rpc_refusal};
use crate::gateway::cors;
use crate::origin::Checked;
use crate::request_id::RequestId;
use crate::routes::{IPFS_ROUTE, IPNS_ROUTE};
use crate::state::AppState;

/// A request that passed.
pub(crate) struct Admitted {
    pub(crate) caller: Caller,
    /// Its line of the audit log, if it changes something.
    change: Option<Change>,
    is_audited_later: bool,
}

/// A line of the audit log that is written in any case, once the outcome is known.
struct Change {
    by: BodyAudit,
    target: String,
    /// Whether the outcome was written, or the front-end that has the request writes it.
    is_written: bool,
    /// Status of a response that is sent while the request is processed, and what the request has stored.
    later: Option<(StatusCode, StoredLater)>,
}

/// Marks a request that changes something, and whose own front-end decides about it and writes its line of the audit
/// log. Refusals before are written here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AuditedLater;

/// Content, pin or API key that a request has stored, for its line of the audit log. An extension of the response.
#[derive(Debug, Clone)]
pub(crate) struct StoredObject(pub(crate) String);

/// Content that a request stores while its response is sent. An extension of the response: the line of the audit log is
/// written when the body is dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoredLater(Arc<Mutex<Storing>>);

/// State of a request whose response is being sent.
#[derive(Debug, Default)]
struct Storing {
    /// Content ID that was stored last: the root of a tree.
    last: Option<Cid>,
    count: usize,
    /// Outcome, or the code of its error; `None` until the request is processed.
    outcome: Option<Result<(), &'static str>>,
}

impl StoredLater {
    /// Notes content that is durable.
    pub(crate) fn add(&self, cid: Cid) {
        let mut progress = self.0.lock();
        progress.last = Some(cid);
        progress.count += 1;
    }

    /// Notes that the request is processed.
    pub(crate) fn end(&self, outcome: &Result<()>) {
        self.0.lock().outcome = Some(outcome.as_ref().copied().map_err(|error| error.kind().code()));
    }
}

/// The line of the audit log about a connection, which stores content after its response. An extension of the response;
/// the session writes the line. A session that ends without it leaves a line with the status `aborted`.
#[derive(Clone, Default)]
pub(crate) struct SessionAudit(Arc<Mutex<Option<Change>>>);

impl SessionAudit {
    /// Writes the line, with what the session has stored and the error that has ended it.
    pub(crate) fn end(&self, stored: &str, error: Option<&Error>) {
        let Some(mut change) = self.0.lock().take() else { return };
        change.add_stored(stored);
        let status = StatusCode::SWITCHING_PROTOCOLS;
        change.write(error.map_or(status.as_str(), |error| error.kind().code()));
    }
}

/// Returns a response with the content that its request has stored, for the audit log.
pub(crate) fn with_stored(mut response: Response, stored: &[Cid]) -> Response {
    if let Some(first) = stored.first() {
        response.extensions_mut().insert(StoredObject(stored_blocks(&first.to_string(), stored.len())));
    }
    response
}

impl Change {
    fn write(&mut self, status: &str) {
        self.is_written = true;
        self.by.write(&self.target, status);
    }

    fn add_stored(&mut self, stored: &str) {
        self.target.push(' ');
        self.target.push_str(stored);
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        // The client left. What the request had begun may be completed nevertheless.
        const ABORTED: &str = "aborted";
        if self.is_written {
            return;
        }
        let Some((status, StoredLater(progress))) = self.later.take() else {
            self.write(ABORTED);
            return;
        };
        let progress = progress.lock();
        if let Some(last) = progress.last {
            self.add_stored(&stored_blocks(&last.to_string(), progress.count));
        }
        match progress.outcome {
            Some(Ok(())) => self.write(status.as_str()),
            Some(Err(code)) => self.write(code),
            None => self.write(ABORTED),
        }
    }
}

/// Audits arguments in the body of an RPC command. An extension of requests that change something.
#[derive(Debug, Clone)]
pub(crate) struct BodyAudit {
    caller: Caller,
    client: Client,
    route: String,
    id: HeaderValue,
}

impl BodyAudit {
    fn write(&self, target: &str, status: &str) {
        audit(&self.caller, self.client, &self.route, target, status, text(&self.id));
    }

    /// Notes that a request is refused with `status` before its own front-end has it.
    pub(crate) fn note_refusal(&self, request: &axum::extract::Request, status: StatusCode) {
        self.write(&target(request), status.as_str());
    }

    /// Notes the arguments, once they are read. Many have several lines.
    pub(crate) fn note<'a>(&self, arguments: impl Iterator<Item = Cow<'a, str>>) {
        let mut target = String::new();
        let line = |target: &str| self.write(target, "arguments");
        for argument in arguments {
            target.push_str(if target.is_empty() { "" } else { " " });
            target.push_str(&shortened_argument(&argument));
            if target.len() > MAX_LINE_BYTES {
                line(&target);
                target.clear();
            }
        }
        if !target.is_empty() {
            line(&target);
        }
    }
}

/// Decides about a request to `route`.
///
/// # Errors
/// The response that refuses it.
pub(crate) fn admit<'a>(
    state: &'a AppState,
    request: &axum::extract::Request,
    access: Access,
    route: &'a str,
    client: Client,
    id: &'a HeaderValue,
) -> impl Future<Output = std::result::Result<Admitted, Box<Response>>> + Send + use<'a> {
    // Requests on the API listener have passed its checks of the origin. Elsewhere content of anyone shares the origin.
    let is_checked = request.extensions().get::<Checked>().is_some();
    let proof = if is_checked { Proof::HeaderOrSession } else { Proof::Header };
    let need = access.of(request.method());
    let is_audited_later = request.extensions().get::<AuditedLater>().is_some();
    let target = (need.is_change() || is_audited_later).then(|| target(request));
    // The request has a body, which tasks must not share.
    let headers = request.headers().clone();
    let certified = request.extensions().get::<OverTls>().and_then(OverTls::certified);
    async move {
        let mut admitted = state.auth.admit(&headers, certified.as_ref(), client, proof, need).await;
        if let Need::Command(_) = need {
            admitted = admitted.and_then(|caller| match caller.require_command(route) {
                Ok(()) => Ok(caller),
                Err(error) => Err(Denied { error, caller }),
            });
            if state.auth.has_rpc_users() {
                admitted = admitted.map_err(|denied| Denied { error: rpc_refusal(denied.error), ..denied });
            }
        }
        match admitted {
            Ok(caller) => {
                let change = target.map(|target| {
                    let by = BodyAudit { caller: caller.clone(), client, route: route.to_owned(), id: id.clone() };
                    Change { by, target, is_written: false, later: None }
                });
                Ok(Admitted { caller, change, is_audited_later })
            }
            Err(Denied { error, caller }) => {
                if let Some(target) = &target {
                    audit(&caller, client, route, target, error.kind().code(), text(id));
                }
                Err(Box::new(refusal(&headers, error, route, id)))
            }
        }
    }
}

impl Admitted {
    /// Adds what the handler of the request needs. From now on, it decides about a request that is audited later.
    pub(crate) fn extend(&mut self, extensions: &mut Extensions) {
        extensions.insert(self.caller.clone());
        if self.is_audited_later
            && let Some(change) = &mut self.change
        {
            change.is_written = true;
        }
        if let Some(change) = &self.change {
            extensions.insert(change.by.clone());
        }
    }

    /// Notes the outcome of a request that changes something.
    pub(crate) fn finished(self, response: &Response) {
        if let Some(mut change) = self.change.filter(|change| !change.is_written) {
            if let Some(StoredObject(stored)) = response.extensions().get() {
                change.add_stored(stored);
            }
            change.write(response.status().as_str());
        }
    }

    /// Same as [`finished`](Self::finished), for the response of a handler. It may store content while it is sent, or in
    /// the session that follows.
    pub(crate) fn finished_by(self, mut response: Response) -> Response {
        if let Some(SessionAudit(line)) = response.extensions_mut().remove() {
            *line.lock() = self.change.filter(|change| !change.is_written);
            return response;
        }
        let Some(later) = response.extensions_mut().remove::<StoredLater>() else {
            self.finished(&response);
            return response;
        };
        let mut change = self.change.filter(|change| !change.is_written);
        if let Some(change) = &mut change {
            change.later = Some((response.status(), later));
        }
        response.map(|body| Body::new(Observed::new(body, move |_| drop(change.take()))))
    }
}

fn text(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

/// Commands whose arguments after the first one may be secret.
const SECRET_ARGUMENTS: [&str; 2] = ["/api/v0/config", "/api/v0/pin/remote/service/add"];

/// Length of a line of arguments in the audit log above which the next one begins, in bytes.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// Returns what a request is about: its method and path, and the arguments of an RPC command. Other parameters may be
/// long or secret.
fn target(request: &axum::extract::Request) -> String {
    let path = request.uri().path();
    let most = if SECRET_ARGUMENTS.contains(&path.trim_end_matches('/')) { 1 } else { usize::MAX };
    let mut target = format!("{} {path}", request.method());
    let arguments = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
    for (_, value) in arguments.filter(|(name, _)| name == "arg").take(most) {
        target.push(' ');
        target.push_str(&shortened_argument(&value));
    }
    target
}

/// Returns the response that refuses a request, in the form of the API that `route` belongs to.
pub(crate) fn refusal(asked: &HeaderMap, error: Error, route: &str, id: &HeaderValue) -> Response {
    let mut headers = HeaderMap::new();
    challenge(asked, &error, &mut headers);
    let mut response = failure(error, route, id);
    response.headers_mut().extend(headers);
    response
}

/// Returns an error in the form of the API that `route` belongs to.
pub(crate) fn failure(error: Error, route: &str, id: &HeaderValue) -> Response {
    if route.starts_with("/api/v0") {
        RpcError::Command(error).into_response()
    } else if route.starts_with("/pinning/v1") {
        PinningProblem(error).into_response()
    } else if route.starts_with("/v1") {
        Problem::new(error, &RequestId(id.clone())).into_response()
    } else {
        let mut response = GatewayError(error).into_response();
        if [IPFS_ROUTE, IPNS_ROUTE].contains(&route) {
            cors::add(response.headers_mut());
        }
        response
    }
}

/// Checks that the caller of a request may read content below the root of `path`: `{cid}/...` or `/ipfs/{cid}/...`.
///
/// # Errors
/// [`ErrorKind::Forbidden`](ipfrs_core::ErrorKind) otherwise.
pub(crate) fn check_root(extensions: &Extensions, path: &str) -> Result<()> {
    let caller = Caller::of(extensions);
    if !caller.has_roots() {
        return Ok(());
    }
    let path = path.strip_prefix("/ipfs/").unwrap_or(path);
    let root = path.split('/').next().and_then(|root| parse_cid(root).ok());
    caller.require_root(root.as_ref())
}
