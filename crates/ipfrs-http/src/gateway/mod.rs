//! `GET /ipfs/{cid}[/path]`: the path gateway (<https://specs.ipfs.tech/http-gateways/path-gateway/>).

mod car;
mod codec;
pub(crate) mod conditional;
pub(crate) mod content_type;
mod cors;
pub(crate) mod disposition;
pub(crate) mod listing;
pub(crate) mod payload;
mod preview;
pub(crate) mod range;
pub(crate) mod ready;
pub(crate) mod request;
mod tar;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LOCATION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    LOCATION, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use ipfrs_core::{ErrorKind, Result};
use ipfrs_node::{Object, ObjectKind};

use crate::body::{header_text, unknown_length};
use crate::compression::Representation;
use crate::error::{GatewayError, method_not_allowed};
use crate::{limits, metrics};
use crate::router::AppState;
use codec::Codec;
use payload::Payload;
use request::{Format, GatewayRequest};

const X_IPFS_PATH: HeaderName = HeaderName::from_static("x-ipfs-path");
const X_IPFS_ROOTS: HeaderName = HeaderName::from_static("x-ipfs-roots");
/// How long a page may be kept: it changes with the version of the daemon that draws it.
const PAGE_CACHE_CONTROL: &str = "public, max-age=604800, stale-while-revalidate=2678400";
const ALLOW: &str = "GET, HEAD, OPTIONS";

/// `GET /`: where to go from here.
pub(crate) async fn welcome() -> &'static str {
    "ipfrs gateway\n\n  /ipfs/{cid}[/path]   content\n  /api/v0/...          Kubo RPC (POST)\n  \
     /v1/block/batch/...  batches of blocks (POST)\n  /health              health\n  /metrics             metrics\n"
}

/// The route of content, as metrics name it.
pub(crate) const ROUTE: &str = "/ipfs/{*path}";

/// Answers every method under `/ipfs/`. This route observes itself: a layer would cost a small file more than its answer.
pub(crate) async fn handle(State(state): State<AppState>, request: Request) -> Response {
    let family = state.metrics.family(ROUTE, request.method());
    let answer = |request| {
        let answer = answer(state.clone(), request);
        async {
            let mut response = limits::in_time(&state, answer).await;
            cors::add(response.headers_mut());
            response
        }
    };
    metrics::observed(&state, family, request, answer).await
}

async fn answer(state: AppState, request: Request) -> Response {
    match *request.method() {
        Method::GET | Method::HEAD => {}
        Method::OPTIONS => return (StatusCode::NO_CONTENT, [(http::header::ALLOW, ALLOW)]).into_response(),
        _ => return method_not_allowed(ALLOW),
    }
    let (parts, _) = request.into_parts();
    match serve(&state, &parts).await {
        Ok(response) => response,
        // Another kind of miss than 404, so that a client that probes may still ask for content (path gateway
        // specification, "412 Precondition Failed").
        Err(e) if e.kind() == ErrorKind::NotFound && request::only_if_cached(&parts.headers) => {
            StatusCode::PRECONDITION_FAILED.into_response()
        }
        Err(e) => GatewayError(e).into_response(),
    }
}

async fn serve(state: &AppState, parts: &Parts) -> Result<Response> {
    let removals = state.node.removals();
    let known = state.node.known(parts.uri.path());
    let request = GatewayRequest::parse(parts, known.as_ref().map(|facts| facts.path.clone()))?;
    if let Format::NotOffered(name) = request.format {
        let remedy = "use another one, or leave it out";
        return Ok(not_acceptable(&format!("the format {name} is not offered by this version: {remedy}")));
    }
    if request.format == Format::Car {
        return car::respond(state, &request, &parts.headers).await;
    }
    let object = match known {
        Some(facts) => state.node.revisit(facts).await?,
        None => {
            let object = state.node.resolve(request.path.clone()).await?.whole()?;
            state.node.remember(parts.uri.path(), &object.facts);
            object
        }
    };
    let stored = Codec::of(&object.cid);
    match (request.format, stored) {
        (Format::Raw, _) => return raw(state, &request, &parts.headers, object).await,
        (Format::Tar, _) if !matches!(object.kind, ObjectKind::Other) => {
            return tar::archive(state, &request, &parts.headers, object).await;
        }
        (Format::Codec(asked), Some(stored)) if asked.is_that_of(stored) => {
            return codec::block(state, &request, &parts.headers, object, asked).await;
        }
        (Format::Deserialised, _) => {}
        (asked, None) if asked.gives_files() && matches!(object.kind, ObjectKind::File(_)) => {}
        _ if request.is_negotiated && request::accepts_pages(&parts.headers) => {}
        (asked, _) => return Ok(not_acceptable(&codec::mismatch(asked.name(), &object))),
    }
    match &object.kind {
        ObjectKind::File(file) => {
            let payload = Payload::File(file.clone());
            let answer = deserialised(state, &request, &parts.headers, &object, payload, request.file_name()).await?;
            if let Some(body) = file.inline() {
                state.ready.keep(&state.compression, parts, &answer, body, removals);
            }
            Ok(answer)
        }
        ObjectKind::Symlink(target) => {
            let mut answer = Answer::new(state, &request, &object, etag(&object, ""));
            answer.set(CONTENT_TYPE, HeaderValue::from_static("inode/symlink"));
            answer.payload(state, &parts.headers, Payload::Bytes(target.clone())).await
        }
        ObjectKind::Directory(_) => directory(state, &request, &parts.headers, object).await,
        ObjectKind::Other if preview::is_wanted(&request, &parts.headers, &object) => {
            preview::page(state, &request, &parts.headers, object).await
        }
        ObjectKind::Other => match stored {
            Some(stored) => codec::block(state, &request, &parts.headers, object, stored).await,
            None => Err(object.not_unixfs("ask for its block with ?format=raw").await),
        },
    }
}

/// A block as it is stored: `?format=raw` or `Accept: application/vnd.ipld.raw`.
async fn raw(state: &AppState, request: &GatewayRequest<'_>, headers: &HeaderMap, object: Object) -> Result<Response> {
    let mut answer = Answer::new(state, request, &object, etag(&object, ".raw"));
    answer.set(CONTENT_TYPE, HeaderValue::from_static("application/vnd.ipld.raw"));
    answer.set(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let name = request.filename.clone().unwrap_or_else(|| format!("{}.bin", object.cid));
    answer.set(CONTENT_DISPOSITION, disposition::header("attachment", &name));
    answer.locate(request);
    answer.payload(state, headers, Payload::Bytes(object.block)).await
}

/// A file, with the `Content-Type` that its name or its first bytes give. `etag_of` is the file, or the directory
/// whose index it is.
async fn deserialised(
    state: &AppState,
    request: &GatewayRequest<'_>,
    headers: &HeaderMap,
    etag_of: &Object,
    file: Payload,
    name: Option<&str>,
) -> Result<Response> {
    limits::check_size(state, file.size())?;
    limits::check_range(state, headers, file.size())?;
    let mut answer = Answer::new(state, request, etag_of, etag(etag_of, ""));
    let content_type = match (name.and_then(content_type::by_name), etag_of.facts.content_type.get()) {
        (Some(by_name), _) => by_name,
        (None, Some(known)) => header_text(known),
        (None, None) => sniffed(state, etag_of, &file).await,
    };
    answer.set(CONTENT_TYPE, content_type);
    if request.download || request.filename.is_some() {
        let kind = if request.download { "attachment" } else { "inline" };
        let fallback = || request.path.segments().last().cloned().unwrap_or_else(|| etag_of.cid.to_string());
        let name = request.filename.clone().unwrap_or_else(fallback);
        answer.set(CONTENT_DISPOSITION, disposition::header(kind, &name));
    }
    answer.payload(state, headers, file).await
}

/// The type that a file looks like. It is kept, unless the first bytes could not be had.
async fn sniffed(state: &AppState, object: &Object, file: &Payload) -> HeaderValue {
    match file.head(&state.node).await {
        Some(head) => header_text(object.facts.content_type.get_or_init(|| content_type::by_content(&head))),
        None => HeaderValue::from_static("application/octet-stream"),
    }
}

async fn directory(
    state: &AppState,
    request: &GatewayRequest<'_>,
    headers: &HeaderMap,
    object: Object,
) -> Result<Response> {
    if !request.ends_with_slash {
        return Ok(redirect_to_slash(request));
    }
    match state.node.resolve(request.path.join("index.html")).await {
        Ok(Object { kind: ObjectKind::File(index), .. }) => {
            let index = Payload::File(index);
            return deserialised(state, request, headers, &object, index, Some("index.html")).await;
        }
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let mut answer = Answer::page(state, request, &object, "DirIndex");
    if let Some(settled) = answer.settled(headers, None) {
        return Ok(settled);
    }
    let body = if request.is_head { unknown_length() } else { state.listing.body(&state.node, request, &object)? };
    Ok(answer.into_response(StatusCode::OK, body))
}

/// 406: content that is not to be had in the form that is asked for.
fn not_acceptable(why: &str) -> Response {
    (StatusCode::NOT_ACCEPTABLE, [(CACHE_CONTROL, "no-store"), (VARY, "Accept")], format!("{why}\n")).into_response()
}

/// 301 to the same place with a slash at its end, so that relative links in the page work.
fn redirect_to_slash(request: &GatewayRequest<'_>) -> Response {
    let query = request.query.map(|query| format!("?{query}")).unwrap_or_default();
    let location = header_text(&format!("{}/{query}", request.raw_path));
    (StatusCode::MOVED_PERMANENTLY, [(LOCATION, location)]).into_response()
}

fn etag(object: &Object, suffix: &str) -> String {
    format!("\"{}{suffix}\"", object.facts.cid)
}

/// An answer whose headers are being gathered.
struct Answer {
    headers: HeaderMap,
    etag: String,
    is_head: bool,
    max_ranges: usize,
}

impl Answer {
    /// The headers that every answer about content has.
    fn new(state: &AppState, request: &GatewayRequest<'_>, object: &Object, etag: String) -> Self {
        let mut headers = HeaderMap::with_capacity(12);
        headers.insert(ETAG, header_text(&etag));
        headers.insert(CACHE_CONTROL, state.immutable.clone());
        headers.insert(VARY, HeaderValue::from_static("Accept"));
        headers.insert(X_IPFS_PATH, header_text(&request.raw_path));
        headers.insert(X_IPFS_ROOTS, header_text(&object.facts.roots));
        Self { headers, etag, is_head: request.is_head, max_ranges: state.config.max_ranges }
    }

    /// The headers of a page that the daemon draws; `kind` is the first part of its `Etag`.
    fn page(state: &AppState, request: &GatewayRequest<'_>, object: &Object, kind: &str) -> Self {
        let etag = format!("\"{kind}-{}_CID-{}\"", state.listing.version(), object.cid);
        let mut answer = Self::new(state, request, object, etag);
        answer.set(CACHE_CONTROL, HeaderValue::from_static(PAGE_CACHE_CONTROL));
        answer.set(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        answer.set(CONTENT_SECURITY_POLICY, state.listing.content_security_policy());
        answer.set(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        answer.set(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
        answer
    }

    fn set(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.insert(name, value);
    }

    /// Says where the same is found by its URL alone, when `Accept` chose the format.
    fn locate(&mut self, request: &GatewayRequest<'_>) {
        if request.is_negotiated {
            let query = request.query.map(|query| format!("{query}&")).unwrap_or_default();
            let location = format!("{}?{query}format={}", request.raw_path, request.format.name());
            self.set(CONTENT_LOCATION, header_text(&location));
        }
    }

    /// The answer, where the request's conditions settle it without content (RFC 9110, 13.2.2). `length` is that of
    /// the body that is not sent.
    fn settled(&mut self, request: &HeaderMap, length: Option<u64>) -> Option<Response> {
        if conditional::if_match_fails(request, &self.etag) {
            return Some((StatusCode::PRECONDITION_FAILED, [(CACHE_CONTROL, "no-store")]).into_response());
        }
        conditional::if_none_match(request, &self.etag).then(|| self.not_modified(length))
    }

    /// 304, with the headers that RFC 9110 (15.4.5) asks to repeat.
    fn not_modified(&mut self, length: Option<u64>) -> Response {
        let content_type = self.headers.remove(CONTENT_TYPE);
        self.headers.remove(CONTENT_DISPOSITION);
        let mut response = StatusCode::NOT_MODIFIED.into_response();
        *response.headers_mut() = std::mem::take(&mut self.headers);
        response.extensions_mut().insert(Representation { content_type, length });
        response
    }

    /// The payload, or the ranges of it that were asked for.
    async fn payload(mut self, state: &AppState, request: &HeaderMap, payload: Payload) -> Result<Response> {
        let length = Some(payload.size());
        if let Some(settled) = self.settled(request, length) {
            return Ok(settled);
        }
        self.set(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        let asked = conditional::range_applies(request, &self.etag).then(|| request.get(http::header::RANGE)).flatten();
        let ranges = range::parse(asked, payload.size(), self.max_ranges);
        let whole = Representation { content_type: self.headers.get(CONTENT_TYPE).cloned(), length };
        let (status, body) = payload.respond(&state.node, ranges, &mut self.headers, self.is_head).await?;
        let mut response = self.into_response(status, body);
        if status != StatusCode::OK {
            response.extensions_mut().insert(whole);
        }
        Ok(response)
    }

    fn into_response(self, status: StatusCode, body: axum::body::Body) -> Response {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = self.headers;
        response
    }
}
