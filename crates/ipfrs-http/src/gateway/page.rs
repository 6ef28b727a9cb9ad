//! Common parts of the pages that the daemon renders: style, script, content security policy, and the display of
//! names and links.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use ipfrs_core::{Base, Error, hash};
use ipfrs_node::LinkName;

use super::escape::{encode, encode_non_ascii, visible};
use super::request::GatewayRequest;
use super::site::Links;
use crate::body::header_text;
use crate::page_headers::{Referrer, protect};

/// Style sheet of every page.
pub(super) const STYLE: &str = include_str!("../../templates/page.css");
/// Script of every page, which copies text to the clipboard. Pages work without it.
pub(super) const SCRIPT: &str = include_str!("../../templates/page.js");
/// Version that pages show.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Data shared by all pages.
#[derive(Debug)]
pub(crate) struct Pages {
    version: String,
    policy: HeaderValue,
    policy_with_form: HeaderValue,
}

impl Pages {
    pub(crate) fn new() -> Self {
        let source =
            |text: &str| format!("'sha256-{}'", Base::Base64Pad.encode(hash::sha2_256(text.as_bytes()).digest()));
        let policy = |forms: &str| {
            header_text(&format!(
                "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; \
                 frame-ancestors 'self'{forms}",
                source(STYLE),
                source(SCRIPT),
            ))
        };
        let templates = concat!(
            include_str!("../../templates/page.css"),
            include_str!("../../templates/page.js"),
            include_str!("../../templates/page_head.html"),
            include_str!("../../templates/page_foot.html"),
            include_str!("../../templates/listing_head.html"),
            include_str!("../../templates/listing_rows.html"),
            include_str!("../../templates/listing_foot.html"),
            include_str!("../../templates/node.html"),
            env!("CARGO_PKG_VERSION")
        );
        let version = Base::Base16Lower.encode(&hash::sha2_256(templates.as_bytes()).digest()[..8]);
        Self { version, policy: policy("; form-action 'none'"), policy_with_form: policy("") }
    }

    /// Returns the version of the templates, which is part of each page's `Etag`.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Sets the headers of a page: its type, and a policy that allows only its own style, script and icons to load.
    /// Pages of the same origin may frame it: replayers of web archives do so before their service worker runs.
    pub(super) fn head(&self, headers: &mut HeaderMap) {
        with_policy(headers, &self.policy);
    }

    /// Same as [`Self::head`], for a page with a form that opens content. On a gateway with subdomains, the form
    /// redirects to another origin, and browsers also apply `form-action` to redirects.
    pub(super) fn head_with_form(&self, headers: &mut HeaderMap) {
        with_policy(headers, &self.policy_with_form);
    }
}

fn with_policy(headers: &mut HeaderMap, policy: &HeaderValue) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    protect(headers, policy.clone(), Referrer::SameOrigin);
}

/// Segment of the path in a page's heading, with its link.
pub(super) struct Crumb {
    pub(super) name: String,
    pub(super) href: String,
}

/// Link targets of a page about content.
pub(super) struct Places {
    /// Namespace of the root: `ipfs` or `ipns`.
    pub(super) namespace: &'static str,
    /// Segments of the path, root first.
    pub(super) crumbs: Vec<Crumb>,
    /// URL path of the page, without a trailing slash.
    here: String,
    /// URL prefix of `/ipfs/{cid}` for any content; `None` if the host serves only its own content.
    content: Option<String>,
}

impl Places {
    pub(super) fn of(request: &GatewayRequest<'_>) -> Self {
        let (namespace, root) = request.root();
        let Links { mut names, root: href, mut trail, content } = request.links();
        let mut crumbs = vec![Crumb { name: root.to_owned(), href }];
        for segment in request.below_root() {
            let encoded = encode(segment);
            (names, trail) = (format!("{names}/{encoded}"), format!("{trail}/{encoded}"));
            crumbs.push(Crumb { name: visible(segment).into_owned(), href: trail.clone() });
        }
        Self { namespace: namespace.as_str(), crumbs, here: names, content }
    }

    /// Returns the path as text for titles.
    pub(super) fn title(&self) -> String {
        let mut title = format!("/{}", self.namespace);
        for crumb in &self.crumbs {
            title.push('/');
            title.push_str(&crumb.name);
        }
        title
    }

    /// Returns the link to the parent directory; `None` at a root.
    pub(super) fn parent(&self) -> Option<String> {
        (self.crumbs.len() > 1).then(|| format!("{}/..", self.here))
    }

    /// Returns the link to an entry of the page's directory.
    pub(super) fn entry(&self, name: &LinkName) -> String {
        format!("{}/{}", self.here, encode(name))
    }

    /// Returns the link to content by its CID.
    pub(super) fn content(&self, cid: &str) -> String {
        match &self.content {
            Some(host) => format!("{host}/ipfs/{cid}"),
            None => format!("https://cid.ipfs.tech/#{cid}"),
        }
    }

    /// Returns the link to content by its CID, to be saved as `name`, and whether the link leads to another site.
    pub(super) fn cid(&self, cid: &str, name: &LinkName) -> (String, bool) {
        match &self.content {
            // Characters that are not ASCII are encoded twice, as in Kubo's listings: the conformance suite expects it.
            Some(host) => (format!("{host}/ipfs/{cid}?filename={}", encode(encode_non_ascii(name))), false),
            None => (format!("https://cid.ipfs.tech/#{cid}"), true),
        }
    }
}

/// Formats a number of bytes for a person: `1.5 MiB`.
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

/// Formats a count with its noun: `1,024 files`. `many` is the plural form.
pub(super) fn counted(count: u64, one: &str, many: &str) -> String {
    let digits = count.to_string();
    let mut grouped = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{grouped} {}", if count == 1 { one } else { many })
}

pub(super) fn not_rendered(error: askama::Error) -> Error {
    Error::internal("a page could not be rendered").with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_read_well() {
        assert_eq!(readable(0), "0 B");
        assert_eq!(readable(1_023), "1023 B");
        assert_eq!(readable(1_536), "1.5 KiB");
        assert_eq!(readable(u64::MAX), "16.0 EiB");
        assert_eq!(counted(1, "file", "files"), "1 file");
        assert_eq!(counted(999, "file", "files"), "999 files");
        assert_eq!(counted(1_234_567, "file", "files"), "1,234,567 files");
    }
}
