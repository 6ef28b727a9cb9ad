//! DNSLink entries in TXT records and in the configuration.

use std::collections::BTreeMap;

use ipfrs_core::{Error, Result};

use super::domain::ascii_domain;
use crate::ContentPath;

/// Prefix of the text of a DNSLink record.
#[cfg(feature = "dns")]
const MARK: &str = "dnslink=";
/// Maximum length of a target, in bytes.
const MAX_TARGET_BYTES: usize = 4_096;

/// Checks that `target` is a content path: `/ipfs/{CID}/...` or `/ipns/{name}/...`.
fn check_target(target: &str) -> Result<()> {
    let invalid = |why: &str| Error::invalid(format!("{why}: write /ipfs/{{CID}} or /ipns/{{name}}"));
    if target.len() > MAX_TARGET_BYTES {
        return Err(invalid(&format!("it is longer than {MAX_TARGET_BYTES} bytes")));
    }
    if let Some(rest) = target.strip_prefix("/ipns/") {
        return match rest.split('/').next() {
            None | Some("") => Err(invalid("it has no name")),
            Some(_) => Ok(()),
        };
    }
    if target.starts_with("/ipfs/") {
        return ContentPath::parse(target).map(drop);
    }
    Err(invalid("it is not a content path"))
}

/// Returns the content path in one TXT record, if it is a DNSLink in a supported namespace.
#[cfg(feature = "dns")]
fn target_of(text: &[u8]) -> Option<&str> {
    let target = std::str::from_utf8(text).ok()?.strip_prefix(MARK)?.trim_end_matches('/');
    check_target(target).is_ok().then_some(target)
}

/// Returns the content path in the TXT records of a domain. If several records contain one, the first in byte order
/// is used (as dnslink.dev specifies), so that the result does not depend on the order of the records.
#[cfg(feature = "dns")]
pub(super) fn link_of<'a>(domain: &str, records: impl Iterator<Item = &'a [u8]>) -> Option<String> {
    let mut targets: Vec<_> = records.filter_map(target_of).collect();
    targets.sort_unstable();
    targets.dedup();
    if targets.len() > 1 {
        tracing::warn!(domain, ?targets, "a domain has several DNSLinks; the first one is used");
    }
    targets.first().map(|target| (*target).to_owned())
}

/// Validates and normalizes configured links, by domain.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind). The message contains the entry and the problem.
pub(super) fn configured(links: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>> {
    let mut checked = BTreeMap::new();
    for (domain, target) in links {
        let wrong = |e: Error| Error::invalid(format!("gateway.dnslink = {domain:?} to {target:?}: {e}"));
        let name = ascii_domain(domain).map_err(wrong)?;
        check_target(target).map_err(wrong)?;
        if checked.insert(name, target.trim_end_matches('/').to_owned()).is_some() {
            return Err(wrong(Error::invalid("the domain is listed twice, in different spellings: keep one")));
        }
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CID: &str = "bafkreicysg23kiwv34eg2d7qweipxwosdo2py4ldv42nbauguluen5v6am";

    #[test]
    fn other_txt_records_and_namespaces_are_ignored() {
        let link = format!("dnslink=/ipfs/{CID}/a b/");
        let records = ["v=spf1 -all", "dnslink=/hyper/x", "dnslink=/ipfs/no-cid", "dnslink=/ipns/", &link, "\u{ff}"];
        let given = link_of("x.org", records.iter().map(|text| text.as_bytes()));
        assert_eq!(given, Some(format!("/ipfs/{CID}/a b")));
        for text in ["", "dnslink=", "dnslink", "DNSLINK=/ipns/x.org", " dnslink=/ipns/x.org", "/ipns/x.org"] {
            assert_eq!(link_of("x.org", [text.as_bytes()].into_iter()), None, "{text}");
        }
        assert_eq!(link_of("x.org", [b"dnslink=/ipns/x.org/\xff".as_slice()].into_iter()), None);
    }

    #[test]
    fn several_dnslinks_resolve_in_byte_order() {
        let texts =
            ["dnslink=/ipns/b.org".to_owned(), "dnslink=/ipns/a.org".to_owned(), format!("dnslink=/ipfs/{CID}")];
        let link = |order: [usize; 3]| link_of("x.org", order.into_iter().map(|at| texts[at].as_bytes()));
        assert_eq!(link([0, 1, 2]), Some(format!("/ipfs/{CID}")));
        assert_eq!(link([0, 1, 2]), link([2, 0, 1]));
    }

    #[test]
    fn invalid_configured_link_is_named() {
        let complaint = |domain: &str, target: &str| {
            configured(&BTreeMap::from([(domain.to_owned(), target.to_owned())])).unwrap_err().to_string()
        };
        assert!(complaint("a..b", "/ipns/x").starts_with("gateway.dnslink = \"a..b\" to \"/ipns/x\": "));
        assert!(complaint("x.org", "/ipfs/nothing").contains("invalid path \"/ipfs/nothing\""));
        assert!(complaint("x.org", "https://x.org").contains("write /ipfs/{CID} or /ipns/{name}"));
        let twice = BTreeMap::from(["x.org", "X.org"].map(|domain| (domain.to_owned(), "/ipns/y.org".to_owned())));
        assert!(configured(&twice).unwrap_err().to_string().contains("twice"));
    }
}
