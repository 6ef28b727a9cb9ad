//! `[gateway] trusted_proxies`: networks of proxies that are trusted to name their clients.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

/// A single address, or all addresses with a prefix: `127.0.0.1`, `10.0.0.0/8`, `fd00::/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Network(IpNet);

impl Network {
    /// Returns whether an address is in the network. IPv4-mapped IPv6 addresses (`::ffff:10.0.0.1`) count as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.map(Self).map_err(|_| format!("{text:?} is neither an address (127.0.0.1) nor a network (10.0.0.0/8)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_contains_only_its_addresses() {
        for (network, address, expected) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("127.0.0.1", "::ffff:127.0.0.1", true),
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("fd00::/8", "fd12::1", true),
            ("::1", "::1", true),
            ("0.0.0.0/0", "::1", false),
        ] {
            let network = Network::try_from(network.to_owned()).unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), expected, "{network:?} {address}");
        }
        for text in ["", "localhost", "10.0.0.0/33", "10.0.0.1:80", "[::1]"] {
            assert!(Network::try_from(text.to_owned()).unwrap_err().contains(text));
        }
    }
}
