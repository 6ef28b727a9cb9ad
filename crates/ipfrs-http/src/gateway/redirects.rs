//! `_redirects`: the rules of a site for paths that do not exist in it
//! (<https://specs.ipfs.tech/http-gateways/web-redirects-file/>).

#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod rules;
mod target;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use futures::TryStreamExt;
use http::header::{CONTENT_TYPE, LOCATION, VARY};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_node::{ContentPath, LinkName, Node, ObjectKind, Span, leads_nowhere};

use rules::{MAX_FILE_BYTES, Outcome, Rules};

use super::content_response::{ContentResponse, etag};
use super::deserialised::{content_type_of, shown};
use super::escape::url_header;
use super::format::{Format, accepts_others};
use super::freshness::Freshness;
use super::name;
use super::payload::Payload;
use super::request::GatewayRequest;
use crate::config::Namespace;
use crate::content_limits;
use crate::error::refused;
use crate::state::AppState;

/// Name of the file in the root of a site.
const FILE_NAME: &str = "_redirects";

/// Reason why a file cannot be used. The site is at fault, so its visitors see the reason and nothing is logged.
struct Unusable(String);

/// Responds to a request for a path that failed to resolve with `missing`. The rules of the site apply if the site
/// has an origin of its own, the request is for a file or page, and the path does not exist.
///
/// # Errors
/// `missing` if no rule applies; otherwise the error of responding according to the rule.
pub(super) async fn or_missing(
    state: &AppState,
    request: &GatewayRequest<'_>,
    parts: &Parts,
    missing: Error,
) -> Result<Response> {
    // Many clients name JSON before everything else, and mean that any form will do.
    let takes_pages = request.is_negotiated && accepts_others(&parts.headers);
    let is_deserialised = request.format == Format::Deserialised || takes_pages;
    if !(request.site.is_isolated() && is_deserialised && leads_nowhere(&missing)) {
        return Err(missing);
    }
    let site = &request.path.segments()[..request.root_segments];
    let root = ContentPath::new(*request.path.root(), site.to_vec())?;
    match find(&state.node, &root, request.below_root(), request.query).await? {
        Ok(None) => Err(missing),
        Ok(Some(Outcome::Redirect { status, location })) => {
            // Other formats of a missing path are refused.
            let headers = [(LOCATION, url_header(&location)), (VARY, HeaderValue::from_static("Accept"))];
            let mut response = (status, headers).into_response();
            if request.freshness != Freshness::Immutable {
                request.freshness.tell(&state.immutable, response.headers_mut());
            }
            Ok(response)
        }
        Ok(Some(Outcome::Content { status, segments })) => {
            // Content that is blocked under its name must not be available through a rule of its site.
            if let (Namespace::Ipns, name) = request.root() {
                state.node.check_name(&name::parse_root(&request.content_path, name)?, &segments)?;
            }
            let path = ContentPath::new(*root.root(), [site, &segments].concat())?;
            let request = GatewayRequest {
                path: Arc::new(path),
                ends_with_slash: true,
                cached: None,
                format: Format::Deserialised,
                is_negotiated: false,
                ..request.clone()
            };
            content(state, &request, parts, status).await
        }
        Err(Unusable(why)) => Ok(refused(StatusCode::INTERNAL_SERVER_ERROR, why)),
    }
}

/// Responds with other content: with status 200, as if it had been requested itself; with other statuses, as a page.
async fn content(
    state: &AppState,
    request: &GatewayRequest<'_>,
    parts: &Parts,
    status: StatusCode,
) -> Result<Response> {
    let object = state.node.resolve(request.path.clone()).await?.whole()?;
    if status == StatusCode::OK {
        return shown(state, request, &parts.headers, object).await;
    }
    let ObjectKind::File(file) = &object.kind else {
        let why = format!("could not use {FILE_NAME}: the page for {status}, {}, is not a file", request.path);
        return Ok(refused(StatusCode::INTERNAL_SERVER_ERROR, why));
    };
    content_limits::check_size(state, file.size(), content_limits::Remedy::Gateway)?;
    let page = Payload::File(file.clone());
    let mut response = ContentResponse::new(state, request, &object, etag(&object, ""));
    response.set(CONTENT_TYPE, content_type_of(state, request, &page, request.file_name().as_deref()).await);
    response.whole(state, status, page).await
}

/// Returns the result of the rules of the site at `root` for the missing `path` below it, or `None` if no rule
/// applies. `query` is the query of the request. The inner error describes a fault of the file, which is reported
/// with status 500.
///
/// # Errors
/// If the file may exist but cannot be read; see [`Node::resolve`] and [`Node::read`].
async fn find(
    node: &Node,
    root: &ContentPath,
    path: &[LinkName],
    query: Option<&str>,
) -> Result<Result<Option<Outcome>, Unusable>> {
    let object = match node.resolve(root.join(FILE_NAME)).await {
        Ok(object) => object,
        Err(error) if leads_nowhere(&error) => return Ok(Ok(None)),
        Err(error) => return unreadable(error),
    };
    let ObjectKind::File(file) = object.kind else {
        return Ok(Err(Unusable(format!("could not read {FILE_NAME}: it is not a file"))));
    };
    let unparsable = |error: Error| Unusable(format!("could not parse {FILE_NAME}: {error}"));
    if file.size() > MAX_FILE_BYTES as u64 {
        return Ok(Err(unparsable(rules::too_large())));
    }
    let pieces = node.read(&file, Span { start: 0, len: file.size() });
    let text = match pieces.try_collect::<BytesMut>().await {
        Ok(text) => text,
        Err(error) => return unreadable(error),
    };
    Ok(match Rules::parse(&text) {
        Ok(rules) => rules.apply(path, query).map_err(|error| Unusable(format!("could not use {FILE_NAME}: {error}"))),
        Err(error) => Err(unparsable(error)),
    })
}

/// Classifies a read error: missing or invalid blocks are a fault of the site, other errors a fault of the daemon.
fn unreadable<T>(error: Error) -> Result<Result<T, Unusable>> {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::InvalidInput | ErrorKind::InvalidContent | ErrorKind::Unsupported => {
            Ok(Err(Unusable(format!("could not read {FILE_NAME}: {error}"))))
        }
        _ => Err(error),
    }
}
