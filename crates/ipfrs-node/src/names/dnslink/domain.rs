//! Domain names: validation, and which of them may be queried in public DNS.

use std::net::Ipv6Addr;

#[cfg(feature = "dns")]
use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
use ipfrs_core::{Error, Result};

/// Label in front of a domain that holds its DNSLink.
pub(super) const PREFIX: &str = "_dnslink.";

/// Maximum length of a domain: with [`PREFIX`] it has the 253 characters that DNS allows (RFC 1035, 2.3.4).
const MAX_BYTES: usize = 253 - PREFIX.len();
/// Maximum length of a label (RFC 1035, 2.3.4).
const MAX_LABEL_BYTES: usize = 63;

/// Top-level domains that no public resolver knows: RFC 6761 (example, invalid, localhost, test), RFC 6762 (local),
/// RFC 7686 (onion), RFC 9476 (alt). Queries for them would disclose local names to third parties.
#[cfg(feature = "dns")]
const NOT_PUBLIC: [&str; 7] = ["alt", "example", "invalid", "local", "localhost", "onion", "test"];

/// Normalizes `text` for comparison: to ASCII (Unicode becomes Punycode according to UTS #46), in lower case, without
/// a trailing dot. Underscores are allowed, as in DNS.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind). The message contains the text and the problem.
pub(crate) fn ascii_domain(text: &str) -> Result<String> {
    let invalid = |why: &str| {
        let shown: String = text.chars().take(MAX_BYTES).collect();
        Error::invalid(format!("{shown:?} is not a domain name: {why}"))
    };
    // A Unicode character takes at most four bytes in UTF-8, and at least one character in the ASCII form.
    if text.len() > 4 * MAX_BYTES {
        return Err(invalid(&format!("it has {} bytes, but at most {MAX_BYTES} characters are allowed", text.len())));
    }
    #[cfg(feature = "dns")]
    let ascii = Uts46::new()
        .to_ascii(text.as_bytes(), AsciiDenyList::EMPTY, Hyphens::Allow, DnsLength::Ignore)
        .map_err(|_| invalid("it contains characters that are not allowed in names"))?;
    #[cfg(not(feature = "dns"))]
    let ascii = match text.is_ascii() {
        true => text.to_ascii_lowercase(),
        false => return Err(invalid("this program was built without DNS: write it in Punycode (xn--)")),
    };
    let domain = ascii.strip_suffix('.').unwrap_or(&ascii);
    if domain.len() > MAX_BYTES {
        return Err(invalid(&format!("it has {} characters, but at most {MAX_BYTES} are allowed", domain.len())));
    }
    for label in domain.split('.') {
        if label.is_empty() {
            return Err(invalid("one of its labels is empty"));
        }
        if label.len() > MAX_LABEL_BYTES {
            return Err(invalid(&format!("{label:?} has more than {MAX_LABEL_BYTES} characters")));
        }
        if !label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')) {
            return Err(invalid(&format!("{label:?} has characters other than letters, digits, '-' and '_'")));
        }
    }
    Ok(domain.to_owned())
}

/// Whether `text` is an IP address, with or without the brackets that URLs put around IPv6 addresses.
pub(super) fn is_address(text: &str) -> bool {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    // No top-level domain is numeric, and URL parsers treat a host that ends with a number as an address.
    let last = text.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    inner.parse::<Ipv6Addr>().is_ok() || (!last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()))
}

/// Whether a domain, as returned by [`ascii_domain`], may be queried in public DNS.
#[cfg(feature = "dns")]
pub(super) fn is_public(domain: &str) -> bool {
    domain.rsplit_once('.').is_some_and(|(_, top)| !NOT_PUBLIC.contains(&top))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_compared_in_ascii_and_lower_case() {
        let long = "a".repeat(63);
        let cases = [
            ("Docs.IPFS.tech", "docs.ipfs.tech"),
            ("docs.ipfs.tech.", "docs.ipfs.tech"),
            ("bücher.example.org", "xn--bcher-kva.example.org"),
            ("BÜCHER。example.org", "xn--bcher-kva.example.org"),
            ("xn--bcher-kva.example.org", "xn--bcher-kva.example.org"),
            ("a--b.my_host.org", "a--b.my_host.org"),
            (&format!("{long}.org"), &format!("{long}.org")),
        ];
        for (text, domain) in cases {
            assert_eq!(ascii_domain(text).unwrap(), domain, "{text}");
        }
        let longest = format!("{long}.{long}.{long}.{}", "a".repeat(52));
        assert_eq!(ascii_domain(&longest).unwrap().len(), MAX_BYTES);
        let too_long = format!("{longest}a");
        let too_long_label = format!("{long}a.org");
        for text in [
            "",
            ".",
            "a..b",
            ".org",
            "a b.org",
            "a/b.org",
            "user@host.org",
            "a:80",
            &too_long,
            &too_long_label,
            "\u{0}.org",
        ] {
            let error = ascii_domain(text).unwrap_err();
            assert_eq!(error.kind(), ipfrs_core::ErrorKind::InvalidInput, "{text}");
        }
        assert!(ascii_domain(&"ü".repeat(1 << 20)).unwrap_err().message().len() < 2_000);
    }

    #[test]
    fn addresses_and_local_names_are_not_public() {
        for text in ["127.0.0.1", "[::1]", "::1", "10.1", "256.256.256.256", "127.0.0.1."] {
            assert!(is_address(text), "{text}");
        }
        for text in ["docs.ipfs.tech", "1.2.3.4.org", "0x7f.org"] {
            assert!(!is_address(text) && is_public(text), "{text}");
        }
        for domain in ["localhost", "printer", "nas.local", "a.b.localhost", "x.test", "x.invalid", "x.onion"] {
            assert!(!is_public(domain), "{domain}");
        }
    }
}
