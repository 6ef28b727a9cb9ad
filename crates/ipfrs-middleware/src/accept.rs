//! `Accept`, where the weights of media types decide.

use std::cmp::Reverse;

use http::HeaderMap;
use http::header::ACCEPT;

/// Returns the media types of `Accept` in small letters, without parameters and without those of weight 0: the most
/// wanted first, and equally wanted ones in their order (RFC 9110, 12.5.1). An invalid weight counts as 1.
#[must_use]
pub fn media_by_weight(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut media: Vec<_> = values.flat_map(|value| value.split(',')).map(weighted).collect();
    media.retain(|(name, thousandths)| !name.is_empty() && *thousandths > 0);
    media.sort_by_key(|(_, thousandths)| Reverse(*thousandths));
    media.into_iter().map(|(name, _)| name).collect()
}

/// Returns a media type and its weight in thousandths.
fn weighted(range: &str) -> (String, u32) {
    let (name, parameters) = range.split_once(';').unwrap_or((range, ""));
    let weight = parameters.split(';').find_map(|parameter| {
        let (name, weight) = parameter.split_once('=')?;
        let weight: f32 = weight.trim().parse().ok().filter(|_| name.trim().eq_ignore_ascii_case("q"))?;
        (0.0..=1.0).contains(&weight).then_some((weight * 1_000.0).round() as u32)
    });
    (name.trim().to_ascii_lowercase(), weight.unwrap_or(1_000))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn most_wanted_comes_first() {
        for (accept, expected) in [
            ("", &[][..]),
            ("a/a, B/b", &["a/a", "b/b"]),
            ("a/a;q=0.1, b/b;q=1, c/c", &["b/b", "c/c", "a/a"]),
            ("a/a; level=1 ; Q=0.001, b/b;q=0, c/c;q=0.0009", &["a/a", "c/c"]),
            ("a/a;q=x, b/b;q=2, c/c;q=0.5", &["a/a", "b/b", "c/c"]),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(media_by_weight(&headers), expected, "{accept}");
        }
    }
}
