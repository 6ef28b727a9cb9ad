//! Checks of what a configuration refers to, for `config check` and `doctor`: a daemon refuses to start without it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use ipfrs_core::{Error, Result};
use ipfrs_middleware::auth::{check_api_keys, check_key_set};
use ipfrs_node::check_denylists;

use super::Config;
use crate::tls;

impl Config {
    /// Checks the denylists, the certificates, the keys of callers and of tokens, and the directory of references, and
    /// that no two listeners have the same address. Blocks on the disk.
    ///
    /// # Errors
    /// The first problem, with its key.
    pub fn check_references(&self, repo: &Path) -> Result<()> {
        check_denylists(repo, &self.gateway.denylists)?;
        tls::check_files(&self.tls)?;
        if self.auth.enabled {
            check_api_keys(repo)?;
        }
        let keys = &self.auth.jwt_keys;
        if !keys.is_empty() && !["http://", "https://"].iter().any(|scheme| keys.starts_with(scheme)) {
            check_key_set(Path::new(keys))?;
        }
        if let Some(root) = self.store.filestore_root.as_ref().map(|root| repo.join(root)) {
            let cannot = |e| Error::io(format_args!("store.filestore_root: cannot open {}", root.display()), e);
            if !fs::metadata(&root).map_err(cannot)?.is_dir() {
                return Err(Error::invalid(format!("store.filestore_root: {} is not a directory", root.display())));
            }
        }
        self.check_listeners()
    }

    /// Checks that no two listeners have the same address. Names other than `localhost` are compared as texts.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind), with the keys.
    pub(crate) fn check_listeners(&self) -> Result<()> {
        let redirecting =
            if self.public.enabled { ("public", &self.public.host) } else { ("server", &self.server.host) };
        let listeners = [
            ("server.port", true, ("server", &self.server.host), Some(self.server.port)),
            ("grpc.port", self.grpc.enabled, ("grpc", &self.grpc.host), self.grpc.port),
            ("api.port", self.api.enabled, ("api", &self.api.host), self.api.port),
            ("public.port", self.public.enabled, ("public", &self.public.host), Some(self.public.port)),
            ("tls.redirect_port", self.tls.enabled, redirecting, self.tls.redirect_port),
        ];
        let used = listeners.into_iter().filter(|(_, is_used, ..)| *is_used);
        let used = used.filter_map(|(key, _, host, port)| Some((key, host, port.filter(|port| *port != 0)?)));
        let used: Vec<_> = used.collect();
        for (index, (key, (section, host), port)) in used.iter().enumerate() {
            let same =
                used[..index].iter().find(|(_, (_, other), number)| number == port && share_address(host, other));
            if let Some((other_key, (other, other_host), _)) = same {
                let hosts = format!("{section}.host = {host:?}, {other}.host = {other_host:?}");
                return Err(Error::invalid(format!(
                    "{key} = {port}: [{}] listens there too ({other_key} = {port}, {hosts}): choose another port for one of \
                     them",
                    other_key.split('.').next().unwrap_or(other)
                )));
            }
        }
        Ok(())
    }
}

/// Whether listeners on these hosts share an address.
fn share_address(one: &str, other: &str) -> bool {
    let bare = |host: &str| host.trim().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let (one, other) = (bare(one), bare(other));
    let addresses = |host: &str| match host {
        "localhost" => vec![IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()],
        host => host.parse().into_iter().collect(),
    };
    // Listeners on `::` take no IPv4 connections.
    let overlap = |one: &IpAddr, other: &IpAddr| {
        one.is_ipv4() == other.is_ipv4() && (one == other || one.is_unspecified() || other.is_unspecified())
    };
    let others = addresses(&other);
    one == other || addresses(&one).iter().any(|one| others.iter().any(|other| overlap(one, other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_share_addresses_whatever_their_text() {
        for (one, other, expected) in [
            ("127.0.0.1", "localhost", true),
            ("LocalHost", "::1", true),
            ("0.0.0.0", "127.0.0.1", true),
            ("0.0.0.0", "localhost", true),
            ("[::]", "::1", true),
            ("::1", "0:0:0:0:0:0:0:1", true),
            ("gateway.example", "Gateway.example ", true),
            ("::", "127.0.0.1", false),
            ("127.0.0.1", "127.0.0.2", false),
            ("127.0.0.1", "gateway.example", false),
        ] {
            assert_eq!(share_address(one, other), expected, "{one} {other}");
            assert_eq!(share_address(other, one), expected, "{other} {one}");
        }
    }
}
