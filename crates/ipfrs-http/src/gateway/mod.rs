//! `GET /ipfs/{cid}[/path]` and `GET /ipns/{name}[/path]`: the path gateway
//! (<https://specs.ipfs.tech/http-gateways/path-gateway/>), and the same content on other hosts ([`hosted`]).

mod address;
mod answer;
mod car;
mod codec;
pub(crate) mod conditional;
pub(crate) mod content_type;
pub(crate) mod cors;
pub(crate) mod disposition;
pub(crate) mod error_page;
pub(crate) mod hosted;
pub(crate) mod hosts;
pub(crate) mod ipns_record;
mod known;
mod listing;
mod name;
pub(crate) mod page;
mod part;
pub(crate) mod path;
pub(crate) mod payload;
mod preview;
mod protocol;
pub(crate) mod proxied;
pub(crate) mod range;
pub(crate) mod ready;
mod redirects;
pub(crate) mod request;
pub(crate) mod site;
mod subdomain;
mod tar;
mod trustless;
pub(crate) mod welcome;
mod written;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, LOCATION, RANGE, VARY, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use ipfrs_core::{ErrorKind, Result};
use ipfrs_node::{Limit, Object, ObjectKind};

use crate::body::{header_text, unknown_length};
use crate::config::Namespace;
use crate::error::{GatewayError, Reason, method_not_allowed, refused};
use crate::limits::{self, Remedy};
use crate::metrics;
use crate::router::AppState;
use answer::Answer;
use codec::Codec;
use name::{Freshness, Located, Target};
use payload::Payload;
use request::{Format, GatewayRequest, Wanted};
use site::Site;

const ALLOW: &str = "GET, HEAD, OPTIONS";

/// Route of content under `/ipfs`, as named in metrics.
pub(crate) const ROUTE: &str = "/ipfs/{*path}";
/// Route of content under `/ipns`, as named in metrics.
pub(crate) const IPNS_ROUTE: &str = "/ipns/{*path}";

/// Handles every method under `/ipfs` and `/ipns`.
pub(crate) async fn handle(State(state): State<AppState>, request: Request) -> Response {
    serve_site(state, Site::PATHS, request).await
}

/// Responds to a request to a site. It records its own metrics: for a small file, a layer would cost more than the
/// response.
pub(crate) async fn serve_site(state: AppState, site: Site, request: Request) -> Response {
    let is_name = matches!(Namespace::of_path(&site.content_path(request.uri().path())), Some(Namespace::Ipns));
    let family = state.metrics.family(if is_name { IPNS_ROUTE } else { ROUTE }, request.method());
    let answer = async |request: Request| {
        let uri = request.uri().clone();
        let deadline = request.extensions().get().cloned();
        // Boxed, because the surrounding futures move it, and it has space for the state of every kind of request.
        let answer = Box::pin(answer(state.clone(), &site, request));
        let mut response = limits::in_time(deadline, answer, |error| GatewayError(error).into_response()).await;
        address::tell_of(&site.content_path(uri.path()), &mut response);
        cors::add(response.headers_mut());
        if let Some(reason) = response.extensions_mut().get_mut::<Reason>() {
            reason.is_isolated = site.is_isolated();
        }
        response
    };
    metrics::observed(&state, family, request, answer).await
}

async fn answer(state: AppState, site: &Site, request: Request) -> Response {
    match *request.method() {
        Method::GET | Method::HEAD => {}
        Method::OPTIONS => return (StatusCode::NO_CONTENT, [(http::header::ALLOW, ALLOW)]).into_response(),
        _ => return method_not_allowed(ALLOW),
    }
    let (parts, _) = request.into_parts();
    match serve(&state, site, &parts).await {
        Ok(response) => response,
        // 412 is a different miss than 404, so that a client that probes may still request the content (path gateway
        // specification, "412 Precondition Failed").
        Err(e)
            if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Unresolvable)
                && request::only_if_cached(&parts.headers) =>
        {
            StatusCode::PRECONDITION_FAILED.into_response()
        }
        Err(e) if e.kind() == ErrorKind::TooLarge && limits::is_long(parts.uri.path()) => {
            state.node.count_refusal(Limit::Dag);
            refused(StatusCode::URI_TOO_LONG, e.to_string())
        }
        Err(e) => GatewayError(e).into_response(),
    }
}

// Futures of rare cases are boxed to keep this future small, since it is moved together with its space for all
// awaited futures.
async fn serve(state: &AppState, site: &Site, parts: &Parts) -> Result<Response> {
    let removals = state.node.removals();
    let content_path = site.content_path(parts.uri.path());
    if protocol::is_without_root(&content_path) {
        return protocol::follow(&parts.uri);
    }
    if let Some(moved) = protocol::meant(parts.uri.path(), parts.uri.query()).filter(|_| !site.is_isolated()) {
        return Ok(moved);
    }
    request::check_service_worker(&content_path, &parts.headers)?;
    let wanted = Wanted::parse(parts)?;
    if site.is_trustless && !trustless::is_verifiable(&wanted, &content_path) {
        return Ok(not_acceptable(trustless::OFFER));
    }
    if wanted.format == Format::IpnsRecord {
        return Box::pin(ipns_record::respond(state, parts, &content_path, &wanted)).await;
    }
    let target = match name::locate(state, site, &content_path, parts.uri.query()).await? {
        Located::At(target) => target,
        Located::Moved(response) => return Ok(response),
    };
    if let Some(facts) = target.known.as_ref().filter(|_| target.freshness == Freshness::Immutable)
        && let Some(answer) = part::again(state, parts, wanted.format, &content_path, facts).await?
    {
        return Ok(answer);
    }
    let request = GatewayRequest::new(site, parts, &content_path, wanted, &target);
    if request.format == Format::Car {
        return Box::pin(car::respond(state, &request, &parts.headers)).await;
    }
    Box::pin(resolved(state, parts, request, target, removals)).await
}

/// Responds with the content of a path in the requested format. `removals` is [`ipfrs_node::Node::removals`] from
/// before anything was read.
async fn resolved(
    state: &AppState,
    parts: &Parts,
    request: GatewayRequest<'_>,
    target: Target<'_>,
    removals: u64,
) -> Result<Response> {
    let object = match target.known {
        Some(facts) => state.node.revisit(facts).await?,
        None => match Box::pin(state.node.resolve(request.path.clone())).await {
            Ok(object) => {
                let object = object.whole()?;
                state.node.remember(&target.key, &object.facts);
                object
            }
            Err(missing) => return Box::pin(redirects::or_missing(state, &request, parts, missing)).await,
        },
    };
    let stored = Codec::of(&object.cid);
    match (request.format, stored) {
        (Format::Raw, _) => return raw(state, &request, &parts.headers, object).await,
        (Format::Tar, _) if !matches!(object.kind, ObjectKind::Other) => {
            return Box::pin(tar::archive(state, &request, &parts.headers, object)).await;
        }
        (Format::Codec(asked), Some(stored)) if asked.is_that_of(stored) => {
            return Box::pin(codec::block(state, &request, &parts.headers, object, asked)).await;
        }
        (Format::Deserialised, _) => {}
        (asked, None) if asked.gives_files() && matches!(object.kind, ObjectKind::File(_)) => {}
        _ if request.is_negotiated && request::accepts_pages(&parts.headers) => {}
        (asked, _) => return mismatch(asked, &object).await,
    }
    let plain = match &object.kind {
        ObjectKind::File(file) if request.is_plain() => Some((file.clone(), object.facts.clone())),
        _ => None,
    };
    let answer = shown(state, &request, &parts.headers, object).await?;
    if let Some((file, facts)) = plain {
        match file.inline() {
            Some(body) => state.ready.keep(&state.compression, parts, &target.key, &answer, body, removals),
            None => part::keep(state, parts, request.format, &target.key, &facts, &answer, file.size()),
        }
    }
    Ok(answer)
}

/// Responds with content in its default form: a file, a page, or a block under the media type of its codec.
async fn shown(
    state: &AppState,
    request: &GatewayRequest<'_>,
    headers: &HeaderMap,
    object: Object,
) -> Result<Response> {
    match &object.kind {
        ObjectKind::File(file) => {
            let payload = Payload::File(file.clone());
            deserialised(state, request, headers, &object, payload, request.file_name().as_deref()).await
        }
        ObjectKind::Symlink(target) => {
            let mut answer = Answer::new(state, request, &object, etag(&object, ""));
            answer.set(CONTENT_TYPE, HeaderValue::from_static("inode/symlink"));
            answer.payload(state, headers, Payload::Bytes(target.clone())).await
        }
        ObjectKind::Directory(_) => Box::pin(directory(state, request, headers, object)).await,
        ObjectKind::Other if preview::is_wanted(request, headers, &object) => {
            Box::pin(preview::page(state, request, headers, object)).await
        }
        ObjectKind::Other => match Codec::of(&object.cid) {
            Some(stored) => Box::pin(codec::block(state, request, headers, object, stored)).await,
            None => Err(Box::pin(object.not_unixfs("ask for its block with ?format=raw")).await),
        },
    }
}

/// Responds with a block as stored: `?format=raw` or `Accept: application/vnd.ipld.raw`.
async fn raw(state: &AppState, request: &GatewayRequest<'_>, headers: &HeaderMap, object: Object) -> Result<Response> {
    let mut answer = Answer::new(state, request, &object, etag(&object, ".raw"));
    answer.set(CONTENT_TYPE, HeaderValue::from_static("application/vnd.ipld.raw"));
    answer.set(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let name = request.filename.clone().unwrap_or_else(|| [&object.facts.cid, ".bin"].concat());
    answer.set(CONTENT_DISPOSITION, disposition::header("attachment", &name));
    answer.locate(request);
    answer.payload(state, headers, Payload::Bytes(object.block)).await
}

/// Responds with a file, using the `Content-Type` of its name or its first bytes. `etag_of` is the file, or the
/// directory whose index it is.
async fn deserialised(
    state: &AppState,
    request: &GatewayRequest<'_>,
    headers: &HeaderMap,
    etag_of: &Object,
    file: Payload,
    name: Option<&str>,
) -> Result<Response> {
    limits::check_size(state, file.size(), Remedy::Gateway)?;
    limits::check_range(state, headers.contains_key(RANGE), file.size(), Remedy::Gateway)?;
    let mut answer = Answer::new(state, request, etag_of, etag(etag_of, ""));
    answer.set(CONTENT_TYPE, content_type_of(state, etag_of, &file, name).await);
    if request.download || request.filename.is_some() {
        let kind = if request.download { "attachment" } else { "inline" };
        let name = request.file_name().unwrap_or_else(|| etag_of.facts.cid.as_str().into());
        answer.set(CONTENT_DISPOSITION, disposition::header(kind, &name));
    }
    answer.payload(state, headers, file).await
}

/// Returns the type of a file by its name, or else by its content.
async fn content_type_of(state: &AppState, object: &Object, file: &Payload, name: Option<&str>) -> HeaderValue {
    match (name.and_then(content_type::by_name), object.facts.content_type.get()) {
        (Some(by_name), _) => by_name,
        (None, Some(known)) => header_text(known),
        (None, None) => Box::pin(sniffed(state, object, file)).await,
    }
}

/// Guesses the type of a file from its content. The result is kept, unless the first bytes could not be read.
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
        return Ok(redirect_to_slash(state, request));
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
    let body = if request.is_head { unknown_length() } else { listing::body(&state.node, request, &object)? };
    Ok(answer.into_response(StatusCode::OK, body))
}

/// Refuses a format in which an object is not available. If the object is malformed UnixFS, the error says so
/// instead.
async fn mismatch(asked: Format, object: &Object) -> Result<Response> {
    if asked == Format::Tar || asked.gives_files() {
        let error = Box::pin(object.not_unixfs("ask for its block with ?format=raw")).await;
        if error.kind() == ErrorKind::InvalidContent {
            return Err(error);
        }
    }
    Ok(not_acceptable(&codec::mismatch(asked.name(), object)))
}

/// Returns a 406 response for content that is not available in the requested form.
fn not_acceptable(why: &str) -> Response {
    refused(StatusCode::NOT_ACCEPTABLE, why.to_owned())
}

/// Redirects with 301 to the same URL with a slash at its end, so that relative links in the page work.
fn redirect_to_slash(state: &AppState, request: &GatewayRequest<'_>) -> Response {
    let query = request.query.map(|query| format!("?{query}")).unwrap_or_default();
    // On the origin of a site, a path may begin with a file name. Two slashes at the start, or a slash and a
    // backslash, would be read as a host.
    let path = request.raw_path.trim_start_matches('/');
    let path = path.strip_prefix('\\').map_or_else(|| format!("/{path}"), |rest| format!("/%5C{rest}"));
    let location = header_text(&format!("{path}/{query}"));
    let vary = HeaderValue::from_static("Accept");
    let mut response = (StatusCode::MOVED_PERMANENTLY, [(LOCATION, location), (VARY, vary)]).into_response();
    if request.freshness != Freshness::Immutable {
        request.freshness.tell(state, response.headers_mut());
    }
    response
}

fn etag(object: &Object, suffix: &str) -> String {
    ["\"", &object.facts.cid, suffix, "\""].concat()
}
