//! Views of the store without the feature `retrieval`: the store itself.

use std::sync::Arc;

use ipfrs_core::Cid;
use ipfrs_store::BlockStore;
use ipfrs_stream::Part;

use crate::{ContentPath, Node};

impl Node {
    /// Whether missing blocks are retrieved from other servers.
    #[must_use]
    pub fn retrieves(&self) -> bool {
        false
    }

    /// Whether there are routers, which name providers.
    #[must_use]
    pub fn has_routers(&self) -> bool {
        false
    }

    /// Returns no providers: there are no routers.
    #[expect(clippy::unused_async, reason = "the other implementation waits")]
    pub async fn find_providers(
        &self,
        _cid: &Cid,
        _most: usize,
        _to_id: impl Fn(&str) -> Option<String> + Send + Sync,
    ) -> Vec<(String, Vec<String>)> {
        Vec::new()
    }

    pub(crate) fn path_store(&self, path: &ContentPath, _part: Part) -> Arc<dyn BlockStore> {
        self.guarded(self.store_below(path.root()))
    }

    pub(crate) fn part_store(&self, path: &ContentPath, _part: Part) -> Arc<dyn BlockStore> {
        self.guarded(self.store_below(path.root()))
    }

    pub(crate) fn single_store(&self) -> Arc<dyn BlockStore> {
        self.inner.served.clone()
    }

    pub(crate) fn pinned_store(&self, _root: &Cid, _part: Part) -> Arc<dyn BlockStore> {
        self.inner.store.clone()
    }

    pub(crate) fn pinned_path_store(&self, _path: &ContentPath) -> Arc<dyn BlockStore> {
        self.inner.store.clone()
    }

    #[expect(clippy::unused_async, reason = "the other implementation waits")]
    pub(crate) async fn until_fetched_are_stored(&self) {}

    #[expect(clippy::unused_self, reason = "the other implementation needs it")]
    pub(crate) fn may_retrieve(&self) -> bool {
        false
    }
}
