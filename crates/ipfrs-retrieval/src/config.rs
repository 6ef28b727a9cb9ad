//! `[retrieval]`: where missing blocks are fetched from, and limits.

use ipfrs_core::{Error, Result};
use reqwest::Url;
use serde::Deserialize;

use crate::peers::BitswapConfig;

/// Maximum number of configured gateways, and of routers.
const MAX_URLS: usize = 64;

/// `[retrieval]`: sources of blocks that the node does not have. Without gateways, routers and peers, nothing is
/// fetched.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetrievalConfig {
    /// Whether missing blocks are fetched.
    pub enabled: bool,
    /// URLs of trustless gateways, which are used before all other sources. They may have private addresses.
    pub gateways: Vec<String>,
    /// URLs of routers that implement the Delegated Routing V1 HTTP API. They may have private addresses.
    pub routers: Vec<String>,
    /// Maximum wait for one block, in seconds.
    pub timeout_seconds: u64,
    /// Maximum number of roots that are fetched at the same time.
    pub max_sessions: usize,
    /// Maximum bytes that are received for one request.
    pub max_bytes_per_request: u64,
    /// Whether sources that routers and clients name may have private addresses.
    pub allow_private_addresses: bool,
    /// Whether clients may name sources in their requests.
    pub provider_hints: bool,
    /// `[retrieval.bitswap]`: exchange of blocks with peers.
    pub bitswap: BitswapConfig,
}

impl Default for RetrievalConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            gateways: Vec::new(),
            routers: Vec::new(),
            timeout_seconds: 30,
            max_sessions: 1_024,
            max_bytes_per_request: 1 << 40,
            allow_private_addresses: false,
            provider_hints: false,
            bitswap: BitswapConfig::default(),
        }
    }
}

impl RetrievalConfig {
    /// Checks the ranges and the URLs.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<()> {
        in_range("retrieval.timeout_seconds", self.timeout_seconds, 1, 3_600)?;
        in_range("retrieval.max_sessions", self.max_sessions as u64, 1, 100_000)?;
        in_range("retrieval.max_bytes_per_request", self.max_bytes_per_request, 4 << 20, 1 << 50)?;
        parse_urls("retrieval.gateways", &self.gateways)?;
        parse_urls("retrieval.routers", &self.routers)?;
        self.bitswap.validate()
    }

    /// Whether there is any source of missing blocks.
    #[must_use]
    pub fn has_sources(&self) -> bool {
        let has_urls = !(self.gateways.is_empty() && self.routers.is_empty());
        self.enabled && (has_urls || self.bitswap.enabled || self.provider_hints)
    }

    /// Returns whether any peer that can connect may fetch blocks from the node.
    #[must_use]
    pub fn serves_any_peer(&self) -> bool {
        self.enabled && self.bitswap.serves_any_peer()
    }
}

fn in_range(key: &str, value: u64, least: u64, most: u64) -> Result<()> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(Error::invalid(format!("{key} = {value} is out of range: use a number from {least} to {most}"))),
    }
}

/// Parses the URLs of a key. Each ends with a slash afterwards, so that routes can be joined to it.
pub(crate) fn parse_urls(key: &str, urls: &[String]) -> Result<Vec<Url>> {
    if urls.len() > MAX_URLS {
        return Err(Error::invalid(format!("{key} has {} URLs, over the limit of {MAX_URLS}", urls.len())));
    }
    urls.iter().map(|url| base_url(url).map_err(|e| Error::invalid(format!("{key}: {e}")))).collect()
}

/// Parses the URL of an HTTP source.
pub(crate) fn base_url(text: &str) -> Result<Url> {
    let invalid = |why: String| Error::invalid(format!("{text:?} is not the URL of a server: {why}"));
    let mut url = Url::parse(text).map_err(|e| invalid(format!("{e}; use https://HOST or http://HOST:PORT")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(invalid("use https://HOST or http://HOST:PORT".to_owned()));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid("remove the query and the fragment".to_owned()));
    }
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_values_name_key_and_remedy() {
        let config = |change: fn(&mut RetrievalConfig)| {
            let mut config = RetrievalConfig::default();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        assert!(config(|c| c.timeout_seconds = 0).starts_with("retrieval.timeout_seconds = 0 is out of range"));
        assert!(config(|c| c.gateways = vec!["example.com".into()]).contains("retrieval.gateways: \"example.com\""));
        assert!(config(|c| c.routers = vec!["ftp://example.com".into()]).contains("use https://HOST"));
        assert!(config(|c| c.routers = vec!["http://example.com?x".into()]).contains("remove the query"));
        RetrievalConfig::default().validate().unwrap();
        assert!(!RetrievalConfig::default().has_sources());
    }

    #[test]
    fn base_urls_end_with_a_slash() {
        for (text, url) in [
            ("https://example.com", "https://example.com/"),
            ("http://127.0.0.1:8080/gateway", "http://127.0.0.1:8080/gateway/"),
        ] {
            assert_eq!(base_url(text).unwrap().as_str(), url);
        }
    }
}
