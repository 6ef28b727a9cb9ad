//! Headers and body of a response about content.

use std::time::SystemTime;

use axum::response::{IntoResponse, Response};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LOCATION, CONTENT_TYPE, ETAG, LAST_MODIFIED, LOCATION,
    VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ipfrs_core::{Result, timestamp};
use ipfrs_middleware::Representation;
use ipfrs_node::{Mtime, Object};

use super::address::content_location;
use super::conditional::Modified;
use super::escape::url_header;
use super::freshness::Freshness;
use super::payload::Payload;
use super::range::Ranges;
use super::request::GatewayRequest;
use super::{conditional, range};
use crate::body::header_text;
use crate::compression::Unchanging;
use crate::content_limits::{self, Remedy};
use crate::state::AppState;

const X_IPFS_ROOTS: HeaderName = HeaderName::from_static("x-ipfs-roots");

/// Builder for a response about content.
pub(super) struct ContentResponse {
    headers: HeaderMap,
    etag: String,
    modified: Option<Modified>,
    is_head: bool,
    max_ranges: usize,
}

impl ContentResponse {
    /// Creates a response with the headers that every response about content has.
    pub(super) fn new(state: &AppState, request: &GatewayRequest<'_>, object: &Object, etag: String) -> Self {
        Self::with_roots(state, request, &object.resolved.roots, etag)
    }

    /// Same as [`Self::new`], with `roots` as the content IDs of the blocks along the path.
    pub(super) fn with_roots(state: &AppState, request: &GatewayRequest<'_>, roots: &str, etag: String) -> Self {
        let mut headers = HeaderMap::with_capacity(13);
        headers.insert(ETAG, header_text(&etag));
        request.freshness.tell(&state.immutable, &mut headers);
        headers.insert(VARY, HeaderValue::from_static("Accept"));
        request.address.tell(&mut headers);
        headers.insert(X_IPFS_ROOTS, header_text(roots));
        Self { headers, etag, modified: None, is_head: request.is_head, max_ranges: state.config.max_ranges }
    }

    /// Creates the response for a page that the daemon renders; `kind` is the first part of its `Etag`.
    pub(super) fn page(state: &AppState, request: &GatewayRequest<'_>, object: &Object, kind: &str) -> Self {
        let etag = format!("\"{kind}-{}_CID-{}\"", state.pages.version(), object.cid);
        let mut page_response = Self::new(state, request, object, etag);
        request.freshness.tell_of_page(&mut page_response.headers);
        state.pages.head(&mut page_response.headers);
        page_response
    }

    pub(super) fn set(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.insert(name, value);
    }

    /// Sets `Last-Modified` to a modification time, unless it is in the future. As in Kubo, 0 means no time.
    pub(super) fn last_modified(&mut self, request: &GatewayRequest<'_>, mtime: Option<Mtime>) {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        let is_known = |mtime: &Mtime| mtime.seconds != 0 && i64::try_from(now).is_ok_and(|now| mtime.seconds <= now);
        let Some(Mtime { seconds, .. }) = mtime.filter(is_known) else { return };
        if let Some(date) = timestamp::format_http(seconds) {
            self.set(LAST_MODIFIED, header_text(&date));
            self.modified = Some(Modified { seconds, is_final: request.freshness == Freshness::Immutable });
        }
    }

    /// Sets `Content-Location` to a URL that selects the format without `Accept`, if `Accept` chose the format.
    pub(super) fn locate(&mut self, request: &GatewayRequest<'_>) {
        if request.is_negotiated {
            let query = request.query.map(|query| format!("{query}&")).unwrap_or_default();
            let location = format!("{}?{query}format={}", request.raw_path, request.format.name());
            self.locate_at(&location);
        }
    }

    /// Sets `Content-Location` to `url`, unless that is too long for a header.
    pub(super) fn locate_at(&mut self, url: &str) {
        if let Some(location) = content_location(url) {
            self.set(CONTENT_LOCATION, location);
        }
    }

    /// Whether the request's conditions decide the response without content (RFC 9110, 13.2.2).
    pub(super) fn is_settled(&self, request: &HeaderMap) -> bool {
        conditional::if_match_fails(request, &self.etag, self.modified)
            || conditional::is_not_modified(request, &self.etag, self.modified)
    }

    /// Returns the final response if the request's conditions decide it without content (RFC 9110, 13.2.2). `length`
    /// is the length of the omitted body.
    pub(super) fn settled(&mut self, request: &HeaderMap, length: Option<u64>) -> Option<Response> {
        if conditional::if_match_fails(request, &self.etag, self.modified) {
            return Some((StatusCode::PRECONDITION_FAILED, [(CACHE_CONTROL, "no-store")]).into_response());
        }
        conditional::is_not_modified(request, &self.etag, self.modified).then(|| self.not_modified(length))
    }

    /// Returns a 304 response with the headers that RFC 9110 (15.4.5) requires.
    fn not_modified(&mut self, length: Option<u64>) -> Response {
        let content_type = self.headers.remove(CONTENT_TYPE);
        self.headers.remove(CONTENT_DISPOSITION);
        let mut response = StatusCode::NOT_MODIFIED.into_response();
        *response.headers_mut() = std::mem::take(&mut self.headers);
        response.extensions_mut().insert(Representation { content_type, length });
        response
    }

    /// Returns a response with the payload, or with the requested ranges of it.
    ///
    /// # Errors
    /// See [`Payload::respond`] and [`content_limits::check_range`].
    pub(super) async fn payload(mut self, state: &AppState, request: &HeaderMap, payload: Payload) -> Result<Response> {
        let length = Some(payload.size());
        if let Some(settled) = self.settled(request, length) {
            return Ok(settled);
        }
        self.set(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        let applies = conditional::range_applies(request, &self.etag, self.modified);
        let range_header = range::of(request).filter(|_| applies);
        let ranges = range::parse(range_header, payload.size(), self.max_ranges);
        if let Payload::File(file) = &payload {
            content_limits::check_range(state, ranges != Ranges::Whole, file.size(), Remedy::Gateway)?;
        }
        let whole = Representation { content_type: self.headers.get(CONTENT_TYPE).cloned(), length };
        let (status, body) = payload.respond(&state.node, ranges, &mut self.headers, self.is_head).await?;
        let mut response = self.into_response(status, body);
        if status == StatusCode::OK {
            response.extensions_mut().insert(Unchanging);
        } else {
            response.extensions_mut().insert(whole);
        }
        Ok(response)
    }

    /// Returns the whole payload with a status that explains why it replaces the requested content. Conditions and
    /// ranges are ignored, since they apply to the requested content (RFC 9110, 13.2.1 and 14.2).
    pub(super) async fn whole(mut self, state: &AppState, status: StatusCode, payload: Payload) -> Result<Response> {
        let (_, body) = payload.respond(&state.node, Ranges::Whole, &mut self.headers, self.is_head).await?;
        Ok(self.into_response(status, body))
    }

    pub(super) fn into_response(self, status: StatusCode, body: axum::body::Body) -> Response {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = self.headers;
        response
    }
}

/// Redirects with 301 to the same URL with a slash at its end, so that relative links in the page work.
pub(super) fn redirect_to_slash(state: &AppState, request: &GatewayRequest<'_>) -> Response {
    let query = request.query.map(|query| format!("?{query}")).unwrap_or_default();
    // On the origin of a site, a path may begin with a file name. Two slashes at the start, or a slash and a
    // backslash, would be read as a host.
    let path = request.raw_path.trim_start_matches('/');
    let path = path.strip_prefix('\\').map_or_else(|| format!("/{path}"), |rest| format!("/%5C{rest}"));
    let location = url_header(&format!("{path}/{query}"));
    let vary = HeaderValue::from_static("Accept");
    let mut response = (StatusCode::MOVED_PERMANENTLY, [(LOCATION, location), (VARY, vary)]).into_response();
    if request.freshness != Freshness::Immutable {
        request.freshness.tell(&state.immutable, response.headers_mut());
    }
    response
}

pub(super) fn etag(object: &Object, suffix: &str) -> String {
    ["\"", &object.resolved.cid, suffix, "\""].concat()
}
