//! A resolver, or a group of resolvers, that is queried for TXT records.

use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::proto::rr::Name;
use ipfrs_core::{Error, Result};

use super::address::Address;
#[cfg(feature = "https")]
use super::https::Https;
use super::name_server::{query_texts, resolver};
use super::system::System;
use super::texts::Texts;

/// A resolver that is ready for queries.
#[derive(Debug)]
pub(super) struct Upstream {
    /// The configured form, for messages.
    pub(super) address: Address,
    backend: Backend,
}

#[derive(Debug)]
enum Backend {
    System(System),
    Server(Box<TokioResolver>),
    #[cfg(feature = "https")]
    Https(Https),
}

impl Upstream {
    /// `time_limit` applies to one lookup.
    pub(super) fn new(address: &Address, time_limit: Duration) -> Result<Self> {
        let backend = match address {
            Address::System => Backend::System(System::new(time_limit)),
            Address::Server(server) => {
                let mut config = NameServerConfig::udp_and_tcp(server.ip());
                config.connections.iter_mut().for_each(|connection| connection.port = server.port());
                let config = ResolverConfig::from_name_servers(vec![config]);
                Backend::Server(Box::new(resolver(config, time_limit, address)?))
            }
            #[cfg(feature = "https")]
            Address::Https(url) => Backend::Https(Https::new(url.clone())?),
        };
        Ok(Self { address: address.clone(), backend })
    }

    /// Returns the TXT records of `name`, which must be fully qualified.
    pub(super) async fn texts(&self, name: &Name) -> Result<Texts> {
        let texts = match &self.backend {
            Backend::System(system) => query_texts(&*system.resolver().await?, name).await,
            Backend::Server(resolver) => query_texts(resolver, name).await,
            #[cfg(feature = "https")]
            Backend::Https(client) => client.texts(name).await,
        };
        texts.map_err(|e| Error::new(e.kind(), format!("{}: {e}", self.address)))
    }
}
