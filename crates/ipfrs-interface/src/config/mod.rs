//! The configuration: the sections of every part in one struct, and how it is read.

mod keys;
mod settings;

use std::time::Duration;

use ipfrs_core::Result;
use ipfrs_grpc::GrpcConfig;
use ipfrs_http::{ApiConfig, CompressionConfig, GatewayConfig, HttpConfig};
use ipfrs_node::{
    BatchConfig, CacheConfig, ConcurrencyConfig, DnsConfig, ImportConfig, IpnsConfig, NodeConfig, RetrievalConfig,
    StoreConfig, StreamingConfig, TensorConfig, UploadConfig,
};

use crate::{LogConfig, ServerConfig};
use keys::keys_of;
pub use settings::{Flag, Settings, Sources};

/// A section by name, with the keys that it reads.
#[derive(Debug)]
pub(crate) struct Section {
    name: &'static str,
    keys: fn() -> &'static [&'static str],
}

macro_rules! sections {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        /// Everything that can be set, by section. Each section lives beside the code that it configures.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct Config {
            $($(#[$doc])* pub $name: $type,)*
        }

        const SECTIONS: &[Section] = &[$(Section { name: stringify!($name), keys: keys_of::<$type> },)*];

        impl Config {
            fn from_settings(settings: &Settings) -> Result<Self> {
                Ok(Self { $($name: settings.section(stringify!($name))?,)* })
            }
        }
    };
}

sections! {
    /// `[server]`: where the daemon listens.
    server: ServerConfig,
    /// `[grpc]`: where gRPC is served.
    grpc: GrpcConfig,
    /// `[concurrency]`: how much work goes on at the same time.
    concurrency: ConcurrencyConfig,
    /// `[streaming]`: how files are sent.
    streaming: StreamingConfig,
    /// `[batch]`: bounds of one batch request.
    batch: BatchConfig,
    /// `[cache]`: what is kept in memory, and what clients may keep.
    cache: CacheConfig,
    /// `[compression]`: content codings of answers.
    compression: CompressionConfig,
    /// `[store]`: where and how blocks are kept.
    store: StoreConfig,
    /// `[import]`: what `add` does where a request does not say.
    import: ImportConfig,
    /// `[upload]`: bounds of uploads of single files.
    upload: UploadConfig,
    /// `[tensor]`: tensors within files.
    tensor: TensorConfig,
    /// `[ipns]`: records of names.
    ipns: IpnsConfig,
    /// `[gateway]`: limits of the gateway.
    gateway: GatewayConfig,
    /// `[api]`: the Kubo RPC.
    api: ApiConfig,
    /// `[dns]`: whom DNSLinks are asked of.
    dns: DnsConfig,
    /// `[log]`: what is logged, and how.
    log: LogConfig,
}

impl Config {
    /// The documented configuration file with every default, as `config init` writes it. The link beside the manifest keeps it
    /// within the crate, so that source distributions have it.
    pub const DEFAULT_TEXT: &str = include_str!("../../gateway.toml");

    /// Reads, checks and joins all sources.
    ///
    /// # Errors
    /// As [`Settings::read`] and [`Settings::config`].
    pub fn load(sources: &Sources) -> Result<Self> {
        Settings::read(sources)?.config()
    }

    /// Checks the ranges of every section.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<()> {
        self.server.validate()?;
        self.grpc.validate()?;
        self.store.validate()?;
        self.http().validate()?;
        self.log.validate()?;
        self.node().validate()
    }

    /// The sections that the HTTP front-end reads.
    #[must_use]
    pub fn http(&self) -> HttpConfig {
        HttpConfig { gateway: self.gateway.clone(), api: self.api.clone(), compression: self.compression.clone() }
    }

    /// The sections that the Node reads.
    #[must_use]
    pub fn node(&self) -> NodeConfig {
        NodeConfig {
            batch: self.batch.clone(),
            cache: self.cache.clone(),
            concurrency: self.concurrency.clone(),
            denylists: self.gateway.denylists.clone(),
            import: self.import.clone(),
            ipns: self.ipns.clone(),
            streaming: self.streaming.clone(),
            tensor: self.tensor.clone(),
            upload: self.upload.clone(),
            dns: self.dns.clone(),
            dnslink: self.gateway.dnslink.clone(),
            retrieval: RetrievalConfig { timeout: Duration::from_secs(self.gateway.retrieval_timeout_seconds) },
        }
    }
}
