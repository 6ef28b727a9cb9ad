//! Parsing of gateway requests.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::CACHE_CONTROL;
use http::request::Parts;
use http::{HeaderMap, Method};
use ipfrs_core::{Error, Result};
use ipfrs_node::{ContentPath, LinkName};

use super::address::Address;
use super::escape::normalised;
use super::format::{
    Format, SERVICE_WORKER, accepts_others, format_by_name, formats_by_accept, unknown_format, unknown_media,
};
use super::freshness::Freshness;
use super::path::{key_name, parts};
use super::path_cache::CachedPath;
use super::site::{Links, Site};
use super::trustless;
use crate::config::Namespace;

/// Requested form of content, from the query and `Accept`.
#[derive(Debug)]
pub(super) struct Wanted {
    /// `?format=`, else the first that `Accept` names.
    pub(super) format: Format,
    /// Further formats that `Accept` names, the most wanted first.
    pub(super) alternatives: Vec<Format>,
    /// Whether `Accept` selected another format than the default.
    pub(super) is_negotiated: bool,
    /// `?filename=`.
    pub(super) filename: Option<String>,
    /// `?download=true`.
    pub(super) download: bool,
    /// `?go-get=1`: the Go tool looks for `go-import` in the page of a directory, and follows no redirect.
    pub(super) is_go_get: bool,
}

impl Wanted {
    /// Parses the query and `Accept`, without the formats of `Accept` that do not exist at this path of the site. Of a
    /// repeated parameter, the first counts. A format or name without a value is absent.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the unknown format.
    pub(super) fn of(site: &Site, parts: &Parts, content_path: &str) -> Result<Self> {
        let mut wanted = Self::parse(parts)?;
        if wanted.format == Format::Deserialised
            && !site.is_trustless
            && let Some(media) = unknown_format(&parts.headers)
        {
            return Err(unknown_media(media));
        }
        wanted.restrict(&parts.headers, |format| match format {
            _ if site.is_trustless => trustless::is_verifiable(format, content_path),
            Format::IpnsRecord => key_name(content_path).is_ok(),
            _ => true,
        });
        Ok(wanted)
    }

    fn parse(parts: &Parts) -> Result<Self> {
        let (mut by_query, mut filename, mut download, mut is_go_get) = (None, None, None, None);
        for (name, value) in form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "format" if by_query.is_none() && !value.is_empty() => by_query = Some(format_by_name(&value)?),
                "filename" if filename.is_none() && !value.is_empty() => filename = Some(value.into_owned()),
                "download" if download.is_none() => download = Some(value == "true"),
                "go-get" if is_go_get.is_none() => is_go_get = Some(value == "1"),
                _ => {}
            }
        }
        let (download, is_go_get) = (download.unwrap_or_default(), is_go_get.unwrap_or_default());
        let named = if by_query.is_none() { formats_by_accept(&parts.headers) } else { Vec::new() };
        let mut named = named.into_iter();
        let by_accept = named.next();
        let format = by_query.or(by_accept).unwrap_or(Format::Deserialised);
        let (alternatives, is_negotiated) = (named.collect(), by_accept.is_some());
        Ok(Self { format, alternatives, is_negotiated, filename, download, is_go_get })
    }

    /// Leaves out the formats of `Accept` that are not possible. If none is, the default takes their place, provided
    /// that it is possible and accepted; otherwise nothing changes.
    fn restrict(&mut self, headers: &HeaderMap, is_possible: impl Fn(Format) -> bool) {
        if !self.is_negotiated {
            return;
        }
        self.alternatives.retain(|format| is_possible(*format));
        if is_possible(self.format) {
            return;
        }
        if !self.alternatives.is_empty() {
            self.format = self.alternatives.remove(0);
        } else if is_possible(Format::Deserialised) && accepts_others(headers) {
            (self.format, self.is_negotiated) = (Format::Deserialised, false);
        }
    }
}

/// A parsed request for content, not yet resolved.
#[derive(Debug, Clone)]
pub(super) struct GatewayRequest<'a> {
    /// Content that is served under the request's host.
    pub(super) site: &'a Site,
    /// Immutable path of the content, percent-decoded.
    pub(super) path: Arc<ContentPath>,
    /// Number of leading segments of `path` that the root's name stands for.
    pub(super) root_segments: usize,
    /// Time for which the response is valid.
    pub(super) freshness: Freshness,
    /// Content path as the client sent it, `/ipfs/...` or `/ipns/...`, in a form that headers may contain.
    pub(super) content_path: Cow<'a, str>,
    /// Address headers of the content.
    pub(super) address: Address,
    /// Path of the URL as the client sent it, in a form that headers may contain.
    pub(super) raw_path: Cow<'a, str>,
    /// Query as the client sent it.
    pub(super) query: Option<&'a str>,
    /// Whether the path ends with a slash.
    pub(super) ends_with_slash: bool,
    /// `?format=`, else the first that `Accept` names.
    pub(super) format: Format,
    /// Further formats that `Accept` names, the most wanted first.
    pub(super) alternatives: Vec<Format>,
    /// Whether `Accept` selected another format than the default.
    pub(super) is_negotiated: bool,
    /// `?filename=`.
    pub(super) filename: Option<String>,
    /// `?download=true`.
    pub(super) download: bool,
    /// `?go-get=1`.
    pub(super) is_go_get: bool,
    /// Whether the response has only headers (HEAD).
    pub(super) is_head: bool,
    /// Path cache entry of `path`, once it is resolved.
    pub(super) cached: Option<Arc<CachedPath>>,
}

impl<'a> GatewayRequest<'a> {
    /// Creates a request for `target`, to which `content_path` resolved.
    pub(super) fn new(
        site: &'a Site,
        parts: &'a Parts,
        content_path: &'a str,
        wanted: Wanted,
        target: &Target<'_>,
    ) -> Self {
        let raw_path = parts.uri.path();
        // The cached address is that of the immutable path, not of a name that points to it.
        let cached = target.cached.as_ref().filter(|_| target.freshness == Freshness::Immutable);
        Self {
            site,
            path: target.path.clone(),
            root_segments: target.root_segments,
            freshness: target.freshness,
            content_path: normalised(content_path),
            address: cached.map_or_else(|| Address::of(content_path), |cached| cached.address(content_path).clone()),
            raw_path: normalised(raw_path),
            query: parts.uri.query(),
            ends_with_slash: raw_path.ends_with('/'),
            format: wanted.format,
            alternatives: wanted.alternatives,
            is_negotiated: wanted.is_negotiated,
            filename: wanted.filename,
            download: wanted.download,
            is_go_get: wanted.is_go_get,
            is_head: parts.method == Method::HEAD,
            cached: target.cached.clone(),
        }
    }

    /// Returns the name that determines the content type: `?filename=`, else the last segment of the path.
    pub(super) fn file_name(&self) -> Option<Cow<'_, str>> {
        let own = || self.path.segments().last().map(LinkName::to_string_lossy);
        self.filename.as_deref().map(Cow::Borrowed).or_else(own)
    }

    /// Returns the segments below the root, as in the URL.
    pub(super) fn below_root(&self) -> &[LinkName] {
        &self.path.segments()[self.root_segments..]
    }

    /// Whether the response depends only on the content path.
    pub(super) fn is_plain(&self) -> bool {
        self.freshness == Freshness::Immutable && !self.site.is_trustless
    }

    /// Returns the namespace and the ID or name of the root, as the client sent it.
    pub(super) fn root(&self) -> (Namespace, &str) {
        let namespace = Namespace::of_path(&self.content_path).unwrap_or(Namespace::Ipfs);
        (namespace, parts(&self.content_path).nth(1).unwrap_or_default())
    }

    /// Returns the links for a page about this content.
    pub(super) fn links(&self) -> Links {
        let (namespace, root) = self.root();
        self.site.links(&format!("/{}/{root}", namespace.as_str()))
    }
}

/// Refuses the script of a service worker whose default scope would cover all roots, which is the case if no slash
/// follows the root. As in boxo, a script within a root may be a service worker for that root.
pub(super) fn check_service_worker(content_path: &str, headers: &HeaderMap) -> Result<()> {
    let below = content_path.strip_prefix("/ipfs/").or_else(|| content_path.strip_prefix("/ipns/"));
    // Repeated slashes count as one.
    let is_root = below.is_some_and(|rest| !rest.trim_start_matches('/').contains('/'));
    if is_root && headers.get(SERVICE_WORKER).is_some_and(|value| value == "script") {
        return Err(Error::invalid("navigator.serviceWorker: registration is not allowed for this scope"));
    }
    Ok(())
}

/// Whether `Cache-Control` contains `only-if-cached`.
pub(super) fn only_if_cached(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|directive| directive.trim().eq_ignore_ascii_case("only-if-cached"))
}

/// Content that a request path refers to.
#[derive(Debug)]
pub(super) struct Target<'a> {
    /// Path of the content.
    pub(super) path: Arc<ContentPath>,
    /// Number of leading segments of `path` that the name stands for.
    pub(super) root_segments: usize,
    /// Time for which `path` is valid.
    pub(super) freshness: Freshness,
    /// Key of `path` in the path cache.
    pub(super) key: Cow<'a, str>,
    /// Path cache entry, if there is one.
    pub(super) cached: Option<Arc<CachedPath>>,
}
