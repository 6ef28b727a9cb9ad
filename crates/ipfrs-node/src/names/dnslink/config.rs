//! The `[dns]` section.

use std::collections::BTreeMap;
use std::time::Duration;

use ipfrs_core::{Error, Result};
use serde::Deserialize;

use super::address::Address;
use super::domain::ascii_domain;
use crate::config::ranges::in_range;

/// `[dns]`: resolvers for DNSLinks, and cache lifetimes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DnsConfig {
    /// Whether DNS is queried at all. Configured links work without it.
    pub enabled: bool,
    /// Resolvers in order; the next one is queried if one fails.
    pub resolvers: ResolverList,
    /// Resolvers for domains with certain suffixes, such as `eth`, in place of `resolvers`. The longest suffix takes
    /// precedence.
    pub suffix_resolvers: BTreeMap<String, ResolverList>,
    /// Maximum seconds for one lookup.
    pub timeout_seconds: u64,
    /// Maximum number of concurrent lookups.
    pub max_lookups: usize,
    /// Maximum number of domains in the cache.
    pub max_cache_entries: usize,
    /// Minimum seconds that a lookup is cached, whatever its TTL.
    pub min_ttl_seconds: u64,
    /// Maximum seconds that a link is cached, here and by clients that resolved it, whatever its TTL.
    pub max_ttl_seconds: u64,
    /// Maximum seconds for which the absence of a link is cached.
    pub max_negative_ttl_seconds: u64,
    /// Maximum seconds for which a link is served after its TTL while no resolver responds; 0 disables this.
    pub max_stale_seconds: u64,
}

impl Default for DnsConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            resolvers: ResolverList(vec![Address::System]),
            suffix_resolvers: BTreeMap::new(),
            timeout_seconds: 5,
            max_lookups: 256,
            max_cache_entries: 10_000,
            min_ttl_seconds: 5,
            max_ttl_seconds: 86_400,
            max_negative_ttl_seconds: 300,
            max_stale_seconds: 0,
        }
    }
}

impl DnsConfig {
    /// Returns the maximum duration of one lookup.
    pub(super) fn time_limit(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }

    /// Returns how long a link is cached whose records have this TTL.
    pub(super) fn ttl(&self, ttl: Duration) -> Duration {
        self.clamp(ttl, self.max_ttl_seconds)
    }

    /// Returns how long the absence of a link is cached, given the TTL for it from the zone.
    pub(super) fn negative_ttl(&self, ttl: Duration) -> Duration {
        self.clamp(ttl, self.max_negative_ttl_seconds)
    }

    /// Returns the time for which a link is served after its TTL while no resolver responds.
    pub(super) fn max_stale(&self) -> Duration {
        Duration::from_secs(self.max_stale_seconds)
    }

    fn clamp(&self, ttl: Duration, most_seconds: u64) -> Duration {
        ttl.max(Duration::from_secs(self.min_ttl_seconds)).min(Duration::from_secs(most_seconds))
    }

    /// Checks the ranges and the suffixes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind). The message contains the key, the value and what is
    /// accepted.
    pub fn validate(&self) -> Result<()> {
        for suffix in self.suffix_resolvers.keys() {
            let wrong = |e| Error::invalid(format!("dns.suffix_resolvers = {suffix:?}: {e}"));
            ascii_domain(suffix).map_err(wrong)?;
        }
        in_range("dns.timeout_seconds", self.timeout_seconds, 1, 60)?;
        in_range("dns.max_lookups", self.max_lookups as u64, 1, 100_000)?;
        in_range("dns.max_cache_entries", self.max_cache_entries as u64, 1, 10_000_000)?;
        in_range("dns.min_ttl_seconds", self.min_ttl_seconds, 0, 3_600)?;
        in_range("dns.max_ttl_seconds", self.max_ttl_seconds, 1, 604_800)?;
        in_range("dns.max_negative_ttl_seconds", self.max_negative_ttl_seconds, 1, 604_800)?;
        in_range("dns.max_stale_seconds", self.max_stale_seconds, 0, 604_800)?;
        let least = self.min_ttl_seconds;
        for (key, most) in
            [("max_ttl_seconds", self.max_ttl_seconds), ("max_negative_ttl_seconds", self.max_negative_ttl_seconds)]
        {
            if least > most {
                return Err(Error::invalid(format!("dns.min_ttl_seconds = {least}: exceeds dns.{key} = {most}")));
            }
        }
        Ok(())
    }
}

/// One resolver, or several in order.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct ResolverList(pub(super) Vec<Address>);

impl ResolverList {
    /// Parses `system`, addresses (`1.1.1.1`, `127.0.0.1:5353`) and URLs of DNS over HTTPS.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for an empty list or invalid text.
    pub fn parse(texts: &[impl AsRef<str>]) -> Result<Self> {
        if texts.is_empty() {
            return Err(Error::invalid("the list is empty: name a resolver, or omit the key"));
        }
        texts.iter().map(|text| Address::parse(text.as_ref())).collect::<Result<_>>().map(Self)
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected \"system\", an address, a URL, or a list of them")]
enum Written {
    One(String),
    Several(Vec<String>),
}

impl TryFrom<Written> for ResolverList {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self> {
        match written {
            Written::One(text) => Self::parse(&[text]),
            Written::Several(texts) => Self::parse(&texts),
        }
    }
}
