//! `Accept`, where the weights of media types decide.

use std::cmp::Reverse;

use http::HeaderMap;
use http::header::ACCEPT;

/// Returns the index of the offered media type that a request prefers (RFC 9110, 12.5.1). Of equally wanted ones, it is
/// the one that the request names first. The first one offered is the default: only if it is refused do wildcards mean
/// others. `None` if the request accepts none of them, or has no `Accept`.
#[must_use]
pub fn preferred(headers: &HeaderMap, offered: &[&str]) -> Option<usize> {
    let ranges: Vec<_> = ranges(headers).map(|range| (range.media.to_ascii_lowercase(), range.weight)).collect();
    // The most specific range decides.
    let decisive = |media: &str| {
        let ranges = ranges.iter().enumerate();
        ranges.filter_map(|(at, (range, weight))| Some((specificity(range, media)?, Reverse(at), *weight))).max()
    };
    let default = offered.first().and_then(|media| decisive(media));
    let is_default_refused = default.is_some_and(|(_, _, weight)| weight == 0);
    let wanted = offered.iter().enumerate().filter_map(|(index, media)| {
        let (specificity, at, weight) = decisive(media)?;
        let is_meant = specificity == NAMED || index == 0 || is_default_refused;
        (is_meant && weight > 0).then_some(((weight, specificity, at, Reverse(index)), index))
    });
    wanted.max().map(|(_, index)| index)
}

/// Specificity of a range that is one media type.
const NAMED: u8 = 2;

/// Returns how specific a range is that contains a media type.
fn specificity(range: &str, media: &str) -> Option<u8> {
    match range.strip_suffix("/*") {
        Some("*") => Some(0),
        Some(kind) => media.split('/').next().filter(|of| *of == kind).map(|_| 1),
        None => (range == media).then_some(NAMED),
    }
}

/// A media range of `Accept`.
#[derive(Debug, Clone, Copy)]
pub struct Range<'a> {
    /// The media type, as the request spells it; a part of it may be `*`.
    pub media: &'a str,
    /// Text after the first semicolon, including the weight.
    pub parameters: &'a str,
    /// The weight in thousandths; 0 for a type that is refused. An invalid weight counts as 1.
    pub weight: u32,
}

/// Returns the ranges of all `Accept` headers in their order.
pub fn ranges(headers: &HeaderMap) -> impl Iterator<Item = Range<'_>> {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|range| {
        let (media, parameters) = range.split_once(';').unwrap_or((range, ""));
        Range { media: media.trim(), parameters, weight: parameters.split(';').find_map(weight).unwrap_or(1_000) }
    })
}

/// Returns the weight in thousandths, if the parameter is one.
fn weight(parameter: &str) -> Option<u32> {
    let (name, weight) = parameter.split_once('=')?;
    let weight: f32 = weight.trim().parse().ok().filter(|_| name.trim().eq_ignore_ascii_case("q"))?;
    (0.0..=1.0).contains(&weight).then_some((weight * 1_000.0).round() as u32)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn most_wanted_type_is_preferred() {
        const OFFERED: [&str; 3] = ["a/json", "a/car", "b/events"];
        for (accept, expected) in [
            ("", None),
            ("c/c", None),
            ("*/*", Some(0)),
            ("B/events, a/car", Some(2)),
            ("a/json;q=0.1, a/car;q=1, b/events", Some(1)),
            ("*/*, a/car", Some(1)),
            ("a/*, a/car;q=0.5", Some(0)),
            ("a/json;q=0, */*", Some(1)),
            ("a/json;q=0.1, a/car;q=0.5, */*;q=0.8", Some(1)),
            ("a/json;q=0.9, */*", Some(0)),
            ("c/c, b/*;q=0.5", None),
            ("a/json; level=1 ; Q=0.001, a/car;q=0", Some(0)),
            ("a/car;q=x, a/json;q=0.5", Some(1)),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(preferred(&headers, &OFFERED), expected, "{accept}");
        }
    }
}
