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
    way: Way,
}

#[derive(Debug)]
enum Way {
    System(System),
    Server(Box<TokioResolver>),
    #[cfg(feature = "https")]
    Https(Https),
}

impl Upstream {
    /// `time_limit` applies to one lookup.
    pub(super) fn new(address: &Address, time_limit: Duration) -> Result<Self> {
        let way = match address {
            Address::System => Way::System(System::new(time_limit)),
            Address::Server(server) => {
                let mut config = NameServerConfig::udp_and_tcp(server.ip());
                config.connections.iter_mut().for_each(|connection| connection.port = server.port());
                let config = ResolverConfig::from_name_servers(vec![config]);
                Way::Server(Box::new(resolver(config, time_limit, address)?))
            }
            #[cfg(feature = "https")]
            Address::Https(url) => Way::Https(Https::new(url.clone())?),
        };
        Ok(Self { address: address.clone(), way })
    }

    /// Returns the TXT records of `name`, which must be fully qualified.
    pub(super) async fn texts(&self, name: &Name) -> Result<Texts> {
        let texts = match &self.way {
            Way::System(system) => query_texts(&*system.resolver().await?, name).await,
            Way::Server(resolver) => query_texts(resolver, name).await,
            #[cfg(feature = "https")]
            Way::Https(client) => client.texts(name).await,
        };
        texts.map_err(|e| Error::new(e.kind(), format!("{}: {e}", self.address)))
    }
}
