//! Clients of requests, for limits that apply per client.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use crate::network::Network;

/// Maximum number of addresses of a forwarding header that are parsed. Each stands for one proxy.
const MAX_HOPS: usize = 32;

/// Client, identified by its address. IPv6 addresses are truncated to their /64 network, which usually belongs to one
/// machine. The default value is the client of requests that arrive over no network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Client(Option<IpAddr>);

impl Client {
    /// Returns the client with an address. IPv4-mapped IPv6 addresses (`::ffff:10.0.0.1`) count as IPv4.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self(Some(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
            IpAddr::V4(address) => IpAddr::V4(address),
        }))
    }

    /// Returns whether the address is in one of these networks. Requests that arrive over no network are in all.
    #[must_use]
    pub fn is_in(self, networks: &[Network]) -> bool {
        self.0.is_none_or(|address| networks.iter().any(|network| network.contains(address)))
    }

    /// Runs `work` with this client as [`Self::current`].
    pub fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        ipfrs_node::with_client(self.0, work)
    }

    /// Returns the client whose request the current task handles. Tasks that were spawned separately get the default.
    #[must_use]
    pub fn current() -> Self {
        Self(ipfrs_node::current_client())
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("this process"),
        }
    }
}

/// Proxies that are trusted to name their clients (`gateway.trusted_proxies`). Clones share one list.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Arc<[Network]>);

impl TrustedProxies {
    /// Creates the list of all proxies in these networks.
    #[must_use]
    pub fn new(networks: &[Network]) -> Self {
        Self(networks.into())
    }

    /// Returns whether an address belongs to a trusted proxy.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Returns the client of a request from `peer`. `forwarded_for` yields one item for each `X-Forwarded-For`
    /// header; the header is ignored unless `peer` is a trusted proxy. If it is trusted, the client is the last
    /// address in the header that is not a trusted proxy. If an address is malformed, the client is the peer.
    #[must_use]
    pub fn client<'a>(&self, peer: Option<IpAddr>, forwarded_for: impl DoubleEndedIterator<Item = &'a [u8]>) -> Client {
        let Some(peer) = peer else { return Client::default() };
        if self.0.is_empty() || !self.contains(peer) {
            return Client::of(peer);
        }
        let mut client = peer;
        let hops = forwarded_for.rev().flat_map(|value| value.rsplit(|byte| *byte == b','));
        for hop in hops.take(MAX_HOPS) {
            match str::from_utf8(hop).ok().and_then(|hop| address(hop.trim())) {
                Some(address) if self.contains(address) => client = address,
                Some(address) => return Client::of(address),
                None => return Client::of(peer),
            }
        }
        Client::of(client)
    }
}

/// Parses the address of a hop. Some proxies append a port.
fn address(hop: &str) -> Option<IpAddr> {
    if let Some(rest) = hop.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
        return address.parse::<Ipv6Addr>().ok().filter(|_| is_port).map(IpAddr::V6);
    }
    hop.parse().ok().or_else(|| hop.parse::<std::net::SocketAddrV4>().ok().map(|hop| IpAddr::V4(*hop.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Client {
        Client::of(text.parse().unwrap())
    }

    #[test]
    fn client_is_an_ipv4_address_or_an_ipv6_64_network() {
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }

    #[test]
    fn proxy_names_the_client_and_others_do_not() {
        let networks = ["127.0.0.1", "10.0.0.0/8", "fd00::/8"].map(|text| Network::try_from(text.to_owned()).unwrap());
        let proxies = TrustedProxies::new(&networks);
        for (peer, forwarded, expected) in [
            ("127.0.0.1", &["192.0.2.1"][..], "192.0.2.1"),
            ("::ffff:127.0.0.1", &["192.0.2.1"], "192.0.2.1"),
            ("127.0.0.1", &["198.51.100.9, 192.0.2.1"], "192.0.2.1"),
            ("127.0.0.1", &["198.51.100.9", "192.0.2.1 , 10.1.2.3"], "192.0.2.1"),
            ("127.0.0.1", &["192.0.2.1:1234"], "192.0.2.1"),
            ("127.0.0.1", &["[2001:db8::1]:1234"], "2001:db8::1"),
            ("127.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
            ("127.0.0.1", &["2001:db8::1"], "2001:db8::1"),
            // All addresses are proxies, so the first one stands for the client.
            ("127.0.0.1", &["10.0.0.7, fd00::1"], "10.0.0.7"),
            ("127.0.0.1", &[], "127.0.0.1"),
            ("127.0.0.1", &["unknown"], "127.0.0.1"),
            ("127.0.0.1", &["192.0.2.1,"], "127.0.0.1"),
            ("127.0.0.1", &["192.0.2.1, [::1"], "127.0.0.1"),
            ("127.0.0.1", &["192.0.2.1, 10.0.0.1:x"], "127.0.0.1"),
            ("192.0.2.7", &["192.0.2.1"], "192.0.2.7"),
        ] {
            let hops = forwarded.iter().map(|value| value.as_bytes());
            let client = proxies.client(Some(peer.parse().unwrap()), hops);
            assert_eq!(client, of(expected), "{peer} {forwarded:?}");
        }
        let peer = Some("127.0.0.1".parse().unwrap());
        let bytes: [&[u8]; 2] = [b"\xff, 192.0.2.1", b"192.0.2.1, \xff"];
        assert_eq!(bytes.map(|value| proxies.client(peer, [value].into_iter())), ["192.0.2.1", "127.0.0.1"].map(of));
        assert_eq!(proxies.client(None, [&b"192.0.2.1"[..]].into_iter()), Client::default());
    }
}
