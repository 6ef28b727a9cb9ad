//! The configuration: a struct with the sections of all crates, and functions to read it.

mod check;
mod credentials;
mod edit;
mod entries;
mod file;
mod key_names;
mod known_names;
mod plain_words;
mod reloaded;
mod settings;
mod sources;

use std::time::Duration;

use ipfrs_core::{Error, Result};
use ipfrs_graphql::GraphQlConfig;
use ipfrs_grpc::GrpcConfig;
use ipfrs_http::{ApiConfig, CompressionConfig, GatewayConfig, HttpConfig};
use ipfrs_middleware::auth::AuthConfig;
use ipfrs_middleware::rate_limit::RateLimitConfig;
use ipfrs_middleware::websocket::WebSocketConfig;
use ipfrs_node::{
    BatchConfig, CacheConfig, ConcurrencyConfig, DnsConfig, ImportConfig, IngestConfig, IpnsConfig, MutableFilesConfig,
    NodeConfig, PinningConfig, ReadConfig, RetrievalConfig, StoreConfig, StreamingConfig, TensorConfig, UploadConfig,
};

use crate::{LogConfig, PublicConfig, ServerConfig, TlsConfig};
pub use file::ConfigFile;
use ipfrs_http::Change;
use key_names::keys_of;
pub use reloaded::AppliedBy;
pub use settings::Settings;
pub use sources::{Flag, Sources};
use toml::Table;

/// A section name and the keys that the section reads.
#[derive(Debug)]
pub(crate) struct Section {
    name: &'static str,
    keys: fn() -> &'static [&'static str],
    /// Returns the values of the keys that are set.
    values: fn(&Settings) -> Result<Table>,
}

/// Origin of settings. Configurations with equal settings are equal, whatever their origin.
#[derive(Debug, Clone, Default)]
pub(crate) struct Provenance {
    /// All settings as JSON, without credentials, if they were read from [`Sources`].
    pub(crate) shown: Option<String>,
    /// The file that some of them may be in.
    pub(crate) file: Option<ConfigFile>,
    /// Environment variables that are named like settings, but resemble none.
    pub(crate) ignored: Vec<String>,
}

impl Provenance {
    /// Takes over what is shown of `keys`: of single ones such as `log.level`, and of whole sections.
    ///
    /// # Errors
    /// Never for what [`Settings`] returns.
    fn take_over(&mut self, next: &Self, keys: impl Iterator<Item = &'static str>) -> Result<()> {
        let (Some(mut merged), Some(next)) = (self.values()?, next.values()?) else { return Ok(()) };
        for key in keys {
            let of_next = key.split('.').fold(&next, |value, name| &value[name]).clone();
            *key.split('.').fold(&mut merged, |value, name| &mut value[name]) = of_next;
        }
        self.shown = Some(merged.to_string());
        Ok(())
    }

    /// Returns what is shown.
    ///
    /// # Errors
    /// Never for what [`Settings`] returns.
    fn values(&self) -> Result<Option<serde_json::Value>> {
        let parsed = self.shown.as_deref().map(serde_json::from_str).transpose();
        parsed.map_err(|e| Error::internal("the configuration is not JSON").with_source(e))
    }
}

impl PartialEq for Provenance {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Provenance {}

macro_rules! sections {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        /// All settings, by section. Each section is defined next to the code that it configures.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct Config {
            $($(#[$doc])* pub $name: $type,)*
            /// Origin of the settings.
            pub(crate) provenance: Provenance,
        }

        const SECTIONS: &[Section] = &[$(Section {
            name: stringify!($name),
            keys: keys_of::<$type>,
            values: |settings| settings.values::<$type>(stringify!($name)),
        },)*];

        impl Config {
            /// Returns the names of the sections that differ from those of another configuration.
            pub(crate) fn differing(&self, other: &Self) -> Vec<&'static str> {
                let mut names = Vec::new();
                $(if self.$name != other.$name {
                    names.push(stringify!($name));
                })*
                names
            }

            fn from_settings(settings: &Settings) -> Result<Self> {
                let (shown, ignored) = (Some(settings.shown()?), settings.ignored().to_vec());
                let provenance = Provenance { shown, file: settings.file(), ignored };
                Ok(Self { $($name: settings.section(stringify!($name))?,)* provenance })
            }
        }
    };
}

sections! {
    /// `[server]`: listen address and limits of a connection.
    server: ServerConfig,
    /// `[tls]`: HTTPS.
    tls: TlsConfig,
    /// `[auth]`: who may use the daemon.
    auth: AuthConfig,
    /// `[rate_limit]`: requests and bytes of one client or caller.
    rate_limit: RateLimitConfig,
    /// `[public]`: a listener with the read-only gateway only.
    public: PublicConfig,
    /// `[grpc]`: the gRPC services.
    grpc: GrpcConfig,
    /// `[graphql]`: limits of GraphQL requests.
    graphql: GraphQlConfig,
    /// `[concurrency]`: limits on concurrent work.
    concurrency: ConcurrencyConfig,
    /// `[streaming]`: how files are sent.
    streaming: StreamingConfig,
    /// `[batch]`: limits of one batch request.
    batch: BatchConfig,
    /// `[cache]`: caches of the daemon and of clients.
    cache: CacheConfig,
    /// `[compression]`: content codings of responses.
    compression: CompressionConfig,
    /// `[store]`: location and format of the blocks.
    store: StoreConfig,
    /// `[import]`: defaults of `add`, of mutable files, and of the hash of `block put` and `dag put`.
    import: ImportConfig,
    /// `[mutable_files]`: limits of mutable files.
    mutable_files: MutableFilesConfig,
    /// `[upload]`: limits of uploads of single files.
    upload: UploadConfig,
    /// `[tensor]`: tensors in files.
    tensor: TensorConfig,
    /// `[pinning]`: the pinning service API.
    pinning: PinningConfig,
    /// `[ingest]`: objects that clients send over a WebSocket.
    ingest: IngestConfig,
    /// `[ipns]`: name records.
    ipns: IpnsConfig,
    /// `[gateway]`: limits of the gateway.
    gateway: GatewayConfig,
    /// `[api]`: the Kubo RPC.
    api: ApiConfig,
    /// `[websocket]`: limits of WebSocket connections.
    websocket: WebSocketConfig,
    /// `[dns]`: resolvers for DNSLinks.
    dns: DnsConfig,
    /// `[retrieval]`: where missing blocks are fetched from.
    retrieval: RetrievalConfig,
    /// `[log]`: log output.
    log: LogConfig,
}

impl Config {
    /// The documented configuration file with every default, as `config init` writes it. The file is a symlink inside
    /// the crate, so that source distributions contain it.
    pub const DEFAULT_TEXT: &str = include_str!("../gateway.toml");

    /// Returns what the documented configuration file says about a key such as `server.workers`.
    #[must_use]
    pub fn description(key: &str) -> Option<String> {
        let (section, name) = key.rsplit_once('.')?;
        let is_head = |line: &&str| line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) == Some(section);
        let mut comment = Vec::new();
        for line in Self::DEFAULT_TEXT.lines().skip_while(|line| !is_head(line)).skip(1) {
            let set = line.strip_prefix("# ").unwrap_or(line).split_once(" = ").map(|(set, _)| set);
            match line.strip_prefix("# ") {
                _ if set == Some(name) => return (!comment.is_empty()).then(|| comment.join(" ")),
                Some(text) if set.is_none_or(|set| set.contains(' ')) => comment.push(text),
                _ if line.starts_with('[') => return None,
                _ => comment.clear(),
            }
        }
        None
    }

    /// Returns the environment variables that are named like settings and were ignored, because they resemble none.
    #[must_use]
    pub fn ignored_variables(&self) -> &[String] {
        &self.provenance.ignored
    }

    /// Returns whether the settings contain what is not shown: secrets of callers, the key of a private network, and
    /// passwords and queries in URLs.
    #[must_use]
    pub fn has_credentials(&self) -> bool {
        self.provenance.shown.as_deref().is_some_and(|shown| shown.contains(credentials::HIDDEN))
    }

    /// Returns the text of a configuration file with these settings.
    ///
    /// # Errors
    /// A change has no key, or a value that cannot be in a file.
    pub fn text_of(changes: &[Change]) -> Result<String> {
        edit::edited("", changes)
    }

    /// Reads, checks and merges all sources.
    ///
    /// # Errors
    /// As [`Settings::read`] and [`Settings::config`].
    pub fn load(sources: &Sources) -> Result<Self> {
        Settings::read(sources)?.config()
    }

    /// Checks the ranges of every section.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind). The message contains the key, the value and what is
    /// accepted.
    pub fn validate(&self) -> Result<()> {
        self.server.validate()?;
        self.tls.validate()?;
        self.auth.validate()?;
        self.rate_limit.validate()?;
        self.public.validate()?;
        if self.auth.enabled && self.ingest.needs_password() {
            return Err(Error::invalid(
                "ingest.user: with auth.enabled, clients of /ws/ingest authenticate with an API key that has the scope \
                 write, as the password of any user: remove ingest.user and ingest.password_sha256",
            ));
        }
        // With a store that is read-only, no peers are connected.
        if self.auth.private_gateway && !self.store.read_only && self.retrieval.serves_any_peer() {
            return Err(Error::invalid(
                "retrieval.bitswap.serve: with auth.private_gateway, any peer could fetch the content without a key: \
                 set serve = false or private_network_key in [retrieval.bitswap]",
            ));
        }
        self.grpc.validate()?;
        self.graphql.validate()?;
        self.store.validate()?;
        self.http().validate()?;
        self.log.validate()?;
        self.node().validate()
    }

    /// Checks that the hosts of all listeners are addresses or names, and permitted
    /// ([`may_listen_anywhere`](Self::may_listen_anywhere)).
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`](ipfrs_core::ErrorKind) for an address that is not permitted;
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a text that is neither an address nor a name.
    pub fn check_hosts(&self) -> Result<()> {
        crate::listen::check_hosts(self)
    }

    /// Returns whether listeners with more than the read-only gateway may use addresses other than loopback.
    #[must_use]
    pub fn may_listen_anywhere(&self) -> bool {
        self.auth.enabled || self.server.allow_unauthenticated
    }

    /// Returns the sections that the HTTP front-end reads.
    #[must_use]
    pub fn http(&self) -> HttpConfig {
        HttpConfig {
            gateway: self.gateway.clone(),
            api: self.api.clone(),
            compression: self.compression.clone(),
            websocket: self.websocket.clone(),
            hosts: self.server.hosts.clone(),
        }
    }

    /// Returns `[retrieval]` with what the node tells peers about itself.
    #[cfg(feature = "bitswap")]
    fn retrieval_of_node(&self) -> RetrievalConfig {
        let mut retrieval = self.retrieval.clone();
        retrieval.bitswap.agent_version = Some(self.api.agent_version());
        retrieval
    }

    #[cfg(not(feature = "bitswap"))]
    fn retrieval_of_node(&self) -> RetrievalConfig {
        self.retrieval.clone()
    }

    /// Returns the sections that the Node reads.
    #[must_use]
    pub fn node(&self) -> NodeConfig {
        NodeConfig {
            batch: self.batch.clone(),
            cache: self.cache.clone(),
            concurrency: self.concurrency.clone(),
            denylists: self.gateway.denylists.clone(),
            import: self.import.clone(),
            mutable_files: self.mutable_files.clone(),
            ingest: self.ingest.clone(),
            pinning: self.pinning.clone(),
            ipns: self.ipns.clone(),
            streaming: self.streaming.clone(),
            tensor: self.tensor.clone(),
            upload: self.upload.clone(),
            dns: self.dns.clone(),
            dnslink: self.gateway.dnslink.clone(),
            retrieval: self.retrieval_of_node(),
            reads: ReadConfig { timeout: Duration::from_secs(self.gateway.retrieval_timeout_seconds) },
        }
    }
}
