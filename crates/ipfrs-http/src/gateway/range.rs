//! The `Range` header (RFC 9110, section 14).

use http::header::RANGE;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipfrs_node::Span;

/// Part of a payload to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ranges {
    /// The whole payload, because the request has no range that must be honoured.
    Whole,
    /// One range.
    One(Span),
    /// Several ranges, in the requested order.
    Many(Vec<Span>),
    /// All ranges are outside the payload.
    Unsatisfiable,
}

/// Returns the `Range` of a request. The field is no list, so repeated ones are as malformed as their combination
/// would be (RFC 9110, 5.3 and 14.2), and ignored: a proxy may have used another one.
pub(crate) fn of(headers: &HeaderMap) -> Option<&HeaderValue> {
    single(headers, RANGE)
}

/// Returns the value of a field that is no list, unless it is repeated.
pub(super) fn single(headers: &HeaderMap, name: HeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// Parses `Range` for a payload of `size` bytes. The header is ignored, as the RFC allows, if it uses another unit,
/// is malformed, has more than `max` ranges, or has several ranges whose total exceeds the payload. It is also
/// ignored for an empty payload, since some clients send a range with every request.
pub(crate) fn parse(header: Option<&HeaderValue>, size: u64, max: usize) -> Ranges {
    let Some(specs) = header.and_then(byte_ranges) else { return Ranges::Whole };
    if size == 0 {
        return Ranges::Whole;
    }
    let (mut spans, mut is_empty) = (Vec::new(), true);
    for spec in specs.split(',').map(str::trim).filter(|spec| !spec.is_empty()) {
        is_empty = false;
        match span(spec, size) {
            Some(Some(span)) if spans.len() < max => spans.push(span),
            Some(None) => {}
            _ => return Ranges::Whole,
        }
    }
    let total = spans.iter().fold(0_u64, |sum, span| sum.saturating_add(span.len));
    match spans.as_slice() {
        [] if is_empty => Ranges::Whole,
        [] => Ranges::Unsatisfiable,
        [one] => Ranges::One(*one),
        _ if total > size => Ranges::Whole,
        _ => Ranges::Many(spans),
    }
}

/// Returns the list of ranges after `bytes=`. Units are case-insensitive (RFC 9110, 14.1).
pub(super) fn byte_ranges(header: &HeaderValue) -> Option<&str> {
    let (unit, specs) = header.to_str().ok()?.split_once('=')?;
    unit.eq_ignore_ascii_case("bytes").then_some(specs)
}

/// Parses one range: `None` if it is malformed, `Some(None)` if it is outside the payload.
fn span(spec: &str, size: u64) -> Option<Option<Span>> {
    let (first, last) = spec.split_once('-')?;
    if first.is_empty() {
        let suffix = number(last)?.min(size);
        return Some((suffix > 0).then(|| Span { start: size - suffix, len: suffix }));
    }
    let first = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    if last < first {
        return None;
    }
    Some((first < size).then(|| Span { start: first, len: last.min(size - 1) - first + 1 }))
}

/// Parses digits only, because `u64::from_str` would accept a sign. Numbers of 2^64 and above become `u64::MAX`.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(header: &'static str, size: u64) -> Ranges {
        parse(Some(&HeaderValue::from_static(header)), size, 3)
    }

    fn one(start: u64, len: u64) -> Ranges {
        Ranges::One(Span { start, len })
    }

    #[test]
    fn ranges_are_read_as_the_rfc_says() {
        for (header, size, expected) in [
            ("bytes=0-0", 10, one(0, 1)),
            ("bytes=0-", 10, one(0, 10)),
            ("bytes=3-5", 10, one(3, 3)),
            ("bytes=9-100", 10, one(9, 1)),
            ("bytes=-3", 10, one(7, 3)),
            ("bytes=-30", 10, one(0, 10)),
            ("bytes=0-99999999999999999999999", 10, one(0, 10)),
            ("bytes=10-", 10, Ranges::Unsatisfiable),
            ("bytes=99999999999999999999999-", 10, Ranges::Unsatisfiable),
            ("bytes=-0", 10, Ranges::Unsatisfiable),
            ("bytes=5-3", 10, Ranges::Whole),
            ("bytes=a-b", 10, Ranges::Whole),
            ("bytes=+1-2", 10, Ranges::Whole),
            ("bytes=1", 10, Ranges::Whole),
            ("items=0-1", 10, Ranges::Whole),
            ("Bytes=0-1", 10, one(0, 2)),
            ("bytes=", 10, Ranges::Whole),
            ("bytes=, ,", 10, Ranges::Whole),
            ("bytes=0-1", 0, Ranges::Whole),
            ("bytes=0-1,20-30", 10, one(0, 2)),
            ("bytes=0-8,0-8", 10, Ranges::Whole),
            ("bytes=0-0,1-1,2-2,3-3", 10, Ranges::Whole),
            ("bytes=0-1, -2", 10, Ranges::Many(vec![Span { start: 0, len: 2 }, Span { start: 8, len: 2 }])),
        ] {
            assert_eq!(ranges(header, size), expected, "{header} of {size}");
        }
    }
}
