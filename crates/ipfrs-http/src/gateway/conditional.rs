//! Conditional requests (RFC 9110, section 13).

use std::time::SystemTime;

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName};
use ipfrs_core::timestamp;

use super::range::single;
use crate::compression::is_tag_suffix;

/// Whether `If-None-Match` matches `etag`. The header may be a list or `*`. Tags are compared weakly, and the tag of
/// any content coding of the same content matches.
pub(crate) fn if_none_match(headers: &HeaderMap, etag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(entity_tags).any(|tag| tag == "*" || is_same(opaque(tag), opaque(etag)))
}

/// When a file was modified (`Last-Modified`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Modified {
    /// The time, in seconds since 1970.
    pub(crate) seconds: i64,
    /// Whether the path always has this file. A path of a name may get an older file.
    pub(crate) is_final: bool,
}

/// Whether the client has the content: `If-None-Match` matches, or without it `If-Modified-Since` is not earlier than
/// the modification.
pub(crate) fn is_not_modified(headers: &HeaderMap, etag: &str, modified: Option<Modified>) -> bool {
    if headers.contains_key(IF_NONE_MATCH) {
        return if_none_match(headers, etag);
    }
    match (date(headers, IF_MODIFIED_SINCE), modified) {
        (Some(since), Some(modified)) if modified.is_final => modified.seconds <= since,
        (Some(since), Some(modified)) => modified.seconds == since,
        _ => false,
    }
}

/// Returns the date in a header, in seconds since 1970. Invalid and repeated dates are ignored (RFC 9110, 13.1.3).
fn date(headers: &HeaderMap, name: HeaderName) -> Option<i64> {
    let text = single(headers, name)?.to_str().ok()?.trim();
    match httpdate::parse_http_date(text) {
        Ok(date) => i64::try_from(date.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs()).ok(),
        // It may be before 1970, which `httpdate` does not read.
        Err(_) => timestamp::parse_http(text),
    }
}

/// Whether `If-Match` is present and contains neither a strong match for `etag` nor `*`, or without it
/// `If-Unmodified-Since` is earlier than the modification. Content without a modification date ignores the latter
/// (RFC 9110, 13.1.4).
pub(crate) fn if_match_fails(headers: &HeaderMap, etag: &str, modified: Option<Modified>) -> bool {
    if !headers.contains_key(IF_MATCH) {
        return matches!((date(headers, IF_UNMODIFIED_SINCE), modified), (Some(since), Some(of)) if of.seconds > since);
    }
    let values = headers.get_all(IF_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_strong = |tag: &str| !tag.starts_with("W/") && !etag.starts_with("W/");
    let names = |tag: &str| tag == "*" || (is_strong(tag) && is_same(tag, etag));
    !values.flat_map(entity_tags).any(names)
}

/// Whether `Range` must be evaluated: `If-Range` is absent, matches `etag` strongly, or is the modification date.
pub(crate) fn range_applies(headers: &HeaderMap, etag: &str, modified: Option<Modified>) -> bool {
    if !headers.contains_key(IF_RANGE) {
        return true;
    }
    match single(headers, IF_RANGE).map(|value| value.to_str()) {
        // The date of another file under the same name could be equal (RFC 9110, 8.8.2.2).
        Some(Ok(tag)) if !tag.contains('"') => {
            matches!((date(headers, IF_RANGE), modified), (Some(date), Some(of)) if of.is_final && of.seconds == date)
        }
        Some(Ok(tag)) => tag.trim() == etag && !etag.starts_with("W/"),
        // Repeated, or no text.
        None | Some(Err(_)) => false,
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

    fn with(name: HeaderName, value: &'static str) -> HeaderMap {
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
        assert!(!if_match_fails(&HeaderMap::new(), "\"a\"", None));
        for (value, fails) in
            [("\"a\"", false), ("*", false), ("\"b\", \"a-br\"", false), ("W/\"a\"", true), ("\"b\"", true), ("", true)]
        {
            assert_eq!(if_match_fails(&with(IF_MATCH, value), "\"a\"", None), fails, "{value}");
        }
        assert!(if_match_fails(&with(IF_MATCH, "W/\"a\""), "W/\"a\"", None));
    }

    #[test]
    fn if_range_needs_the_same_strong_tag_or_date() {
        let applies = |value, etag| range_applies(&with(IF_RANGE, value), etag, None);
        assert!(range_applies(&HeaderMap::new(), "\"a\"", None));
        assert!(applies("\"a\"", "\"a\""));
        assert!(!applies("\"b\"", "\"a\""));
        assert!(!applies("\"a-gzip\"", "\"a\""), "offsets of other bytes");
        assert!(!applies("W/\"a\"", "W/\"a\""));
        assert!(!applies(DATE, "\"a\""));
        for (date, is_final, expected) in [(DATE, true, true), (LATER, true, false), (DATE, false, false)] {
            let modified = Some(modified(is_final));
            assert_eq!(range_applies(&with(IF_RANGE, date), "\"a\"", modified), expected, "{date} {is_final}");
        }
    }

    const EARLIER: &str = "Wed, 21 Oct 2015 07:27:59 GMT";
    const DATE: &str = "Wed, 21 Oct 2015 07:28:00 GMT";
    const LATER: &str = "Wed, 21 Oct 2015 07:28:01 GMT";

    fn modified(is_final: bool) -> Modified {
        Modified { seconds: timestamp::parse_http(DATE).unwrap(), is_final }
    }

    #[test]
    fn dates_decide_without_tags() {
        for (name, value, is_final, expected) in [
            (IF_MODIFIED_SINCE, EARLIER, true, (false, false)),
            (IF_MODIFIED_SINCE, DATE, true, (false, true)),
            (IF_MODIFIED_SINCE, LATER, true, (false, true)),
            (IF_MODIFIED_SINCE, LATER, false, (false, false)),
            (IF_MODIFIED_SINCE, DATE, false, (false, true)),
            (IF_MODIFIED_SINCE, "yesterday", true, (false, false)),
            (IF_UNMODIFIED_SINCE, EARLIER, true, (true, false)),
            (IF_UNMODIFIED_SINCE, DATE, true, (false, false)),
            (IF_UNMODIFIED_SINCE, "0", true, (false, false)),
        ] {
            let mut headers = with(name.clone(), value);
            let outcome = |headers: &HeaderMap, modified| {
                (if_match_fails(headers, "\"a\"", modified), is_not_modified(headers, "\"a\"", modified))
            };
            assert_eq!(outcome(&headers, Some(modified(is_final))), expected, "{name}: {value}, {is_final}");
            assert_eq!(outcome(&headers, None), (false, false), "{name}: {value}");
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static("\"b\""));
            headers.insert(IF_MATCH, HeaderValue::from_static("\"a\""));
            assert_eq!(outcome(&headers, Some(modified(is_final))), (false, false), "tags take precedence");
        }
    }
}
