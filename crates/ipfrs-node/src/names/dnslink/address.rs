//! Addresses of resolvers in the configuration.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipfrs_core::{Error, Result};
#[cfg(feature = "https")]
use reqwest::Url;

/// A configured resolver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// The resolvers of the system.
    System,
    /// A server that is queried over UDP, and over TCP for long responses.
    Server(SocketAddr),
    /// A server that is queried over HTTP (RFC 8484).
    #[cfg(feature = "https")]
    Https(Url),
}

impl Address {
    /// Parses `system`, `1.1.1.1`, `127.0.0.1:5353`, `[::1]:53` or `https://dns.example/dns-query`. Plain HTTP is
    /// intended for servers on this machine or its own network.
    pub(super) fn parse(text: &str) -> Result<Self> {
        if text == "system" {
            return Ok(Self::System);
        }
        if text.starts_with("https://") || text.starts_with("http://") {
            #[cfg(feature = "https")]
            return Url::parse(text)
                .map(Self::Https)
                .map_err(|e| Error::invalid(format!("{text:?} is not a URL: {e}")));
            #[cfg(not(feature = "https"))]
            return Err(Error::unsupported(format!(
                "{text:?} cannot be queried: this program was built without DNS over HTTPS (feature `https` of ipfrs-node)"
            )));
        }
        let of_ip = || text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 53));
        text.parse::<SocketAddr>().or_else(|_| of_ip()).map(Self::Server).map_err(|_| {
            Error::invalid(format!(
                "{text:?} is not a resolver: use \"system\", an address like \"1.1.1.1\" or \"127.0.0.1:5353\", or a \
                 URL such as \"https://cloudflare-dns.com/dns-query\""
            ))
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("the system's resolvers"),
            Self::Server(address) => write!(f, "the resolver {address}"),
            #[cfg(feature = "https")]
            // The rest of the URL may be a secret, and clients receive this text.
            Self::Https(url) => write!(f, "the resolver {}", url.origin().ascii_serialization()),
        }
    }
}
