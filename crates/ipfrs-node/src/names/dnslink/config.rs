//! The `[dns]` section.

use std::collections::BTreeMap;
use std::time::Duration;

use ipfrs_core::{Error, Result};
use serde::Deserialize;

use super::domain::ascii_domain;
use super::upstream::Address;
use crate::config::in_range;

/// `[dns]`: whom DNSLinks are asked of, and how long an answer is kept.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DnsConfig {
    /// Whether DNS is asked at all. Configured links work without it.
    pub enabled: bool,
    /// Whom to ask, in order: the next one where one fails.
    pub resolvers: ResolverList,
    /// Whom to ask about domains that end so, instead: `eth`. The longest ending counts.
    pub suffix_resolvers: BTreeMap<String, ResolverList>,
    /// Seconds that one lookup may take.
    pub timeout_seconds: u64,
    /// Most domains that are asked about at the same time.
    pub max_lookups: usize,
    /// Most domains whose answers are kept.
    pub max_cache_entries: usize,
    /// Least seconds that an answer is kept, whatever its TTL.
    pub min_ttl_seconds: u64,
    /// Most seconds that a link is kept, and that clients may keep what it led to, whatever its TTL.
    pub max_ttl_seconds: u64,
    /// Most seconds that it is remembered that a domain has no link.
    pub max_negative_ttl_seconds: u64,
    /// Most seconds for which a link is served after its TTL while no resolver responds; 0: not at all.
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
    /// How long one lookup may take.
    pub(super) fn time_limit(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }

    /// How long a link is kept whose records have this TTL.
    pub(super) fn ttl(&self, ttl: Duration) -> Duration {
        self.clamp(ttl, self.max_ttl_seconds)
    }

    /// How long it is remembered that there is no link, if the zone says to remember it so long.
    pub(super) fn negative_ttl(&self, ttl: Duration) -> Duration {
        self.clamp(ttl, self.max_negative_ttl_seconds)
    }

    /// Time for which a link is served after its TTL while no resolver responds.
    pub(super) fn max_stale(&self) -> Duration {
        Duration::from_secs(self.max_stale_seconds)
    }

    fn clamp(&self, ttl: Duration, most_seconds: u64) -> Duration {
        ttl.max(Duration::from_secs(self.min_ttl_seconds)).min(Duration::from_secs(most_seconds))
    }

    /// Checks the ranges and the endings.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and what is accepted.
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
                return Err(Error::invalid(format!("dns.min_ttl_seconds = {least}: more than dns.{key} = {most}")));
            }
        }
        Ok(())
    }
}

/// Whom to ask: one, or several in order.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct ResolverList(pub(super) Vec<Address>);

impl ResolverList {
    /// Reads `system`, addresses (`1.1.1.1`, `127.0.0.1:5353`) and URLs of DNS over HTTPS.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for an empty list, and for what is none of these.
    pub fn parse(texts: &[impl AsRef<str>]) -> Result<Self> {
        if texts.is_empty() {
            return Err(Error::invalid("the list is empty: name one, or leave the key out"));
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
