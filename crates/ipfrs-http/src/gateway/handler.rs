//! The handler of `/ipfs` and `/ipns`: resolves the path and chooses the form of the response.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::ACCEPT;
use http::request::Parts;
use http::{Method, StatusCode};
use ipfrs_core::{ErrorKind, Result};
use ipfrs_node::{Limit, Object, ObjectKind, with_context};

use super::codec::Codec;
use super::cors::{self, ALLOW};
use super::deserialised::shown;
use super::format::{Format, accepts_others};
use super::freshness::Freshness;
use super::name::{self, Located};
use super::path_cache::CachedPath;
use super::request::{self, GatewayRequest, Target, Wanted};
use super::site::Site;
use super::{address, block, car, ipfs_uri, ipns_record, range_response, redirects, retrieval, tar, trustless};
use crate::access::check_root;
use crate::access_rule::Access;
use crate::config::Namespace;
use crate::content_limits;
use crate::error::{GatewayError, Reason, method_not_allowed, refused};
use crate::head_deadline::in_time;
use crate::request_lifecycle::with_request_lifecycle;
use crate::routes::{IPFS_ROUTE, IPNS_ROUTE};
use crate::state::AppState;

/// Handles every method under `/ipfs` and `/ipns`.
pub(crate) async fn handle(State(state): State<AppState>, request: Request) -> Response {
    let site = Site::paths(state.config.deserialized);
    serve_site(state, site, request).await
}

/// Responds to a request to a site. It records its own metrics: for a small file, a layer would cost more than the
/// response.
pub(crate) async fn serve_site(state: AppState, site: Site, request: Request) -> Response {
    let is_name = matches!(Namespace::of_path(&site.content_path(request.uri().path())), Some(Namespace::Ipns));
    let family = state.metrics.family(if is_name { IPNS_ROUTE } else { IPFS_ROUTE }, request.method());
    let answer = async |request: Request| {
        let uri = request.uri().clone();
        let deadline = request.extensions().get().cloned();
        // Boxed, because the surrounding futures move it, and it has space for the state of every kind of request.
        let answer = Box::pin(answer(state.clone(), &site, request));
        let mut response = in_time(deadline, answer, |error| GatewayError(error).into_response()).await;
        address::tell_of(&site.content_path(uri.path()), &mut response);
        cors::add(response.headers_mut());
        if let Some(reason) = response.extensions_mut().get_mut::<Reason>() {
            reason.is_isolated = site.is_isolated();
        }
        response
    };
    with_request_lifecycle(&state, family, Access::CONTENT, request, answer).await
}

async fn answer(state: AppState, site: &Site, request: Request) -> Response {
    match *request.method() {
        Method::GET | Method::HEAD => {}
        Method::OPTIONS => return (StatusCode::NO_CONTENT, [(http::header::ALLOW, ALLOW)]).into_response(),
        _ => return method_not_allowed(ALLOW),
    }
    let (parts, _) = request.into_parts();
    let served = match state.node.retrieves() {
        true => Box::pin(with_context(retrieval::context(site, &parts), serve(&state, site, &parts))).await,
        false => serve(&state, site, &parts).await,
    };
    match served {
        Ok(response) => response,
        // 412 is a different miss than 404, so that a client that probes may still request the content (path gateway
        // specification, "412 Precondition Failed").
        Err(e)
            if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Unresolvable)
                && request::only_if_cached(&parts.headers) =>
        {
            StatusCode::PRECONDITION_FAILED.into_response()
        }
        Err(e) if e.kind() == ErrorKind::TooLarge && content_limits::is_long(parts.uri.path()) => {
            state.node.count_refusal(Limit::Dag);
            refused(StatusCode::URI_TOO_LONG, e.to_string())
        }
        Err(e) => GatewayError(e).into_response(),
    }
}

// Futures of rare cases are boxed to keep this future small, since it is moved together with its space for all
// awaited futures.
async fn serve(state: &AppState, site: &Site, parts: &Parts) -> Result<Response> {
    let content_path = site.content_path(parts.uri.path());
    check_root(&parts.extensions, &content_path)?;
    if ipfs_uri::is_without_root(&content_path) {
        return ipfs_uri::follow(&parts.uri);
    }
    if let Some(moved) = ipfs_uri::meant(parts.uri.path(), parts.uri.query()).filter(|_| !site.is_isolated()) {
        return Ok(moved);
    }
    request::check_service_worker(&content_path, &parts.headers)?;
    let wanted = Wanted::of(site, parts, &content_path)?;
    if site.is_trustless && !trustless::is_verifiable(wanted.format, &content_path) {
        // As in the specification of trustless gateways, section "Accept".
        let names_none = wanted.format == Format::Deserialised && !parts.headers.contains_key(ACCEPT);
        let status = if names_none { StatusCode::BAD_REQUEST } else { StatusCode::NOT_ACCEPTABLE };
        return Ok(refused(status, trustless::OFFER.to_owned()));
    }
    if wanted.format == Format::IpnsRecord {
        return Box::pin(ipns_record::respond(state, parts, &content_path, &wanted)).await;
    }
    let target = match name::locate(state, site, &content_path, parts.uri.query()).await? {
        Located::At(target) => target,
        Located::Moved(response) => return Ok(response),
    };
    if let Some(cached) = target.cached.as_ref().filter(|_| target.freshness == Freshness::Immutable)
        && let Some(answer) = range_response::again(state, parts, wanted.format, cached).await?
    {
        return Ok(answer);
    }
    let request = GatewayRequest::new(site, parts, &content_path, wanted, &target);
    if request.format == Format::Car {
        return Box::pin(car::respond(state, &request, &parts.headers)).await;
    }
    Box::pin(resolved(state, parts, request, target)).await
}

/// Responds with the content of a path in the requested format.
async fn resolved(
    state: &AppState,
    parts: &Parts,
    mut request: GatewayRequest<'_>,
    target: Target<'_>,
) -> Result<Response> {
    let object = match target.cached {
        Some(cached) => state.node.load(cached.resolved.clone()).await?,
        None => match Box::pin(state.node.resolve(request.path.clone())).await {
            Ok(object) => {
                let object = object.whole()?;
                let cached = CachedPath::new(object.resolved.clone());
                let takes = |body: &Bytes| request.is_plain() && state.response_cache.takes(state, parts, body);
                let is_taken = match &object.kind {
                    _ if request.format == Format::Raw => takes(&object.block),
                    ObjectKind::File(file) => file.inline().as_ref().is_some_and(takes),
                    _ => false,
                };
                // A response in the response cache needs no path, and a file whose sizes were not found may get them.
                let is_final =
                    !matches!(object.kind, ObjectKind::Other) || object.cid.codec() != ipfrs_core::codec::DAG_PB;
                if is_final && !is_taken {
                    state.path_cache.insert(&target.key, &cached);
                }
                request.cached = Some(cached);
                object
            }
            Err(missing) => return Box::pin(redirects::or_missing(state, &request, parts, missing)).await,
        },
    };
    let named = std::iter::once(&request.format).chain(&request.alternatives);
    match named.copied().find(|format| is_available(*format, &object)) {
        Some(format) => request.format = format,
        None if request.is_negotiated && accepts_others(&parts.headers) => request.format = Format::Deserialised,
        None => return mismatch(request.format, &object).await,
    }
    match request.format {
        Format::Raw => {
            let (body, resolved) = (object.block.clone(), object.resolved.clone());
            let answer = block::raw(state, &request, &parts.headers, object).await?;
            if request.is_plain() {
                state.response_cache.keep(state, parts, &target.key, &answer, body, &resolved);
            }
            return Ok(answer);
        }
        Format::Car => return Box::pin(car::respond(state, &request, &parts.headers)).await,
        Format::Tar => return Box::pin(tar::archive(state, &request, &parts.headers, object)).await,
        Format::Codec(requested) if Codec::of(&object.cid).is_some() => {
            return Box::pin(block::block(state, &request, &parts.headers, object, requested)).await;
        }
        Format::Deserialised | Format::Codec(_) | Format::IpnsRecord => {}
    }
    let plain = match &object.kind {
        ObjectKind::File(file) if request.is_plain() => Some((file.clone(), object.resolved.clone())),
        _ => None,
    };
    let answer = shown(state, &request, &parts.headers, object).await?;
    if let Some((file, resolved)) = plain {
        match file.inline() {
            Some(body) => state.response_cache.keep(state, parts, &target.key, &answer, body, &resolved),
            None => range_response::keep(state, parts, &request, &answer, file.size()),
        }
    }
    Ok(answer)
}

/// Whether an object is available in a format. Only names have records.
fn is_available(format: Format, object: &Object) -> bool {
    match (format, Codec::of(&object.cid)) {
        (Format::Deserialised | Format::Raw | Format::Car, _) => true,
        (Format::Tar, _) => !matches!(object.kind, ObjectKind::Other),
        (Format::Codec(requested), Some(stored)) => requested.is_that_of(stored),
        (Format::Codec(_), None) => format.gives_files() && matches!(object.kind, ObjectKind::File(_)),
        (Format::IpnsRecord, _) => false,
    }
}

/// Refuses a format in which an object is not available. If the object is malformed UnixFS, the error says so
/// instead.
async fn mismatch(requested: Format, object: &Object) -> Result<Response> {
    if requested == Format::Tar || requested.gives_files() {
        let error = Box::pin(object.not_unixfs("request its block with ?format=raw")).await;
        if error.kind() == ErrorKind::InvalidContent {
            return Err(error);
        }
    }
    Ok(refused(StatusCode::NOT_ACCEPTABLE, block::mismatch(requested.name(), object)))
}
