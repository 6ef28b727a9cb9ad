//! What the daemon and a single command both need: a registry, an open Node, and the front-end over it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::{Error, Result};
use ipfrs_grpc::{Grpc, Limits};
use ipfrs_http::{App, Lifecycle};
use ipfrs_node::{BlockStore, Node, TrustedProxies};
use prometheus::Registry;
use prometheus::process_collector::ProcessCollector;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::Config;

/// Everything that is opened before anything is served.
pub(crate) struct Parts {
    pub(crate) node: Node,
    registry: Registry,
}

impl Parts {
    /// Opens the repo, which is made if it is not there. `holder` tells another process that wants it who has it.
    pub(crate) async fn open(config: &Config, repo: &Path, holder: &str) -> Result<Self> {
        let registry = registry()?;
        let node = Node::open(repo, config.store.clone(), config.node(), holder, &registry).await?;
        Ok(Self { node, registry })
    }

    /// The same over an engine that somebody else opened.
    pub(crate) async fn over(config: &Config, repo: &Path, engine: Arc<dyn BlockStore>) -> Result<Self> {
        let registry = registry()?;
        let node = Node::over(engine, repo, config.node(), &registry).await?;
        Ok(Self { node, registry })
    }

    /// gRPC over the same Node, with limits of its own.
    pub(crate) fn grpc(&self, config: &Config, lifecycle: &Lifecycle) -> Result<Grpc> {
        let limits = Limits {
            calls: (config.grpc.max_concurrent_calls, config.grpc.max_calls_per_client),
            proxies: TrustedProxies::new(&config.gateway.trusted_proxies),
            upload_idle: Duration::from_secs(config.gateway.upload_idle_seconds),
            compression: config.compression.enabled,
        };
        Grpc::new(&self.node, limits, lifecycle, &self.registry)
    }

    /// The front-end over the Node. `port` is the one that browsers may name in `Origin`.
    pub(crate) fn app(&self, config: &Config, port: u16, lifecycle: &Lifecycle) -> Result<App> {
        ipfrs_http::app(self.node.clone(), &config.http(), port, lifecycle.clone(), &self.registry)
    }
}

/// The registry of all metrics, with those of the process, which may open as many files as it is allowed from here on.
fn registry() -> Result<Registry> {
    raise_open_file_limit();
    let registry = Registry::new();
    registry
        .register(Box::new(ProcessCollector::for_self()))
        .map_err(|e| Error::internal("the process metrics could not be registered").with_source(e))?;
    Ok(registry)
}

/// A connection is a descriptor, and the usual soft limit of 1,024 is kept only for programs that use `select`.
fn raise_open_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files could not be raised to its maximum");
    }
}
