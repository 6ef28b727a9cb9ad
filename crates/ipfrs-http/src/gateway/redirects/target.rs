//! The target of a rule (`to`), and its expansion with the values of placeholders.

use std::borrow::Cow;
use std::collections::BTreeSet;

use form_urlencoded::parse as parse_query;
use ipfrs_node::LinkName;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, percent_encode, utf8_percent_encode};

/// Name of the placeholder for the segments that an asterisk matched.
pub(super) const SPLAT: &str = "splat";

/// Maximum length of a target URL or path, in bytes. Without it, a `to` of a few kilobytes with a placeholder in
/// every other character could expand to megabytes.
const MAX_TARGET_BYTES: usize = 8 * 1024;

/// Schemes of absolute URLs that a rule may use.
const SCHEMES: [&str; 4] = ["http://", "https://", "ipfs://", "ipns://"];

/// Characters to encode so that a value has no special meaning anywhere in a URL.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Characters to encode so that a value has no special meaning in a path (RFC 3986, `pchar`).
const PATH_CHAR: &AsciiSet = &UNRESERVED
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// Values of the placeholders of a rule for one path.
#[derive(Debug, Default)]
pub(super) struct Values<'r, 'p> {
    /// Names and values, in the order of `from`.
    pub(super) named: Vec<(&'r str, &'p [u8])>,
    /// Segments that the asterisk matched.
    pub(super) splat: &'p [LinkName],
    /// Number of bytes of the first of them that precede the asterisk.
    pub(super) splat_skip: usize,
}

impl<'p> Values<'_, 'p> {
    /// Returns the value of the longest name that `text` starts with, and the length of the name.
    fn longest(&self, text: &str) -> Option<(usize, Value<'p>)> {
        let named = self.named.iter().filter(|(name, _)| text.starts_with(name));
        let named = named.max_by_key(|(name, _)| name.len()).map(|(name, value)| (name.len(), Value::One(value)));
        let splat = text.starts_with(SPLAT).then_some((SPLAT.len(), Value::Splat(self.splat, self.splat_skip)));
        match (named, splat) {
            (Some(named), Some(splat)) => Some(if named.0 >= splat.0 { named } else { splat }),
            (named, splat) => named.or(splat),
        }
    }
}

/// Value of a placeholder: one segment, or the segments that an asterisk matched.
#[derive(Clone, Copy)]
enum Value<'p> {
    One(&'p [u8]),
    Splat(&'p [LinkName], usize),
}

impl<'p> Value<'p> {
    /// Returns the segments of the value.
    fn segments(self) -> impl Iterator<Item = &'p [u8]> {
        let (one, many, skip) = match self {
            Self::One(value) => (Some(value), [].as_slice(), 0),
            Self::Splat(many, skip) => (None, many, skip),
        };
        let cut =
            move |(index, segment): (usize, &'p LinkName)| &segment.as_bytes()[if index == 0 { skip } else { 0 }..];
        one.into_iter().chain(many.iter().enumerate().map(cut))
    }
}

/// Literal text of a target, or a value in it.
enum Piece<'a, 'p> {
    Text(&'a str),
    Value(Value<'p>),
}

/// Target of a rule: a path from the root of the site, or an absolute URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target<'a>(&'a str);

impl<'a> Target<'a> {
    pub(super) fn parse(to: &'a str) -> Result<Self, String> {
        let is_absolute =
            |scheme: &&str| to.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
        if !to.starts_with('/') && !SCHEMES.iter().any(is_absolute) {
            return Err("neither a path that begins with '/' nor a URL of http, https, ipfs or ipns".to_owned());
        }
        if to.chars().any(char::is_control) {
            return Err("a control character in a URL".to_owned());
        }
        check_escapes(to)?;
        Ok(Self(to))
    }

    /// Returns the value of `Location`. The parameters of `query` are appended, and replace parameters of the rule
    /// with the same names.
    pub(super) fn location(self, values: &Values<'_, '_>, query: Option<&str>) -> Result<String, String> {
        let mut url = String::with_capacity(self.0.len());
        let mut part = if self.0.starts_with('/') { Part::Path } else { Part::Host };
        for piece in self.pieces(values) {
            match piece {
                Piece::Text(text) => {
                    url.extend(utf8_percent_encode(text, CONTROLS));
                    part = part.after(text);
                }
                Piece::Value(value) => {
                    for (index, segment) in value.segments().enumerate() {
                        url.push_str(if index == 0 { "" } else { "/" });
                        url.extend(percent_encode(segment, part.unescaped()));
                    }
                }
            }
            check_length(url.len())?;
        }
        // If the first value is empty, the next segment must not become a host.
        if url.starts_with("//") && !self.0.starts_with("//") {
            url = format!("/{}", url.trim_start_matches('/'));
        }
        Ok(match query {
            Some(query) if !query.is_empty() => with_query(&url, query),
            _ => url,
        })
    }

    /// Returns the segments of the path below the root of the site, percent-decoded and without the query and the
    /// fragment.
    pub(super) fn segments(self, values: &Values<'_, '_>) -> Result<Vec<LinkName>, String> {
        if !self.0.starts_with('/') {
            return Err("content that is served under another URL must be on the same site: use a path".to_owned());
        }
        let path = Self(self.0.split(['?', '#']).next().unwrap_or_default());
        let mut whole = Vec::new();
        for piece in path.pieces(values) {
            match piece {
                // An encoded slash is a separator, as in a request path.
                Piece::Text(text) => whole.extend(percent_decode_str(text)),
                Piece::Value(value) => {
                    for (index, segment) in value.segments().enumerate() {
                        whole.extend_from_slice(if index == 0 { b"" } else { b"/" });
                        whole.extend_from_slice(segment);
                    }
                }
            }
            check_length(whole.len())?;
        }
        Ok(whole.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()).map(LinkName::from).collect())
    }

    /// Returns the text with its placeholders replaced, in order. Values are not expanded again.
    fn pieces<'p>(self, values: &Values<'_, 'p>) -> impl Iterator<Item = Piece<'a, 'p>> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            if let Some((length, value)) = rest.strip_prefix(':').and_then(|name| values.longest(name)) {
                rest = &rest[1 + length..];
                return Some(Piece::Value(value));
            }
            // Text up to the next colon that may begin a placeholder. The first character does not begin one.
            let skip = rest.chars().next()?.len_utf8();
            let end = rest[skip..].find(':').map_or(rest.len(), |colon| skip + colon);
            let (text, after) = rest.split_at(end);
            rest = after;
            Some(Piece::Text(text))
        })
    }
}

/// Part of a URL in which a value is inserted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Before the path of an absolute URL.
    Host,
    Path,
    /// After a `?` or `#`.
    Query,
}

impl Part {
    /// Returns the part that follows `text`, which starts in this part.
    fn after(self, text: &str) -> Self {
        let text = text.split_once("://").map_or(text, |(_, rest)| rest);
        match self {
            _ if text.contains(['?', '#']) => Self::Query,
            Self::Host if text.contains('/') => Self::Path,
            part => part,
        }
    }

    /// Returns the characters to encode in a value, so that it can neither end the part nor have a special meaning in
    /// it.
    fn unescaped(self) -> &'static AsciiSet {
        if self == Self::Path { PATH_CHAR } else { UNRESERVED }
    }
}

/// Appends the parameters of `query` to `url`, in place of its own parameters with the same names.
fn with_query(url: &str, query: &str) -> String {
    let (url, fragment) = url.split_once('#').map_or((url, None), |(url, fragment)| (url, Some(fragment)));
    let (base, own) = url.split_once('?').unwrap_or((url, ""));
    let given: BTreeSet<Cow<'_, str>> = parse_query(query.as_bytes()).map(|(name, _)| name).collect();
    let is_kept = |pair: &&str| parse_query(pair.as_bytes()).all(|(name, _)| !given.contains(&name));
    let own = own.split('&').filter(|pair| !pair.is_empty()).filter(is_kept);
    let parameters: Vec<&str> = own.chain([query]).collect();
    let fragment = fragment.map(|fragment| format!("#{fragment}")).unwrap_or_default();
    format!("{base}?{}{fragment}", parameters.join("&"))
}

fn check_length(bytes: usize) -> Result<(), String> {
    if bytes > MAX_TARGET_BYTES {
        return Err(format!("it produces a URL of more than {MAX_TARGET_BYTES} bytes"));
    }
    Ok(())
}

/// Checks that every `%` is followed by two hexadecimal digits.
pub(super) fn check_escapes(text: &str) -> Result<(), String> {
    let is_escape = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    match text.split('%').skip(1).find(|rest| !is_escape(rest)) {
        Some(rest) => {
            Err(format!("invalid escape %{}: write %25 for a percent sign", rest.chars().take(2).collect::<String>()))
        }
        None => Ok(()),
    }
}
