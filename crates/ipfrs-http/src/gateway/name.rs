//! From the path of a request to one that does not change: names are resolved.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, LOCATION};
use http::{HeaderMap, StatusCode};
use ipfrs_core::{Error, Result};
use ipfrs_node::{ContentPath, LinkName, NameRoot, PathFacts};

use super::page::encode;
use super::path::{self, decoded, names, shown, split_root};
use super::request::normalised;
use super::site::Site;
use crate::body::header_text;
use crate::router::AppState;

/// How long an answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    /// What a content ID leads to is always the same.
    Immutable,
    /// What a name leads to, for as long as its owner says.
    For(Duration),
}

impl Freshness {
    /// Sets the headers that tell caches.
    pub(super) fn tell(self, state: &AppState, headers: &mut HeaderMap) {
        match self {
            Self::Immutable => drop(headers.insert(CACHE_CONTROL, state.immutable.clone())),
            Self::For(ttl) => {
                headers.insert(CACHE_CONTROL, header_text(&format!("public, max-age={}", ttl.as_secs())));
            }
        }
    }

    /// As [`Self::tell`], for a page that the daemon draws, which changes with its version.
    pub(super) fn tell_of_page(self, headers: &mut HeaderMap) {
        const SECONDS: u64 = 604_800;
        let seconds = match self {
            Self::Immutable => SECONDS,
            Self::For(ttl) => ttl.as_secs().min(SECONDS),
        };
        let value = format!("public, max-age={seconds}, stale-while-revalidate=2678400");
        headers.insert(CACHE_CONTROL, header_text(&value));
    }
}

/// What the path of a request leads to.
#[derive(Debug)]
pub(super) struct Target<'a> {
    /// The content.
    pub(super) path: Arc<ContentPath>,
    /// Of the segments of `path`, those that a name stands for.
    pub(super) root_segments: usize,
    /// How long that holds.
    pub(super) freshness: Freshness,
    /// The text that stands for `path` in the Node's memory.
    pub(super) key: Cow<'a, str>,
    /// What the Node remembers of it.
    pub(super) known: Option<Arc<PathFacts>>,
}

/// What became of a path.
pub(super) enum Located<'a> {
    /// It leads to this.
    At(Target<'a>),
    /// It is to be asked for by another.
    Moved(Response),
}

/// Follows the name in a path, if there is one.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the path and what is wrong with it; as
/// [`ipfrs_node::Node::resolve_name`].
pub(super) async fn locate<'a>(
    state: &AppState,
    site: &Site,
    content_path: &'a str,
    query: Option<&str>,
) -> Result<Located<'a>> {
    let Some(rest) = content_path.strip_prefix("/ipns/") else {
        let known = state.node.known(content_path);
        let path =
            known.as_ref().map_or_else(|| path::parse(content_path).map(Arc::new), |facts| Ok(facts.path.clone()));
        let key = Cow::Borrowed(content_path);
        return Ok(Located::At(Target { path: path?, root_segments: 0, freshness: Freshness::Immutable, key, known }));
    };
    let (name, below) = split_root(rest);
    let root = parse_root(content_path, name)?;
    if !site.is_website() && matches!(root, NameRoot::Key(_)) && root.to_string() != name {
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let location = header_text(&format!("/ipns/{root}{}{query}", normalised(below)));
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
    // What a name leads to may have names that are only dots, which mean something else in the path of a request: what is known
    // of such a path is for names only.
    let is_plain = path.segments().iter().all(LinkName::is_segment);
    let key = if is_plain { key } else { format!("name of {key}") };
    let known = state.node.known(&key);
    let path = known.as_ref().map_or_else(|| Arc::new(path), |facts| facts.path.clone());
    Ok(Located::At(Target {
        path,
        root_segments,
        freshness: Freshness::For(resolved.ttl),
        key: Cow::Owned(key),
        known,
    }))
}

/// Reads what follows `/ipns/` in a path.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the path and what is wrong with it.
pub(super) fn parse_root(content_path: &str, name: &str) -> Result<NameRoot> {
    NameRoot::parse(&decoded(content_path, name)?)
        .map_err(|e| Error::new(e.kind(), format!("invalid path {:?}: {}", shown(content_path), e.message())))
}
