//! The directory listing: a page that a person likes, sent as it is made.

use askama::Template;
use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::HeaderValue;
use ipfrs_core::{Base, Cid, Error, Result, hash};
use ipfrs_node::{ContentPath, Listed, ListedKind, Node, Object};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::request::GatewayRequest;
use crate::body::{Chunked, header_text};

pub(super) const STYLE: &str = include_str!("../../templates/listing.css");
/// Rows that are rendered into one piece of the body.
const ROWS_PER_PIECE: usize = 128;
/// What may stand unencoded in a segment of a URL (RFC 3986, unreserved).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[derive(Template)]
#[template(path = "listing_head.html")]
struct Head<'a> {
    style: &'a str,
    title: String,
    crumbs: Vec<Crumb>,
    cid: String,
    size: String,
    parent: Option<String>,
}

/// A name in the path of a page's heading, and where it leads.
pub(super) struct Crumb {
    pub(super) name: String,
    pub(super) href: String,
}

#[derive(Template)]
#[template(path = "listing_rows.html")]
struct Rows {
    rows: Vec<Row>,
}

struct Row {
    /// The symbol of the head's sprite.
    icon: &'static str,
    name: String,
    href: String,
    cid: String,
    short_cid: String,
    cid_href: String,
    size: String,
}

/// What all listings share.
#[derive(Debug)]
pub(crate) struct Listing {
    version: String,
    content_security_policy: HeaderValue,
}

impl Listing {
    pub(crate) fn new() -> Self {
        let digest = hash::sha2_256(STYLE.as_bytes());
        let style_hash = Base::Base64Pad.encode(digest.digest());
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{style_hash}'; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'"
        );
        let templates = concat!(
            include_str!("../../templates/listing.css"),
            include_str!("../../templates/page_head.html"),
            include_str!("../../templates/listing_head.html"),
            include_str!("../../templates/listing_rows.html"),
            include_str!("../../templates/node.html"),
            env!("CARGO_PKG_VERSION")
        );
        let version = Base::Base16Lower.encode(&hash::sha2_256(templates.as_bytes()).digest()[..8]);
        Self { version, content_security_policy: header_text(&policy) }
    }

    /// Changes whenever the pages look different: part of their `Etag`.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Nothing but the page's own style may load.
    pub(super) fn content_security_policy(&self) -> HeaderValue {
        self.content_security_policy.clone()
    }

    /// The page, as a stream: entries are looked up while the first ones are on their way.
    pub(super) fn body(&self, node: &Node, request: &GatewayRequest<'_>, object: &Object) -> Result<Body> {
        let base = request.path.clone();
        let head = head(&base, object).render().map(Bytes::from).map_err(not_rendered)?;
        let rows = node.list(object, true).chunks(ROWS_PER_PIECE).map(move |batch| {
            let rows = batch.into_iter().map(|entry| entry.map(|entry| row(&base, &entry)));
            let rows = Rows { rows: rows.collect::<Result<_>>()? };
            rows.render().map(Bytes::from).map_err(not_rendered)
        });
        let foot = Bytes::from_static(include_bytes!("../../templates/listing_foot.html"));
        let whole = stream::iter([Ok(head)]).chain(rows).chain(stream::iter([Ok(foot)]));
        Ok(Chunked::body(whole.boxed(), false))
    }
}

pub(super) fn not_rendered(error: askama::Error) -> Error {
    Error::internal("the listing could not be rendered").with_source(error)
}

fn encode(segment: &str) -> String {
    utf8_percent_encode(segment, SEGMENT).to_string()
}

/// The names of a path, root first.
pub(super) fn crumbs(path: &ContentPath) -> Vec<Crumb> {
    let mut href = format!("/ipfs/{}", path.root());
    let mut crumbs = vec![Crumb { name: path.root().to_string(), href: href.clone() }];
    for segment in path.segments() {
        href = format!("{href}/{}", encode(segment));
        crumbs.push(Crumb { name: segment.clone(), href: href.clone() });
    }
    crumbs
}

fn head(path: &ContentPath, object: &Object) -> Head<'static> {
    let crumbs = crumbs(path);
    let parent = crumbs.last().filter(|_| crumbs.len() > 1).map(|here| format!("{}/..", here.href));
    Head {
        style: STYLE,
        title: path.to_string(),
        crumbs,
        cid: object.cid.to_string(),
        size: readable(object.block.len() as u64),
        parent,
    }
}

fn row(base: &ContentPath, entry: &Listed) -> Row {
    let (icon, slash) = match entry.kind {
        ListedKind::Directory => ("folder", "/"),
        ListedKind::Symlink => ("link", ""),
        ListedKind::File => (icon(&entry.name), ""),
        ListedKind::Unknown => ("unknown", ""),
    };
    let mut href = format!("/ipfs/{}", base.root());
    for segment in base.segments().iter().chain([&entry.name]) {
        href = format!("{href}/{}", encode(segment));
    }
    Row {
        icon,
        name: entry.name.clone(),
        href: format!("{href}{slash}"),
        cid: entry.cid.to_string(),
        short_cid: short(&entry.cid),
        // Encoded twice, as in Kubo's listings, which the conformance suite takes for the form of this link.
        cid_href: format!("/ipfs/{}{slash}?filename={}", entry.cid, encode(&encode(&entry.name))),
        size: match entry.kind {
            ListedKind::File | ListedKind::Unknown => readable(entry.size),
            ListedKind::Directory | ListedKind::Symlink => String::from("—"),
        },
    }
}

/// The symbol for a file of this name.
fn icon(name: &str) -> &'static str {
    let mime = mime_guess::from_path(name).first();
    match mime.as_ref().map(|mime| (mime.type_().as_str(), mime.subtype().as_str())) {
        Some(("image", _)) => "image",
        Some(("video", _)) => "video",
        Some(("audio", _)) => "audio",
        Some(("text", _)) | Some(("application", "pdf" | "json")) => "text",
        Some(("application", "zip" | "gzip" | "x-tar" | "x-bzip2" | "x-7z-compressed" | "zstd" | "x-xz")) => "archive",
        _ => "file",
    }
}

fn short(cid: &Cid) -> String {
    let text = cid.to_string();
    if text.len() <= 16 { text } else { format!("{}…{}", &text[..6], &text[text.len() - 6..]) }
}

/// Bytes for a person: `1.5 MiB`.
pub(super) fn readable(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1_024 {
        return format!("{bytes} B");
    }
    let exponent = (bytes.ilog2() / 10) as usize;
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let value = bytes as f64 / (1_u64 << (10 * exponent)) as f64;
    format!("{value:.1} {}", UNITS[exponent])
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn sizes_read_well() {
        assert_eq!(readable(0), "0 B");
        assert_eq!(readable(1_023), "1023 B");
        assert_eq!(readable(1_536), "1.5 KiB");
        assert_eq!(readable(u64::MAX), "16.0 EiB");
    }
}
