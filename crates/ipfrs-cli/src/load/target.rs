//! Targets of the requests.

use anyhow::{Context, Result, anyhow, bail};
use axum::http::header::{ACCEPT, CONTENT_LENGTH, HOST, RANGE, USER_AGENT};
use axum::http::uri::{Authority, PathAndQuery, Scheme};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use bytes::Bytes;
use http_body_util::Empty;
use serde::Serialize;

use crate::args::Places;

/// The type of all requests.
pub(super) type Get = Request<Empty<Bytes>>;

/// Address of a server, and the base path below which it serves content.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    authority: Authority,
    /// Path and query. "/" if the URL has none.
    path: PathAndQuery,
}

impl Base {
    /// Parses `http://HOST[:PORT][/PATH]`.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let uri: Uri = url.parse().map_err(|e| anyhow!("the URL {url:?} cannot be read: {e}"))?;
        let parts = uri.into_parts();
        match (parts.scheme, parts.authority) {
            (Some(scheme), Some(authority)) if scheme == Scheme::HTTP && !authority.as_str().contains('@') => {
                Ok(Self { authority, path: parts.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/")) })
            }
            (Some(scheme), Some(_)) if scheme == Scheme::HTTPS => {
                bail!(
                    "{url:?} uses TLS, which is not supported: pass the address of the gateway itself, as http://HOST:PORT"
                )
            }
            _ => bail!("the URL {url:?} must have the form http://HOST:PORT, with a path if there is one"),
        }
    }

    /// Returns the server's address in the form that the resolver accepts, `HOST:PORT`.
    pub(crate) fn address(&self) -> String {
        format!("{}:{}", self.authority.host(), self.authority.port_u16().unwrap_or(80))
    }

    /// Returns host and port as the URL has them.
    pub(crate) fn host(&self) -> &str {
        self.authority.as_str()
    }

    /// Returns the URL without a path.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.authority)
    }

    /// Returns the URL's own path.
    pub(crate) fn path(&self) -> &str {
        self.path.as_str()
    }

    /// Returns `path` appended to the URL's path.
    pub(crate) fn below(&self, path: &str) -> String {
        format!("{}{path}", self.path.path().trim_end_matches('/'))
    }
}

/// Byte ranges to request instead of whole files.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Span {
    pub(crate) bytes: u64,
    pub(crate) places: Places,
}

/// All targets of a run, which are requested in rotation.
#[derive(Debug)]
pub(crate) struct Targets {
    list: Vec<Target>,
    headers: HeaderMap,
    span: Option<Span>,
}

#[derive(Debug)]
struct Target {
    path: String,
    uri: Uri,
    /// Size of the file in bytes, if ranges are spread over all of it.
    file_bytes: u64,
}

impl Targets {
    /// Creates the targets from `paths` of the server at `base`. There must be at least one.
    pub(crate) fn new(
        base: &Base,
        paths: Vec<String>,
        headers: &[(HeaderName, HeaderValue)],
        span: Option<Span>,
        is_http2: bool,
    ) -> Result<Self> {
        let agent = concat!("ipfrs-cli/", env!("CARGO_PKG_VERSION"));
        let mut all = HeaderMap::from_iter([
            (USER_AGENT, HeaderValue::from_static(agent)),
            (ACCEPT, HeaderValue::from_static("*/*")),
            (HOST, base.authority.as_str().parse()?),
        ]);
        // Headers of the user replace the default ones, and may be repeated.
        headers.iter().for_each(|(name, _)| drop(all.remove(name)));
        all.extend(headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        // HTTP/2 carries the host in the URI, and HTTP/1.1 in the header.
        let host = if is_http2 { all.remove(HOST) } else { None };
        let host = host.map(|host| Authority::try_from(host.as_bytes()).context("the header Host cannot be read"));
        let host = host.transpose()?;
        let list = paths.into_iter().map(|path| {
            let place: PathAndQuery = path.parse().with_context(|| format!("the path {path:?} cannot be read"))?;
            let uri = match &host {
                Some(host) => Uri::builder().scheme(Scheme::HTTP).authority(host.clone()).path_and_query(place),
                None => Uri::builder().path_and_query(place),
            };
            Ok(Target { path, uri: uri.build()?, file_bytes: 0 })
        });
        Ok(Self { list: list.collect::<Result<_>>()?, headers: all, span })
    }

    /// Returns requests for the lengths of the files, if the ranges depend on them.
    pub(super) fn lengths_to_ask(&self) -> Vec<Get> {
        if self.span.is_none_or(|span| span.places == Places::Start) {
            return Vec::new();
        }
        let head_request = |target: &Target| {
            let mut request = self.bare(target);
            *request.method_mut() = Method::HEAD;
            request
        };
        self.list.iter().map(head_request).collect()
    }

    /// Records the response to one of [`Self::lengths_to_ask`].
    pub(super) fn set_length(&mut self, index: usize, status: u16, headers: &HeaderMap) -> Result<()> {
        let target = &mut self.list[index];
        let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        target.file_bytes = match (status, length) {
            (200, Some(bytes)) if bytes > 0 => bytes,
            (200, Some(_)) => bail!("{} is empty: it has no ranges", target.path),
            (200, None) => bail!("the server does not report the length of {}: request the whole file", target.path),
            (status, _) => bail!("the server responded with {status} to a request for the length of {}", target.path),
        };
        Ok(())
    }

    /// Returns the request with this number.
    pub(super) fn request(&self, number: u64) -> Get {
        let count = self.list.len() as u64;
        let target = &self.list[usize::try_from(number % count).unwrap_or_default()];
        let mut request = self.bare(target);
        if let Some(span) = self.span {
            let first = span.first(number / count, number, target.file_bytes);
            let last = first.saturating_add(span.bytes - 1);
            let range = HeaderValue::from_maybe_shared(Bytes::from(format!("bytes={first}-{last}")));
            request.headers_mut().extend(range.ok().map(|range| (RANGE, range)));
        }
        request
    }

    fn bare(&self, target: &Target) -> Get {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = target.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

impl Span {
    /// Returns the first byte of the range that the request with this number asks for, in the given round over all
    /// files.
    fn first(self, round: u64, number: u64, file_bytes: u64) -> u64 {
        match self.places {
            Places::Start => 0,
            Places::Sequential => round % file_bytes.div_ceil(self.bytes) * self.bytes,
            // A file shorter than a range is requested from its beginning.
            Places::Random => scattered(number) % (file_bytes.saturating_sub(self.bytes) + 1),
        }
    }
}

/// Returns a pseudorandom number for each `number`, the same in every run: SplitMix64.
fn scattered(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
