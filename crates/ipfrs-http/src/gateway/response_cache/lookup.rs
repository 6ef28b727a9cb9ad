//! Lookups in the response cache.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Request, Version};
use http_body::Body as HttpBody;
use ipfrs_core::Error;
use ipfrs_middleware::{Client, RequestPermit, Route, TRACEPARENT, Watched};
use ipfrs_node::Node;

use super::{
    CacheableRequest, CachedResponse, ResponseCache, SerializedResponse, decides_by_headers, is_plain, key_of,
};
use crate::body::Sized;
use crate::compression::Form;
use crate::rate::Paid;
use crate::request_id::{self, X_REQUEST_ID};
use crate::state::AppState;

/// Age at which a body is no longer assumed to be in memory. If its pages were evicted, the slow path loads them again
/// without a runtime worker waiting for the disk.
const CHECK_AFTER_SECONDS: u64 = 1;

/// Smallest size of a memory page, in bytes.
const PAGE_BYTES: usize = 4 * 1024;

impl CacheableRequest {
    /// Parses the `headers` of an HTTP/1.1 request to `host`. Returns `None` if one of them may affect the response.
    pub(crate) fn of(state: &AppState, host: &HeaderValue, headers: &HeaderMap, is_ipfs_only: bool) -> Option<Self> {
        if decides_by_headers(headers) || headers.contains_key(TRACEPARENT) {
            return None;
        }
        let accepts_identity = state.compression.accepts_identity(Version::HTTP_11, headers);
        let request_id = request_id::chosen(headers).cloned();
        Some(Self { host: host.clone(), request_id, accepts_identity, is_ipfs_only })
    }
}

impl CachedResponse {
    /// Whether the body is in memory, as far as is known.
    fn is_resident(&self, node: &Node, started: Instant, now: Instant) -> bool {
        let now = (now - started).as_secs();
        if now.saturating_sub(self.checked.load(Ordering::Relaxed)) < CHECK_AFTER_SECONDS {
            return true;
        }
        let is_resident = node.is_resident(&self.body);
        if is_resident {
            self.checked.store(now, Ordering::Relaxed);
            node.note_use(&self.blocks);
        }
        is_resident
    }
}

impl ResponseCache {
    /// Returns the cached response to a client's request for a content path. A response whose body may be evicted is
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
    ) -> Result<Response, Option<RequestPermit>> {
        let Some(cache) = self.served(state) else { return Err(None) };
        // The rate limits have not counted the request yet.
        if state.rate_limits.is_enabled() && request.extensions().get::<Paid>().is_none() {
            return Err(None);
        }
        let is_whole = request.body().is_end_stream();
        if !is_whole || !is_plain(request.method(), request.uri(), request.headers()) {
            return Err(None);
        }
        let start = Instant::now();
        let Some(cached) = cache.get(&*key_of(path, request.uri())) else {
            self.meter.misses.inc();
            return Err(None);
        };
        let is_cold = !cached.is_resident(&state.node, self.started, start);
        let (version, request_headers) = (request.version(), request.headers());
        let form = || state.compression.form(version, request_headers, &cached.headers);
        let mut form = if cached.varies { form() } else { Form::AsItIs };
        if is_cold || matches!(form, Form::NotCached) {
            if let Ok(permit) = state.permits.take(client) {
                self.meter.misses.inc();
                return Err(Some(permit));
            }
            if matches!(form, Form::NotCached) {
                if state.compression.refuses_identity(version, request_headers) {
                    return Err(None);
                }
                form = Form::AsItIs;
            }
        }
        let mut headers = cached.headers.clone();
        let (body, length) = match form {
            Form::Compressed(compressed) => {
                let length = compressed.len();
                (compressed.into_body(&mut headers), length)
            }
            _ if is_cold => (self.warmed(&state.node, cached.clone()), cached.body.len() as u64),
            _ => (Body::from(cached.body.clone()), cached.body.len() as u64),
        };
        headers.insert(X_REQUEST_ID, request_id::of(request.headers(), &state.request_ids));
        state.metrics.served.response_cache.inc();
        self.count(state, &cached, length, start);
        let mut response = Response::new(body);
        *response.headers_mut() = headers;
        if let Some(watched) = request.extensions().get::<Watched>() {
            response.extensions_mut().insert(Route(self.family.endpoint.clone()));
            self.family.note_exemplar(watched.trace, start.elapsed().as_secs_f64());
        }
        Ok(response)
    }

    /// Returns the body of a response that may have been evicted from memory. It is read without a runtime worker
    /// waiting for the disk.
    fn warmed(&self, node: &Node, cached: Arc<CachedResponse>) -> Body {
        let (length, started, warming) = (cached.body.len() as u64, self.started, Arc::clone(&self.warming));
        let (node, faults) = (node.clone(), node.faults());
        let read = async move {
            // The semaphore is never closed.
            let _permit = warming.acquire_owned().await;
            let reading = cached.clone();
            let read =
                move || std::hint::black_box(reading.body.iter().step_by(PAGE_BYTES).fold(0, |sum, byte| sum ^ byte));
            tokio::task::spawn_blocking(read)
                .await
                .map_err(|e| Error::internal("reading a file failed").with_source(e))?;
            if node.faults() != faults || !node.is_whole(&cached.body) {
                return Err(Error::corrupt("bytes of the file are missing on disk"));
            }
            cached.checked.fetch_max(started.elapsed().as_secs(), Ordering::Relaxed);
            Ok(cached.body.clone())
        };
        Sized::body(futures::stream::once(Box::pin(read)), length)
    }

    /// Returns the serialized response to an HTTP/1.1 GET without a body for a content path and query, and writes its
    /// head to `head`. The bytes are those of the response that [`Self::get`] returns. Returns `None`, without side
    /// effects, if no response is cached, its body may have been evicted or compression is needed.
    pub(crate) fn get_serialized(
        &self,
        state: &AppState,
        target: &str,
        cacheable: &CacheableRequest,
        head: &mut Vec<u8>,
    ) -> Option<SerializedResponse> {
        let cached = self.served(state)?.get(target)?;
        let start = Instant::now();
        let is_cold = !cached.is_resident(&state.node, self.started, start);
        if is_cold || (cached.varies && !cacheable.accepts_identity) {
            return None;
        }
        let serialized_head = cached.head.as_ref()?;
        let (id_start, id_bytes) = match &cacheable.request_id {
            Some(id) => (serialized_head.write(head, id.as_bytes(), start), id.len()),
            None => {
                let id = state.request_ids.make();
                (serialized_head.write(head, &id, start), id.len())
            }
        };
        state.metrics.served.fast_path.inc();
        self.count(state, &cached, cached.body.len() as u64, start);
        Some(SerializedResponse { body: cached.body.clone(), request_id: id_start..id_start + id_bytes, start })
    }

    /// Counts a response whose body has this length on the wire.
    fn count(&self, state: &AppState, cached: &CachedResponse, length: u64, start: Instant) {
        self.meter.hits.inc();
        state.node.count_download(cached.body.len());
        self.family.answered_at_once(length, start);
    }
}
