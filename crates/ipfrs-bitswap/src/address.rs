//! Addresses of peers: which ones this node can dial, and their resolution to IP addresses.
//!
//! Names are resolved here and not in the transport, so that the check of an IP address and the connection to it use
//! the same result of the resolver.

use std::net::IpAddr;
use std::sync::Arc;

use hickory_resolver::TokioResolver;
use hickory_resolver::proto::rr::RData;
use ipfrs_core::{Error, Result};
use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};

/// Maximum number of addresses of one peer that are dialed.
pub(crate) const MAX_ADDRESSES: usize = 16;
/// Maximum number of lookups for the addresses of one peer.
const MAX_LOOKUPS: usize = 16;

/// Decides whether an address that does not come from the operator may be dialed.
pub type AddressFilter = Arc<dyn Fn(&IpAddr) -> bool + Send + Sync>;

/// A transport that this node supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Quic,
}

/// Returns the transport of an address without its peer ID, or `None` if this node does not support it, such as
/// WebSockets and relays.
pub(crate) fn transport(address: &Multiaddr) -> Option<Transport> {
    let mut parts = address.iter().skip(1);
    match (address.iter().next()?, parts.next()?, parts.next(), parts.next()) {
        (host, Protocol::Tcp(_), None, None) if is_host(&host) => Some(Transport::Tcp),
        (host, Protocol::Udp(_), Some(Protocol::QuicV1), None) if is_host(&host) => Some(Transport::Quic),
        _ => None,
    }
}

fn is_host(part: &Protocol<'_>) -> bool {
    matches!(part, Protocol::Ip4(_) | Protocol::Ip6(_) | Protocol::Dns(_) | Protocol::Dns4(_) | Protocol::Dns6(_))
}

/// Returns the IP address with which an address starts.
pub(crate) fn ip(address: &Multiaddr) -> Option<IpAddr> {
    match address.iter().next()? {
        Protocol::Ip4(ip) => Some(IpAddr::V4(ip)),
        Protocol::Ip6(ip) => Some(ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4)),
        _ => None,
    }
}

/// Splits an address that ends in `/p2p/{peer ID}`.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if it has no peer ID at its end.
pub(crate) fn split_peer(address: &Multiaddr) -> Result<(PeerId, Multiaddr)> {
    let mut rest = address.clone();
    match rest.pop() {
        Some(Protocol::P2p(peer)) if !rest.is_empty() => Ok((peer, rest)),
        Some(Protocol::P2p(_)) => Err(Error::invalid(format!("{address} has no address before /p2p/"))),
        _ => Err(Error::invalid(format!("{address} does not end in /p2p/ and a peer ID"))),
    }
}

/// Removes the peer ID from the end of an address. Returns `None` if it is the ID of another peer.
pub(crate) fn without_peer(address: &Multiaddr, peer: PeerId) -> Option<Multiaddr> {
    let mut rest = address.clone();
    match rest.pop() {
        Some(Protocol::P2p(found)) => (found == peer).then_some(rest),
        _ => Some(address.clone()),
    }
}

/// Returns the addresses of `peer` that may be dialed, without its peer ID and in reverse order: those with a supported
/// transport, and names of lists of addresses.
fn candidates(peer: PeerId, addresses: &[Multiaddr]) -> Vec<Multiaddr> {
    let is_candidate = |address: &Multiaddr| {
        transport(address).is_some() || matches!(address.iter().next(), Some(Protocol::Dnsaddr(_)))
    };
    let own = addresses.iter().filter_map(|address| without_peer(address, peer)).filter(is_candidate);
    let mut candidates: Vec<Multiaddr> = own.take(MAX_ADDRESSES).collect();
    candidates.reverse();
    candidates
}

/// Resolver of names in addresses.
#[derive(Clone)]
pub(crate) struct Resolver {
    /// Looks up TXT records for `/dnsaddr`. `None` if the system has no resolver configuration.
    txt: Option<TokioResolver>,
}

impl Resolver {
    /// Creates a resolver with the system's configuration.
    pub(crate) fn from_system() -> Self {
        let built = TokioResolver::builder_tokio().and_then(|builder| builder.build());
        let txt = built.inspect_err(|e| tracing::debug!("/dnsaddr addresses are not resolved: {e}")).ok();
        Self { txt }
    }

    /// Returns the addresses of `peer` that this node can dial, with IP addresses in place of names. Addresses with
    /// other transports or of other peers are left out, and so is every IP address for which `is_allowed` is false.
    pub(crate) async fn resolve(
        &self,
        peer: PeerId,
        addresses: &[Multiaddr],
        is_allowed: impl Fn(&IpAddr) -> bool,
    ) -> Vec<Multiaddr> {
        let mut lookups = MAX_LOOKUPS;
        let mut found = Vec::new();
        let mut pending = candidates(peer, addresses);
        while let Some(address) = pending.pop() {
            if found.len() >= MAX_ADDRESSES {
                break;
            }
            if let Some(Protocol::Dnsaddr(name)) = address.iter().next() {
                if lookups > 0 {
                    lookups -= 1;
                    pending.extend(candidates(peer, &self.dnsaddr(&name).await));
                }
                continue;
            }
            let ips = match ip(&address) {
                Some(_) => vec![address],
                None if lookups == 0 => continue,
                None => {
                    lookups -= 1;
                    by_name(&address).await
                }
            };
            let allowed = ips.into_iter().filter(|address| ip(address).is_some_and(|ip| is_allowed(&ip)));
            found.extend(allowed);
        }
        found.truncate(MAX_ADDRESSES);
        found
    }

    async fn dnsaddr(&self, name: &str) -> Vec<Multiaddr> {
        let Some(resolver) = &self.txt else { return Vec::new() };
        let Ok(lookup) = resolver.txt_lookup(format!("_dnsaddr.{name}.")).await else { return Vec::new() };
        let records = lookup.answers().iter().filter_map(|record| match &record.data {
            RData::TXT(txt) => Some(txt.txt_data.concat()),
            _ => None,
        });
        let addresses = records.filter_map(|text| {
            let text = String::from_utf8(text).ok()?;
            text.strip_prefix("dnsaddr=")?.parse().ok()
        });
        addresses.collect()
    }
}

/// Replaces the name at the start of an address by each of its IP addresses.
async fn by_name(address: &Multiaddr) -> Vec<Multiaddr> {
    let (name, v4, v6) = match address.iter().next() {
        Some(Protocol::Dns(name)) => (name.into_owned(), true, true),
        Some(Protocol::Dns4(name)) => (name.into_owned(), true, false),
        Some(Protocol::Dns6(name)) => (name.into_owned(), false, true),
        _ => return Vec::new(),
    };
    let Ok(found) = tokio::net::lookup_host((name, 0)).await else { return Vec::new() };
    let matching = found.map(|socket| socket.ip()).filter(|ip| if ip.is_ipv4() { v4 } else { v6 });
    matching.filter_map(|ip| address.replace(0, |_| Some(Protocol::from(ip)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Multiaddr {
        text.parse().unwrap()
    }

    #[test]
    fn transports_are_recognised() {
        assert_eq!(transport(&parsed("/ip4/1.2.3.4/tcp/1")), Some(Transport::Tcp));
        assert_eq!(transport(&parsed("/dns6/a.example/udp/1/quic-v1")), Some(Transport::Quic));
        for other in
            ["/ip4/1.2.3.4/tcp/1/ws", "/ip4/1.2.3.4/udp/1/quic-v1/webtransport", "/ip4/1.2.3.4/udp/1", "/ip4/1.2.3.4"]
        {
            assert_eq!(transport(&parsed(other)), None, "{other}");
        }
    }

    #[tokio::test]
    async fn filter_sees_ips_behind_names() {
        let peer = PeerId::random();
        let addresses = ["/dns4/localhost/tcp/1", "/ip4/192.0.2.7/tcp/2", "/ip6/::ffff:127.0.0.1/tcp/3"].map(parsed);
        let public = |ip: &IpAddr| !ip.is_loopback();
        let found = Resolver { txt: None }.resolve(peer, &addresses, public).await;
        assert_eq!(found, [parsed("/ip4/192.0.2.7/tcp/2")]);
        let found = Resolver { txt: None }.resolve(peer, &addresses[..1], |_| true).await;
        assert_eq!(found, [parsed("/ip4/127.0.0.1/tcp/1")]);
    }

    #[tokio::test]
    async fn addresses_of_other_peers_are_left_out() {
        let peer = PeerId::random();
        let own = parsed("/ip4/192.0.2.7/tcp/2").with(Protocol::P2p(peer));
        let other = parsed("/ip4/192.0.2.8/tcp/2").with(Protocol::P2p(PeerId::random()));
        let found = Resolver { txt: None }.resolve(peer, &[other, own], |_| true).await;
        assert_eq!(found, [parsed("/ip4/192.0.2.7/tcp/2")]);
    }

    #[tokio::test]
    async fn addresses_that_cannot_be_dialed_do_not_count() {
        let other = (1..30).map(|port| format!("/ip4/192.0.2.7/tcp/{port}/ws"));
        let mut addresses: Vec<Multiaddr> = other.map(|text| parsed(&text)).collect();
        addresses.push(parsed("/ip4/192.0.2.7/tcp/2"));
        let found = Resolver { txt: None }.resolve(PeerId::random(), &addresses, |_| true).await;
        assert_eq!(found, [parsed("/ip4/192.0.2.7/tcp/2")]);
    }
}
