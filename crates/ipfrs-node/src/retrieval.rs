//! Views of the store that retrieve missing blocks, and what a request says about its retrieval.

use std::sync::Arc;
#[cfg(feature = "retrieval")]
use std::time::{Duration, Instant};

#[cfg(feature = "retrieval")]
use async_trait::async_trait;
#[cfg(feature = "retrieval")]
use futures::StreamExt;
use ipfrs_core::Cid;
#[cfg(feature = "retrieval")]
use ipfrs_core::{Block, Error, Result};
#[cfg(feature = "retrieval")]
use ipfrs_retrieval::{Attempt, Retriever, Want, Wanted};
use ipfrs_store::BlockStore;
#[cfg(feature = "retrieval")]
use ipfrs_stream::{DagWalk, StoreSink};
use ipfrs_stream::{Part, Span};
#[cfg(feature = "retrieval")]
use ipfrs_unixfs::BlockSink;
#[cfg(feature = "retrieval")]
use prometheus::Registry;
use tokio::task_local;

#[cfg(feature = "retrieval")]
use crate::config::NodeConfig;
#[cfg(feature = "retrieval")]
use crate::denylist::{Denylists, Guarded};
#[cfg(feature = "retrieval")]
use crate::fetched::Eviction;
#[cfg(feature = "retrieval")]
use crate::keys::Identity;
use crate::{ContentPath, Node};

task_local! {
    /// Context of the request that the current task handles.
    static CONTEXT: RequestContext;
}

/// What a request says about the retrieval of missing blocks. By default, they are retrieved.
#[derive(Debug, Clone, Default)]
pub struct RequestContext {
    /// Whether only blocks of the store may be used.
    pub offline: bool,
    /// Value of the `Via` header; empty without one. It prevents loops between gateways (RFC 9110, 7.6.3).
    pub via: String,
    /// The part of the content that the response needs.
    pub expected: Expected,
}

/// The part of the content that a response needs, which is retrieved together with the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expected {
    /// A file or the entries of a directory.
    #[default]
    Entity,
    /// The target's root block.
    Block,
    /// All blocks below the target.
    All,
    /// Bytes of a file.
    Bytes(Span),
}

/// What [`Node::retrieve`] has done.
#[cfg(feature = "retrieval")]
#[derive(Debug)]
pub struct Retrieved {
    /// Content ID of the target, if it was found.
    pub cid: Option<Cid>,
    /// Number of blocks of the part that are in the store now, and their bytes.
    pub blocks: u64,
    /// See `blocks`.
    pub bytes: u64,
    /// Time that it took.
    pub duration: Duration,
    /// The attempts; empty if everything was in the store.
    pub attempts: Vec<Attempt>,
    /// Reason why a part is missing.
    pub error: Option<Error>,
}

/// Runs `work` with a context. It applies to the methods of [`Node`] that `work` calls, and to the streams that they
/// return, but not to tasks that `work` spawns.
pub async fn with_context<T>(context: RequestContext, work: impl Future<Output = T>) -> T {
    CONTEXT.scope(context, work).await
}

impl Node {
    /// Whether missing blocks are retrieved from other servers.
    #[must_use]
    pub fn retrieves(&self) -> bool {
        #[cfg(feature = "retrieval")]
        return self.inner.retriever.is_some();
        #[cfg(not(feature = "retrieval"))]
        false
    }

    /// Returns the part that the current request needs.
    pub(crate) fn expected_part(&self) -> Part {
        let expected = CONTEXT.try_with(|context| context.expected).unwrap_or_default();
        match expected {
            Expected::Entity => Part::Entity,
            Expected::Block => Part::Block,
            Expected::All => Part::All,
            Expected::Bytes(span) => Part::Bytes(span),
        }
    }

    /// Returns the store for finding the target of a path, of which `part` is going to be read.
    pub(crate) fn path_store(&self, path: &ContentPath, part: Part) -> Arc<dyn BlockStore> {
        #[cfg(feature = "retrieval")]
        if let Some(retriever) = &self.inner.retriever {
            return self.view(retriever, |via| Wanted::Path(want(path, part, via)));
        }
        let _ = (path, part);
        self.inner.served.clone()
    }

    /// Returns the store for reading a part of the target of a path.
    pub(crate) fn part_store(&self, path: &ContentPath, part: Part) -> Arc<dyn BlockStore> {
        #[cfg(feature = "retrieval")]
        if let Some(retriever) = &self.inner.retriever {
            return self.view(retriever, |via| Wanted::Part(want(path, part, via)));
        }
        let _ = (path, part);
        self.inner.served.clone()
    }

    /// Returns the store for reading blocks that do not belong together.
    pub(crate) fn single_store(&self) -> Arc<dyn BlockStore> {
        #[cfg(feature = "retrieval")]
        if let Some(retriever) = &self.inner.retriever {
            return self.view(retriever, |via| Wanted::Blocks { via });
        }
        self.inner.served.clone()
    }

    /// Returns the store for pinning the DAG below a root. Denylists apply to what is retrieved, not to what is pinned.
    pub(crate) fn pinned_store(&self, root: &Cid) -> Arc<dyn BlockStore> {
        #[cfg(feature = "retrieval")]
        if let Some(retriever) = &self.inner.retriever
            && let Some(via) = allowed_via(retriever)
        {
            let wanted = Wanted::Stored(want(&(*root).into(), Part::All, via));
            return Arc::new(retriever.store(self.inner.store.clone(), wanted));
        }
        let _ = root;
        self.inner.store.clone()
    }

    /// Retrieves a part of the target of a path into the store, and reports how. Blocks that are in the store already are
    /// not fetched again.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) if no sources are configured.
    #[cfg(feature = "retrieval")]
    pub async fn retrieve(&self, path: ContentPath, expected: Expected) -> Result<Retrieved> {
        let Some(retriever) = &self.inner.retriever else {
            return Err(Error::unsupported(
                "there is no source to retrieve from: configure retrieval.gateways or retrieval.routers",
            ));
        };
        let (start, root) = (Instant::now(), *path.root());
        // A session may have begun before, for another request.
        let before = retriever.attempts(&root).len();
        let mut retrieved =
            Retrieved { cid: None, blocks: 0, bytes: 0, duration: Duration::ZERO, attempts: Vec::new(), error: None };
        let context = RequestContext { expected, ..RequestContext::default() };
        retrieved.error = with_context(context, self.fetch_part(path, &mut retrieved)).await.err();
        retrieved.attempts = retriever.attempts(&root).into_iter().skip(before).collect();
        retrieved.duration = start.elapsed();
        Ok(retrieved)
    }

    #[cfg(feature = "retrieval")]
    async fn fetch_part(&self, path: ContentPath, retrieved: &mut Retrieved) -> Result<()> {
        let part = self.expected_part();
        let object = self.resolve_for(path.clone(), part).await?.whole()?;
        retrieved.cid = Some(object.cid);
        let store = match &self.inner.retriever {
            Some(retriever) => self.view(retriever, |via| Wanted::Stored(want(&path, part, via))),
            None => self.inner.served.clone(),
        };
        let mut blocks = DagWalk::along(store, Vec::new(), object.cid, part, false, &self.inner.config.streaming);
        while let Some(block) = blocks.next().await {
            retrieved.bytes += block?.data().len() as u64;
            retrieved.blocks += 1;
        }
        Ok(())
    }

    #[cfg(feature = "retrieval")]
    fn view(&self, retriever: &Retriever, wanted: impl FnOnce(Arc<str>) -> Wanted) -> Arc<dyn BlockStore> {
        let Some(via) = allowed_via(retriever) else { return self.inner.served.clone() };
        let store: Arc<dyn BlockStore> = Arc::new(retriever.store(self.inner.store.clone(), wanted(via)));
        match &self.inner.denylists {
            Some(denylists) => Arc::new(Guarded::new(store, denylists.clone())),
            None => store,
        }
    }
}

/// Returns the `Via` header of the current request; `None` if the request may not retrieve anything.
#[cfg(feature = "retrieval")]
fn allowed_via(retriever: &Retriever) -> Option<Arc<str>> {
    let allowed = |context: &RequestContext| {
        (!context.offline && retriever.may_forward(&context.via)).then(|| context.via.as_str().into())
    };
    CONTEXT.try_with(allowed).unwrap_or_else(|_| Some("".into()))
}

#[cfg(feature = "retrieval")]
fn want(path: &ContentPath, part: Part, via: Arc<str>) -> Want {
    Want::new(*path.root(), path.segments().iter().map(|name| name.as_bytes()), part).via(via)
}

/// Sink for fetched blocks, which may be evicted later.
#[cfg(feature = "retrieval")]
struct FetchedSink(Arc<Eviction>);

#[cfg(feature = "retrieval")]
#[async_trait]
impl BlockSink for FetchedSink {
    async fn put(&self, blocks: Vec<Block>) -> Result<()> {
        self.0.put(blocks).await.into_iter().try_for_each(|outcome| outcome.map(|_| ()))
    }
}

/// Creates the retriever of a node. It stores what it fetches in `store`, except for blocks that a denylist blocks. With
/// an `eviction`, these blocks are evicted when the store is full.
#[cfg(feature = "retrieval")]
pub(crate) fn retriever(
    config: &NodeConfig,
    store: Arc<dyn BlockStore>,
    eviction: Option<Arc<Eviction>>,
    denylists: Option<Denylists>,
    identity: &Identity,
    registry: &Registry,
) -> Result<Retriever> {
    let sink: Arc<dyn BlockSink> = match eviction {
        Some(eviction) => Arc::new(FetchedSink(eviction)),
        None => Arc::new(StoreSink(store.clone())),
    };
    let admits = move |cid: &Cid| denylists.as_ref().is_none_or(|denylists| denylists.check_block(cid).is_ok());
    let name = format!("ipfrs-{}", identity.peer_id());
    Retriever::new(&config.retrieval, store, sink, Arc::new(admits), name, registry)
}
