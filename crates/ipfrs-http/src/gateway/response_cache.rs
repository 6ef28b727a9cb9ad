//! The response cache: responses for small files and raw blocks that were requested before without conditions.
//!
//! For a file of a kilobyte, parsing the path, querying the store and building the headers cost more than sending it.
//! The result is kept, and is valid until one of its blocks is removed from the store. Bodies are slices of mapped
//! packs: the cache holds only a reference, which is dropped when the pack is removed.

mod lookup;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use axum::response::Response;
use bytes::Bytes;
use http::header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use ipfrs_node::{CacheMeter, Cid, EpochCache, Node, ResolvedPath};
use quick_cache::Weighter;
use tokio::sync::Semaphore;

use super::cors;
use super::format::{SERVICE_WORKER, format_by_accept, unknown_format};
use super::serialized_head::SerializedHead;
use crate::metrics::{Family, HttpMetrics};
use crate::routes::IPFS_ROUTE;
use crate::state::AppState;

/// Maximum size of a cached body, in bytes. Caching larger ones gains little.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Query of a request for the block at a path. It is the only query whose responses may be cached.
pub const RAW_QUERY: &str = "format=raw";

/// Maximum number of bodies that are read at the same time without request permits.
const MAX_WARMING: usize = 16;

/// Bytes per entry in addition to its path, as measured: mostly headers, in both forms.
const ENTRY_BYTES: u64 = 3_456;

type Responses = EpochCache<String, Arc<CachedResponse>, ByText>;

/// Cached responses by content path and query as clients write them. All hosts that serve the path share them.
#[derive(Debug)]
pub(crate) struct ResponseCache {
    cache: Option<Arc<Responses>>,
    meter: CacheMeter,
    family: Arc<Family>,
    started: Instant,
    /// Permits for reading a body without a request permit.
    warming: Arc<Semaphore>,
}

#[derive(Debug)]
struct CachedResponse {
    headers: HeaderMap,
    /// Serialized head; `None` if the body is empty.
    head: Option<SerializedHead>,
    body: Bytes,
    /// Whether the response may be compressed for some clients. Bodies compressed earlier are also served from the
    /// cache.
    varies: bool,
    /// When the body was last found in memory, in seconds since `started`.
    checked: AtomicU64,
    /// Blocks that the response was made of.
    blocks: Arc<[Cid]>,
}

/// A response with a serialized head.
#[derive(Debug)]
pub struct SerializedResponse {
    /// Bytes after the head.
    pub body: Bytes,
    /// Position of the request ID in the head.
    pub request_id: Range<usize>,
    /// Time at which the request was processed.
    pub start: Instant,
}

/// Headers of a GET request whose response depends only on its path and query.
#[derive(Debug)]
pub struct CacheableRequest {
    /// Value of `Host`, as the client sent it.
    pub host: HeaderValue,
    /// Request ID that the client chose.
    request_id: Option<HeaderValue>,
    /// Whether the request receives compressible responses uncompressed.
    accepts_identity: bool,
    /// Whether only paths under `/ipfs` may be served.
    pub(crate) is_ipfs_only: bool,
}

impl CacheableRequest {
    /// Whether later requests may have the same headers. A request ID makes them unique.
    #[must_use]
    pub fn is_memoizable(&self) -> bool {
        self.request_id.is_none()
    }
}

#[derive(Debug, Clone)]
struct ByText;

impl Weighter<String, Arc<CachedResponse>> for ByText {
    fn weight(&self, path: &String, response: &Arc<CachedResponse>) -> u64 {
        ENTRY_BYTES + (path.len() + size_of_val(&*response.blocks)) as u64
    }
}

impl ResponseCache {
    /// Creates the cache. Without `deserialized` it keeps nothing: it is asked before the host of a request is known,
    /// and other hosts may serve files.
    pub(crate) fn new(node: &Node, metrics: &HttpMetrics, deserialized: bool) -> Self {
        Self {
            cache: node.configured_cache(ByText).filter(|_| deserialized),
            meter: node.cache_meter("answer"),
            family: metrics.family(IPFS_ROUTE, &Method::GET),
            started: Instant::now(),
            warming: Arc::new(Semaphore::new(MAX_WARMING)),
        }
    }

    /// Caches a response for a content path that was requested before, if the response is cacheable and its request has
    /// no conditions.
    pub(super) fn keep(
        &self,
        state: &AppState,
        request: &Parts,
        path: &str,
        response: &Response,
        body: Bytes,
        resolved: &ResolvedPath,
    ) {
        let Some(cache) = self.served(state) else { return };
        if response.status() != StatusCode::OK || !is_cacheable(request, &body) {
            return;
        }
        let key = key_of(path, &request.uri);
        if !cache.is_wanted(&*key) {
            return;
        }
        let checked = AtomicU64::new(self.started.elapsed().as_secs());
        let mut headers = response.headers().clone();
        cors::add(&mut headers);
        let varies = state.compression.varies(&mut headers, body.len() as u64);
        let head = (!body.is_empty()).then(|| SerializedHead::of(&headers, body.len()));
        let cached = CachedResponse { headers, head, body, varies, checked, blocks: resolved.blocks.clone() };
        cache.insert(key.into_owned(), Arc::new(cached), resolved.provenance);
    }

    /// Whether the cache may hold the response to a request for content with this body.
    pub(super) fn takes(&self, state: &AppState, request: &Parts, body: &Bytes) -> bool {
        self.served(state).is_some() && is_cacheable(request, body)
    }

    /// Returns the cache if responses are served from it. A private gateway checks each request instead.
    fn served(&self, state: &AppState) -> Option<&Responses> {
        self.cache.as_deref().filter(|_| !state.auth.protects_content())
    }

    /// Updates the gauge of the size.
    pub(crate) fn measure(&self) {
        self.meter.set_bytes(self.cache.as_ref().map_or(0, |cache| cache.weight()));
    }
}

/// Headers that may affect the response.
const DECIDING: [HeaderName; 6] =
    [RANGE, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, SERVICE_WORKER];

/// Whether the response to a request for content with this body may be cached.
fn is_cacheable(request: &Parts, body: &Bytes) -> bool {
    body.len() <= MAX_BODY_BYTES && is_plain(&request.method, &request.uri, &request.headers)
}

/// Whether the response depends only on the path, and on whether the block is requested.
fn is_plain(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    method == Method::GET && matches!(uri.query(), None | Some(RAW_QUERY)) && !decides_by_headers(headers)
}

/// Returns the key of the response to a plain request for a content path.
fn key_of<'a>(path: &'a str, uri: &Uri) -> Cow<'a, str> {
    uri.query().map_or(Cow::Borrowed(path), |query| Cow::Owned([path, "?", query].concat()))
}

/// Whether one of the headers may affect the response.
fn decides_by_headers(headers: &HeaderMap) -> bool {
    // Clients send few headers, so that scanning them is cheaper than looking up the relevant ones.
    headers.keys().any(|name| DECIDING.contains(name))
        || !format_by_accept(headers).gives_files()
        || unknown_format(headers).is_some()
}
