//! Mutable names, which follow `/ipns/` in a path and resolve to content.

mod config;
pub(crate) mod dnslink;
mod metrics;
#[cfg(feature = "keys")]
mod publish;
mod record;
mod record_cache;
#[cfg(feature = "keys")]
mod republish;
mod resolve;
mod root;
mod store;
mod target;

pub use config::IpnsConfig;
pub use dnslink::{Answers, Link};
#[cfg(feature = "dns")]
pub use dnslink::{DnsConfig, ResolverList};
pub(crate) use metrics::NameMetrics;
#[cfg(feature = "keys")]
pub use publish::{PublishOptions, PublishedName};
pub(crate) use record_cache::Names;
pub use root::{NameRoot, ResolvedName};
