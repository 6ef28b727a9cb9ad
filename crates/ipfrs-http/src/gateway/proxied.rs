//! Requests that name several hosts: those of clients that use the gateway as their forward proxy, and attempts to
//! reach one host under the name of another.
//!
//! A proxy in front of the gateway may filter requests by one of the names. A request that names a configured host
//! anywhere therefore never reaches the routes of the daemon under another name.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::HOST;
use http::{HeaderMap, Request, Version};
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_middleware::OverTls;

use super::hosts::{Hosts, Named, RequestHost, X_FORWARDED_HOST};

/// Maximum number of hosts that the tunnels of one connection may name.
const MAX_TUNNELS: usize = 8;

/// Hosts named by the CONNECT requests of a connection, in lower case; `None` outside of tunnels. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tunnels(Option<Arc<[String]>>);

impl Tunnels {
    /// Whether the connection is a tunnel.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    fn hosts(&self) -> &[String] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl Hosts {
    /// Reads the hosts that a request names, on a connection with these `tunnels`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if a host name is invalid, or if the target and `Host` differ and the gateway is
    /// not a proxy; [`ErrorKind::Forbidden`] if a proxied request names a configured host in addition to its own
    /// host.
    pub(crate) fn read<'a, B>(
        &self,
        request: &'a Request<B>,
        peer: Option<IpAddr>,
        tunnels: &Tunnels,
    ) -> Result<RequestHost<'a>> {
        let (uri, headers) = (request.uri(), request.headers());
        let mut request_host =
            RequestHost::read(uri, headers, self.trusts(peer), request.extensions().get::<OverTls>().is_some())?;
        let has_authority = uri.authority().is_some();
        let is_http2 = request.version() > Version::HTTP_11;
        let names_one = !has_authority || (is_http2 && !headers.contains_key(HOST));
        if names_one && !tunnels.is_open() {
            return Ok(request_host);
        }
        let own = request_host.own.lower().into_owned();
        let host = if has_authority { Named::of_header(headers)? } else { None }.filter(|host| host.lower() != own);
        if let Some(host) = &host {
            if is_http2 || !self.is_proxy {
                return Err(host_mismatch(&own, host, is_http2));
            }
            // Each of the two may have rules of its own.
            self.refuse_configured([&request_host.own, host])?;
        }
        if is_http2 && !tunnels.is_open() {
            return Ok(request_host);
        }
        let is_configured = |named: &Named<'_>| self.is_configured(named);
        if is_configured(&request_host.own) || request_host.forwarded.as_ref().is_some_and(is_configured) {
            // The rules of the configured host apply, however the request arrived.
            return Ok(request_host);
        }
        let outer = tunnels.hosts().iter().map(|name| Named::parse(name)).collect::<Result<Vec<_>>>()?;
        self.refuse_configured(outer.iter().chain(&forwarded(headers)?))?;
        let beside = host.iter().chain(&outer).filter(|other| !other.is_local() && other.lower() != own);
        request_host.beside = beside.map(|other| other.lower().into_owned()).collect();
        Ok(request_host)
    }

    /// Returns the tunnels of the connection after a CONNECT is granted. `target` is the authority of the CONNECT
    /// request.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`] if the request names a configured host, or if nested tunnels name too many hosts;
    /// [`ErrorKind::InvalidInput`] if a host name is invalid.
    pub(crate) fn tunnel(&self, target: &str, headers: &HeaderMap, tunnels: &Tunnels) -> Result<Tunnels> {
        let mut hosts = tunnels.hosts().to_vec();
        for named in [Some(Named::parse(target)?), Named::of_header(headers)?].into_iter().flatten() {
            self.refuse_configured([&named])?;
            let name = named.lower().into_owned();
            if !hosts.contains(&name) {
                hosts.push(name);
            }
        }
        self.refuse_configured(&forwarded(headers)?)?;
        if hosts.len() > MAX_TUNNELS {
            let why =
                format!("the tunnels of this connection name more than {MAX_TUNNELS} hosts: open another connection");
            return Err(Error::new(ErrorKind::Forbidden, why));
        }
        Ok(Tunnels(Some(hosts.into())))
    }

    fn refuse_configured<'n, 'a: 'n>(&self, names: impl IntoIterator<Item = &'n Named<'a>>) -> Result<()> {
        match names.into_iter().find(|named| self.is_configured(named)) {
            Some(named) => Err(Error::new(
                ErrorKind::Forbidden,
                format!("{} is not served through a proxy: send the request to it directly", named.lower()),
            )),
            None => Ok(()),
        }
    }
}

/// Returns all hosts in `X-Forwarded-Host`, whether the sender is trusted or not.
fn forwarded(headers: &HeaderMap) -> Result<Vec<Named<'_>>> {
    let mut hosts = Vec::new();
    for value in headers.get_all(X_FORWARDED_HOST) {
        for host in value.to_str().unwrap_or("(not ASCII)").split(',').map(str::trim).filter(|host| !host.is_empty()) {
            hosts.push(Named::parse(host)?);
        }
    }
    Ok(hosts)
}

fn host_mismatch(target: &str, host: &Named<'_>, is_http2: bool) -> Error {
    let host = host.lower();
    Error::invalid(if is_http2 {
        format!("\":authority\" names {target:?}, and Host {host:?}: they must be the same (RFC 9113, 8.3.1)")
    } else {
        let why = "this gateway is not a forward proxy ([gateway] proxy = false)";
        format!("the target names {target:?}, and Host {host:?}: they must be the same (RFC 9112, 3.2.2), since {why}")
    })
}
