//! Context of a gateway request for the retrieval of missing content.

use http::header::VIA;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};
use ipfrs_node::{Expected, RequestContext};

use super::format::Format;
use super::range::{self, byte_ranges};
use super::request::{self, Wanted};
use super::site::Site;

/// Returns the context of a request to a site.
pub(super) fn context(site: &Site, parts: &Parts) -> RequestContext {
    let offline = !site.retrieves || request::only_if_cached(&parts.headers);
    let (via, expected) = (via(&parts.headers), expected(site, parts));
    RequestContext { offline, via, expected, hints: hints(parts), began: None, waits_for_peers: false }
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

/// Returns the part that the response needs. The content determines which of several formats is sent, so that is the
/// smallest part that one of them needs.
fn expected(site: &Site, parts: &Parts) -> Expected {
    if parts.method == Method::HEAD {
        return Expected::Block;
    }
    // A request with an invalid query reads no content.
    let Ok(wanted) = Wanted::of(site, parts, &site.content_path(parts.uri.path())) else { return Expected::Block };
    let of_format = |format: Format| match format {
        Format::Tar => Expected::All,
        Format::Deserialised => range::of(&parts.headers).map_or(Expected::Entity, of_range),
        // A CAR states its scope itself.
        Format::Car => Expected::Entity,
        Format::Raw | Format::Codec(_) | Format::IpnsRecord => Expected::Block,
    };
    // All content is available as a CAR.
    let alternatives = wanted.alternatives.into_iter().filter(|_| wanted.format != Format::Car);
    let size = |part: &Expected| match part {
        Expected::Block => 0,
        Expected::Bytes(_) => 1,
        Expected::Entity => 2,
        Expected::All => 3,
    };
    let first = of_format(wanted.format);
    alternatives.map(of_format).chain([first]).min_by_key(size).unwrap_or(first)
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

    fn expected_of(site: &Site, method: Method, target: &str, headers: &[(&str, &str)]) -> Expected {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        expected(site, &request.body(()).unwrap().into_parts().0)
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
            assert_eq!(expected_of(&Site::paths(true), method, target, headers), part, "{target} {headers:?}");
        }
    }

    #[test]
    fn expected_part_is_that_of_the_smallest_possible_format() {
        let (any, trustless) = (Site::paths(true), Site::paths(false));
        let (raw, car) = ("application/vnd.ipld.raw;q=0.1", "application/vnd.ipld.car;q=0.2");
        for (site, target, accept, part) in [
            (&any, "/ipfs/a", "application/x-tar".to_owned(), Expected::All),
            (&any, "/ipfs/a", format!("application/x-tar, {raw}"), Expected::Block),
            (&any, "/ipfs/a", format!("application/x-tar, {car}"), Expected::Entity),
            (&any, "/ipfs/a", format!("{car}, {raw}"), Expected::Entity),
            (&any, "/ipfs/a", "application/vnd.ipfs.ipns-record, text/html".to_owned(), Expected::Entity),
            (&any, "/ipfs/a?format=tar", raw.to_owned(), Expected::All),
            (&any, "/ipfs/a?format=nonsense", "application/x-tar".to_owned(), Expected::Block),
            (&trustless, "/ipfs/a", format!("application/x-tar, {raw}"), Expected::Block),
            (&trustless, "/ipfs/a/b", format!("application/x-tar, {raw}, {car}"), Expected::Entity),
        ] {
            let found = expected_of(site, Method::GET, target, &[("accept", &accept)]);
            assert_eq!(found, part, "{target} {accept}");
        }
    }
}
