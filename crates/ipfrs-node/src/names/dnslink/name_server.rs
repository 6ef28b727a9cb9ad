//! Queries to name servers over UDP and TCP.

use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use ipfrs_core::{Error, ErrorKind, Result};

use super::address::Address;
use super::texts::Texts;

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

/// Returns the TXT records of `name`, which must be fully qualified.
pub(super) async fn query_texts(resolver: &TokioResolver, name: &Name) -> Result<Texts> {
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
