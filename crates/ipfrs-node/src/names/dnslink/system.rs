//! The resolvers of the system, from the current contents of `/etc/resolv.conf`.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::ResolverConfig;
use hickory_resolver::system_conf::parse_resolv_conf;
use ipfrs_core::{Error, ErrorKind, Result};
use tokio::sync::Mutex;

use super::address::Address;
use super::name_server::resolver;

/// File that lists the resolvers of the system.
const FILE: &str = "/etc/resolv.conf";

/// The resolvers from the last read of the file. The file is read again after a change, because machines move between
/// networks.
#[derive(Debug)]
pub(super) struct System {
    time_limit: Duration,
    current: Mutex<Option<(SystemTime, Arc<TokioResolver>)>>,
}

impl System {
    pub(super) fn new(time_limit: Duration) -> Self {
        Self { time_limit, current: Mutex::new(None) }
    }

    pub(super) async fn resolver(&self) -> Result<Arc<TokioResolver>> {
        let mut current = self.current.lock().await;
        let known = current.as_ref().map(|(changed, _)| *changed);
        let read = tokio::task::spawn_blocking(move || {
            let changed = fs::metadata(FILE)?.modified()?;
            Ok((changed, if Some(changed) == known { None } else { Some(fs::read(FILE)?) }))
        });
        let unreadable = |e: std::io::Error| {
            Error::new(
                ErrorKind::Unavailable,
                format!("{FILE} cannot be read: {e}; set dns.resolvers in the configuration"),
            )
        };
        let read = read.await.map_err(|e| Error::internal("a lookup was aborted").with_source(e))?;
        let (changed, text) = read.map_err(unreadable)?;
        if let Some(text) = text {
            let (config, _) = parse_resolv_conf(text).map_err(|e| {
                let why = format!("{FILE}: {e}; set dns.resolvers in the configuration");
                Error::new(ErrorKind::Unavailable, why)
            })?;
            // Only name servers are used. Search domains are ignored, because all queries are fully qualified.
            let config = ResolverConfig::from_name_servers(config.name_servers().to_vec());
            *current = Some((changed, Arc::new(resolver(config, self.time_limit, &Address::System)?)));
        }
        let resolver = current.as_ref().map(|(_, resolver)| Arc::clone(resolver));
        resolver.ok_or_else(|| Error::internal(format!("{FILE} contains no resolver")))
    }
}
