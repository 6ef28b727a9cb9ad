//! The same Node and front-end without a listener, for one command while no daemon runs.

use std::path::Path;

use axum::Router;
use ipfrs_core::Result;
use ipfrs_http::Lifecycle;
use ipfrs_node::Node;

use crate::Config;
use crate::gateway::remove_stale_url;
use crate::parts::Parts;

/// A repo that is open in this process.
#[derive(Debug)]
pub struct Local {
    node: Node,
    router: Router,
}

impl Local {
    /// Opens the repo, which is made if it is not there. `holder` tells another process that wants it who has it.
    ///
    /// # Errors
    /// When the repo is held by another process or cannot be opened.
    pub async fn open(config: &Config, repo: &Path, holder: &str) -> Result<Self> {
        config.validate()?;
        let parts = Parts::open(config, repo, holder).await?;
        remove_stale_url(repo);
        let lifecycle = Lifecycle::new();
        let app = parts.app(config, config.server.port, &lifecycle)?;
        lifecycle.set_ready();
        Ok(Self { node: parts.node, router: app.service.router() })
    }

    /// Answers the requests that a daemon would answer.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// Flushes the store and releases the repo.
    ///
    /// # Errors
    /// When the store could not be flushed.
    pub async fn close(self) -> Result<()> {
        self.node.close().await
    }
}
