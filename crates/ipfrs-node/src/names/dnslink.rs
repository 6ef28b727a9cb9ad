//! DNSLink (dnslink.io): the content path that a domain links to, from the configuration or a TXT record.

#[cfg(feature = "dns")]
mod address;
#[cfg(feature = "dns")]
mod config;
mod domain;
#[cfg(feature = "https")]
mod https;
#[cfg(feature = "dns")]
mod metrics;
#[cfg(feature = "dns")]
mod name_server;
mod record;
#[cfg(feature = "dns")]
mod resolvers;
#[cfg(feature = "dns")]
mod system;
#[cfg(feature = "dns")]
mod texts;
#[cfg(feature = "dns")]
mod upstream;

use std::collections::BTreeMap;
use std::time::Duration;

#[cfg(not(feature = "dns"))]
use ipfrs_core::Error;
use ipfrs_core::Result;

#[cfg(feature = "dns")]
pub use config::{DnsConfig, ResolverList};
pub(crate) use domain::ascii_domain;
#[cfg(feature = "dns")]
pub(crate) use metrics::LookupMetrics;
use record::configured;
#[cfg(feature = "dns")]
use resolvers::Resolvers;

/// Time to live of a configured link. The configuration changes only on restart, but then at once.
const CONFIGURED_TTL: Duration = Duration::from_secs(60);

/// Selection of the cached lookups that are acceptable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Answers {
    /// Cached lookups as well, until they expire.
    #[default]
    Kept,
    /// New lookups only. Their results are cached for other requests.
    New,
}

/// Link of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// A content path: `/ipfs/{CID}/...` or `/ipns/{name}/...`, without a slash at the end.
    pub target: String,
    /// Remaining time to live.
    pub ttl: Duration,
}

/// Checks configured links.
///
/// # Errors
/// [`ErrorKind::InvalidInput`]. The message names the entry and the problem.
pub(crate) fn check_configured(links: &BTreeMap<String, String>) -> Result<()> {
    configured(links).map(drop)
}

/// Configured links of domains, and the resolvers for all others.
#[derive(Debug)]
pub(crate) struct Dnslink {
    configured: BTreeMap<String, String>,
    #[cfg(feature = "dns")]
    resolvers: Resolvers,
}

impl Dnslink {
    #[cfg(feature = "dns")]
    pub(crate) fn new(links: &BTreeMap<String, String>, config: &DnsConfig, metrics: LookupMetrics) -> Result<Self> {
        Ok(Self { configured: configured(links)?, resolvers: Resolvers::new(config, metrics)? })
    }

    #[cfg(not(feature = "dns"))]
    pub(crate) fn new(links: &BTreeMap<String, String>) -> Result<Self> {
        Ok(Self { configured: configured(links)? })
    }

    /// Returns the link of `domain`, or `None` if it has no DNSLink.
    ///
    /// # Errors
    /// As [`Node::dnslink`](crate::Node::dnslink).
    #[cfg_attr(not(feature = "dns"), expect(clippy::unused_async, reason = "it waits for DNS"))]
    pub(crate) async fn lookup(&self, domain: &str, answers: Answers) -> Result<Option<Link>> {
        if domain::is_address(domain) {
            return Ok(None);
        }
        let domain = ascii_domain(domain)?;
        if let Some(target) = self.configured.get(&domain) {
            return Ok(Some(Link { target: target.clone(), ttl: CONFIGURED_TTL }));
        }
        #[cfg(feature = "dns")]
        return self.resolvers.lookup(domain, answers).await;
        #[cfg(not(feature = "dns"))]
        {
            let _ = answers;
            Err(Error::unsupported(format!(
                "{domain} cannot be looked up: this program was built without DNS (feature `dns` of ipfrs-node)"
            )))
        }
    }

    /// Updates the gauge of the memory that cached lookups take.
    #[cfg(feature = "dns")]
    pub(crate) fn measure(&self) {
        self.resolvers.measure();
    }
}
