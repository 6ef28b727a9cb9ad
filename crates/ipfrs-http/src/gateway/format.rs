//! The response formats of the gateway, and how a request chooses one.

use std::cmp::Reverse;

use http::{HeaderMap, HeaderName};
use ipfrs_core::{Error, Result};
use ipfrs_middleware::accept::ranges;

use super::codec::Codec;

/// Media type of CARs.
pub(crate) const CAR_MEDIA_TYPE: &str = "application/vnd.ipld.car";

/// Media type of IPNS records.
pub(crate) const IPNS_RECORD_MEDIA_TYPE: &str = "application/vnd.ipfs.ipns-record";

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
    (CAR_MEDIA_TYPE, "car", Format::Car),
    ("application/x-tar", "tar", Format::Tar),
    (Codec::Json.media_type(), Codec::Json.name(), Format::Codec(Codec::Json)),
    (Codec::Cbor.media_type(), Codec::Cbor.name(), Format::Codec(Codec::Cbor)),
    (Codec::DagJson.media_type(), Codec::DagJson.name(), Format::Codec(Codec::DagJson)),
    (Codec::DagCbor.media_type(), Codec::DagCbor.name(), Format::Codec(Codec::DagCbor)),
    (IPNS_RECORD_MEDIA_TYPE, "ipns-record", Format::IpnsRecord),
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

pub(super) fn format_by_name(name: &str) -> Result<Format> {
    let found = FORMATS.iter().find(|(_, known, _)| *known == name).map(|(_, _, format)| *format);
    found.ok_or_else(|| {
        let known = FORMATS.map(|(_, name, _)| name).join(", ");
        Error::invalid(format!("unknown format {name:?}: use one of {known}, or leave it out"))
    })
}

/// Prefixes of the media types of IPLD and IPFS.
const VENDORS: [&str; 2] = ["application/vnd.ipld.", "application/vnd.ipfs."];

/// Returns the first media type of `Accept`, if all of them are unknown formats of IPLD and IPFS. A client that
/// requests only these must not mistake a file or a page for them.
pub(super) fn unknown_format(headers: &HeaderMap) -> Option<&str> {
    let is_unknown = |media: &str| {
        let is_of = |vendor: &&str| media.get(..vendor.len()).is_some_and(|start| start.eq_ignore_ascii_case(vendor));
        VENDORS.iter().any(is_of) && !FORMATS.iter().any(|(known, _, _)| known.eq_ignore_ascii_case(media))
    };
    let mut media = accepted(headers);
    let first = media.next().filter(|first| is_unknown(first))?;
    media.all(is_unknown).then_some(first)
}

/// Returns the error for an unknown media type in `Accept`.
pub(super) fn unknown_media(media: &str) -> Error {
    let known = FORMATS.map(|(media, _, _)| media).join(", ");
    Error::invalid(format!("unknown format {media:?} in Accept: use one of {known}, or leave it out"))
}

/// Returns the media types of `Accept` in their order, without parameters, and without those of weight 0.
pub(crate) fn accepted(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    ranges(headers).filter(|range| !range.media.is_empty() && range.weight > 0).map(|range| range.media)
}

/// Returns the formats that `Accept` names with their weights, in its order.
fn named(headers: &HeaderMap) -> impl Iterator<Item = (Format, u32)> {
    ranges(headers).filter(|range| range.weight > 0).filter_map(|range| {
        let is_meant = |known: &str| known.eq_ignore_ascii_case(range.media);
        FORMATS.iter().find(|(known, _, _)| is_meant(known)).map(|(_, _, format)| (*format, range.weight))
    })
}

/// Returns the formats that `Accept` names, those with the greatest weight first; of equal weight, in its order.
pub(super) fn formats_by_accept(headers: &HeaderMap) -> Vec<Format> {
    let mut named: Vec<_> = named(headers).collect();
    named.sort_by_key(|(_, weight)| Reverse(*weight));
    named.into_iter().map(|(format, _)| format).collect()
}

/// Returns the first of [`formats_by_accept`]. Without one, the gateway sends files and HTML pages.
pub(super) fn format_by_accept(headers: &HeaderMap) -> Format {
    let first = named(headers).reduce(|first, next| if next.1 > first.1 { next } else { first });
    first.map_or(Format::Deserialised, |(format, _)| format)
}

/// Whether `Accept` names HTML.
pub(super) fn accepts_html(headers: &HeaderMap) -> bool {
    accepted(headers).any(|media| media.eq_ignore_ascii_case("text/html"))
}

/// Whether `Accept` also permits other forms than the formats that it names: HTML pages, or any type.
pub(super) fn accepts_others(headers: &HeaderMap) -> bool {
    let is_wildcard = |media: &str| media == "*/*" || media.eq_ignore_ascii_case("application/*");
    accepts_html(headers) || accepted(headers).any(is_wildcard)
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT;

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
            ("application/x-tar;q=0.2, application/vnd.ipld.car;q=0.3, */*", Format::Car),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            assert_eq!(format_by_accept(&headers), expected, "{accept}");
            assert_eq!(formats_by_accept(&headers).first().copied().unwrap_or(Format::Deserialised), expected);
        }
    }

    #[test]
    fn formats_are_unknown_only_if_nothing_else_is_accepted() {
        for (accept, expected) in [
            ("application/vnd.ipld.dag-pb", Some("application/vnd.ipld.dag-pb")),
            ("Application/VND.ipfs.x;q=0.5, application/vnd.ipld.y", Some("Application/VND.ipfs.x")),
            ("application/vnd.ipld.x, application/vnd.ipld.raw;q=0", Some("application/vnd.ipld.x")),
            ("application/vnd.ipld.x, application/vnd.ipld.raw", None),
            ("application/vnd.ipld.x, */*;q=0.1", None),
            ("text/html, application/vnd.ipld.x", None),
            ("application/vnd.ipld.x;q=0", None),
            ("application/vnd.ipld.raw", None),
            ("application/vnd.other", None),
            ("*/*", None),
            ("", None),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            assert_eq!(unknown_format(&headers), expected, "{accept}");
        }
    }
}
