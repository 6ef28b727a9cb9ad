//! Resolution of the name in a request path, to an immutable path.

use std::borrow::Cow;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::LOCATION;
use ipfrs_core::{Error, Result};
use ipfrs_node::{ContentPath, LinkName, NameRoot};

use super::escape::{encode, normalised, url_header};
use super::freshness::Freshness;
use super::path::{self, decoded, names, shown, split_root};
use super::request::Target;
use super::site::Site;
use crate::state::AppState;

/// Result of locating a path.
pub(super) enum Located<'a> {
    /// The path refers to this content.
    At(Target<'a>),
    /// A redirect to the canonical path.
    Moved(Response),
}

/// Resolves the name in a path, if it has one.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the path and the fault; see also
/// [`ipfrs_node::Node::resolve_name`].
pub(super) async fn locate<'a>(
    state: &AppState,
    site: &Site,
    content_path: &'a str,
    query: Option<&str>,
) -> Result<Located<'a>> {
    let Some(rest) = content_path.strip_prefix("/ipns/") else {
        let cached = state.path_cache.lookup(content_path);
        let path = match &cached {
            Some(cached) => cached.resolved.path.clone(),
            None => Arc::new(path::parse(content_path)?),
        };
        let key = Cow::Borrowed(content_path);
        return Ok(Located::At(Target { path, root_segments: 0, freshness: Freshness::Immutable, key, cached }));
    };
    let (name, below) = split_root(rest);
    let root = parse_root(content_path, name)?;
    if !site.is_website() && matches!(root, NameRoot::Key(_)) && root.to_string() != name {
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let location = url_header(&format!("/ipns/{root}{}{query}", normalised(below)));
        return Ok(Located::Moved((StatusCode::FOUND, [(LOCATION, location)]).into_response()));
    }
    let names = names(content_path, below)?;
    let resolved = Box::pin(state.node.resolve_name(&root)).await?;
    let start = &resolved.path;
    let root_segments = start.segments().len();
    state.node.check_name(&root, &names)?;
    let path = ContentPath::new(*start.root(), [start.segments(), &names].concat())?;
    let key =
        path.segments().iter().fold(format!("/ipfs/{}", path.root()), |key, name| format!("{key}/{}", encode(name)));
    // The content of a name may have entries whose names consist only of dots, which have another meaning in a
    // request path. The cache key of such a path must not match any request path.
    let is_plain = path.segments().iter().all(LinkName::is_segment);
    let key = if is_plain { key } else { format!("name of {key}") };
    let cached = state.path_cache.lookup(&key);
    let path = cached.as_ref().map_or_else(|| Arc::new(path), |cached| cached.resolved.path.clone());
    Ok(Located::At(Target {
        path,
        root_segments,
        freshness: Freshness::For(resolved.ttl),
        key: Cow::Owned(key),
        cached,
    }))
}

/// Parses the segment after `/ipns/` in a path.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the path and the fault.
pub(super) fn parse_root(content_path: &str, name: &str) -> Result<NameRoot> {
    NameRoot::parse(&decoded(content_path, name)?)
        .map_err(|e| Error::new(e.kind(), format!("invalid path {:?}: {}", shown(content_path), e.message())))
}
