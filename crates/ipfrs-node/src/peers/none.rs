//! A node without the feature `bitswap`: it has no peers.

use std::convert::Infallible;
use std::time::Duration;

use ipfrs_core::{Cid, Error, Result};

use super::{ConnectedPeer, ExchangeTotals, PeerLedger, offline};
use crate::Node;

/// A stream for round trips to a peer.
#[derive(Debug)]
pub struct PeerPinger(Infallible);

#[allow(missing_docs, clippy::missing_errors_doc, clippy::unused_async, reason = "as in the variant with the feature")]
impl PeerPinger {
    pub async fn ping(&mut self) -> Result<Duration> {
        match self.0 {}
    }
}

#[expect(clippy::unused_async, reason = "the same signatures as with the feature")]
#[allow(missing_docs, clippy::missing_errors_doc, reason = "documented in the variant with the feature")]
impl Node {
    #[must_use]
    pub fn exchanges_blocks(&self) -> bool {
        false
    }

    #[must_use]
    pub fn listen_addresses(&self) -> Vec<String> {
        Vec::new()
    }

    #[must_use]
    pub fn announced_addresses(&self) -> Vec<String> {
        Vec::new()
    }

    #[must_use]
    pub fn protocols(&self) -> Vec<String> {
        Vec::new()
    }

    pub fn peers(&self) -> Result<Vec<ConnectedPeer>> {
        Err(offline())
    }

    #[must_use]
    pub fn steady_peers(&self) -> Vec<String> {
        Vec::new()
    }

    pub fn add_steady_peers(&self, _addresses: &[String]) -> Result<Vec<String>> {
        Err(offline())
    }

    pub fn set_bootstrap_peers(&self, _addresses: &[String]) -> Result<()> {
        Ok(())
    }

    pub fn remove_steady_peer(&self, _peer: &str) -> Result<String> {
        Err(offline())
    }

    pub async fn connect_peer(&self, _address: &str) -> Result<String> {
        Err(offline())
    }

    pub fn check_peer_addresses(&self, addresses: &[String]) -> Result<()> {
        // This build cannot parse addresses, and finds only what is none.
        match addresses.iter().find(|address| !address.starts_with('/')) {
            Some(other) => Err(Error::invalid(format!("failed to parse multiaddr {other:?}: must begin with /"))),
            None => Ok(()),
        }
    }

    pub async fn ping_peer(&self, _peer: &str) -> Result<PeerPinger> {
        Err(offline())
    }

    pub async fn disconnect_peer(&self, _address: &str) -> Result<(String, bool)> {
        Err(offline())
    }

    pub async fn peers_with_block(&self, _cid: &Cid, _most: usize) -> Vec<(String, Vec<String>)> {
        Vec::new()
    }

    pub fn end_waits_for_peers(&self) {}

    pub fn exchange_totals(&self) -> Result<ExchangeTotals> {
        Err(offline())
    }

    pub fn wanted_blocks(&self, _peer: Option<&str>) -> Result<Vec<Cid>> {
        Err(offline())
    }

    pub fn peer_ledger(&self, _peer: &str) -> Result<PeerLedger> {
        Err(offline())
    }
}
