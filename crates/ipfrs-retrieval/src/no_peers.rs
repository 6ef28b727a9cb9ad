//! Types without the feature `bitswap`: there are no peers.

use std::net::IpAddr;

use ipfrs_core::{Block, Cid, Error, Result};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};
use tokio::time::Instant;

use crate::attempt::Attempt;
use crate::metrics::RetrievalMetrics;

/// `[retrieval.bitswap]` of a build without Bitswap, which accepts the section as long as it is not enabled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BitswapConfig {
    /// Whether the node connects to peers: must be false.
    pub enabled: bool,
}

impl BitswapConfig {
    /// Checks that Bitswap is not enabled.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) if it is.
    pub fn validate(&self) -> Result<()> {
        match self.enabled {
            true => Err(Error::unsupported(
                "retrieval.bitswap.enabled = true, but this build has no Bitswap: use ipfrs-cli, or set it to false",
            )),
            false => Ok(()),
        }
    }

    /// Returns whether any peer that can connect may fetch blocks: there are no peers.
    #[must_use]
    pub fn serves_any_peer(&self) -> bool {
        false
    }
}

impl<'de> Deserialize<'de> for BitswapConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// The section; other keys have no effect without peers.
        #[derive(Deserialize)]
        struct Section {
            #[serde(default)]
            enabled: bool,
            #[serde(flatten)]
            _others: std::collections::HashMap<String, IgnoredAny>,
        }
        Section::deserialize(deserializer).map(|section| Self { enabled: section.enabled })
    }
}

/// The running Bitswap node. There is none.
#[derive(Debug, Clone)]
pub enum Exchange {}

impl Exchange {
    pub(crate) fn session(&self, _began: Instant, _metrics: RetrievalMetrics) -> PeerSession {
        match *self {}
    }
}

/// The peers of one session. There are none.
#[derive(Debug, Clone)]
pub(crate) enum PeerSession {}

impl PeerSession {
    pub(crate) fn add(&self, _id: &str, _addresses: &[String]) -> bool {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "the same signature as with the feature")]
    pub(crate) async fn get(&self, _cid: &Cid) -> Option<(Block, ())> {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "the same signature as with the feature")]
    pub(crate) async fn get_when_available(&self, _cid: &Cid, _client: Option<IpAddr>) -> Option<(Block, ())> {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "the same signature as with the feature")]
    pub(crate) async fn reconnect(&self, _since: Instant) -> bool {
        match *self {}
    }

    pub(crate) fn have_delivered(&self) -> bool {
        match *self {}
    }

    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        match *self {}
    }

    pub(crate) fn unconnected(&self) -> Vec<Attempt> {
        match *self {}
    }
}
