//! Components that the daemon and a single command share: a metrics registry, an open Node, and the front-end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::{Error, Result};
use ipfrs_graphql::GraphQl;
use ipfrs_grpc::{Grpc, Limits};
use ipfrs_http::{App, Configuration, Lifecycle, Service};
use ipfrs_middleware::{MemoryPool, Rules, TrustedProxies};
use ipfrs_node::{BlockStore, Node};
use prometheus::Registry;
use prometheus::process_collector::ProcessCollector;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::config::Provenance;
use crate::conn::front_end::FrontEnd;
use crate::tls::Tls;
use crate::{Config, log_levels};

/// Components that are opened before serving.
pub(crate) struct Parts {
    pub(crate) node: Node,
    /// Memory for request bodies, which all front-ends share.
    memory: MemoryPool,
    registry: Registry,
}

impl Parts {
    /// Opens the repo, and creates it if it does not exist. `holder` identifies this process to others that find the
    /// repo locked.
    pub(crate) async fn open(config: &Config, repo: &Path, holder: &str) -> Result<Self> {
        let registry = registry()?;
        let node = Node::builder(repo)
            .store(config.store.clone())
            .config(config.node())
            .holder(holder)
            .registry(&registry)
            .open()
            .await?;
        Self::new(node, registry)
    }

    /// Same as [`open`](Self::open), with an engine that the caller has opened.
    pub(crate) async fn over(config: &Config, repo: &Path, engine: Arc<dyn BlockStore>) -> Result<Self> {
        let registry = registry()?;
        let node = Node::builder(repo)
            .store(config.store.clone())
            .engine(engine)
            .config(config.node())
            .registry(&registry)
            .open()
            .await?;
        Self::new(node, registry)
    }

    fn new(node: Node, registry: Registry) -> Result<Self> {
        let memory = MemoryPool::register(&node, &registry)?;
        Ok(Self { node, memory, registry })
    }

    /// Returns the rules of a daemon about callers and clients.
    pub(crate) async fn rules(&self, config: &Config) -> Result<Rules> {
        Rules::of_daemon(&self.node, &config.auth, &config.rate_limit, &self.registry).await
    }

    /// Reads the certificates of a daemon, if `[tls]` is on.
    pub(crate) async fn tls(&self, config: &Config, repo: &Path) -> Result<Option<Tls>> {
        if !config.tls.acme.domains.is_empty() && config.store.read_only {
            return Err(Error::invalid(
                "tls.acme stores its certificate in the repo, which is read-only (store.read_only)",
            ));
        }
        let protocols = [<Service as FrontEnd>::ALPN, <Grpc as FrontEnd>::ALPN];
        Tls::open(&config.tls, &protocols, repo, &self.registry).await
    }

    /// Creates the gRPC services of the Node, with separate limits.
    pub(crate) fn grpc(&self, config: &Config, lifecycle: &Lifecycle, rules: &Rules) -> Result<Grpc> {
        let limits = Limits {
            rules: rules.clone(),
            calls: (config.grpc.max_concurrent_calls, config.grpc.max_calls_per_client),
            proxies: TrustedProxies::new(&config.gateway.trusted_proxies),
            upload_idle: Duration::from_secs(config.gateway.upload_idle_seconds),
            compression: config.compression.enabled,
        };
        Grpc::new(&self.node, &self.memory, limits, lifecycle, &self.registry)
    }

    /// Creates the HTTP front-end of the Node, with GraphQL. `port` is the port that browsers may send in `Origin`.
    pub(crate) fn app(&self, config: &Config, port: u16, lifecycle: &Lifecycle, rules: &Rules) -> Result<App> {
        let (node, memory, registry) = (&self.node, &self.memory, &self.registry);
        let (http, shared) = (config.http(), memory.clone());
        let mut app = ipfrs_http::app(node.clone(), &http, port, lifecycle.clone(), shared, rules.clone(), registry)?;
        let Provenance { shown, file, .. } = &config.provenance;
        if let Some(shown) = shown {
            let file = file.clone().map(|file| Arc::new(file) as Arc<dyn Configuration>);
            app.service.show_configuration(shown.clone(), file);
            log_levels::process_log().into_iter().for_each(|log| app.service.offer_log(log));
        }
        if config.graphql.enabled {
            let graphql = GraphQl::new(node, &config.graphql, memory, &app.websockets, rules, lifecycle, registry)?;
            app.service.mount_graphql(graphql.routes());
        }
        Ok(app)
    }
}

/// Creates the metrics registry, with the metrics of the process, and raises the limit on open files.
fn registry() -> Result<Registry> {
    raise_open_file_limit();
    let registry = Registry::new();
    registry
        .register(Box::new(ProcessCollector::for_self()))
        .map_err(|e| Error::internal("the process metrics could not be registered").with_source(e))?;
    Ok(registry)
}

/// Raises the limit on open files, because each connection uses a descriptor. The usual soft limit of 1,024 exists
/// only for programs that use `select`.
fn raise_open_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files to its maximum");
    }
}
