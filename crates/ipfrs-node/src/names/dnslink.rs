//! DNSLink (dnslink.io): the content path that a domain links to, by configuration.

mod domain;
mod record;

use std::collections::BTreeMap;
use std::time::Duration;

use ipfrs_core::Result;

pub(crate) use domain::ascii_domain;
use record::configured;

use crate::Node;

/// How long an answer holds that the configuration gives. It changes with the next start only, but then at once.
const CONFIGURED_TTL: Duration = Duration::from_secs(60);

/// Where a domain leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// A content path: `/ipfs/{CID}/...` or `/ipns/{name}/...`, without a slash at the end.
    pub target: String,
    /// How long this holds.
    pub ttl: Duration,
}

/// Checks links as they are configured.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the entry and what is wrong with it.
pub(crate) fn check_configured(links: &BTreeMap<String, String>) -> Result<()> {
    configured(links).map(drop)
}

/// What is known of the links of domains.
#[derive(Debug)]
pub(crate) struct Dnslink {
    configured: BTreeMap<String, String>,
}

impl Dnslink {
    pub(crate) fn new(links: &BTreeMap<String, String>) -> Result<Self> {
        Ok(Self { configured: configured(links)? })
    }

    /// Where `domain` leads; `None` where it has no DNSLink.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for what is no domain name.
    pub(crate) async fn lookup(&self, domain: &str) -> Result<Option<Link>> {
        if domain::is_address(domain) {
            return Ok(None);
        }
        let domain = ascii_domain(domain)?;
        if let Some(target) = self.configured.get(&domain) {
            return Ok(Some(Link { target: target.clone(), ttl: CONFIGURED_TTL }));
        }
        if !domain::is_public(&domain) {
            return Ok(None);
        }
        Ok(None)
    }
}

impl Node {
    /// Where the DNSLink of `domain` leads; `None` where it has none. The answer comes from the configuration, from
    /// memory, or from DNS, which is never asked about addresses and local names.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for what is no domain name.
    pub async fn dnslink(&self, domain: &str) -> Result<Option<Link>> {
        self.inner.dnslink.lookup(domain).await
    }
}
