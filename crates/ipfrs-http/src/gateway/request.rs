//! Parsing of gateway requests.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::{ACCEPT, CACHE_CONTROL};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method};
use ipfrs_core::{Error, Result};
use ipfrs_node::{ContentPath, LinkName};
use percent_encoding::{CONTROLS, utf8_percent_encode};

use super::address::Address;
use super::car;
use super::codec::Codec;
use super::ipns_record;
use super::known;
use super::name::{Freshness, Target};
use super::path::parts;
use super::site::{Links, Site};
use crate::config::Namespace;

/// Header that browsers send when they fetch the script of a service worker.
pub(super) const SERVICE_WORKER: HeaderName = HeaderName::from_static("service-worker");

/// Requested form of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Files and directories.
    Deserialised,
    /// The block itself.
    Raw,
    /// Blocks that verify the content at a path.
    Car,
    /// A file or a tree as a TAR archive.
    Tar,
    /// A block of this codec, unchanged.
    Codec(Codec),
    /// The record of a name, instead of the content that the name points to.
    IpnsRecord,
}

/// Media type, name and value of each format.
const FORMATS: [(&str, &str, Format); 8] = [
    ("application/vnd.ipld.raw", "raw", Format::Raw),
    (car::MEDIA_TYPE, "car", Format::Car),
    ("application/x-tar", "tar", Format::Tar),
    (Codec::Json.media_type(), Codec::Json.name(), Format::Codec(Codec::Json)),
    (Codec::Cbor.media_type(), Codec::Cbor.name(), Format::Codec(Codec::Cbor)),
    (Codec::DagJson.media_type(), Codec::DagJson.name(), Format::Codec(Codec::DagJson)),
    (Codec::DagCbor.media_type(), Codec::DagCbor.name(), Format::Codec(Codec::DagCbor)),
    (ipns_record::MEDIA_TYPE, "ipns-record", Format::IpnsRecord),
];

impl Format {
    /// Returns the name used in `?format=`; empty for the default.
    pub(super) fn name(self) -> &'static str {
        FORMATS.iter().find(|(_, _, format)| *format == self).map_or("", |(_, name, _)| name)
    }

    /// Whether files may be sent unchanged in this format: JSON and CBOR files may be.
    pub(super) fn gives_files(self) -> bool {
        matches!(self, Self::Deserialised | Self::Codec(Codec::Json | Codec::Cbor))
    }
}

/// Requested form of content, from the query and `Accept`.
#[derive(Debug)]
pub(super) struct Wanted {
    /// `?format=`, else what `Accept` names.
    pub(super) format: Format,
    /// Whether `Accept` selected another format than the default.
    pub(super) is_negotiated: bool,
    /// `?filename=`.
    pub(super) filename: Option<String>,
    /// `?download=true`.
    pub(super) download: bool,
}

impl Wanted {
    /// Parses the query and `Accept`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the unknown format.
    pub(super) fn parse(parts: &Parts) -> Result<Self> {
        let (mut by_query, mut filename, mut download) = (None, None, false);
        for (name, value) in form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "format" => by_query = Some(format_by_name(&value)?),
                "filename" if !value.is_empty() => filename = Some(value.into_owned()),
                "download" => download = value == "true",
                _ => {}
            }
        }
        let format = by_query.unwrap_or_else(|| format_by_accept(&parts.headers));
        let is_negotiated = by_query.is_none() && format != Format::Deserialised;
        Ok(Self { format, is_negotiated, filename, download })
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
    /// `?format=`, else what `Accept` names.
    pub(super) format: Format,
    /// Whether `Accept` selected another format than the default.
    pub(super) is_negotiated: bool,
    /// `?filename=`.
    pub(super) filename: Option<String>,
    /// `?download=true`.
    pub(super) download: bool,
    /// Whether the response has only headers (HEAD).
    pub(super) is_head: bool,
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
        // Cached gateway data belongs to an immutable path, not to a name that points to it.
        let facts = target.known.as_ref().filter(|_| target.freshness == Freshness::Immutable);
        let known = facts.and_then(|facts| known::of(facts, content_path));
        Self {
            site,
            path: target.path.clone(),
            root_segments: target.root_segments,
            freshness: target.freshness,
            content_path: normalised(content_path),
            address: known.map_or_else(|| Address::of(content_path), |known| known.address.clone()),
            raw_path: normalised(raw_path),
            query: parts.uri.query(),
            ends_with_slash: raw_path.ends_with('/'),
            format: wanted.format,
            is_negotiated: wanted.is_negotiated,
            filename: wanted.filename,
            download: wanted.download,
            is_head: parts.method == Method::HEAD,
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

/// Returns `raw` as ASCII, with the digits of its escapes in upper case (RFC 3986, 6.2.2.1). Some clients, such as
/// curl, send paths unencoded.
pub(super) fn normalised(raw: &str) -> Cow<'_, str> {
    if raw.is_ascii() && !raw.contains('%') {
        return Cow::Borrowed(raw);
    }
    let mut digits = 0;
    let upper = utf8_percent_encode(raw, CONTROLS).flat_map(str::chars).map(|c| match c {
        '%' => {
            digits = 2;
            c
        }
        _ if digits > 0 => {
            digits -= 1;
            c.to_ascii_uppercase()
        }
        _ => c,
    });
    Cow::Owned(upper.collect())
}

/// Refuses the script of a service worker whose default scope would cover all roots, which is the case if no slash
/// follows the root. As in boxo, a script within a root may be a service worker for that root.
pub(super) fn check_service_worker(content_path: &str, headers: &HeaderMap) -> Result<()> {
    let below = content_path.strip_prefix("/ipfs/").or_else(|| content_path.strip_prefix("/ipns/"));
    // Repeated slashes count as one.
    let is_root = below.is_some_and(|rest| !rest.trim_start_matches('/').contains('/'));
    if is_root && headers.get(SERVICE_WORKER).is_some_and(|value| value == "script") {
        return Err(Error::invalid("a service worker cannot be registered for this scope"));
    }
    Ok(())
}

/// Whether `Cache-Control` contains `only-if-cached`.
pub(super) fn only_if_cached(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|directive| directive.trim() == "only-if-cached")
}

fn format_by_name(name: &str) -> Result<Format> {
    let found = FORMATS.iter().find(|(_, known, _)| *known == name).map(|(_, _, format)| *format);
    found.ok_or_else(|| {
        let known = FORMATS.map(|(_, name, _)| name).join(", ");
        Error::invalid(format!("unknown format {name:?}: use one of {known}, or leave it out"))
    })
}

/// Returns the media types of `Accept` in their order, without parameters, and without those of weight 0.
pub(crate) fn accepted(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(|media| {
        let (media, parameters) = media.split_once(';').unwrap_or((media, ""));
        let media = media.trim();
        (!media.is_empty() && !parameters.split(';').any(is_refusal)).then_some(media)
    })
}

/// Whether a parameter in `Accept` is a weight of 0: not acceptable (RFC 9110, 12.4.2).
fn is_refusal(parameter: &str) -> bool {
    let weight = parameter.trim().strip_prefix(['q', 'Q']).and_then(|rest| rest.strip_prefix('='));
    weight.is_some_and(|weight| weight.starts_with('0') && weight.bytes().all(|digit| matches!(digit, b'0' | b'.')))
}

/// Returns the first offered format that `Accept` names. Without one, the gateway sends files and HTML pages.
pub(super) fn format_by_accept(headers: &HeaderMap) -> Format {
    let format = |media: &str| {
        FORMATS.iter().find(|(known, _, _)| known.eq_ignore_ascii_case(media)).map(|(_, _, format)| *format)
    };
    accepted(headers).find_map(format).unwrap_or(Format::Deserialised)
}

/// Whether `Accept` names HTML.
pub(super) fn accepts_html(headers: &HeaderMap) -> bool {
    accepted(headers).any(|media| media.eq_ignore_ascii_case("text/html"))
}

/// Whether `Accept` permits HTML pages.
pub(super) fn accepts_pages(headers: &HeaderMap) -> bool {
    accepts_html(headers) || accepted(headers).any(|media| media == "*/*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_header_selects_a_named_format() {
        for (accept, expected) in [
            ("", Format::Deserialised),
            ("*/*", Format::Deserialised),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Format::Deserialised),
            ("application/json", Format::Codec(Codec::Json)),
            ("text/plain, application/json, */*", Format::Codec(Codec::Json)),
            ("text/html, application/vnd.ipld.raw", Format::Raw),
            ("application/vnd.ipld.car; version=1", Format::Car),
            ("application/vnd.ipfs.ipns-record", Format::IpnsRecord),
            ("application/x-tar, application/vnd.ipld.raw", Format::Tar),
            ("application/vnd.ipfs.ipns-record, */*;q=0.1", Format::IpnsRecord),
            ("text/html, application/vnd.ipld.car, */*;q=0.1", Format::Car),
            ("*/*, application/vnd.ipld.dag-json", Format::Codec(Codec::DagJson)),
            ("application/vnd.ipld.car, application/vnd.ipld.raw", Format::Car),
            ("Application/VND.ipld.CAR", Format::Car),
            ("application/vnd.ipld.raw;q=0, */*", Format::Deserialised),
            ("application/vnd.ipld.raw; q=0.000, application/vnd.ipld.car; order=dfs; Q=0.001", Format::Car),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            assert_eq!(format_by_accept(&headers), expected, "{accept}");
        }
    }

    #[test]
    fn paths_become_ascii_with_upper_case_escapes() {
        for (raw, expected) in [
            ("/ipfs/x/plain", "/ipfs/x/plain"),
            ("/ipfs/x/\u{fc}%c3%bCf", "/ipfs/x/%C3%BC%C3%BCf"),
            ("/a%3fbc%2", "/a%3Fbc%2"),
            ("/%\u{fc}", "/%%C3%BC"),
        ] {
            assert_eq!(normalised(raw), expected);
        }
    }
}
