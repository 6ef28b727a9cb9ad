//! A resolver, or a group of resolvers, that is queried for TXT records.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, Record};
use ipfrs_core::{Error, ErrorKind, Result};
#[cfg(feature = "https")]
use reqwest::Url;

#[cfg(feature = "https")]
use super::https::Https;
use super::system::System;

/// TXT records of a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Texts {
    /// The text of each record, its strings joined.
    pub(super) texts: Vec<Vec<u8>>,
    /// How long this result may be cached, whether or not there are records.
    pub(super) ttl: Duration,
}

impl Texts {
    /// Extracts the texts from `answers`, which contain the records of the name and of the aliases that lead to them.
    pub(super) fn of(answers: &[Record]) -> Self {
        let mut texts = Vec::new();
        for record in answers {
            if let RData::TXT(txt) = &record.data {
                texts.push(txt.txt_data.concat());
            }
        }
        let ttl = answers.iter().map(|record| record.ttl).min().unwrap_or_default();
        Self { texts, ttl: Duration::from_secs(ttl.into()) }
    }

    /// Interprets a response without records. Returns `None` if it shows only that the server failed.
    pub(super) fn of_none(error: &DnsError) -> Option<Self> {
        match error {
            DnsError::NoRecordsFound(none)
                if matches!(none.response_code, ResponseCode::NXDomain | ResponseCode::NoError) =>
            {
                let ttl = Duration::from_secs(none.negative_ttl.unwrap_or_default().into());
                Some(Self { texts: Vec::new(), ttl })
            }
            _ => None,
        }
    }
}

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
            Way::System(system) => ask(&*system.resolver().await?, name).await,
            Way::Server(resolver) => ask(resolver, name).await,
            #[cfg(feature = "https")]
            Way::Https(client) => client.texts(name).await,
        };
        texts.map_err(|e| Error::new(e.kind(), format!("{}: {e}", self.address)))
    }
}

/// Creates a resolver without a cache, because [`Dnslink`](super::Dnslink) has one, and without a hosts file.
pub(super) fn resolver(config: ResolverConfig, time_limit: Duration, address: &Address) -> Result<TokioResolver> {
    let servers = config.name_servers().len();
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    let mut options = ResolverOpts::default();
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    // A late response counts until the lookup ends. During that time hickory repeats queries over UDP, and retries
    // once after any other failure.
    options.timeout = time_limit;
    options.attempts = 1;
    // All servers may be queried at once, so that an unresponsive one does not delay the others.
    options.num_concurrent_reqs = servers.max(options.num_concurrent_reqs);
    options.case_randomization = false;
    *builder.options_mut() = options;
    builder.build().map_err(|e| Error::internal(format!("{address} cannot be used: {e}")))
}

async fn ask(resolver: &TokioResolver, name: &Name) -> Result<Texts> {
    let error = match resolver.txt_lookup(name.clone()).await {
        Ok(lookup) => return Ok(Texts::of(lookup.answers())),
        Err(error) => error,
    };
    if let NetError::Dns(dns) = &error
        && let Some(none) = Texts::of_none(dns)
    {
        return Ok(none);
    }
    let kind = if matches!(error, NetError::Timeout) { ErrorKind::Timeout } else { ErrorKind::Unavailable };
    Err(Error::new(kind, error.to_string()))
}
