//! Creation of the retriever of a node.

use std::sync::Arc;

use async_trait::async_trait;
use ipfrs_core::{Block, Cid, Result};
use ipfrs_retrieval::Retriever;
use ipfrs_store::BlockStore;
use ipfrs_stream::StoreSink;
use ipfrs_unixfs::BlockSink;
use prometheus::Registry;

use crate::config::NodeConfig;
use crate::denylist::Denylists;
use crate::fetched::Eviction;
use crate::keys::Identity;

/// Sink for fetched blocks, which may be evicted later.
struct FetchedSink(Arc<Eviction>);

#[async_trait]
impl BlockSink for FetchedSink {
    async fn put(&self, blocks: Vec<Block>) -> Result<()> {
        self.0.put(blocks).await.into_iter().try_for_each(|outcome| outcome.map(|_| ()))
    }
}

/// Creates the retriever of a node. It stores what it fetches in `store`, except for blocks that a denylist blocks.
/// With an `eviction`, these blocks are evicted when the store is full.
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
