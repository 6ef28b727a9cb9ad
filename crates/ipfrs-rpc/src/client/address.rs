//! Addresses of daemons: URLs, and the multiaddrs that Kubo and its clients use.

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::PathBuf;

use ipfrs_core::{Error, Result, without_credentials};
use reqwest::Url;

/// Address of a daemon.
#[derive(Debug)]
pub(super) struct Address {
    /// URL for requests, which may have a user and a password.
    pub(super) base: Url,
    /// The address without user and password, to show.
    pub(super) shown: String,
    /// Socket to connect to, whatever the host of the URL.
    pub(super) socket: Option<PathBuf>,
}

impl Address {
    /// Parses a URL, or a multiaddr of the forms of [`multiaddr_url`] or `/unix/PATH`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        let (url, socket) = match text.strip_prefix("/unix/") {
            Some(path) => (Cow::Borrowed("http://localhost"), Some(PathBuf::from(format!("/{path}")))),
            None => (multiaddr_url(text).map_or(Cow::Borrowed(text), Cow::Owned), None),
        };
        let invalid_url = |why: &str| {
            let form = "give one of the form http://HOST:PORT, such as http://127.0.0.1:8080";
            // An invalid URL may contain a password anywhere, so it is not shown.
            Error::invalid(format!("the URL of the daemon {why}: {form}"))
        };
        if url.starts_with('/') {
            return Err(invalid_url("is not a multiaddr with an address and a TCP port"));
        }
        let base = Url::parse(&url).map_err(|e| invalid_url(&format!("cannot be read ({e})")))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(invalid_url(&format!("has the scheme {:?}", base.scheme())));
        }
        if base.host_str().is_none_or(str::is_empty) {
            return Err(invalid_url("has no host"));
        }
        if base.query().is_some() || base.fragment().is_some() {
            return Err(invalid_url("has a query or a fragment"));
        }
        let shown = match socket {
            Some(_) => text.to_owned(),
            None => without_credentials(base.as_str(), "").trim_end_matches('/').to_owned(),
        };
        Ok(Self { base, shown, socket })
    }

    /// Whether the daemon runs on this machine, which is not reached through a proxy.
    pub(super) fn is_this_machine(&self) -> bool {
        let host = self.base.host_str().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host == "localhost"
            || host.ends_with(".localhost")
            || address.is_ok_and(|address| address.is_loopback() || address.is_unspecified())
    }
}

/// Returns the URL of a multiaddr such as `/ip4/127.0.0.1/tcp/5001`, `/dns/example.org/tcp/443/https` or
/// `/ip6/::1/tcp/8080/http`, and `None` for any other text.
fn multiaddr_url(text: &str) -> Option<String> {
    let (host, port, rest) = match *text.trim_end_matches('/').split('/').collect::<Vec<_>>() {
        ["", "ip6", host, "tcp", port, ref rest @ ..] => (format!("[{host}]"), port, rest.to_vec()),
        ["", "ip4" | "dns" | "dns4" | "dns6", host, "tcp", port, ref rest @ ..] => {
            (host.to_owned(), port, rest.to_vec())
        }
        _ => return None,
    };
    let scheme = match rest[..] {
        [] | ["http"] => "http",
        ["https"] | ["tls", "http"] => "https",
        _ => return None,
    };
    Some(format!("{scheme}://{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn urls_and_multiaddrs_are_parsed() {
        for (text, base, shown) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
            (" https://a:b@example.org/x/ ", "https://a:b@example.org/x/", "https://example.org/x"),
            ("/ip4/127.0.0.1/tcp/5001", "http://127.0.0.1:5001/", "http://127.0.0.1:5001"),
            ("/ip6/::1/tcp/5001/http/", "http://[::1]:5001/", "http://[::1]:5001"),
            ("/dns/example.org/tcp/8443/https", "https://example.org:8443/", "https://example.org:8443"),
            ("/dns6/example.org/tcp/443/tls/http", "https://example.org/", "https://example.org"),
            ("/unix/run/ipfs.sock", "http://localhost/", "/unix/run/ipfs.sock"),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!((address.base.as_str(), address.shown.as_str()), (base, shown), "{text}");
            assert_eq!(address.socket.is_some(), text.starts_with("/unix"), "{text}");
        }
    }

    #[test]
    fn other_texts_are_errors_without_passwords() {
        for (text, why) in [
            ("127.0.0.1:8080", "relative URL without a base"),
            ("ftp://user:secret@x", "scheme \"ftp\""),
            ("http://user:secret@x/?a", "a query or a fragment"),
            ("/ip4/127.0.0.1/udp/4001/quic-v1", "not a multiaddr with"),
            ("/ip4/127.0.0.1/tcp/5001/p2p/QmSecret", "not a multiaddr with"),
            ("/ip4/127.0.0.1/tcp/99999", "invalid port number"),
            ("/", "not a multiaddr with"),
        ] {
            let message = Address::parse(text).unwrap_err().to_string();
            assert!(message.contains(why) && !message.contains("secret"), "{text}: {message}");
        }
    }
}
