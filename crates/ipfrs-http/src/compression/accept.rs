//! `Accept-Encoding` (RFC 9110, section 12.5.3).

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

use super::Coding;

/// Preferences of a client for codings. Weights are in thousandths; `None` means not mentioned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Accepted {
    codings: [Option<u16>; Coding::ALL.len()],
    identity: Option<u16>,
    /// `*`: all codings that are not mentioned.
    others: Option<u16>,
}

impl Accepted {
    /// Parses `Accept-Encoding`. Returns `None` if the header is missing: every coding would then be acceptable, but
    /// the client asked for none.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        if !headers.contains_key(ACCEPT_ENCODING) {
            return None;
        }
        let mut accepted = Self::default();
        let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).for_each(|item| accepted.add(item));
        Some(accepted)
    }

    /// Adds one item of the list. A malformed item counts as not mentioned.
    fn add(&mut self, item: &str) {
        let (name, parameter) = item.split_once(';').map_or((item, None), |(name, rest)| (name, Some(rest)));
        let Some(weight) = parameter.map_or(Some(1_000), weight) else { return };
        match name.trim() {
            "*" => self.others = Some(weight),
            name if name.eq_ignore_ascii_case("identity") => self.identity = Some(weight),
            name => {
                if let Some(coding) = Coding::from_name(name) {
                    self.codings[coding as usize] = Some(weight);
                }
            }
        }
    }

    fn weight(&self, coding: Coding) -> u16 {
        self.codings[coding as usize].or(self.others).unwrap_or(0)
    }

    /// Returns the coding with the highest weight, and on a tie the first in `offered`. Returns `None` if the client
    /// accepts none of them, or prefers the uncompressed bytes.
    pub(super) fn best(&self, offered: &[Coding]) -> Option<Coding> {
        let acceptable = offered.iter().map(|coding| (self.weight(*coding), *coding)).filter(|(weight, _)| *weight > 0);
        let (weight, best) = acceptable.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
        self.identity.is_none_or(|identity| identity <= weight).then_some(best)
    }

    /// Whether the client refuses uncompressed bytes.
    pub(super) fn refuses_identity(&self) -> bool {
        self.identity.or(self.others) == Some(0)
    }
}

/// Parses `q=0.5`, in thousandths; `None` if it is malformed.
fn weight(parameter: &str) -> Option<u16> {
    let (name, value) = parameter.split_once('=')?;
    if !name.trim().eq_ignore_ascii_case("q") {
        return None;
    }
    let value = value.trim();
    let (whole, digits) = value.split_once('.').unwrap_or((value, ""));
    if digits.len() > 3 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let thousandths = format!("{digits:0<3}").parse::<u16>().ok()?;
    match whole {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(1_000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn accepted(text: &str) -> Accepted {
        let value = HeaderValue::from_bytes(text.as_bytes()).unwrap();
        Accepted::of(&HeaderMap::from_iter([(ACCEPT_ENCODING, value)])).unwrap()
    }

    #[test]
    fn best_weighted_coding_wins_and_server_breaks_ties() {
        let (zstd, br, gzip, deflate) =
            (Some(Coding::Zstd), Some(Coding::Br), Some(Coding::Gzip), Some(Coding::Deflate));
        for (header, expected) in [
            ("gzip, deflate, br, zstd", zstd),
            ("gzip, deflate, br", br),
            ("gzip;q=1.0, br;q=0.9", gzip),
            ("GZIP ; Q=0.1", gzip),
            ("x-gzip", gzip),
            ("deflate", deflate),
            ("*", zstd),
            ("*;q=0.5, gzip;q=0.6", gzip),
            ("zstd;q=0, *", br),
            ("gzip;q=0.5, identity", None),
            ("gzip, identity", gzip),
            ("gzip;q=0.5, identity;q=0.5", gzip),
            ("identity", None),
            ("", None),
            ("gzip;q=0", None),
            ("compress, sdch", None),
            ("gzip;q=0.000", None),
            ("gzip;q=0.001", gzip),
            ("gzip;q=1.001", None),
            ("gzip;q=0.0001", None),
            ("gzip;q=+1, br;q=-0, zstd;q=x, deflate;x=1", None),
            ("identity;q=0", None),
            ("gzip, *;q=0", gzip),
        ] {
            assert_eq!(accepted(header).best(&Coding::ALL), expected, "{header}");
        }
        assert_eq!(accepted("gzip, zstd").best(&[Coding::Gzip, Coding::Zstd]), gzip, "our order decides");
        assert_eq!(accepted("br").best(&[Coding::Gzip]), None, "what is not offered");
        assert_eq!(Accepted::of(&HeaderMap::new()), None);
    }

    #[test]
    fn identity_refused_by_name_or_wildcard() {
        for (header, refused) in [
            ("identity;q=0", true),
            ("gzip, *;q=0", true),
            ("*;q=0, identity", false),
            ("gzip", false),
            ("", false),
            ("gzip;q=0", false),
        ] {
            assert_eq!(accepted(header).refuses_identity(), refused, "{header}");
        }
    }

    proptest! {
        #[test]
        fn chosen_coding_is_acceptable_and_best(
            items in prop::collection::vec(
                (prop::sample::select(vec!["gzip", "br", "zstd", "deflate", "identity", "*", "x"]), 0..=1_000_u16), 0..8
            ),
            noise in "[ -~]{0,40}",
        ) {
            let list: Vec<_> = items.iter().map(|(name, weight)| match weight {
                1_000 => format!("{name};q=1"),
                weight => format!("{name} ; q=0.{weight:03}"),
            }).collect();
            let said = accepted(&list.join(" , "));
            let identity = said.identity.unwrap_or(0);
            match said.best(&Coding::ALL) {
                Some(best) => prop_assert!(
                    said.weight(best) > 0
                        && said.weight(best) >= identity
                        && Coding::ALL.iter().all(|other| said.weight(*other) <= said.weight(best))
                ),
                None => prop_assert!(
                    Coding::ALL.iter().all(|coding| said.weight(*coding) == 0 || said.weight(*coding) < identity)
                ),
            }
            // Any input must parse without a panic.
            let _ = accepted(&format!("{}, {noise}", list.join(","))).best(&Coding::ALL);
        }
    }
}
