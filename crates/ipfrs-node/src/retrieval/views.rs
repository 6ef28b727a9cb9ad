//! Views of the store that retrieve missing blocks from other servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use ipfrs_core::{Cid, Error, ErrorKind, Result};
use ipfrs_retrieval::{Attempt, Requester, Retriever, Want, Wanted};
use ipfrs_store::BlockStore;
use ipfrs_stream::{DagWalk, Part};

use super::{CONTEXT, Expected, RequestContext, current_client, with_context};
use crate::{ContentPath, Node};

/// Result of [`Node::retrieve`].
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
    /// Reason why a part is missing: it was not retrieved, or removed again ([`ErrorKind::NoSpace`]).
    pub error: Option<Error>,
}

impl Node {
    /// Whether missing blocks are retrieved from other servers.
    #[must_use]
    pub fn retrieves(&self) -> bool {
        self.inner.retriever.is_some()
    }

    /// Whether there are routers, which name providers.
    #[must_use]
    pub fn has_routers(&self) -> bool {
        self.inner.retriever.as_ref().is_some_and(Retriever::has_routers)
    }

    /// Returns providers of a block that routers name: at most `most` peer IDs, each once, with their addresses.
    /// `to_id` normalizes an ID, or rejects it. There are no providers if the current request may not retrieve
    /// anything.
    pub async fn find_providers(
        &self,
        cid: &Cid,
        most: usize,
        to_id: impl Fn(&str) -> Option<String> + Send + Sync,
    ) -> Vec<(String, Vec<String>)> {
        match self.allowed_retriever() {
            Some((retriever, _)) => retriever.providers(cid, most, current_client(), to_id).await,
            None => Vec::new(),
        }
    }

    /// Returns the store for finding the target of a path, of which `part` is going to be read.
    pub(crate) fn path_store(&self, path: &ContentPath, part: Part) -> Arc<dyn BlockStore> {
        self.view(self.store_below(path.root()), |via| Wanted::Path(want(path, part, via)))
    }

    /// Returns the store for reading a part of the target of a path.
    pub(crate) fn part_store(&self, path: &ContentPath, part: Part) -> Arc<dyn BlockStore> {
        self.view(self.store_below(path.root()), |via| Wanted::Part(want(path, part, via)))
    }

    /// Returns the store for reading blocks that do not belong together.
    pub(crate) fn single_store(&self) -> Arc<dyn BlockStore> {
        self.view(self.inner.store.clone(), |via| Wanted::Blocks { via })
    }

    /// Returns the store for pinning a part of the DAG below a root. Denylists apply to what is retrieved, not to what
    /// is pinned. Blocks that it fetches are content of users.
    pub(crate) fn pinned_store(&self, root: &Cid, part: Part) -> Arc<dyn BlockStore> {
        self.unguarded_view(self.inner.store.clone(), |via| Wanted::Pinned(want(&(*root).into(), part, via)))
    }

    /// Returns the store for finding what a path of a pin leads to.
    pub(crate) fn pinned_path_store(&self, path: &ContentPath) -> Arc<dyn BlockStore> {
        self.unguarded_view(self.inner.store.clone(), |via| Wanted::Path(want(path, Part::Block, via)))
    }

    /// Retrieves a part of the target of a path into the store, and reports how. Blocks that are in the store already
    /// are not fetched again.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) if no sources are configured.
    pub async fn retrieve(&self, path: ContentPath, expected: Expected) -> Result<Retrieved> {
        let Some(retriever) = &self.inner.retriever else {
            return Err(Error::unsupported(
                "there is no source to retrieve from: configure retrieval.gateways, retrieval.routers or retrieval.bitswap",
            ));
        };
        let (start, root) = (Instant::now(), *path.root());
        let mut retrieved =
            Retrieved { cid: None, blocks: 0, bytes: 0, duration: Duration::ZERO, attempts: Vec::new(), error: None };
        let context = RequestContext { expected, ..RequestContext::default() };
        retrieved.error = with_context(context, self.fetch_part(path, &mut retrieved)).await.err();
        // The session may have begun before, for another request.
        retrieved.attempts = retriever.attempts(&root, start.into());
        retrieved.duration = start.elapsed();
        Ok(retrieved)
    }

    async fn fetch_part(&self, path: ContentPath, retrieved: &mut Retrieved) -> Result<()> {
        let (part, epoch) = (self.expected_part(), self.inner.store.epoch());
        let object = self.resolve_for(path.clone(), part).await?.whole()?;
        retrieved.cid = Some(object.cid);
        let store = self.view(self.inner.store.clone(), |via| Wanted::Stored(want(&path, part, via)));
        self.count_part(store, object.cid, part, retrieved).await?;
        if self.inner.store.epoch() == epoch {
            return Ok(());
        }
        // Blocks were removed meanwhile, perhaps some of these.
        let kept = self.count_part(self.inner.store.clone(), object.cid, part, retrieved).await;
        kept.map_err(|error| match error.missing_block() {
            Some(cid) => Error::new(ErrorKind::NoSpace, self.removed_text(&cid)).with_source(error),
            None => error,
        })
    }

    /// Counts the blocks of a part that a store returns.
    async fn count_part(
        &self,
        store: Arc<dyn BlockStore>,
        target: Cid,
        part: Part,
        retrieved: &mut Retrieved,
    ) -> Result<()> {
        (retrieved.blocks, retrieved.bytes) = (0, 0);
        let mut blocks = DagWalk::along(store, Vec::new(), target, part, false, &self.inner.config.streaming);
        while let Some(block) = blocks.next().await {
            retrieved.bytes += block?.data().len() as u64;
            retrieved.blocks += 1;
        }
        Ok(())
    }

    fn removed_text(&self, cid: &Cid) -> String {
        let remedy = match self.store_limit() {
            0 => "garbage collection ran: pin the content instead".to_owned(),
            limit => format!(
                "the store is too small for all of it (store.max_bytes = {limit}): raise the limit, or pin \
                 the content, which may exceed it"
            ),
        };
        format!("block {cid} was removed while others were retrieved; {remedy}")
    }

    /// Whether the current request may retrieve blocks.
    pub(crate) fn may_retrieve(&self) -> bool {
        self.allowed_retriever().is_some()
    }

    /// Waits until all blocks that were fetched so far are stored. A request may end before its blocks are.
    pub(crate) async fn until_fetched_are_stored(&self) {
        if let Some(retriever) = &self.inner.retriever {
            retriever.until_stored().await;
        }
    }

    /// Returns a view of `local` that retrieves missing blocks, if the request may.
    fn view(&self, local: Arc<dyn BlockStore>, wanted: impl FnOnce(Arc<str>) -> Wanted) -> Arc<dyn BlockStore> {
        self.guarded(self.unguarded_view(local, wanted))
    }

    fn unguarded_view(
        &self,
        local: Arc<dyn BlockStore>,
        wanted: impl FnOnce(Arc<str>) -> Wanted,
    ) -> Arc<dyn BlockStore> {
        match self.allowed_retriever() {
            Some((retriever, via)) => Arc::new(retriever.store(local, wanted(via), requester())),
            None => local,
        }
    }

    /// Returns the retriever and the `Via` header of the current request; `None` if the request may not retrieve
    /// anything.
    fn allowed_retriever(&self) -> Option<(&Retriever, Arc<str>)> {
        let retriever = self.inner.retriever.as_ref()?;
        let allowed = |context: &RequestContext| {
            (!context.offline && retriever.may_forward(&context.via)).then(|| context.via.as_str().into())
        };
        let via = CONTEXT.try_with(allowed).unwrap_or_else(|_| Some("".into()))?;
        Some((retriever, via))
    }
}

/// Returns the client of the current request, the sources that it names, and when it began.
fn requester() -> Requester {
    let of_context = |context: &RequestContext| Requester {
        client: None,
        hints: context.hints.clone(),
        began: context.began.map(Into::into),
        waits_for_peers: context.waits_for_peers,
    };
    Requester { client: current_client(), ..CONTEXT.try_with(of_context).unwrap_or_default() }
}

fn want(path: &ContentPath, part: Part, via: Arc<str>) -> Want {
    if path.is_ipld() {
        // Gateways resolve names of files and directories only.
        return Want::new(*path.root(), [], Part::Block).via(via);
    }
    Want::new(*path.root(), path.segments().iter().map(|name| name.as_bytes()), part).via(via)
}
