//! Addresses of sources that routers and clients name: which may be contacted, and their forms.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::config::base_url;

/// Resolver that only returns public addresses. The connection uses the addresses that were checked, so a domain that
/// changes its addresses (DNS rebinding) gains nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PublicResolver;

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let public: Vec<_> = found.into_iter().filter(|address| is_public(address.ip())).collect();
            match public.is_empty() {
                false => Ok(Box::new(public.into_iter()) as Addrs),
                true => Err(Box::new(refused(name.as_str())) as Box<dyn std::error::Error + Send + Sync>),
            }
        })
    }
}

/// Whether a URL does not name a private address. Domain names are checked by [`PublicResolver`].
pub(crate) fn has_public_host(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    literal.parse::<IpAddr>().map_or(true, is_public)
}

fn refused(host: &str) -> io::Error {
    let why = format!("{host} has no public address, and retrieval.allow_private_addresses is false");
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Whether an address is reachable from the whole Internet: not loopback, private, link-local, multicast, reserved or
/// documentation (the registries of RFC 6890), also not as an IPv4 address within an IPv6 address.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(a == 0
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast()
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (18..20).contains(&b))
        || a >= 240)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // IPv4-mapped, and NAT64 (RFC 6052).
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => embedded(high, low),
        // Teredo, ORCHID, benchmarking and documentation.
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        // Global unicast addresses are 2000::/3.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// Returns the URL of an HTTP server from its multiaddr, such as `/dns4/example.com/tcp/443/https` or
/// `/ip4/192.0.2.1/tcp/80/http/http-path/gw` (<https://github.com/multiformats/multiaddr>). Returns `None` for all
/// other multiaddrs.
#[must_use]
pub(crate) fn http_url(multiaddr: &str) -> Option<Url> {
    let mut parts = multiaddr.strip_prefix('/')?.split('/');
    let (host, v6) = match parts.next()? {
        "dns" | "dns4" | "dns6" => (parts.next()?, false),
        "ip4" => (parts.next().filter(|ip| ip.parse::<Ipv4Addr>().is_ok())?, false),
        "ip6" => (parts.next().filter(|ip| ip.parse::<Ipv6Addr>().is_ok())?, true),
        _ => return None,
    };
    let (mut port, mut tls, mut http, mut path) = (None, false, false, None);
    while let Some(part) = parts.next() {
        match part {
            "tcp" if port.is_none() && !tls && !http => port = Some(parts.next()?.parse::<u16>().ok()?),
            "tls" if !http => tls = true,
            "sni" if tls => _ = parts.next()?,
            "http" if !http => http = true,
            "https" if !http => (tls, http) = (true, true),
            "http-path" if http && path.is_none() => path = Some(parts.next()?),
            "p2p" => _ = parts.next()?,
            _ => return None,
        }
    }
    if !http {
        return None;
    }
    let scheme = if tls { "https" } else { "http" };
    let host = if v6 { format!("[{host}]") } else { host.to_owned() };
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    let path = percent_encoding::percent_decode_str(path.unwrap_or_default()).decode_utf8().ok()?;
    base_url(&format!("{scheme}://{host}{port}/{}", path.trim_start_matches('/'))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_not_public() {
        for private in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.168.1.1",
            "192.0.2.1",
            "198.18.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "2002:7f00:1::",
            "64:ff9b::10.0.0.1",
            "3fff::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in
            ["1.1.1.1", "192.0.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:101:101::"]
        {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn urls_with_private_literals_have_no_public_host() {
        for (url, public) in [
            ("http://127.0.0.1/", false),
            ("http://[::1]:80/", false),
            ("http://2130706433/", false),
            ("http://0x7f.1/", false),
            ("https://1.1.1.1/", true),
            ("https://example.com/", true),
        ] {
            assert_eq!(has_public_host(&Url::parse(url).unwrap()), public, "{url}");
        }
    }

    #[test]
    fn multiaddrs_of_http_servers_become_urls() {
        for (multiaddr, url) in [
            ("/dns4/example.com/tcp/443/https", Some("https://example.com/")),
            ("/dns/example.com/tcp/8443/tls/http", Some("https://example.com:8443/")),
            ("/dns/example.com/https", Some("https://example.com/")),
            ("/dns/example.com/tcp/443/tls/sni/example.com/http/p2p/12D3Koo", Some("https://example.com/")),
            ("/ip4/192.0.2.1/tcp/80/http/http-path/a%2Fb", Some("http://192.0.2.1/a/b/")),
            ("/ip6/2001:db8::1/tcp/8080/http", Some("http://[2001:db8::1]:8080/")),
            ("/ip4/192.0.2.1/tcp/4001", None),
            ("/ip4/192.0.2.1/udp/4001/quic-v1", None),
            ("/ip4/example.com/tcp/80/http", None),
            ("/dns/example.com/tcp/443/wss/http", None),
            ("dns/example.com/https", None),
            ("", None),
        ] {
            assert_eq!(http_url(multiaddr).as_ref().map(Url::as_str), url, "{multiaddr}");
        }
    }
}
