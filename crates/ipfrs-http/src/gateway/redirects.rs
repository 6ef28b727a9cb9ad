//! `_redirects`: what a site wants to be answered for paths that it does not have
//! (<https://specs.ipfs.tech/http-gateways/web-redirects-file/>).

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

use super::answer::Answer;
use super::name::{self, Freshness};
use super::payload::Payload;
use super::request::{Format, GatewayRequest};
use super::{content_type_of, etag, shown};
use crate::body::header_text;
use crate::config::Namespace;
use crate::error::refused;
use crate::limits;
use crate::router::AppState;
use rules::{MAX_FILE_BYTES, Outcome, Rules};

/// The name of the file in the root of a site.
const FILE_NAME: &str = "_redirects";

/// Why a file is of no use. It is the site that is at fault: its visitors are told, and nothing is logged.
struct Unusable(String);

/// The answer to a request for a path that could not be resolved because of `missing`: what the site says of it, where the
/// site has an origin of its own, a file or page is asked for, and the path does not exist.
///
/// # Errors
/// `missing`, where the site says nothing; else what keeps its answer from being made.
pub(super) async fn or_missing(
    state: &AppState,
    request: &GatewayRequest<'_>,
    parts: &Parts,
    missing: Error,
) -> Result<Response> {
    let may_apply = request.site.is_isolated() && request.format == Format::Deserialised && leads_nowhere(&missing);
    if !may_apply {
        return Err(missing);
    }
    let site = &request.path.segments()[..request.root_segments];
    let root = ContentPath::new(*request.path.root(), site.to_vec())?;
    match find(&state.node, &root, request.below_root(), request.query).await? {
        Ok(None) => Err(missing),
        Ok(Some(Outcome::Redirect { status, location })) => {
            // Other formats of what is missing are refused.
            let headers = [(LOCATION, header_text(&location)), (VARY, HeaderValue::from_static("Accept"))];
            let mut response = (status, headers).into_response();
            if request.freshness != Freshness::Immutable {
                request.freshness.tell(state, response.headers_mut());
            }
            Ok(response)
        }
        Ok(Some(Outcome::Content { status, segments })) => {
            // What may not be had by a name may not be had by a rule of its site either.
            if let (Namespace::Ipns, name) = request.root() {
                state.node.check_name(&name::parse_root(&request.content_path, name)?, &segments)?;
            }
            let path = ContentPath::new(*root.root(), [site, &segments].concat())?;
            let request = GatewayRequest { path: Arc::new(path), ends_with_slash: true, ..request.clone() };
            content(state, &request, parts, status).await
        }
        Err(Unusable(why)) => Ok(refused(StatusCode::INTERNAL_SERVER_ERROR, why)),
    }
}

/// Content in place of what was asked for: as if that had been asked for, or as a page that goes with another status.
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
    limits::check_size(state, file.size(), limits::Remedy::Gateway)?;
    let page = Payload::File(file.clone());
    let mut answer = Answer::new(state, request, &object, etag(&object, ""));
    answer.set(CONTENT_TYPE, content_type_of(state, &object, &page, request.file_name().as_deref()).await);
    answer.whole(state, status, page).await
}

/// What the site at `root` says of `path` below it, which does not exist; `None` where it says nothing. `query` is the
/// request's. The inner error is one of the file, for a 500.
///
/// # Errors
/// When the file cannot be had although it may be there: as [`Node::resolve`] and [`Node::read`].
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

/// A file of which blocks are missing or wrong is a fault of the site; everything else is one of this daemon.
fn unreadable<T>(error: Error) -> Result<Result<T, Unusable>> {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::InvalidInput | ErrorKind::InvalidContent | ErrorKind::Unsupported => {
            Ok(Err(Unusable(format!("could not read {FILE_NAME}: {error}"))))
        }
        _ => Err(error),
    }
}
