//! Mutable files while blocks are stored late, or the disk is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ipfrs_core::{Block, Error, ErrorKind, Result};
use ipfrs_node::{BlockStore, MemoryStore, PutMode, Stored};
use ipfrs_store::testing::{AlteredStore, Difference};
use serde_json::json;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;

use crate::content::bytes;
use crate::harness::TestGateway;
use crate::multipart::Form;
use crate::websocket::Client;

/// Limit of the store, in bytes: the smallest one.
const MAX_BYTES: u64 = 64 << 20;

/// A store in memory. It keeps fetched blocks waiting while it is slow, and takes only puts from the reserve while it
/// is full.
type Strained = AlteredStore<Strain>;

#[derive(Debug, Clone, Default)]
struct Strain {
    is_slow: watch::Sender<bool>,
    is_full: Arc<AtomicBool>,
}

#[async_trait]
impl Difference for Strain {
    async fn store(&self, inside: &MemoryStore, blocks: Vec<Block>, mode: PutMode) -> Vec<Result<Stored>> {
        if mode == PutMode::BestEffort {
            self.is_slow.subscribe().wait_for(|is_slow| !is_slow).await.unwrap();
        }
        if self.is_full.load(Ordering::SeqCst) && mode != PutMode::Reserved {
            return blocks.iter().map(|_| Err(Error::new(ErrorKind::NoSpace, "it is full"))).collect();
        }
        inside.put_many(blocks, mode).await
    }
}

async fn write(gateway: &TestGateway, path: &str, options: &str, content: impl AsRef<[u8]>) {
    let form = Form::new().file("f", content.as_ref());
    let response = gateway.post_form(&format!("files/write?arg={path}&create=true{options}"), form).await;
    assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_right_after_get_claims_blocks_that_are_stored_later() {
    let origin = TestGateway::start().await;
    let content = bytes(10 * 256 * 1024);
    let cid = origin.add("", content.clone()).await;
    let store = Strained::default();
    let gateway = TestGateway::start_over(store.clone(), |config| {
        config.retrieval.gateways = vec![origin.url("")];
        config.store.max_bytes = MAX_BYTES;
    })
    .await;
    store.is_slow.send_replace(true);
    assert_eq!(gateway.content(&format!("/ipfs/{cid}")).await, content);
    let copying = gateway.rpc(&format!("files/cp?arg=/ipfs/{cid}&arg=/kept")).send();
    let storing = async {
        // Longer than a copy takes that does not wait for the blocks.
        for _ in 0..100 {
            gateway.rpc_json("files/ls?arg=/").await;
        }
        store.is_slow.send_replace(false);
    };
    let (copied, ()) = futures::join!(copying, storing);
    assert_eq!(copied.unwrap().status(), 200);
    // The root and ten leaves cannot be evicted any more.
    assert_eq!(gateway.metric("ipfrs_fetched_kept_total").await, 11);
    drop(origin);
    assert_eq!(gateway.rpc_bytes("files/read?arg=/kept&offline=true").await, content);
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_fetches_a_root_that_is_not_here() {
    let origin = TestGateway::start().await;
    let content = bytes(600_000);
    let cid = origin.add("", content.clone()).await;
    let store = Strained::default();
    store.is_slow.send_replace(true);
    let gateway =
        TestGateway::start_over(store.clone(), |config| config.retrieval.gateways = vec![origin.url("")]).await;
    let copied = gateway.rpc(&format!("files/cp?arg=/ipfs/{cid}&arg=/copy")).send().await.unwrap();
    assert_eq!(copied.status(), 200, "{}", copied.text().await.unwrap());
    assert_eq!(gateway.rpc_json("files/stat?arg=/copy").await["Size"], json!(600_000));
    assert_eq!(gateway.rpc_bytes("files/read?arg=/copy").await, content);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_copy_leaves_fetched_blocks_evictable() {
    let origin = TestGateway::start().await;
    let content = bytes(10 * 256 * 1024);
    let cid = origin.add("", content.clone()).await;
    let gateway = TestGateway::start_over(Strained::default(), |config| {
        config.retrieval.gateways = vec![origin.url("")];
        config.store.max_bytes = MAX_BYTES;
        config.mutable_files.max_unflushed = 1;
    })
    .await;
    assert_eq!(gateway.content(&format!("/ipfs/{cid}")).await, content);
    write(&gateway, "/there", "&flush=false", "there").await;
    for (target, reason) in [
        ("/there", "directory already has entry by that name"),
        ("/missing/copy", "file does not exist"),
        ("/new&flush=false", "reached limit of 1 unflushed MFS operations"),
    ] {
        let copied = gateway.rpc(&format!("files/cp?arg=/ipfs/{cid}&arg={target}")).send().await.unwrap();
        assert_eq!(copied.status(), 500, "{target}");
        let message = copied.text().await.unwrap();
        assert!(message.contains(reason), "{message}");
        assert_eq!(gateway.metric("ipfrs_fetched_kept_total").await, 0, "{target}");
    }
    let copied = gateway.rpc(&format!("files/cp?arg=/ipfs/{cid}&arg=/new")).send().await.unwrap();
    assert_eq!(copied.status(), 200);
    assert_eq!(gateway.metric("ipfrs_fetched_kept_total").await, 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_without_flush_is_made_on_a_full_disk() {
    let store = Strained::default();
    let gateway = TestGateway::start_over(store.clone(), |_| {}).await;
    store.is_full.store(true, Ordering::SeqCst);
    // Only the last write exceeds the 16 MiB that stay in memory.
    for number in 0..6_u8 {
        let content: Vec<_> = bytes(3 << 20).iter().map(|byte| byte ^ number).collect();
        write(&gateway, &format!("/{number}"), "&flush=false", content).await;
    }
    let make = || gateway.rpc("files/mkdir?arg=/more&flush=false").send();
    assert!(!make().await.unwrap().status().is_success(), "it waits for space");
    let listed = gateway.rpc_json("files/ls?arg=/").await;
    assert_eq!(listed["Entries"].as_array().unwrap().len(), 6, "{listed}");
    store.is_full.store(false, Ordering::SeqCst);
    assert_eq!(make().await.unwrap().status(), 200);
    let listed = gateway.rpc_json("files/ls?arg=/").await;
    assert_eq!(listed["Entries"].as_array().unwrap().len(), 7, "{listed}");
}

/// A flush looks for the only leaf of the file, which is missing.
#[tokio::test(flavor = "multi_thread")]
async fn copy_that_cannot_be_flushed_leaves_the_entry_as_it_was() {
    let gateway = TestGateway::start().await;
    let leaf = gateway.add("raw-leaves=true&cid-version=1&only-hash=true&pin=false", "leaf").await;
    let node = json!({
        "Data": { "/": { "bytes": "CAIYBCAE" } },
        "Links": [{ "Name": "", "Tsize": 4, "Hash": { "/": leaf } }],
    });
    let form = Form::new().file("f", node.to_string());
    let put = gateway.post_form("dag/put?store-codec=dag-pb&input-codec=dag-json&pin=false", form).await;
    let put: serde_json::Value = put.json().await.unwrap();
    let root = put["Cid"]["/"].as_str().unwrap();
    let copy = || async {
        let copied = gateway.rpc(&format!("files/cp?arg=/ipfs/{root}&arg=/a&force=true")).send().await.unwrap();
        assert_eq!(copied.status(), 500);
        copied.text().await.unwrap()
    };
    for _ in 0..2 {
        let error = copy().await;
        assert!(error.contains("cannot flush the created file"), "{error}");
        assert_eq!(gateway.rpc_json("files/ls?arg=/").await["Entries"], json!(null));
    }
    write(&gateway, "/a", "", "before").await;
    copy().await;
    assert_eq!(gateway.rpc_bytes("files/read?arg=/a").await, "before");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_stops_neither_reads_nor_gc_nor_the_last_flush() {
    let store = Strained::default();
    let gateway = TestGateway::start_over(store.clone(), |_| {}).await;
    let garbage = gateway.add("pin=false", "garbage").await;
    write(&gateway, "/old", "", "old").await;
    write(&gateway, "/new", "&flush=false", "new").await;
    store.is_full.store(true, Ordering::SeqCst);
    let listed = gateway.rpc_json("files/ls?arg=/&long=true").await;
    assert_eq!(listed["Entries"].as_array().unwrap().len(), 2, "{listed}");
    let stat = gateway.rpc_json("files/stat?arg=/&with-local=true").await;
    assert_eq!((&stat["Local"], &stat["Blocks"]), (&json!(true), &json!(2)), "{stat}");
    assert_eq!(gateway.rpc_bytes("files/read?arg=/new").await, "new");
    assert_eq!(gateway.rpc("repo/gc").send().await.unwrap().status(), 200);
    let found = gateway.rpc(&format!("block/get?arg={garbage}&offline=true")).send().await.unwrap();
    assert_eq!(found.status(), 500, "gc has removed it");
    assert_eq!(gateway.rpc("files/rm?arg=/old").send().await.unwrap().status(), 200);
    write(&gateway, "/last", "&flush=false", "last").await;
    let gateway = TestGateway::over(gateway.stop().await, store, |_| {}).await;
    assert_eq!(gateway.rpc_bytes("files/read?arg=/new").await, "new");
    assert_eq!(gateway.rpc_bytes("files/read?arg=/last").await, "last");
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_messages_reach_the_file_once_there_is_space() {
    let store = Strained::default();
    let gateway = TestGateway::start_over(store.clone(), |_| {}).await;
    let mut number = 0;
    let (mut client, name) = loop {
        store.is_full.store(false, Ordering::SeqCst);
        number += 1;
        let name = format!("object-{number}");
        let path = format!("/ws/ingest?name={name}");
        let mut client = Client::open(gateway.address(), &path, &[]).await.unwrap();
        assert_eq!(client.receive().await["type"], "ready");
        store.is_full.store(true, Ordering::SeqCst);
        client.message(Message::binary("acknowledged")).await;
        // A message that arrives more than a second later goes to the file at once, and is refused.
        if client.receive().await["type"] == "ack" {
            break (client, name);
        }
    };
    // The journal has the message. The file cannot get it.
    assert_eq!(client.receive().await["code"], "no_space");
    client.close_code().await;
    let read = format!("files/read?arg=/ingest/{name}");
    assert_eq!(gateway.rpc_bytes(&read).await, "");
    store.is_full.store(false, Ordering::SeqCst);
    let journal = gateway.repo().path().join("ingest-journals").join(&name);
    let moved = async {
        while journal.exists() {
            gateway.rpc_bytes(&read).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), moved).await.unwrap();
    assert_eq!(gateway.rpc_bytes(&read).await, "acknowledged");
}
