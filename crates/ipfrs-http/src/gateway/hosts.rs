//! The host that a request names, and its configuration.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use http::header::{HOST, HeaderName};
use http::{HeaderMap, HeaderValue, Uri};
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_middleware::{Client, TrustedProxies};
use ipfrs_rpc::kubo_config::tcp_multiaddr;

use crate::GatewayConfig;
use crate::config::{HostConfig, Namespace};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Maximum length of a DNS name in text form (RFC 1035, 2.3.4).
const MAX_NAME_BYTES: usize = 253;

/// Hosts that a request names.
#[derive(Debug)]
pub(crate) struct RequestHost<'a> {
    /// Host of the request itself.
    pub(super) own: Named<'a>,
    /// Host of the client's request, as reported by a proxy.
    pub(super) forwarded: Option<Named<'a>>,
    /// Public names, in lower case, that a proxied request names in addition to `own`. The routes of the daemon are
    /// served only if none of them is a website.
    pub(super) beside: Vec<String>,
    /// Whether the client uses HTTPS.
    is_https: bool,
}

/// A host name or address, with an optional port.
#[derive(Debug)]
pub(crate) struct Named<'a> {
    /// Name or address as sent, without port and trailing dot. Empty if an HTTP/1.0 request names no host.
    name: &'a str,
    /// Port, if it was sent.
    port: Option<&'a str>,
}

impl<'a> RequestHost<'a> {
    /// Reads the target and the headers of a request. A target with a host (HTTP/2, and absolute targets of HTTP/1.1)
    /// takes precedence over `Host` (RFC 9112, 3.2.2); [`Hosts::read`] compares the two. `trusts` says whether the
    /// sender is a trusted proxy, and `is_over_tls` whether the connection is.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if a host is not a valid host name with an optional port.
    pub(crate) fn read(uri: &'a Uri, headers: &'a HeaderMap, trusts: bool, is_over_tls: bool) -> Result<Self> {
        let own = match uri.authority() {
            Some(authority) => Named::parse(authority.as_str())?,
            None => Named::of_header(headers)?.unwrap_or(Named { name: "", port: None }),
        };
        let beside = Vec::new();
        // The scheme of a target is what the client says. Only a proxy knows more than the connection.
        let own_scheme = if is_over_tls { Some("https") } else { uri.scheme_str() };
        if !trusts {
            return Ok(Self { own, forwarded: None, beside, is_https: is_over_tls });
        }
        let forwarded = last_of(headers, X_FORWARDED_HOST).map(Named::parse).transpose()?;
        let scheme = last_of(headers, X_FORWARDED_PROTO).or(own_scheme);
        Ok(Self { own, forwarded, beside, is_https: scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")) })
    }
}

/// Returns the multiaddr of the HTTP server that a request was sent to, such as `/dns/example.org/tcp/443/https`. It
/// names the host of the request itself, and the scheme that a proxy reports or that of the connection. `None` if the
/// request names no host.
pub(crate) fn multiaddr(uri: &Uri, headers: &HeaderMap, is_over_tls: bool) -> Option<String> {
    let request_host = RequestHost::read(uri, headers, true, is_over_tls).ok()?;
    let RequestHost { own: Named { name, port }, is_https, .. } = request_host;
    let (default_port, scheme) = if is_https { ("443", "https") } else { ("80", "http") };
    let address = (!name.is_empty()).then(|| tcp_multiaddr(name, port.unwrap_or(default_port)))?;
    Some(format!("{address}/{scheme}"))
}

impl<'a> Named<'a> {
    /// Reads `Host`; `None` if it is missing.
    pub(crate) fn of_header(headers: &'a HeaderMap) -> Result<Option<Self>> {
        headers.get(HOST).map(|host| Self::parse(host.to_str().unwrap_or("(not ASCII)"))).transpose()
    }

    pub(crate) fn parse(host: &'a str) -> Result<Self> {
        let (name, port) = split(host).ok_or_else(|| {
            let shown: String = host.chars().take(256).collect();
            Error::invalid(format!("{shown:?} is not a host name: send one as in a URL, with or without a port"))
        })?;
        Ok(Self { name, port })
    }

    /// Returns the name in lower case, and an IPv6 address in canonical form.
    pub(crate) fn lower(&self) -> Cow<'a, str> {
        let bare = self.name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        if let Some(address) = bare.and_then(|bare| bare.parse::<Ipv6Addr>().ok()) {
            return format!("[{address}]").into();
        }
        match self.name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => self.name.to_ascii_lowercase().into(),
            false => self.name.into(),
        }
    }

    /// Whether this is an IP address.
    pub(crate) fn is_address(&self) -> bool {
        self.name.starts_with('[') || self.name.parse::<Ipv4Addr>().is_ok()
    }

    /// Returns the name in lower case with the port, if one was sent.
    pub(crate) fn authority(&self) -> String {
        with_port(&self.lower(), self.port)
    }

    /// Whether this cannot be a public DNS name, judged by its form: an address, or a name without a dot.
    pub(super) fn is_local(&self) -> bool {
        let Some((_, last)) = self.name.rsplit_once('.') else { return true };
        self.name.starts_with('[') || last.bytes().all(|byte| byte.is_ascii_digit())
    }
}

/// Returns the last value, which the proxy nearest to the daemon wrote.
fn last_of(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let last = headers.get_all(name).iter().next_back()?.to_str().ok()?;
    last.rsplit(',').next().map(str::trim).filter(|value| !value.is_empty())
}

/// Splits a host, as written in URLs, into name and port.
fn split(host: &str) -> Option<(&str, Option<&str>)> {
    let (name, port) = if let Some(rest) = host.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        address.parse::<Ipv6Addr>().ok()?;
        let port = if port.is_empty() { None } else { Some(port.strip_prefix(':')?) };
        (&host[..address.len() + 2], port)
    } else {
        let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
        let name = name.strip_suffix('.').filter(|name| !name.is_empty()).unwrap_or(name);
        is_name(name).then_some((name, port))?
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    if port.is_some_and(|port| !port.is_empty() && !is_port(port)) {
        return None;
    }
    Some((name, port.filter(|port| !port.is_empty())))
}

/// Whether this is empty, or labels separated by single dots. Names longer than any DNS name are rejected, because
/// later code examines each dot.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let mut before = b'.';
    let is_spelled = name.bytes().all(|byte| {
        let fits = is_plain(byte) || (byte == b'.' && before != b'.');
        before = byte;
        fits
    });
    name.is_empty() || (is_spelled && before != b'.' && name.len() <= MAX_NAME_BYTES)
}

/// Route of a request, decided by its host.
#[derive(Debug)]
pub(crate) enum Route {
    /// The path gateway and all routes of the daemon.
    Daemon,
    /// The path gateway of a configured host, for a path under `/ipfs`.
    Gateway,
    /// Host whose handling requires more than the configuration.
    Hosted(Box<HostedRequest>),
}

/// A request to a host that is configured, or that may be a website.
#[derive(Debug)]
pub(crate) struct HostedRequest {
    /// Host name in lower case.
    pub(super) name: String,
    /// Host name with its port, for URLs.
    pub(super) host: String,
    /// Whether the client uses HTTPS.
    pub(super) is_https: bool,
    /// Configuration of the host.
    pub(super) place: Place,
    /// Alternative if the host is [`Place::Unknown`] and not a website; `None` for the daemon.
    pub(super) otherwise: Option<Box<HostedRequest>>,
    /// See [`RequestHost::beside`].
    pub(super) beside: Vec<String>,
}

impl HostedRequest {
    /// Returns the route if hosts that are not configured are never websites.
    pub(crate) fn without_websites(mut self: Box<Self>) -> Route {
        match (&self.place, self.otherwise.take()) {
            (Place::Local | Place::Unknown, Some(otherwise)) => otherwise.without_websites(),
            (Place::Local | Place::Unknown, None) => Route::Daemon,
            (_, otherwise) => {
                self.otherwise = otherwise;
                Route::Hosted(self)
            }
        }
    }
}

/// Configuration of a host.
#[derive(Debug)]
pub(super) enum Place {
    /// Not configured and not a website: an address, or a name without a dot.
    Local,
    /// Not configured: a website if it has a DNSLink.
    Unknown,
    /// A gateway.
    Gateway(Arc<HostConfig>),
    /// `{id}.{namespace}.{gateway}`.
    Root {
        config: Arc<HostConfig>,
        namespace: Namespace,
        /// ID or name of the root, as the client sent it.
        id: String,
        /// Name of the gateway with the port, for URLs.
        gateway: String,
    },
    /// A name below a gateway with subdomains that is not one of its roots. It can only be a website.
    Below(Arc<HostConfig>),
}

/// The configured hosts.
#[derive(Debug)]
pub(crate) struct Hosts {
    exact: HashMap<String, Arc<HostConfig>>,
    /// Names that contain a `*`, split into labels.
    patterns: Vec<(Vec<String>, Arc<HostConfig>)>,
    /// Public names that are served besides the configured ones, split into labels; empty for all names.
    known: Vec<Vec<String>>,
    proxies: TrustedProxies,
    /// Whether the gateway is a forward proxy.
    pub(crate) is_proxy: bool,
    /// Whether files are served under names without a setting of their own.
    deserialized: bool,
}

impl Hosts {
    pub(crate) fn new(config: &GatewayConfig, known: &[String]) -> Self {
        // Normalizes IPv6 addresses, as in requests.
        let key = |name: &str| Named { name, port: None }.lower().into_owned();
        let hosts = config.hosts.iter().map(|(name, host)| (key(name), Arc::new(host.clone())));
        let (patterns, exact): (Vec<_>, Vec<_>) = hosts.partition(|(name, _)| name.contains('*'));
        let labels = |name: String| name.split('.').map(str::to_owned).collect::<Vec<_>>();
        Self {
            exact: exact.into_iter().collect(),
            patterns: patterns.into_iter().map(|(name, host)| (labels(name), host)).collect(),
            known: known.iter().map(|name| labels(name.to_ascii_lowercase())).collect(),
            proxies: TrustedProxies::new(&config.trusted_proxies),
            is_proxy: config.proxy,
            deserialized: config.deserialized,
        }
    }

    /// Checks that the daemon serves the names in a request: addresses, names without a dot, configured ones, and those
    /// of `server.hosts`. If that is empty, it serves all names.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`] for another name.
    pub(crate) fn check_known(&self, request_host: &RequestHost<'_>) -> Result<()> {
        if self.known.is_empty() {
            return Ok(());
        }
        let refused = |name: &str| {
            let text =
                format!("this daemon does not serve the host {name:?}: its operator can add it to [server] hosts");
            Err(Error::new(ErrorKind::Forbidden, text))
        };
        for named in [&request_host.own].into_iter().chain(&request_host.forwarded) {
            let name = named.lower();
            let is_known = self.known.iter().any(|pattern| fits(pattern, &name));
            if !is_known && !named.is_local() && !self.is_configured(named) {
                return refused(&name);
            }
        }
        match request_host.beside.iter().find(|name| !self.known.iter().any(|pattern| fits(pattern, name))) {
            Some(name) => refused(name),
            None => Ok(()),
        }
    }

    /// Whether an address belongs to a trusted proxy.
    pub(crate) fn trusts(&self, peer: Option<IpAddr>) -> bool {
        peer.is_some_and(|peer| self.proxies.contains(peer))
    }

    /// Returns the client of a request from `peer` with these headers.
    pub(crate) fn client(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Client {
        self.proxies.client(peer, headers.get_all(X_FORWARDED_FOR).iter().map(HeaderValue::as_bytes))
    }

    /// Returns the route of a request. A host reported by a proxy selects only configured hosts and websites, never
    /// the daemon, because many proxies forward whatever the client sent. In the other cases the request's own host
    /// decides.
    pub(crate) fn route(&self, request_host: &RequestHost<'_>, path: &str) -> Route {
        let is_configured = !self.exact.is_empty() || !self.patterns.is_empty();
        if !is_configured
            && request_host.forwarded.is_none()
            && request_host.own.is_local()
            && request_host.beside.is_empty()
        {
            return Route::Daemon;
        }
        let is_plain_gateway = || self.of(&request_host.own.lower()).is_some_and(|config| self.is_plain(config, path));
        if request_host.forwarded.is_none() && is_plain_gateway() {
            return Route::Gateway;
        }
        let own = self.hosted_request(&request_host.own, request_host.is_https, None);
        let hosted_request = match &request_host.forwarded {
            Some(forwarded) => self.hosted_request(forwarded, request_host.is_https, own),
            None => own,
        };
        match hosted_request {
            None if request_host.beside.is_empty() => Route::Daemon,
            None => {
                let name = request_host.own.lower();
                let host = with_port(&name, request_host.own.port);
                let (is_https, beside) = (request_host.is_https, request_host.beside.clone());
                let name = name.into_owned();
                Route::Hosted(Box::new(HostedRequest {
                    name,
                    host,
                    is_https,
                    place: Place::Local,
                    otherwise: None,
                    beside,
                }))
            }
            Some(hosted_request) if matches!(&hosted_request.place, Place::Gateway(config) if self.is_plain(config, path)) => {
                Route::Gateway
            }
            Some(mut hosted_request) => {
                hosted_request.beside.clone_from(&request_host.beside);
                Route::Hosted(hosted_request)
            }
        }
    }

    /// Whether a host is configured, or is a name below a configured one, so that its own rules decide.
    pub(super) fn is_configured(&self, host: &Named<'_>) -> bool {
        !matches!(self.place(host, &host.lower()), Place::Unknown | Place::Local)
    }

    /// Returns how to handle a host that is configured or may be a website; for other hosts, `otherwise`.
    fn hosted_request(
        &self,
        host: &Named<'_>,
        is_https: bool,
        otherwise: Option<Box<HostedRequest>>,
    ) -> Option<Box<HostedRequest>> {
        let name = host.lower();
        let place = self.place(host, &name);
        if matches!(place, Place::Unknown) && host.is_local() {
            return otherwise;
        }
        let host = with_port(&name, host.port);
        Some(Box::new(HostedRequest { name: name.into_owned(), host, is_https, place, otherwise, beside: Vec::new() }))
    }

    fn place(&self, host: &Named<'_>, name: &str) -> Place {
        if let Some(config) = self.of(name) {
            return Place::Gateway(config.clone());
        }
        if host.is_local() {
            return Place::Unknown;
        }
        let mut below = None;
        // Tries the longest configured name first.
        for (dot, _) in name.match_indices('.') {
            let (labels, gateway) = (&name[..dot], &name[dot + 1..]);
            let Some(config) = self.of(gateway) else { continue };
            let id_and_namespace = labels.rsplit_once('.').filter(|(id, _)| !id.is_empty());
            let namespace = match id_and_namespace.map(|(_, namespace)| namespace) {
                Some("ipfs") => Namespace::Ipfs,
                Some("ipns") => Namespace::Ipns,
                _ => {
                    below = below.or_else(|| config.subdomains.then(|| config.clone()));
                    continue;
                }
            };
            // The case of content IDs is significant, so the ID is taken from the original name.
            let id = host.name[..dot - 1 - namespace.as_str().len()].to_owned();
            return Place::Root { config: config.clone(), namespace, id, gateway: with_port(gateway, host.port) };
        }
        below.map_or(Place::Unknown, Place::Below)
    }

    /// Returns the configuration of a name in lower case.
    fn of(&self, name: &str) -> Option<&Arc<HostConfig>> {
        let by_pattern = || self.patterns.iter().find(|(pattern, _)| fits(pattern, name)).map(|(_, config)| config);
        self.exact.get(name).or_else(by_pattern)
    }

    /// Whether a host serves a path in the same way as the default path gateway.
    fn is_plain(&self, config: &HostConfig, path: &str) -> bool {
        let serves_all = config.serves_deserialized(self.deserialized) == self.deserialized && config.retrieve;
        path.starts_with("/ipfs/") && config.paths.contains(&Namespace::Ipfs) && !config.subdomains && serves_all
    }
}

/// Whether a name in lower case has the labels of a pattern, of which `*` is any.
fn fits(pattern: &[String], name: &str) -> bool {
    let mut labels = name.split('.');
    pattern.iter().all(|wanted| labels.next().is_some_and(|label| wanted == "*" || wanted == label))
        && labels.next().is_none()
}

fn with_port(name: &str, port: Option<&str>) -> String {
    port.map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

#[cfg(test)]
mod tests;
