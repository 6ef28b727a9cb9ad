//! What the pages that the daemon draws have in common: their look, their script, what they may load, and how they show
//! names and addresses.

use std::borrow::Cow;
use std::fmt::Write as _;

use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue};
use ipfrs_core::{Base, Error, hash};
use ipfrs_node::LinkName;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::request::GatewayRequest;
use super::site::Links;
use crate::body::header_text;

/// The style of every page.
pub(super) const STYLE: &str = include_str!("../../templates/page.css");
/// The script of every page: it copies texts. Pages are whole without it.
pub(super) const SCRIPT: &str = include_str!("../../templates/page.js");
/// The version that pages name.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What may stand unencoded in a segment of a URL (RFC 3986, unreserved).
pub(super) const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What all pages share.
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
                 frame-ancestors 'none'{forms}",
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

    /// Changes whenever the pages look different: part of their `Etag`.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Sets the headers of a page: what it is, and that nothing but its own style, script and icons may load.
    pub(super) fn head(&self, headers: &mut HeaderMap) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    }

    /// As [`Self::head`], for a page with a form that leads to content: on a gateway with subdomains to an origin of its own,
    /// and browsers hold the way that a form leads against `form-action` to its end.
    pub(super) fn head_with_form(&self, headers: &mut HeaderMap) {
        self.head(headers);
        headers.insert(CONTENT_SECURITY_POLICY, self.policy_with_form.clone());
    }
}

/// A name in the path of a page's heading, and where it leads.
pub(super) struct Crumb {
    pub(super) name: String,
    pub(super) href: String,
}

/// Where the links of a page about content lead.
pub(super) struct Places {
    /// The namespace that the root is in: `ipfs` or `ipns`.
    pub(super) namespace: &'static str,
    /// The names of the path, root first.
    pub(super) crumbs: Vec<Crumb>,
    /// The path of the page in URLs, without a slash at its end.
    here: String,
    /// What stands before `/ipfs/{cid}` where that leads to any content; nothing where the host gives its own content only.
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

    /// The path as a text for titles.
    pub(super) fn title(&self) -> String {
        let mut title = format!("/{}", self.namespace);
        for crumb in &self.crumbs {
            title.push('/');
            title.push_str(&crumb.name);
        }
        title
    }

    /// The way to the parent directory, except from a root.
    pub(super) fn parent(&self) -> Option<String> {
        (self.crumbs.len() > 1).then(|| format!("{}/..", self.here))
    }

    /// The way to an entry of the page's directory.
    pub(super) fn entry(&self, name: &LinkName) -> String {
        format!("{}/{}", self.here, encode(name))
    }

    /// The way to content by its CID.
    pub(super) fn content(&self, cid: &str) -> String {
        match &self.content {
            Some(host) => format!("{host}/ipfs/{cid}"),
            None => format!("https://cid.ipfs.tech/#{cid}"),
        }
    }

    /// The way to content by its CID, to be saved as `name`; and whether that is on another site.
    pub(super) fn cid(&self, cid: &str, name: &LinkName) -> (String, bool) {
        match &self.content {
            // Encoded twice, as in Kubo's listings, which the conformance suite takes for the form of this link.
            Some(host) => (format!("{host}/ipfs/{cid}?filename={}", encode(encode(name))), false),
            None => (format!("https://cid.ipfs.tech/#{cid}"), true),
        }
    }
}

/// A name as a segment of a URL.
pub(super) fn encode(segment: impl AsRef<[u8]>) -> String {
    percent_encode(segment.as_ref(), SEGMENT).to_string()
}

/// A name with everything spelled out that would not be seen, or would change how what stands around it is seen: control
/// characters, line ends, invisible characters, and those that turn the direction of text (Unicode Technical Report 36).
/// Bytes that are not UTF-8 are spelled out too, and so is the bracket that begins what is spelled out, so that no two
/// names look the same.
pub(super) fn visible<N: AsRef<[u8]> + ?Sized>(name: &N) -> Cow<'_, str> {
    let name = name.as_ref();
    if name.is_empty() {
        return Cow::Borrowed("(no name)");
    }
    let is_spelled_out = |c: char| c == '⟨' || is_invisible(c);
    if let Ok(text) = std::str::from_utf8(name)
        && !text.contains(is_spelled_out)
    {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(name.len() + 16);
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_spelled_out(c) {
                // Writing to a String cannot fail.
                let _ = write!(shown, "⟨U+{:04X}⟩", u32::from(c));
            } else {
                shown.push(c);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(shown, "⟨0x{byte:02X}⟩");
        }
    }
    Cow::Owned(shown)
}

/// The joiners U+200C and U+200D are not among them: words of some languages, and emoji, need them.
fn is_invisible(c: char) -> bool {
    let is_mark = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}');
    let is_line_end = matches!(c, '\u{2028}' | '\u{2029}');
    let is_empty = matches!(c, '\u{ad}' | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{feff}');
    c.is_control() || is_mark || is_line_end || is_empty || matches!(c, '\u{fff9}'..='\u{fffb}')
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

/// How many there are of something, for a person: `1,024 files`. The plural is that of the last word of `many`.
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

    #[test]
    fn names_hide_nothing() {
        for (name, shown) in [
            ("ünï 日本語 🦀 עברית", "ünï 日本語 🦀 עברית"),
            ("می‌خواهم", "می‌خواهم"),
            ("photo\u{202e}gpj.exe", "photo⟨U+202E⟩gpj.exe"),
            ("a\nb\tc\u{7f}", "a⟨U+000A⟩b⟨U+0009⟩c⟨U+007F⟩"),
            ("a\u{200b}\u{feff}\u{2029}\u{85}", "a⟨U+200B⟩⟨U+FEFF⟩⟨U+2029⟩⟨U+0085⟩"),
            ("", "(no name)"),
            ("⟨0xFF⟩", "⟨U+27E8⟩0xFF⟩"),
        ] {
            assert_eq!(visible(name), shown, "{name:?}");
        }
        assert_eq!(visible(b"\xff\xe2\x82.txt"), "⟨0xFF⟩⟨0xE2⟩⟨0x82⟩.txt");
    }
}
