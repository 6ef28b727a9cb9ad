//! Creation of the retriever of a node.

use std::sync::Arc;

use async_trait::async_trait;
use ipfrs_core::{Block, Cid, Result};
use ipfrs_retrieval::{Ended, Exchange, Retriever};
use ipfrs_store::BlockStore;
use ipfrs_stream::StoreSink;
use ipfrs_unixfs::BlockSink;
use prometheus::Registry;

use crate::config::NodeConfig;
use crate::denylist::Denylists;
use crate::events::{EventData, Events, Topic};
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
/// With an `eviction`, these blocks are evicted when the store is full. With an `exchange`, it also asks peers.
#[expect(clippy::too_many_arguments, reason = "the parts of a node, each of another type")]
pub(crate) fn retriever(
    config: &NodeConfig,
    store: Arc<dyn BlockStore>,
    eviction: Option<Arc<Eviction>>,
    denylists: Option<Denylists>,
    identity: &Identity,
    exchange: Option<Exchange>,
    events: Events,
    registry: &Registry,
) -> Result<Retriever> {
    let sink: Arc<dyn BlockSink> = match eviction {
        Some(eviction) => Arc::new(FetchedSink(eviction)),
        None => Arc::new(StoreSink(store.clone())),
    };
    let admits = move |cid: &Cid| denylists.as_ref().is_none_or(|denylists| denylists.check_block(cid).is_ok());
    let on_end = move |ended: &Ended| events.emit(Topic::Retrieval, [EventData::Retrieved(ended.clone())]);
    let name = format!("ipfrs-{}", identity.peer_id());
    Retriever::new(&config.retrieval, store, sink, Arc::new(admits), name, exchange, Arc::new(on_end), registry)
}
