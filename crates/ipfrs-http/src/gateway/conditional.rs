//! Conditional requests (RFC 9110, section 13).

use http::HeaderMap;
use http::header::{IF_MATCH, IF_NONE_MATCH, IF_RANGE};

use crate::compression::is_tag_suffix;

/// Whether `If-None-Match` matches `etag`. The header may be a list or `*`. Tags are compared weakly, and the tag of
/// any content coding of the same content matches.
pub(crate) fn if_none_match(headers: &HeaderMap, etag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(entity_tags).any(|tag| tag == "*" || is_same(opaque(tag), opaque(etag)))
}

/// Whether `If-Match` is present and contains neither a strong match for `etag` nor `*`. `If-Unmodified-Since` is
/// ignored, because it needs a modification date (RFC 9110, 13.1.4), and immutable content has none.
pub(crate) fn if_match_fails(headers: &HeaderMap, etag: &str) -> bool {
    let values = headers.get_all(IF_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_strong = |tag: &str| !tag.starts_with("W/") && !etag.starts_with("W/");
    let names = |tag: &str| tag == "*" || (is_strong(tag) && is_same(tag, etag));
    headers.contains_key(IF_MATCH) && !values.flat_map(entity_tags).any(names)
}

/// Whether `Range` must be evaluated: `If-Range` is absent or matches `etag` strongly.
pub(crate) fn range_applies(headers: &HeaderMap, etag: &str) -> bool {
    match headers.get(IF_RANGE).map(|value| value.to_str()) {
        None => true,
        Some(Ok(tag)) => tag.trim() == etag && !etag.starts_with("W/"),
        Some(Err(_)) => false,
    }
}

/// Splits a list of entity tags. Tags may contain commas inside their quotes.
fn entity_tags(list: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    list.split(move |c| {
        quoted ^= c == '"';
        c == ',' && !quoted
    })
    .map(str::trim)
    .filter(|tag| !tag.is_empty())
}

/// Whether `tag` equals `etag`, or is the tag of the same bytes in a content coding. A client that has the encoded
/// bytes has the content.
fn is_same(tag: &str, etag: &str) -> bool {
    let suffix = || tag.strip_prefix(etag.strip_suffix('"')?)?.strip_suffix('"');
    tag == etag || suffix().is_some_and(is_tag_suffix)
}

fn opaque(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn with(name: http::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn if_none_match_accepts_lists_weak_tags_and_star() {
        for (value, expected) in [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("\"b\", \"a\"", true),
            ("\"b,\", W/\"a\"", true),
            ("*", true),
            ("\"a-gzip\"", true),
            ("W/\"a-br\"", true),
            ("\"a-other\"", false),
            ("\"a-\"", false),
            ("\"b-gzip\"", false),
            ("\"b\"", false),
            ("a", false),
            ("", false),
        ] {
            assert_eq!(if_none_match(&with(IF_NONE_MATCH, value), "\"a\""), expected, "{value}");
        }
    }

    #[test]
    fn if_match_compares_strongly() {
        assert!(!if_match_fails(&HeaderMap::new(), "\"a\""));
        for (value, fails) in
            [("\"a\"", false), ("*", false), ("\"b\", \"a-br\"", false), ("W/\"a\"", true), ("\"b\"", true), ("", true)]
        {
            assert_eq!(if_match_fails(&with(IF_MATCH, value), "\"a\""), fails, "{value}");
        }
        assert!(if_match_fails(&with(IF_MATCH, "W/\"a\""), "W/\"a\""));
    }

    #[test]
    fn if_range_needs_the_same_strong_tag() {
        assert!(range_applies(&HeaderMap::new(), "\"a\""));
        assert!(range_applies(&with(IF_RANGE, "\"a\""), "\"a\""));
        assert!(!range_applies(&with(IF_RANGE, "\"b\""), "\"a\""));
        assert!(!range_applies(&with(IF_RANGE, "\"a-gzip\""), "\"a\""), "offsets of other bytes");
        assert!(!range_applies(&with(IF_RANGE, "W/\"a\""), "W/\"a\""));
        assert!(!range_applies(&with(IF_RANGE, "Wed, 21 Oct 2015 07:28:00 GMT"), "\"a\""));
    }
}
