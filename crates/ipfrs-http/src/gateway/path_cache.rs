//! The path cache: resolved paths, with the parts of responses that depend only on the path.

use std::sync::{Arc, OnceLock};

use http::{HeaderMap, HeaderValue};
use ipfrs_node::{CacheMeter, EpochCache, Node, ResolvedPath};
use quick_cache::Weighter;

use super::address::Address;

/// Bytes per entry in addition to its texts and links, as measured: the content type and address headers, which are
/// determined later, allocations, and the place in the cache.
const ENTRY_BYTES: u64 = 1_536;

/// Bytes reserved for the headers of partial responses, which only files of several blocks have.
const PARTIAL_HEAD_BYTES: u64 = 2_048;

/// Cached paths, by their text as clients write it.
#[derive(Debug)]
pub(crate) struct PathCache {
    /// `None` if caching is disabled.
    cache: Option<Arc<EpochCache<String, Arc<CachedPath>, ByMemory>>>,
    meter: CacheMeter,
}

/// Entry of the path cache.
#[derive(Debug)]
pub(super) struct CachedPath {
    pub(super) resolved: Arc<ResolvedPath>,
    /// Content type by the first bytes of the file, once it was determined.
    pub(super) content_type: OnceLock<HeaderValue>,
    /// Headers of partial responses for the file at the path; see [`super::range_response`].
    pub(super) partial_head: OnceLock<HeaderMap>,
    /// Address headers of the content.
    address: OnceLock<Address>,
}

impl CachedPath {
    pub(super) fn new(resolved: Arc<ResolvedPath>) -> Arc<Self> {
        let (content_type, partial_head, address) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Arc::new(Self { resolved, content_type, partial_head, address })
    }

    /// Returns the address headers of the content. `content_path` is the text of this path.
    pub(super) fn address(&self, content_path: &str) -> &Address {
        self.address.get_or_init(|| Address::of(content_path))
    }
}

#[derive(Debug, Clone)]
struct ByMemory;

impl Weighter<String, Arc<CachedPath>> for ByMemory {
    fn weight(&self, text: &String, path: &Arc<CachedPath>) -> u64 {
        let head = if path.resolved.is_file_of_several_blocks() { PARTIAL_HEAD_BYTES } else { 0 };
        // Headers repeat the path twice and list the roots again.
        let headers = 3 * text.len() + path.resolved.roots.len();
        headers as u64 + ENTRY_BYTES + head + path.resolved.memory_bytes()
    }
}

impl PathCache {
    pub(crate) fn new(node: &Node) -> Self {
        Self { cache: node.configured_cache(ByMemory), meter: node.cache_meter("path") }
    }

    /// Returns the entry of a path, if there is one that is still valid.
    pub(super) fn lookup(&self, text: &str) -> Option<Arc<CachedPath>> {
        let found = self.cache.as_ref()?.get(text);
        self.meter.looked_up(found.is_some());
        found
    }

    /// Stores the entry of a path that was requested before.
    pub(super) fn insert(&self, text: &str, path: &Arc<CachedPath>) {
        if let Some(cache) = self.cache.as_ref().filter(|cache| cache.is_wanted(text)) {
            cache.insert(text.to_owned(), path.clone(), path.resolved.provenance);
        }
    }

    /// Updates the gauge of the size.
    pub(crate) fn measure(&self) {
        self.meter.set_bytes(self.cache.as_ref().map_or(0, |cache| cache.weight()));
    }
}
