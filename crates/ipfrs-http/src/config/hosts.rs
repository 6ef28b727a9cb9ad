//! `[gateway.hosts]`: names under which the gateway is reached, and the content served at each.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipfrs_core::{Error, Result};
use serde::Deserialize;

/// Maximum length of a label of a host name, in bytes (RFC 1035, 2.3.4).
pub(crate) const MAX_LABEL_BYTES: usize = 63;

/// First segment of a content path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Namespace {
    /// Content by its ID.
    #[serde(rename = "/ipfs")]
    Ipfs,
    /// Content by a name that resolves to it.
    #[serde(rename = "/ipns")]
    Ipns,
}

impl Namespace {
    /// Returns the namespace as written in paths and host names.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ipfs => "ipfs",
            Self::Ipns => "ipns",
        }
    }

    /// Returns the namespace that a path such as `/ipfs/...` or `/ipns/...` begins with.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let first = path.strip_prefix('/')?.split('/').next()?;
        [Self::Ipfs, Self::Ipns].into_iter().find(|namespace| namespace.as_str() == first)
    }
}

/// Settings of one host name (`[gateway.hosts."example.com"]`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostConfig {
    /// Whether each root has an origin of its own, `{cid}.ipfs.{host}`, to which paths are redirected.
    pub subdomains: bool,
    /// Whether DNSLink names are written as one label, `en-wikipedia--on--ipfs-org.ipns.{host}`, so that one
    /// certificate covers all of them. Over HTTPS they always are.
    pub inline_dnslink: bool,
    /// Namespaces that are served; all others are not found.
    pub paths: Vec<Namespace>,
    /// Whether files and directories are served, instead of only blocks, CARs and IPNS records. By default as
    /// [`GatewayConfig::deserialized`](super::GatewayConfig).
    pub deserialized: Option<bool>,
    /// Whether content that is not in the store is retrieved from other servers. If false, only content of the store is
    /// served.
    pub retrieve: bool,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            subdomains: false,
            inline_dnslink: false,
            paths: vec![Namespace::Ipfs, Namespace::Ipns],
            deserialized: None,
            retrieve: true,
        }
    }
}

impl HostConfig {
    /// Whether files and directories are served. `default` is that of the gateway.
    pub(crate) fn serves_deserialized(&self, default: bool) -> bool {
        self.deserialized.unwrap_or(default)
    }
}

/// Checks the host names and their settings.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the host and the fault.
pub(super) fn validate(hosts: &BTreeMap<String, HostConfig>) -> Result<()> {
    for (name, host) in hosts {
        let invalid = |why: &str| Error::invalid(format!("gateway.hosts.{name:?}: {why}"));
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(invalid("write the name in lower case"));
        }
        if let Ok(address) = name.trim_matches(['[', ']']).parse::<IpAddr>() {
            if host.subdomains {
                return Err(invalid("an address has no subdomains: remove subdomains, or use a name"));
            }
            if address.is_ipv6() != name.starts_with('[') || address.is_ipv6() != name.ends_with(']') {
                return Err(invalid("write an IPv6 address in brackets, as in a URL"));
            }
            continue;
        }
        if name.contains(':') {
            return Err(invalid("write the name without a port: the entry applies to all ports"));
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_label =
            |label: &str| label == "*" || ((1..=MAX_LABEL_BYTES).contains(&label.len()) && label.bytes().all(is_plain));
        if !name.split('.').all(is_label) {
            return Err(invalid("not a host name: use labels of letters, digits and hyphens, or * for any one label"));
        }
        if name.split('.').all(|label| label == "*") {
            return Err(invalid("a name that consists only of * matches every host: name at least one label"));
        }
    }
    Ok(())
}
