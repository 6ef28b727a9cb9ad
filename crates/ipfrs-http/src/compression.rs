//! Content codings of responses (RFC 9110, sections 8.4 and 12.5.3), for all routes.
//!
//! Handlers produce uncompressed responses, and this module decides whether to compress them. Only the response (its
//! type, its length and its headers) determines whether it may be compressed; all such responses have
//! `Vary: Accept-Encoding`. The client determines the coding. If a response is not the whole representation (304,
//! 206, 416), its handler describes the representation in a [`Representation`].

mod accept;
mod body;
mod cache;
mod coding;
mod config;
mod level;
mod meter;
mod types;
pub(crate) mod upload;

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, RANGE, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version};
use http_body_util::BodyExt;
use ipfrs_core::{Error, ErrorKind, Result, cores};
use ipfrs_middleware::{Client, FairPool, Representation, Share};
use ipfrs_node::{Node, StoreEpoch};
use prometheus::Registry;
use tokio::sync::Semaphore;
use tokio_util::sync::PollSemaphore;

use crate::body::{X_STREAM_OUTPUT, header_text, unknown_length};
use accept::Accepted;
use body::Coded;
use cache::{CompressedBodies, CompressedBody};
pub use coding::Coding;
use coding::Encoder;
pub use config::CompressionConfig;
pub use level::CompressionLevel;
use meter::Meter;

/// Maximum number of bodies that are being compressed at the same time, most of them waiting for their clients. Each
/// holds one to two MiB, or ten with `level = "best"`. Further bodies are sent uncompressed.
const MAX_BODIES: usize = 256;

/// Extension that marks a response whose body is always the same for its strong entity tag. Its compressed form may
/// be cached for other requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unchanging;

/// Properties of a request that determine the coding of its response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompressionRequest {
    accepted: Option<Accepted>,
    is_head: bool,
    is_get: bool,
    client: Client,
    /// [`Node::epoch`] from before anything was read for the response.
    epoch: StoreEpoch,
}

/// Form in which a client receives a cached response.
pub(crate) enum Form {
    /// Uncompressed.
    AsItIs,
    /// Compressed earlier.
    Compressed(Compressed),
    /// A form that is not cached.
    NotCached,
}

/// A compressed body for a response.
pub(crate) struct Compressed {
    coding: Coding,
    tag: HeaderValue,
    body: Arc<CompressedBody>,
}

impl Compressed {
    /// Returns its length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.body.length
    }

    /// Returns the body, and changes `headers` from those of the uncompressed response to those of this one.
    pub(crate) fn into_body(self, headers: &mut HeaderMap) -> Body {
        set_coding(headers, self.coding, Some(self.tag));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(self.body.length));
        self.body.body()
    }
}

/// Compresses responses.
#[derive(Debug)]
pub(crate) struct Compression {
    config: CompressionConfig,
    meters: [Meter; Coding::ALL.len()],
    node: Node,
    /// Cache of compressed bodies.
    cached_bodies: Option<Arc<CompressedBodies>>,
    /// Permits for bodies that may be compressed at the same time.
    places: FairPool<Client>,
    /// Permits for batches that may be compressed at the same time, each on a thread.
    permits: Arc<Semaphore>,
}

impl Compression {
    /// # Errors
    /// If `config` is out of range, or if the metrics are already registered.
    pub(crate) fn new(config: &CompressionConfig, node: &Node, registry: &Registry) -> Result<Self> {
        config.validate()?;
        let has_cache =
            config.enabled && config.cache_bytes > 0 && node.config().cache.enabled && !node.verifies_reads();
        let cores = cores();
        Ok(Self {
            config: config.clone(),
            meters: Meter::register(registry)?,
            node: node.clone(),
            cached_bodies: has_cache.then(|| CompressedBodies::new(node, config.cache_bytes)),
            places: FairPool::new(MAX_BODIES, 1, usize::MAX),
            permits: Arc::new(Semaphore::new(cores)),
        })
    }

    /// Returns a place for compressing a body for the current client, for commands with an option for compression.
    ///
    /// # Errors
    /// [`ErrorKind::RateLimited`] if the client gets none.
    pub(crate) fn place(&self) -> Result<Share<Client>> {
        self.places.take(Client::current(), 1).map_err(|_| {
            let what = format!(
                "as many responses to this client are being compressed as are left for all others, of {MAX_BODIES}"
            );
            Error::new(ErrorKind::RateLimited, format!("{what}: try again later, or without compression"))
        })
    }

    /// Returns the permits for compressing a batch on a thread.
    pub(crate) fn turns(&self) -> Arc<Semaphore> {
        Arc::clone(&self.permits)
    }

    /// Reads the properties of `request`. Responses to requests with `Range` are never compressed, because ranges are
    /// parts of the uncompressed bytes. Nor are those to HTTP/1.0, where only the `Content-Length` shows that a
    /// response is complete.
    pub(crate) fn asked<B>(&self, request: &Request<B>) -> CompressionRequest {
        let method = request.method();
        CompressionRequest {
            accepted: self.accepted(request.version(), request.headers()),
            is_head: *method == Method::HEAD,
            is_get: *method == Method::GET,
            client: request.extensions().get().copied().unwrap_or_default(),
            epoch: self.node.epoch(),
        }
    }

    fn accepted(&self, version: Version, headers: &HeaderMap) -> Option<Accepted> {
        let is_open = self.config.enabled && version >= Version::HTTP_11 && !headers.contains_key(RANGE);
        is_open.then(|| Accepted::of(headers)).flatten()
    }

    /// Returns the form of a cached response for a request of `version` with the headers `asked`. The response has
    /// the headers `headers`, is [`Unchanging`] and may be compressed.
    pub(crate) fn form(&self, version: Version, asked: &HeaderMap, headers: &HeaderMap) -> Form {
        let Some(accepted) = self.accepted(version, asked) else { return Form::AsItIs };
        match accepted.best(&self.config.algorithms) {
            Some(coding) => self.cached_body(coding, headers).map_or(Form::NotCached, Form::Compressed),
            None if accepted.refuses_identity() => Form::NotCached,
            None => Form::AsItIs,
        }
    }

    /// Whether a request of `version` with the headers `asked` refuses uncompressed responses.
    pub(crate) fn refuses_identity(&self, version: Version, asked: &HeaderMap) -> bool {
        self.accepted(version, asked).is_some_and(|accepted| accepted.refuses_identity())
    }

    /// Whether a request of `version` with the headers `asked` receives compressible responses uncompressed.
    pub(crate) fn accepts_identity(&self, version: Version, asked: &HeaderMap) -> bool {
        let chosen = |accepted: &Accepted| accepted.best(&self.config.algorithms).is_some();
        self.accepted(version, asked).is_none_or(|accepted| !chosen(&accepted) && !accepted.refuses_identity())
    }

    /// Returns the cached body for the coding of a response with these headers.
    fn cached_body(&self, coding: Coding, headers: &HeaderMap) -> Option<Compressed> {
        let cached_bodies = self.cached_bodies.as_ref()?;
        let tag = coded_tag(headers, coding)?;
        let body = cached_bodies.get(&tag)?;
        Some(Compressed { coding, tag, body })
    }

    /// Whether a response with these headers may be compressed. If so, adds `Accept-Encoding` to `Vary`.
    pub(crate) fn varies(&self, headers: &mut HeaderMap, length: u64) -> bool {
        let varies = self.may_code(headers, headers.get(CONTENT_TYPE), Some(length));
        if varies {
            vary(headers);
        }
        varies
    }

    /// Whether a response with these headers may be compressed, given the type and length of its representation.
    fn may_code(&self, headers: &HeaderMap, content_type: Option<&HeaderValue>, length: Option<u64>) -> bool {
        // Clients of byte streams of the RPC expect exactly those bytes.
        let is_fixed = headers.contains_key(CONTENT_ENCODING) || headers.contains_key(X_STREAM_OUTPUT);
        let is_long = length.is_none_or(|length| length > 0 && length >= self.config.min_bytes);
        let no_transform = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains("no-transform"));
        self.config.enabled
            && !is_fixed
            && is_long
            && content_type.is_some_and(types::is_compressible)
            && !headers.get_all(CACHE_CONTROL).iter().any(no_transform)
    }

    /// Returns the response in the requested coding.
    pub(crate) async fn apply(&self, asked: CompressionRequest, mut response: Response) -> Response {
        if !self.config.enabled {
            return response;
        }
        let coding = asked.accepted.and_then(|accepted| accepted.best(&self.config.algorithms));
        if let Some(whole) = response.extensions_mut().remove::<Representation>() {
            if self.may_code(response.headers(), whole.content_type.as_ref(), whole.length) {
                vary(response.headers_mut());
                let is_tagged = response.status() == StatusCode::NOT_MODIFIED;
                let tag = coding.filter(|_| is_tagged).and_then(|coding| coded_tag(response.headers(), coding));
                if let Some(tag) = tag {
                    response.headers_mut().insert(ETAG, tag);
                }
            }
            return response;
        }
        let length = length(&response);
        let has_body = !response.status().is_informational()
            && !matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT)
            && !response.headers().contains_key(CONTENT_RANGE);
        if !has_body || !self.may_code(response.headers(), response.headers().get(CONTENT_TYPE), length) {
            return response;
        }
        vary(response.headers_mut());
        match coding {
            Some(coding) => self.coded(asked, coding, length, response).await,
            None if asked.rejects_identity_of(&response) => self.not_acceptable(),
            None => response,
        }
    }

    async fn coded(
        &self,
        asked: CompressionRequest,
        coding: Coding,
        length: Option<u64>,
        mut response: Response,
    ) -> Response {
        let is_unchanging = response.extensions_mut().remove::<Unchanging>().is_some();
        if is_unchanging && let Some(compressed) = self.cached_body(coding, response.headers()) {
            let body = compressed.into_body(response.headers_mut());
            return response.map(|_| if asked.is_head { Body::empty() } else { body });
        }
        let tag = coded_tag(response.headers(), coding);
        if asked.is_head {
            set_coding(response.headers_mut(), coding, tag);
            return response.map(|_| unknown_length());
        }
        let meter = &self.meters[coding as usize];
        let inline_bytes = self.config.level.inline_bytes();
        let is_short = length.is_some_and(|length| length <= inline_bytes as u64);
        // Short bodies are compressed immediately and need no permit.
        let place = if is_short { Ok(None) } else { self.places.take(asked.client, 1).map(Some) };
        let (Ok(encoder), Ok(place)) = (Encoder::new(coding, self.config.level, length), place) else {
            return if asked.rejects_identity_of(&response) { self.not_acceptable() } else { response };
        };
        let gathering = self.cached_bodies.as_ref().zip(tag.clone()).filter(|_| is_unchanging);
        let gathering = gathering.map(|(cached_bodies, tag)| cached_bodies.gather(tag, asked.epoch));
        set_coding(response.headers_mut(), coding, tag);
        meter.began();
        let (mut head, source) = response.into_parts();
        let body = match place {
            Some(place) => {
                let permits = PollSemaphore::new(Arc::clone(&self.permits));
                Body::new(Coded::new(source, encoder, inline_bytes, permits, place, meter.clone(), gathering))
            }
            None => match whole(source, encoder, meter).await {
                Ok(bytes) => {
                    if let Some(gathering) = gathering.and_then(|gathering| gathering.with(&bytes)) {
                        gathering.end();
                    }
                    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
                    Body::from(bytes)
                }
                // Same as without a coding: the head is sent, and then the body fails.
                Err(e) => Body::from_stream(futures::stream::iter([Err::<bytes::Bytes, _>(e)])),
            },
        };
        Response::from_parts(head, body)
    }

    /// Returns a 406 response: the client accepts neither uncompressed bytes nor an offered coding.
    fn not_acceptable(&self) -> Response {
        let names: Vec<_> = self.config.algorithms.iter().map(|coding| coding.name()).collect();
        let text = format!("Accept-Encoding rejects every available coding: identity, {}\n", names.join(", "));
        let mut response = (StatusCode::NOT_ACCEPTABLE, [(CACHE_CONTROL, "no-store")], text).into_response();
        vary(response.headers_mut());
        response
    }
}

impl CompressionRequest {
    /// Whether the client refused the uncompressed `response`. Only responses to GET and HEAD can still be refused,
    /// because other methods have had their effect.
    fn rejects_identity_of(&self, response: &Response) -> bool {
        let is_content = (self.is_get || self.is_head) && response.status() == StatusCode::OK;
        is_content && self.accepted.is_some_and(|accepted| accepted.refuses_identity())
    }
}

/// Whether `suffix` is a suffix that a coding adds to an entity tag.
pub(crate) fn is_tag_suffix(suffix: &str) -> bool {
    suffix.strip_prefix('-').is_some_and(|name| Coding::ALL.iter().any(|coding| coding.name() == name))
}

/// Returns the body's length. For a response to HEAD, only the header contains it.
fn length(response: &Response) -> Option<u64> {
    let declared = response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    declared.or_else(|| http_body::Body::size_hint(response.body()).exact())
}

async fn whole(source: Body, encoder: Encoder, meter: &Meter) -> std::result::Result<bytes::Bytes, axum::Error> {
    let bytes = source.collect().await?.to_bytes();
    body::whole(encoder, bytes, meter).map_err(axum::Error::new)
}

/// Sets the headers of a response in a coding. `Accept-Ranges` is removed: ranges are served, but of the uncompressed
/// bytes, while a client that resumes this download would count compressed bytes.
fn set_coding(headers: &mut HeaderMap, coding: Coding, tag: Option<HeaderValue>) {
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    headers.remove(CONTENT_LENGTH);
    headers.remove(ACCEPT_RANGES);
    if let Some(tag) = tag {
        headers.insert(ETAG, tag);
    }
}

/// Returns the entity tag of the response in a coding, such as `"CID-gzip"`. A strong tag identifies one sequence of
/// bytes, so each coding needs its own (RFC 9110, 8.8.1). Returns `None` if there is no strong tag.
fn coded_tag(headers: &HeaderMap, coding: Coding) -> Option<HeaderValue> {
    let tag = headers.get(ETAG)?.to_str().ok()?;
    let opaque = tag.strip_prefix('"')?.strip_suffix('"')?;
    Some(header_text(&format!("\"{opaque}-{coding}\"")))
}

/// Adds `Accept-Encoding` to `Vary`.
fn vary(headers: &mut HeaderMap) {
    match headers.get(VARY) {
        Some(value) if value == "Accept" => {
            headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
        }
        _ => {
            headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
    }
}
