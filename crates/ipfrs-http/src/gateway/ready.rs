//! The response cache: responses for small files that were requested before without conditions.
//!
//! For a file of a kilobyte, parsing the path, querying the store and building the headers cost more than sending it.
//! The result is kept, and is valid until a block is removed from the store. Bodies are slices of mapped packs: the
//! cache holds only a reference, which is dropped when the pack is removed.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH, RANGE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, Version};
use http_body::Body as HttpBody;
use ipfrs_core::Error;
use ipfrs_node::{CacheMeter, Client, EpochCache, Node, RequestSlot};
use quick_cache::Weighter;
use tokio::sync::Semaphore;

use super::request::{SERVICE_WORKER, format_by_accept};
use super::written::Head;
use super::{ROUTE, cors};
use crate::body::Sized;
use crate::compression::{Compression, Form};
use crate::metrics::{Family, HttpMetrics};
use crate::request_id::{self, X_REQUEST_ID};
use crate::router::AppState;

/// Maximum size of a cached body, in bytes. Caching larger ones gains little.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Age at which one request renews a cached response. The pages of a cached body may be evicted from memory; a
/// renewal loads them again without a runtime worker waiting for the disk.
const RENEW_AFTER_SECONDS: u64 = 1;

/// Age after which the body is no longer assumed to be in memory, so that all requests take the slow path.
const COLD_AFTER_SECONDS: u64 = 10;

/// Maximum number of bodies that are read at the same time without request permits.
const MAX_WARMING: usize = 16;

/// Smallest size of a memory page, in bytes.
const PAGE_BYTES: usize = 4 * 1024;

/// Bytes per entry in addition to its path, mostly headers, in both forms.
const ENTRY_BYTES: u64 = 1_536;

/// Cached responses by content path as clients write it. All hosts that serve the path share them.
#[derive(Debug)]
pub(crate) struct ReadyAnswers {
    cache: Option<Arc<EpochCache<String, Arc<Ready>, ByText>>>,
    meter: CacheMeter,
    family: Arc<Family>,
    started: Instant,
    /// Permits for reading a body without a request permit.
    warming: Arc<Semaphore>,
}

#[derive(Debug)]
struct Ready {
    headers: HeaderMap,
    /// Serialized head; `None` if the body is empty.
    head: Option<Head>,
    body: Bytes,
    /// Whether the response may be compressed for some clients. Bodies compressed earlier are also served from the
    /// cache.
    varies: bool,
    /// Time of the last renewal, in seconds since `started`.
    made: AtomicU64,
}

/// A response with a serialized head.
#[derive(Debug)]
pub struct Written {
    /// Bytes after the head.
    pub body: Bytes,
    /// Position of the request ID in the head.
    pub request_id: Range<usize>,
    /// Time at which the request was processed.
    pub start: Instant,
}

/// Headers of a GET request whose response depends only on its path.
#[derive(Debug)]
pub struct Plain {
    /// Value of `Host`, as the client sent it.
    pub host: HeaderValue,
    /// Request ID that the client chose.
    request_id: Option<HeaderValue>,
    /// Whether the request receives compressible responses uncompressed.
    leaves: bool,
    /// Whether only paths under `/ipfs` may be served.
    pub(crate) is_ipfs_only: bool,
}

impl Plain {
    /// Parses the `headers` of an HTTP/1.1 request to `host`. Returns `None` if one of them may affect the response.
    pub(crate) fn of(state: &AppState, host: &HeaderValue, headers: &HeaderMap, is_ipfs_only: bool) -> Option<Self> {
        if decides_by_headers(headers) {
            return None;
        }
        let leaves = state.compression.leaves(Version::HTTP_11, headers);
        let request_id = request_id::chosen(headers).cloned();
        Some(Self { host: host.clone(), request_id, leaves, is_ipfs_only })
    }

    /// Whether later requests may have the same headers. A request ID makes them unique.
    #[must_use]
    pub fn may_come_again(&self) -> bool {
        self.request_id.is_none()
    }
}

#[derive(Debug, Clone)]
struct ByText;

impl Weighter<String, Arc<Ready>> for ByText {
    fn weight(&self, path: &String, _: &Arc<Ready>) -> u64 {
        ENTRY_BYTES + path.len() as u64
    }
}

impl ReadyAnswers {
    pub(crate) fn new(node: &Node, metrics: &HttpMetrics) -> Self {
        let config = &node.config().cache;
        let cache = || node.epoch_cache(config.max_entries, config.max_bytes, ByText);
        Self {
            cache: (config.enabled && !node.verifies_reads()).then(cache),
            meter: node.cache_meter("answer"),
            family: metrics.family(ROUTE, &Method::GET),
            started: Instant::now(),
            warming: Arc::new(Semaphore::new(MAX_WARMING)),
        }
    }

    /// Returns the cached response to a client's request for a content path. A response that is due for renewal is
    /// returned as it is if no request permit is available for renewing it.
    ///
    /// # Errors
    /// If no usable response is cached; with the request permit for making a new one, if it was taken.
    pub(crate) fn get<B: HttpBody>(
        &self,
        state: &AppState,
        request: &Request<B>,
        path: &str,
        client: Client,
    ) -> Result<Response, Option<RequestSlot>> {
        let Some(cache) = &self.cache else { return Err(None) };
        let is_whole = request.body().is_end_stream();
        if !is_whole || !is_plain(request.method(), request.uri(), request.headers()) {
            return Err(None);
        }
        let start = Instant::now();
        let Some(ready) = cache.get(path) else {
            self.meter.misses.inc();
            return Err(None);
        };
        let now = (start - self.started).as_secs();
        let made = ready.made.load(Ordering::Relaxed);
        let age = now.saturating_sub(made);
        // One request takes the slow path and renews the response. Concurrent requests are served from the cache.
        let renews = || ready.made.compare_exchange(made, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let is_cold = age >= COLD_AFTER_SECONDS;
        let is_stale = is_cold || (age >= RENEW_AFTER_SECONDS && renews());
        let (version, asked) = (request.version(), request.headers());
        let form = || state.compression.form(version, asked, &ready.headers);
        let mut form = if ready.varies { form() } else { Form::AsItIs };
        if is_stale || matches!(form, Form::Unmade) {
            if let Ok(permit) = state.slots.take(client) {
                self.meter.misses.inc();
                return Err(Some(permit));
            }
            if matches!(form, Form::Unmade) {
                if state.compression.refuses_identity(version, asked) {
                    return Err(None);
                }
                form = Form::AsItIs;
            }
        }
        let mut headers = ready.headers.clone();
        let (body, length) = match form {
            Form::Compressed(compressed) => {
                let length = compressed.len();
                (compressed.into_body(&mut headers), length)
            }
            _ if is_cold => (self.warmed(&state.node, ready.clone()), ready.body.len() as u64),
            _ => (Body::from(ready.body.clone()), ready.body.len() as u64),
        };
        headers.insert(X_REQUEST_ID, request_id::of(request.headers(), &state.request_ids));
        self.count(state, &ready, length, start);
        let mut response = Response::new(body);
        *response.headers_mut() = headers;
        Ok(response)
    }

    /// Returns the body of a response that may have been evicted from memory. It is read without a runtime worker
    /// waiting for the disk.
    fn warmed(&self, node: &Node, ready: Arc<Ready>) -> Body {
        let (length, started, warming) = (ready.body.len() as u64, self.started, Arc::clone(&self.warming));
        let (node, faults) = (node.clone(), node.faults());
        let read = async move {
            // The semaphore is never closed.
            let _permit = warming.acquire_owned().await;
            let reading = ready.clone();
            let read =
                move || std::hint::black_box(reading.body.iter().step_by(PAGE_BYTES).fold(0, |sum, byte| sum ^ byte));
            tokio::task::spawn_blocking(read)
                .await
                .map_err(|e| Error::internal("reading a file failed").with_source(e))?;
            if node.faults() != faults {
                return Err(Error::corrupt("bytes of the file are gone from the disk"));
            }
            ready.made.fetch_max(started.elapsed().as_secs(), Ordering::Relaxed);
            Ok(ready.body.clone())
        };
        Sized::body(futures::stream::once(Box::pin(read)), length)
    }

    /// Returns the serialized response to an HTTP/1.1 GET without a body for a content path, and writes its head to
    /// `head`. The bytes are those of the response that [`Self::get`] returns. Returns `None`, without side effects,
    /// if no response is cached or a renewal or compression is needed.
    pub(crate) fn get_written(
        &self,
        state: &AppState,
        path: &str,
        plain: &Plain,
        head: &mut Vec<u8>,
    ) -> Option<Written> {
        let ready = self.cache.as_ref()?.get(path)?;
        let start = Instant::now();
        let age = (start - self.started).as_secs().saturating_sub(ready.made.load(Ordering::Relaxed));
        if age >= RENEW_AFTER_SECONDS || (ready.varies && !plain.leaves) {
            return None;
        }
        let kept = ready.head.as_ref()?;
        let (id_start, id_bytes) = match &plain.request_id {
            Some(id) => (kept.write(head, id.as_bytes(), start), id.len()),
            None => {
                let id = state.request_ids.make();
                (kept.write(head, &id, start), id.len())
            }
        };
        self.count(state, &ready, ready.body.len() as u64, start);
        Some(Written { body: ready.body.clone(), request_id: id_start..id_start + id_bytes, start })
    }

    /// Counts a response whose body has this length on the wire.
    fn count(&self, state: &AppState, ready: &Ready, length: u64, start: Instant) {
        self.meter.hits.inc();
        state.node.count_download(ready.body.len());
        self.family.answered_at_once(length, start);
    }

    /// Caches a response for a content path, if it is cacheable and its request has no conditions.
    pub(super) fn keep(
        &self,
        compression: &Compression,
        request: &Parts,
        path: &str,
        answer: &Response,
        body: Bytes,
        removals: u64,
    ) {
        let Some(cache) = &self.cache else { return };
        let fits = answer.status() == StatusCode::OK && body.len() <= MAX_BODY_BYTES;
        if !fits || !is_plain(&request.method, &request.uri, &request.headers) {
            return;
        }
        let made = AtomicU64::new(self.started.elapsed().as_secs());
        let mut headers = answer.headers().clone();
        cors::add(&mut headers);
        let varies = compression.varies(&mut headers, body.len() as u64);
        let head = (!body.is_empty()).then(|| Head::of(&headers, body.len()));
        let ready = Ready { headers, head, body, varies, made };
        cache.insert(path.to_owned(), Arc::new(ready), removals);
        self.meter.bytes.set(i64::try_from(cache.weight()).unwrap_or(i64::MAX));
    }
}

/// Headers that may affect the response.
const DECIDING: [HeaderName; 4] = [RANGE, IF_MATCH, IF_NONE_MATCH, SERVICE_WORKER];

/// Whether the response depends only on the path.
fn is_plain(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    method == Method::GET && uri.query().is_none() && !decides_by_headers(headers)
}

/// Whether one of the headers may affect the response.
fn decides_by_headers(headers: &HeaderMap) -> bool {
    // Clients send few headers, so that scanning them is cheaper than looking up the relevant ones.
    headers.keys().any(|name| DECIDING.contains(name)) || !format_by_accept(headers).gives_files()
}
