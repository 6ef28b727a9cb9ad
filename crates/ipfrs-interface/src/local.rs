//! The same Node and front-end without a listener, for one command while no daemon runs.

use std::future::ready;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::middleware::map_response;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use ipfrs_core::{Error, Result};
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
    /// [`Node::faults`] when it was opened.
    faults: u64,
}

impl Local {
    /// Opens the repo, which is made if it is not there (unless `store.read_only`). `holder` tells another process that wants it who has it.
    ///
    /// # Errors
    /// When the repo is held by another process or cannot be opened.
    pub async fn open(config: &Config, repo: &Path, holder: &str) -> Result<Self> {
        config.validate()?;
        let parts = Parts::open(config, repo, holder).await?;
        if !config.store.read_only {
            remove_stale_url(repo);
        }
        let lifecycle = Lifecycle::new();
        let app = parts.app(config, config.server.port, &lifecycle)?;
        lifecycle.set_ready();
        Ok(Self { faults: parts.node.faults(), node: parts.node, router: app.service.router() })
    }

    /// Answers the requests that a daemon would answer. As a connection does, an answer breaks off when bytes of a stored
    /// file turn out to be gone; at its end at the latest, for what was taken from it before.
    pub fn router(&self) -> Router {
        let (node, faults) = (self.node.clone(), self.faults);
        let watch = move |response: Response| {
            let watched = |inner| Body::new(WatchedBody { inner, node: node.clone(), faults });
            ready(response.map(watched))
        };
        self.router.clone().layer(map_response(watch))
    }

    /// Flushes the store and releases the repo.
    ///
    /// # Errors
    /// When the store could not be flushed.
    pub async fn close(self) -> Result<()> {
        self.node.close().await
    }
}

/// A body that ends well only if everything that it gave was there.
struct WatchedBody {
    inner: Body,
    node: Node,
    faults: u64,
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if self.node.faults() == self.faults {
            return Poll::Ready(frame);
        }
        let lost = Error::corrupt(
            "a pack was truncated while it was read: what was read may be wrong; restore the file from a copy, or try \
             again to go on without what is lost",
        );
        Poll::Ready(Some(Err(axum::Error::new(lost))))
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
