//! Context of a gateway request for the retrieval of missing content.

use http::header::{RANGE, VIA};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};
use ipfrs_node::{Expected, RequestContext};

use super::format::{Format, format_by_accept, format_by_name};
use super::range::byte_ranges;
use super::request;
use super::site::Site;

/// Returns the context of a request to a site.
pub(super) fn context(site: &Site, parts: &Parts) -> RequestContext {
    let offline = !site.retrieves || request::only_if_cached(&parts.headers);
    RequestContext { offline, via: via(&parts.headers), expected: expected(parts), hints: hints(parts) }
}

/// Returns the sources that the query names: `provider`, a multiaddr (IPIP-504), and `gateway`, a URL.
fn hints(parts: &Parts) -> Vec<String> {
    let query = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
    let named = query.filter(|(name, _)| matches!(name.as_ref(), "provider" | "gateway"));
    named.map(|(_, value)| value.into_owned()).collect()
}

/// Returns the `Via` header (RFC 9110, 7.6.3), whose lines are one list.
fn via(headers: &HeaderMap) -> String {
    let lines: Vec<_> = headers.get_all(VIA).iter().filter_map(|line| line.to_str().ok()).collect();
    lines.join(", ")
}

fn expected(parts: &Parts) -> Expected {
    let query = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
    let by_query = query.into_iter().find(|(name, _)| name == "format").map(|(_, name)| format_by_name(&name));
    let format = by_query.and_then(Result::ok).unwrap_or_else(|| format_by_accept(&parts.headers));
    match format {
        _ if parts.method == Method::HEAD => Expected::Block,
        Format::Tar => Expected::All,
        Format::Deserialised => parts.headers.get(RANGE).map_or(Expected::Entity, of_range),
        // A CAR states its scope itself.
        Format::Car => Expected::Entity,
        Format::Raw | Format::Codec(_) | Format::IpnsRecord => Expected::Block,
    }
}

/// Returns the part that a request with this `Range` needs. Several ranges, and one whose place depends on the size of
/// the file, are retrieved by the reader.
pub(crate) fn of_range(range: &HeaderValue) -> Expected {
    let Some(ranges) = byte_ranges(range) else { return Expected::Entity };
    if ranges.contains(',') || ranges.trim_start().starts_with('-') {
        return Expected::Block;
    }
    let part = || {
        let (first, last) = ranges.split_once('-')?;
        let (first, last) = (first.trim().parse::<u64>().ok()?, last.trim());
        if last.is_empty() {
            return Some(Expected::of_file(first, None));
        }
        let last = last.parse::<u64>().ok()?;
        Some(Expected::of_file(first, Some(last.checked_sub(first)?.saturating_add(1))))
    };
    // A malformed range is ignored.
    part().unwrap_or(Expected::Entity)
}

#[cfg(test)]
mod tests {
    use http::Request;
    use ipfrs_node::Span;

    use super::*;

    fn expected_of(method: Method, target: &str, headers: &[(&str, &str)]) -> Expected {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        expected(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn expected_part_follows_method_format_and_range() {
        let range = |range| [("range", range)];
        for (method, target, headers, part) in [
            (Method::GET, "/ipfs/a", &[][..], Expected::Entity),
            (Method::HEAD, "/ipfs/a", &[], Expected::Block),
            (Method::GET, "/ipfs/a?format=raw", &[], Expected::Block),
            (Method::GET, "/ipfs/a?format=tar", &[], Expected::All),
            (Method::GET, "/ipfs/a", &range("bytes=5-9"), Expected::Bytes(Span { start: 5, len: 5 })),
            (Method::GET, "/ipfs/a", &range("bytes=5-"), Expected::Bytes(Span { start: 5, len: u64::MAX - 5 })),
            (Method::GET, "/ipfs/a", &range("bytes=-9"), Expected::Block),
            (Method::GET, "/ipfs/a", &range("bytes=0-1,5-9"), Expected::Block),
            (Method::GET, "/ipfs/a", &range("bytes=0-"), Expected::Bytes(Span { start: 0, len: u64::MAX })),
            (Method::GET, "/ipfs/a", &range("bytes=9-5"), Expected::Entity),
            (Method::GET, "/ipfs/a", &range("bytes=abc"), Expected::Entity),
            (Method::GET, "/ipfs/a", &range("lines=5-9"), Expected::Entity),
        ] {
            assert_eq!(expected_of(method, target, headers), part, "{target} {headers:?}");
        }
    }
}
