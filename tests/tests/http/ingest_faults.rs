//! `/ws/ingest` while the store fails: an append that fails beside a commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use ipfrs_core::{Block, Error, Result, codec};
use ipfrs_node::{BlockStore, MemoryStore, PutMode, Stored};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;

use crate::content;
use crate::harness::TestGateway;
use crate::websocket::Client;
use ipfrs_store::testing::{AlteredStore, Difference};

/// Length of the first message: too long for the journal, so its commit stores blocks.
const COMMITTED_BYTES: usize = 100_000;
/// Length of the second message: leaves are stored, and their errors are noticed, before its end.
const REFUSED_BYTES: usize = 16 << 20;

/// State of a commit to the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Commit {
    /// Commits are stored at once.
    #[default]
    Free,
    /// The next commit will wait.
    Expected,
    /// A commit waits until leaves were refused.
    Waiting,
    /// Leaves were refused.
    Released,
}

/// A store in memory that refuses leaves while a commit waits.
type Refusing = AlteredStore<Refusal>;

#[derive(Debug, Clone, Default)]
struct Refusal {
    commit: watch::Sender<Commit>,
    /// Whether the commit that waited is refused too.
    refuses_commit: Arc<AtomicBool>,
}

#[async_trait]
impl Difference for Refusal {
    async fn store(&self, inside: &MemoryStore, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>> {
        let refused = |what: &str| -> Vec<Result<Stored>> {
            blocks.iter().map(|_| Err(Error::internal(format!("{what} is refused")))).collect()
        };
        // A commit stores directories, and an append only leaves.
        let is_commit = blocks.iter().any(|block| block.cid().codec() == codec::DAG_PB);
        let state = *self.commit.borrow();
        match state {
            Commit::Expected if is_commit => {
                self.commit.send_replace(Commit::Waiting);
                self.commit.subscribe().wait_for(|commit| *commit == Commit::Released).await.unwrap();
                self.commit.send_replace(Commit::Free);
                if self.refuses_commit.load(Ordering::SeqCst) {
                    return refused("the commit");
                }
            }
            Commit::Waiting if !is_commit => {
                self.commit.send_replace(Commit::Released);
                return refused("a leaf");
            }
            _ => {}
        }
        inside.put_many(blocks, mode).await
    }
}

/// Sends a message, and while its commit waits, another one whose leaves are refused. Returns the connection.
async fn send_beside_commit(gateway: &TestGateway, store: &Refusing) -> Client {
    let mut client = Client::open(gateway.address(), "/ws/ingest?name=a", &[]).await.unwrap();
    assert_eq!(client.receive().await["type"], "ready");
    store.commit.send_replace(Commit::Expected);
    client.message(Message::binary(content::bytes(COMMITTED_BYTES))).await;
    store.commit.subscribe().wait_for(|commit| *commit == Commit::Waiting).await.unwrap();
    client.message(Message::binary(content::bytes(REFUSED_BYTES))).await;
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn append_that_fails_beside_a_commit_leaves_what_is_committed() {
    let store = Refusing::default();
    let gateway = TestGateway::start_over(store.clone(), |_| {}).await;
    let mut client = send_beside_commit(&gateway, &store).await;
    let ack = client.receive().await;
    assert_eq!(ack["type"], "ack", "{ack}");
    assert_eq!(ack["messages"], 1, "{ack}");
    assert_eq!(ack["bytes"], COMMITTED_BYTES, "{ack}");
    let error = client.receive().await;
    assert!(error["message"].as_str().unwrap().contains("a leaf is refused"), "{error}");
    client.close_code().await;
    let stored = gateway.rpc_bytes("files/read?arg=/ingest/a").await;
    content::assert_same(&stored, &content::bytes(COMMITTED_BYTES), "what was acknowledged");
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_that_fails_beside_an_append_is_the_error() {
    let store = Refusing::default();
    store.refuses_commit.store(true, Ordering::SeqCst);
    let gateway = TestGateway::start_over(store.clone(), |_| {}).await;
    let mut client = send_beside_commit(&gateway, &store).await;
    let error = client.receive().await;
    assert_eq!(error["type"], "error", "nothing is acknowledged: {error}");
    assert!(error["message"].as_str().unwrap().contains("the commit is refused"), "{error}");
    client.close_code().await;
    assert_eq!(gateway.rpc_json("files/stat?arg=/ingest/a").await["Size"], 0);
}
