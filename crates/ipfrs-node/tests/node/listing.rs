//! Listings with the targets of their entries.

use std::task::Poll;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, poll};
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Cid, codec};
use ipfrs_node::{BlockFormat, ContentPath, Listed, ListedKind, Node, Object, PutBlock, StoreConfig};
use ipfrs_store::Engine;
use ipfrs_unixfs::dag_pb::{self, PbLink};
use tokio::task::yield_now;

async fn memory_node(repo: &tempfile::TempDir) -> Node {
    let store = StoreConfig { engine: Engine::Memory, ..StoreConfig::default() };
    Node::builder(repo.path()).store(store).open().await.unwrap()
}

async fn put(node: &Node, codec: u64, data: Bytes) -> Cid {
    let format = BlockFormat { version: 1, codec, hash: HashFunction::Sha2_256, digest_bytes: None };
    node.put_block(PutBlock { data, cid: None, format }).await.unwrap().0
}

/// Creates a directory with `count` entries that all link to `target`.
async fn put_directory(node: &Node, count: usize, target: Cid) -> Cid {
    let links: Vec<_> = (0..count).map(|i| PbLink { cid: target, name: format!("{i}").into(), tsize: 0 }).collect();
    put(node, codec::DAG_PB, dag_pb::encode(&links, &[8, 1])).await
}

async fn resolve(node: &Node, cid: Cid) -> Object {
    node.resolve(ContentPath::new(cid, Vec::new()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn listing_decodes_a_shared_target_once_per_batch() {
    let repo = tempfile::tempdir().unwrap();
    let node = memory_node(&repo).await;
    let leaf = put(&node, codec::RAW, Bytes::new()).await;
    let target = put_directory(&node, 500, leaf).await;
    let object = resolve(&node, put_directory(&node, 256, target).await).await;
    let mut listing = node.list(&object, usize::MAX);
    // Everything is in memory, so a poll returns before the first entry only if the task has used up its budget.
    let mut polls = 1;
    let first = loop {
        match poll!(listing.next()) {
            Poll::Ready(first) => break first.unwrap().unwrap(),
            Poll::Pending => yield_now().await,
        }
        polls += 1;
    };
    assert_eq!(first.kind, ListedKind::Directory);
    assert!((2..10).contains(&polls), "{polls} polls; decoding it for each entry takes about 45");
    assert_eq!(listing.count().await, 255);
}

#[test]
fn listing_decodes_large_blocks_off_the_runtime() {
    let repo = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let node = memory_node(&repo).await;
        let leaf = put(&node, codec::RAW, Bytes::new()).await;
        let target = put_directory(&node, 5000, leaf).await;
        let object = resolve(&node, put_directory(&node, 300, target).await).await;
        let (release, held) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || held.recv());
        let mut listing = node.list(&object, usize::MAX);
        for _ in 0..10 {
            assert!(poll!(listing.next()).is_pending());
            yield_now().await;
        }
        drop(release);
        assert!(busy.await.unwrap().is_err());
        let listed: Vec<Listed> = listing.try_collect().await.unwrap();
        assert_eq!(listed.iter().filter(|entry| entry.kind == ListedKind::Directory).count(), 300);
    });
}

#[tokio::test]
async fn listing_omits_overlong_symlink_target() {
    let repo = tempfile::tempdir().unwrap();
    let node = memory_node(&repo).await;
    for (len, shown) in [(4096, 4096), (4097, 0)] {
        let mut data = vec![8, 4, 0x12, len as u8 | 0x80, (len >> 7) as u8];
        data.extend(vec![b'a'; len]);
        let symlink = put(&node, codec::DAG_PB, dag_pb::encode(&[], &data)).await;
        let object = resolve(&node, put_directory(&node, 2, symlink).await).await;
        let listed: Vec<Listed> = node.list(&object, usize::MAX).try_collect().await.unwrap();
        assert_eq!(listed.len(), 2);
        assert!(listed.iter().all(|entry| entry.kind == ListedKind::Symlink && entry.target.len() == shown));
    }
}
