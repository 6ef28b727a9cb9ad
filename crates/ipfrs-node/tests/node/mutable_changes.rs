//! Changes of the mutable files that are cancelled at any await, or that the store fails at any read.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::poll_fn;
use futures::{FutureExt, stream};
use ipfrs_node::{
    Block, BlockFormat, BlockStore, Cid, CidFormat, ContentPath, CopySource, Error, ErrorKind, ImportConfig,
    MemoryStore, Mtime, MutableAttribute, MutableFilesConfig, MutablePath, Node, NodeConfig, PutBlock, PutMode,
    Registry, Result, StoreConfig, Stored, WriteOptions,
};
use ipfrs_store::testing::{AlteredStore, Difference};
use tempfile::TempDir;
use tokio::sync::watch;

/// A store in memory. Each read is pending a few times, and one of them may fail.
type Unreliable = AlteredStore<Faults>;

#[derive(Debug, Clone, Default)]
struct Faults {
    /// Number of reads before the one that fails.
    reads_left: Arc<Mutex<Option<usize>>>,
    /// Whether puts wait.
    holds_puts: watch::Sender<bool>,
}

#[async_trait]
impl Difference for Faults {
    async fn before_read(&self, _: &Cid) -> Result<()> {
        // Callers may poll it twice at once, to need no timer for a read from memory.
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        let mut left = self.reads_left.lock().unwrap();
        match left.take() {
            Some(0) => Err(Error::new(ErrorKind::Internal, "the disk failed")),
            Some(reads) => {
                *left = Some(reads - 1);
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn store(&self, inside: &MemoryStore, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>> {
        tokio::task::yield_now().await;
        self.holds_puts.subscribe().wait_for(|holds| !holds).await.unwrap();
        inside.put_many(blocks, mode).await
    }
}

const CHANGES: [&str; 10] = [
    "replace a file by a copy",
    "copy content into new directories",
    "move",
    "move over a file",
    "remove",
    "make directories",
    "change the mode",
    "change the modification time of a directory",
    "change the format of a directory",
    "write",
];

fn path(path: &str) -> MutablePath {
    MutablePath::parse(path).unwrap()
}

async fn write(node: &Node, to: &str, text: String, flush: bool) -> Result<()> {
    write_piece(node, to, Ok(Bytes::from(text)), flush).await
}

async fn write_piece(node: &Node, to: &str, piece: Result<Bytes>, flush: bool) -> Result<()> {
    let options = WriteOptions {
        offset: 0,
        create: true,
        parents: true,
        truncate: true,
        count: u64::MAX,
        raw_leaves: None,
        format: None,
        flush,
    };
    node.write_to_tree(&path(to), options, stream::iter([piece])).await
}

async fn change(node: &Node, content: &Cid, number: usize, flush: bool) -> Result<()> {
    match number {
        0 => node.copy_into_tree(&CopySource::Mutable(path("/d/1")), &path("/d/2"), false, true, flush).await,
        1 => {
            let source = CopySource::Content(ContentPath::from(*content));
            node.copy_into_tree(&source, &path("/new/deep/file"), true, false, flush).await
        }
        2 => node.move_in_tree(&path("/d/3"), &path("/e/moved"), flush).await,
        3 => node.move_in_tree(&path("/d/4"), &path("/e/5"), flush).await,
        4 => node.remove_from_tree(&path("/d/0"), true, true).await,
        5 => node.make_directory(&path("/d/new/deep"), true, None, flush).await,
        6 => node.set_mutable_attribute(&path("/d/0"), MutableAttribute::Mode(0o600)).await,
        7 => {
            let time = Mtime { seconds: 1_000, nanos: 0 };
            node.set_mutable_attribute(&path("/d"), MutableAttribute::Mtime(time)).await
        }
        8 => node.set_cid_format(&path("/d"), Some(CidFormat::new(1, None).unwrap()), flush).await,
        _ => write(node, "/e/new/file", "written".to_owned(), flush).await,
    }
}

/// A node with sharded directories, and a write that was acknowledged and not flushed.
struct Tree {
    store: Unreliable,
    node: Node,
    /// Content outside of the tree.
    content: Cid,
    _repo: TempDir,
}

impl Tree {
    async fn new() -> Self {
        let (repo, store) = (tempfile::tempdir().unwrap(), Unreliable::default());
        let import =
            ImportConfig { sharding_threshold_bytes: Some(200), max_hamt_fanout: Some(8), ..ImportConfig::default() };
        // Copies also keep fetched blocks from eviction.
        let limited = StoreConfig { max_bytes: 64 << 20, ..StoreConfig::default() };
        let builder = Node::builder(repo.path()).store(limited).engine(Arc::new(store.clone()));
        let node = builder.config(NodeConfig { import, ..NodeConfig::default() }).open().await.unwrap();
        let put = PutBlock { data: Bytes::from("content"), cid: None, format: BlockFormat::default() };
        let (content, _) = node.put_block(put).await.unwrap();
        for number in 0..24 {
            for directory in ["/d", "/e"] {
                write(&node, &format!("{directory}/{number}"), format!("old {number}"), false).await.unwrap();
            }
        }
        node.flush_tree(&path("/")).await.unwrap();
        write(&node, "/d/0", "acknowledged".to_owned(), false).await.unwrap();
        Self { store, node, content, _repo: repo }
    }

    /// Returns the root of the tree with all changes.
    async fn root(&self) -> Cid {
        self.node.mutable_object(&path("/")).await.unwrap().cid
    }

    /// Returns the root before and after a change.
    async fn roots(number: usize, flush: bool) -> (Cid, Cid) {
        let tree = Self::new().await;
        let before = tree.root().await;
        change(&tree.node, &tree.content, number, flush).await.unwrap();
        let after = tree.root().await;
        assert_ne!(before, after, "{}", CHANGES[number]);
        (before, after)
    }
}

/// Polls a change `polls` times at most. Returns its outcome if it has completed.
async fn cancelled(change: impl Future<Output = Result<()>>, polls: usize) -> Option<Result<()>> {
    let (mut change, mut left) = (pin!(change), polls);
    poll_fn(|context| match left.checked_sub(1) {
        None => Poll::Ready(None),
        Some(fewer) => {
            left = fewer;
            change.poll_unpin(context).map(Some)
        }
    })
    .await
}

#[tokio::test]
async fn cancelled_change_is_made_as_a_whole_or_not_at_all() {
    let mut cancellations = 0;
    for (number, name) in CHANGES.iter().enumerate() {
        for flush in [true, false] {
            let (before, after) = Tree::roots(number, flush).await;
            let mut tree = Tree::new().await;
            for polls in 1.. {
                cancellations += 1;
                let outcome = cancelled(change(&tree.node, &tree.content, number, flush), polls).await;
                let root = tree.root().await;
                assert!(root == before || root == after, "{name}, flush={flush}, {polls} polls");
                match outcome {
                    Some(outcome) => {
                        outcome.unwrap();
                        assert!(root == after, "{name}, flush={flush}, {polls} polls");
                        break;
                    }
                    None if root == after => tree = Tree::new().await,
                    None => {}
                }
            }
        }
    }
    assert!(cancellations > 100, "{cancellations}");
}

#[tokio::test]
async fn change_that_fails_halfway_changes_nothing() {
    let mut failures = 0;
    for (number, name) in CHANGES.iter().enumerate() {
        for flush in [true, false] {
            let (before, after) = Tree::roots(number, flush).await;
            let tree = Tree::new().await;
            for reads in 0.. {
                *tree.store.reads_left.lock().unwrap() = Some(reads);
                let outcome = change(&tree.node, &tree.content, number, flush).await;
                let has_failed = tree.store.reads_left.lock().unwrap().take().is_none();
                let root = tree.root().await;
                if outcome.is_ok() {
                    assert!(root == after && !has_failed, "{name}, flush={flush}, {reads} reads");
                    break;
                }
                assert_eq!(root, before, "{name}, flush={flush}, {reads} reads");
                failures += 1;
            }
        }
    }
    assert!(failures > 50, "{failures}");
}

#[tokio::test]
async fn flush_reads_and_stores_a_few_blocks_for_each_changed_file() {
    let import = ImportConfig { sharding_threshold_bytes: Some(10_000), ..ImportConfig::default() };
    let mutable_files = MutableFilesConfig { max_unflushed: 0 };
    for count in [500, 2_000] {
        let repo = tempfile::tempdir().unwrap();
        let mut costs = (0, 0);
        for content in ["old", "new"] {
            // The second node has loaded nothing before.
            let (registry, import, mutable_files) = (Registry::new(), import.clone(), mutable_files.clone());
            let config = NodeConfig { import, mutable_files, ..NodeConfig::default() };
            let node = Node::builder(repo.path()).registry(&registry).config(config).open().await.unwrap();
            let total = |name: &str| {
                let families = registry.gather();
                let family = families.iter().find(|family| family.name() == name).unwrap();
                family.get_metric()[0].get_counter().get_value() as usize
            };
            for number in 0..count {
                write(&node, &format!("/d/{number}"), format!("{content} {number}"), false).await.unwrap();
            }
            let (read, stored) = (total("ipfrs_blocks_retrieved_total"), total("ipfrs_blocks_stored_total"));
            node.flush_tree(&path("/")).await.unwrap();
            let ends = (total("ipfrs_blocks_retrieved_total"), total("ipfrs_blocks_stored_total"));
            costs = (ends.0 - read, ends.1 - stored);
            node.close().await.unwrap();
        }
        // Each file has two blocks, and there are fewer shards than files.
        assert!((2 * count..3 * count).contains(&costs.1), "{count} files: {costs:?}");
        assert!(costs.0 <= 2 * count, "{count} files: {costs:?}");
    }
}

#[tokio::test]
async fn write_that_fails_does_not_count_as_an_operation() {
    let repo = tempfile::tempdir().unwrap();
    let builder = Node::builder(repo.path()).engine(Arc::new(MemoryStore::default()));
    let mutable_files = MutableFilesConfig { max_unflushed: 1 };
    let node = builder.config(NodeConfig { mutable_files, ..NodeConfig::default() }).open().await.unwrap();
    let abort = async |flush: bool| {
        let piece = Err(Error::new(ErrorKind::Gone, "the client has left"));
        assert_eq!(write_piece(&node, "/file", piece, flush).await.unwrap_err().kind(), ErrorKind::Gone);
    };
    abort(false).await;
    abort(false).await;
    write(&node, "/file", "first".to_owned(), false).await.unwrap();
    abort(true).await;
    let refused = write(&node, "/file", "second".to_owned(), false).await.unwrap_err();
    assert!(refused.message().starts_with("reached limit of 1 unflushed MFS operations"), "{refused}");
}

#[tokio::test]
async fn close_waits_for_a_flush_whose_client_has_left() {
    let Tree { store, node, _repo, .. } = Tree::new().await;
    node.flush_tree(&path("/")).await.unwrap();
    store.holds_puts.send_replace(true);
    let mut writing = Box::pin(write(&node, "/d/1", "flushed".to_owned(), true));
    while store.holds_puts.receiver_count() == 0 {
        assert!(writing.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    drop(writing);
    let mut closing = pin!(node.close());
    // The clock advances when all tasks wait for each other.
    tokio::time::pause();
    assert!(tokio::time::timeout(Duration::from_secs(1), closing.as_mut()).await.is_err());
    tokio::time::resume();
    store.holds_puts.send_replace(false);
    closing.await.unwrap();
    assert_eq!(store.holds_puts.receiver_count(), 0);
}
