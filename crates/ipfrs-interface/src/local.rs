//! The Node and the front-end without a listener, for one command while no daemon runs.

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
    /// Value of [`Node::faults`] when the repo was opened.
    faults: u64,
}

impl Local {
    /// Opens the repo, and creates it if it does not exist (unless `store.read_only`). `holder` identifies this
    /// process to others that find the repo locked.
    ///
    /// # Errors
    /// The repo is locked by another process or cannot be opened.
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

    /// Returns a router for the requests that a daemon would serve. As on a connection, a response is aborted if
    /// bytes of a stored file turn out to be missing. The check takes place before each piece and at the end, and so
    /// covers all bytes that were read before.
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
    /// The store could not be flushed.
    pub async fn close(self) -> Result<()> {
        self.node.close().await
    }
}

/// A body that succeeds only if all bytes that it yielded were present in the store.
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
            "a pack was truncated while it was read: its data may be wrong; restore the file from a copy, or try \
             again to continue without the lost data",
        );
        Poll::Ready(Some(Err(axum::Error::new(lost))))
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
