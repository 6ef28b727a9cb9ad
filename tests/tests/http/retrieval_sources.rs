//! Sources that do what the specifications allow, and reports of their failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Cid, codec};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::content::bytes;
use crate::harness::{TestGateway, ndjson, rpc_failure};
use crate::retrieval::{relay, retrieving_from, section};
use crate::source_server::{Handler, SourceServer, always, write_head};

fn block(codec: u64, hash: HashFunction, data: impl Into<bytes::Bytes>) -> Block {
    Block::hash(1, codec, hash, data.into()).unwrap()
}

fn node(hash: HashFunction, links: &[&Cid]) -> Block {
    let links: Vec<_> = links.iter().map(|link| format!(r#"{{"/":"{link}"}}"#)).collect();
    block(codec::DAG_JSON, hash, format!("[{}]", links.join(",")))
}

fn car(root: &Cid, blocks: &[&Block]) -> Vec<u8> {
    let root = root.to_bytes();
    let length = [u8::try_from(root.len() + 1).unwrap(), 0];
    let header = [b"\xa2eroots\x81\xd8\x2a\x58", &length[..], &root, b"gversion\x01"].concat();
    let mut car = vec![u8::try_from(header.len()).unwrap()];
    car.extend(header);
    blocks.iter().for_each(|block| car.extend(section(block)));
    car
}

/// Returns a handler that serves a CAR, and the blocks one by one.
fn serving(car: Vec<u8>, kind: &'static str, blocks: Vec<Block>) -> Handler {
    let car = bytes::Bytes::from(car);
    Arc::new(move |target, mut connection| {
        let is_car = target.contains("format=car");
        let found = blocks.iter().find(|block| target.contains(&block.cid().to_string()));
        let found = if is_car { Some(car.clone()) } else { found.map(|block| block.data().clone()) };
        Box::pin(async move {
            let kind = if is_car { kind } else { "content-type: application/vnd.ipld.raw\r\n" };
            write_head(&mut connection, if found.is_some() { "200 OK" } else { "404 Not Found" }, kind).await;
            let _gone = connection.write_all(&found.unwrap_or_default()).await;
        })
    })
}

async fn retrieve(gateway: &TestGateway, cid: &Cid) -> Value {
    let response = gateway.request(Method::POST, &format!("/v1/retrieve/{cid}")).send().await.unwrap();
    response.json().await.unwrap()
}

fn outcomes(report: &Value) -> Vec<&str> {
    report["attempts"].as_array().unwrap().iter().map(|attempt| attempt["outcome"].as_str().unwrap()).collect()
}

async fn retrieving(url: String) -> TestGateway {
    TestGateway::start_with(|config| config.retrieval.gateways = vec![url]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn cars_may_leave_out_identity_blocks_and_second_copies() {
    let sha = HashFunction::Sha2_256;
    let leaves = [block(codec::RAW, sha, "one"), block(codec::RAW, sha, "two")];
    let identity = node(HashFunction::Identity, &[leaves[0].cid()]);
    let as_node = node(sha, &[leaves[1].cid()]);
    let as_raw = block(codec::RAW, sha, as_node.data().clone());
    // The link under the second codec is in a later block.
    let later = node(sha, &[as_node.cid()]);
    let root = node(sha, &[identity.cid(), as_raw.cid(), later.cid()]);
    let sent = [&root, &leaves[0], &as_raw, &later, &leaves[1]];
    let car = car(root.cid(), &sent);
    let source = SourceServer::start(serving(car, "content-type: application/vnd.ipld.car\r\n", Vec::new())).await;
    let gateway = retrieving(source.url()).await;
    let report = retrieve(&gateway, root.cid()).await;
    assert_eq!((&report["complete"], outcomes(&report)), (&true.into(), vec!["delivered"]), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn source_that_may_repeat_blocks_is_asked_for_single_ones() {
    let sha = HashFunction::Sha2_256;
    let (large, small) = (block(codec::RAW, sha, bytes(1_000_000)), block(codec::RAW, sha, "after it"));
    let root = node(sha, &[large.cid(), small.cid()]);
    let mut sent = vec![&root];
    sent.extend([&large; 20]);
    sent.push(&small);
    for (kind, outcome) in [
        ("content-type: application/vnd.ipld.car; version=1; order=dfs; dups=y\r\n", "unusable"),
        ("content-type: application/vnd.ipld.car\r\n", "unusable"),
        ("content-type: application/vnd.ipld.car; dups=n\r\n", "invalid"),
    ] {
        let blocks = vec![root.clone(), large.clone(), small.clone()];
        let source = SourceServer::start(serving(car(root.cid(), &sent), kind, blocks)).await;
        let gateway = retrieving(source.url()).await;
        let report = retrieve(&gateway, root.cid()).await;
        assert_eq!(outcomes(&report)[0], outcome, "{report}");
        assert_eq!(report["complete"], outcome == "unusable", "{report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn report_and_status_are_those_of_the_request() {
    let is_absent = Arc::new(AtomicBool::new(false));
    let (failing, absent) = (always("500 Internal Server Error", "", ""), always("404 Not Found", "", ""));
    let state = Arc::clone(&is_absent);
    let source = SourceServer::start(Arc::new(move |target, connection| {
        let handler = if state.load(Ordering::Relaxed) { &absent } else { &failing };
        handler(target, connection)
    }))
    .await;
    let gateway = retrieving(source.url()).await;
    let path = format!("/ipfs/{}", block(codec::RAW, HashFunction::Sha2_256, "nobody has this").cid());
    let first = gateway.get(&path).await;
    assert_eq!(first.status(), 502);
    is_absent.store(true, Ordering::Relaxed);
    // The session of the first request still exists.
    let second = gateway.get(&path).await;
    let status = second.status();
    let text = second.text().await.unwrap();
    assert!(status == 504 && text.contains("absent") && !text.contains("failed"), "{status} {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_is_evicted_before_its_end_is_incomplete() {
    const LIMIT: u64 = 64 << 20;
    let origin = TestGateway::start().await;
    let cid = origin.add("raw-leaves=true&chunker=size-1048576", bytes(96 << 20)).await.parse().unwrap();
    let url = origin.url("");
    let gateway = TestGateway::start_with(|config| {
        config.retrieval.gateways = vec![url];
        config.store.max_bytes = LIMIT;
    })
    .await;
    assert_eq!(gateway.rpc_json("repo/stat").await["StorageMax"], LIMIT);
    let report = retrieve(&gateway, &cid).await;
    assert_eq!((&report["complete"], &report["code"]), (&false.into(), &"no_space".into()), "{report}");
    let small = origin.add("", "fits").await.parse().unwrap();
    assert_eq!(retrieve(&gateway, &small).await["complete"], true);
    // Without a limit, all of it stays.
    let unlimited = retrieving_from(&origin).await;
    assert_eq!(unlimited.rpc_json("repo/stat").await["StorageMax"], u64::MAX);
}

#[tokio::test(flavor = "multi_thread")]
async fn pinned_content_may_exceed_the_limit() {
    const LIMIT: u64 = 64 << 20;
    let origin = TestGateway::start().await;
    let cid = origin.add("raw-leaves=true&chunker=size-1048576", bytes(96 << 20)).await;
    let url = origin.url("");
    let gateway = TestGateway::start_with(|config| {
        config.retrieval.gateways = vec![url];
        config.store.max_bytes = LIMIT;
    })
    .await;
    assert_eq!(gateway.rpc_json(&format!("pin/add?arg={cid}")).await["Pins"], json!([cid]));
    // Others are fetched within their 16th.
    let small = origin.add("", bytes(100_000)).await.parse().unwrap();
    assert_eq!(retrieve(&gateway, &small).await["complete"], true);
    assert!(gateway.content(&format!("/ipfs/{cid}")).await == bytes(96 << 20));
    assert_eq!(gateway.metric("ipfrs_fetched_refused_total").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn pins_retrieve_only_what_they_keep() {
    let origin = TestGateway::start().await;
    let source = relay(&origin).await;
    let gateway = retrieving(source.url()).await;
    let file = origin.add("", bytes(600_000)).await;
    gateway.rpc_json(&format!("pin/add?arg={file}&recursive=false")).await;
    let tree = origin.add_tree("wrap-with-directory=true", &[("a/b.txt", "pinned"), ("a/c.txt", "not pinned")]).await;
    gateway.rpc_json(&format!("pin/add?arg={tree}/a/b.txt")).await;
    let other = origin.rpc_json(&format!("resolve?arg=/ipfs/{tree}/a/c.txt")).await;
    let other = other["Path"].as_str().unwrap().trim_start_matches("/ipfs/");
    let links = ndjson(origin.rpc(&format!("refs?arg={file}")).send().await.unwrap()).await;
    let leaf = links[0]["Ref"].as_str().unwrap().to_owned();
    for absent in [other, &leaf] {
        let missing = rpc_failure(gateway.rpc(&format!("block/stat?arg={absent}&offline=true")).send().await.unwrap());
        assert!(missing.await.contains("not"), "{absent}");
    }
    let is_whole = |head: &String| head.contains("dag-scope=all") && (head.contains(&tree) || head.contains(&file));
    assert!(!source.requests().iter().any(is_whole), "{:?}", source.requests());
}
