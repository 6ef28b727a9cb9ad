//! Memory for request bodies: it is proportional to the received bytes, and each client has a share of it.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use futures::{StreamExt, stream};
use ipfrs_core::codec;
use ipfrs_node::MemoryStore;
use reqwest::{Body, Method};
use serde_json::json;
use tokio::time::timeout;

use crate::content;
use crate::crafted::Dag;
use crate::harness::{TestGateway, client};
use crate::wire::Wire;

/// Watchdog timeout, longer than any operation of the tests.
const WATCHDOG: Duration = Duration::from_secs(60);

const MEMORY: &str = "ipfrs_request_memory_bytes";

/// Sends a request with a declared length, but only the beginning of its body.
async fn half_sent(gateway: &TestGateway, target: &str, kind: &str, declared: usize, body: &[u8]) -> Wire {
    let mut wire = Wire::connect(gateway).await;
    let head =
        format!("POST {target} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {declared}\r\n\r\n");
    wire.send(head).await;
    wire.send(body).await;
    wire
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_bodies_take_the_memory_that_arrived_and_no_more() {
    let gateway = TestGateway::start().await;
    let octets = "application/octet-stream";
    let multipart = "multipart/form-data; boundary=b";
    let part = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n";
    let (name, car) = ("k51qzi5uqu5dgutdk6i1ynyzgkqngpha5xpgia3a5qqp4jsh0u4csozksxel2r", "application/vnd.ipld.car");
    for (target, kind, declared, sent) in [
        ("/v1/block/batch/put".to_owned(), "application/json", 80 << 20, 300_000),
        ("/v1/block/batch/put".to_owned(), car, 60 << 20, 300_000),
        ("/v1/block/batch/get".to_owned(), "application/json", 100_000, 50_000),
        ("/api/v0/block/put".to_owned(), octets, 2 << 20, 300_000),
        ("/api/v0/block/put".to_owned(), multipart, 60 << 20, 300_000),
        ("/api/v0/dag/put".to_owned(), octets, 4 << 20, 300_000),
        ("/api/v0/dag/put".to_owned(), multipart, 4 << 20, 300_000),
        ("/api/v0/key/sign".to_owned(), octets, 2 << 20, 300_000),
        ("/api/v0/key/verify?signature=uAA".to_owned(), multipart, 2 << 20, 300_000),
        ("/api/v0/key/import?arg=a".to_owned(), octets, 64 << 10, 50_000),
        (format!("/api/v0/name/put?arg={name}"), octets, 10 << 10, 9_000),
        (format!("/api/v0/routing/put?arg=/ipns/{name}"), octets, 10 << 10, 9_000),
    ] {
        // A client that has only announced a body uses almost no memory.
        let announced = half_sent(&gateway, &target, kind, declared, b"").await;
        let car_head = [&[17][..], b"\xa2eroots\x80gversion\x01", b"\x80\x80\x40"].concat();
        let mut body = match kind {
            "multipart/form-data; boundary=b" => part.as_bytes().to_vec(),
            "application/vnd.ipld.car" => car_head,
            _ => Vec::new(),
        };
        body.resize(sent, b' ');
        let begun = half_sent(&gateway, &target, kind, declared, &body).await;
        let least = sent as u64 - 100;
        let arrived = gateway.until_metric(MEMORY, |bytes| bytes >= least);
        timeout(WATCHDOG, arrived).await.unwrap_or_else(|_| panic!("{target} {kind}"));
        // Multipart bodies are also in the parser's buffer.
        let most = if kind == multipart { 3 * sent } else { sent * 3 / 2 } + (64 << 10);
        let held = gateway.metric(MEMORY).await;
        assert!(held <= most as u64, "{target} {kind}: {held} bytes for {sent}");
        drop((announced, begun));
        let ended = gateway.until_metric(MEMORY, |bytes| bytes == 0);
        timeout(WATCHDOG, ended).await.unwrap_or_else(|_| panic!("{target} {kind}: not given back"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_bodies_of_one_client_lock_out_no_others() {
    let gateway = TestGateway::start().await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        for target in ["block/put", "dag/put", "key/sign"] {
            let kind = "multipart/form-data; boundary=b";
            idle.push(half_sent(&gateway, &format!("/api/v0/{target}"), kind, 64 << 20, b"").await);
        }
    }
    gateway.until_metric("ipfrs_http_requests_active", |requests| requests == 60).await;
    let put = timeout(WATCHDOG / 4, gateway.put_block("", content::bytes(1 << 20))).await.unwrap();
    assert_eq!(gateway.content(&format!("/ipfs/{put}")).await, content::bytes(1 << 20));
    let node =
        gateway.rpc("dag/put").header("content-type", "application/json").body(format!("[{}1]", "1,".repeat(9_000)));
    assert_eq!(timeout(WATCHDOG / 4, node.send()).await.unwrap().unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_memory_share_refuses_only_its_client() {
    let gateway = TestGateway::start().await;
    let (declared, piece) = (80 << 20, vec![b' '; 60 << 20]);
    let mut wires = Vec::new();
    for _ in 0..8 {
        wires.push(half_sent(&gateway, "/v1/block/batch/put", "application/json", declared, &piece).await);
    }
    let refused = "ipfrs_refusals_total{limit=\"request_memory_share\"}";
    timeout(WATCHDOG, gateway.until_metric(refused, |times| times >= 4)).await.unwrap();
    assert!(gateway.metric(MEMORY).await <= 256 << 20);
    let body = json!({"blocks": [{"data": "b25l"}]}).to_string();
    let other = client().local_address(IpAddr::from([127, 0, 0, 2])).build().unwrap();
    let put = other.request(Method::POST, gateway.url("/v1/block/batch/put")).body(body).send().await.unwrap();
    assert_eq!(put.status(), 200, "{}", put.text().await.unwrap());
    drop(wires);
    timeout(WATCHDOG, gateway.until_metric(MEMORY, |bytes| bytes == 0)).await.unwrap();
    // Each refusal is counted once.
    assert_eq!(gateway.metric("ipfrs_refusals_total{limit=\"capacity\"}").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_message_of_grpc_takes_the_memory_that_arrived() {
    let gateway = TestGateway::start().await;
    let prefix = [&[0][..], &(2_u32 << 20).to_be_bytes()].concat();
    let begun = stream::iter([Ok::<_, io::Error>(prefix), Ok(vec![7; 300_000])]).chain(stream::pending());
    let url = format!("http://{}/ipfrs.block.v1.BlockService/PutBlock", gateway.grpc_address());
    let http2 = client().http2_prior_knowledge().build().unwrap();
    let call = http2.post(url).header("content-type", "application/grpc").body(Body::wrap_stream(begun));
    let call = tokio::spawn(call.send());
    timeout(WATCHDOG, gateway.until_metric(MEMORY, |bytes| (300_000..400_000).contains(&bytes))).await.unwrap();
    call.abort();
    drop(http2);
    timeout(WATCHDOG, gateway.until_metric(MEMORY, |bytes| bytes == 0)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_batches_hold_the_memory_for_their_items() {
    let gateway = TestGateway::start().await;
    let cid = gateway.put_block("", content::bytes(2_000_000)).await;
    let malformed = json!({ "cids": vec!["x".repeat(500); 1_000] }).to_string();
    // JSON escapes each byte as six.
    let escaped = json!({ "cids": vec!["\u{1}".repeat(80); 1_000] }).to_string();
    for (route, accept, body, least) in [
        ("get", "*/*", &malformed, 600_000),
        ("has", "*/*", &malformed, 600_000),
        ("has", "*/*", &escaped, 500_000),
        ("get", "*/*", &json!({ "cids": [&cid] }).to_string(), 1),
        ("get", "application/vnd.ipld.car", &json!({ "cids": [&cid] }).to_string(), 1),
    ] {
        let mut wire = Wire::connect_with_small_window(&gateway).await;
        let head =
            format!("POST /v1/block/batch/{route} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: {accept}\r\n");
        wire.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await;
        wire.take(1_000).await;
        assert!(gateway.metric(MEMORY).await >= least, "{route} {accept}");
        wire.rest().await;
        timeout(WATCHDOG, gateway.until_metric(MEMORY, |bytes| bytes == 0)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_commands_hold_the_memory_for_their_paths_and_entries() {
    let gateway = TestGateway::start().await;
    let mut dag = Dag::default();
    let leaf = dag.put(codec::RAW, vec![7; 1_000]);
    // 4,096 entries with names of 200 bytes.
    let mut shard = dag.full_shard(&"n".repeat(199), leaf);
    for _ in 0..3 {
        shard = dag.full_shard("", shard);
    }
    let file = dag.file(b"", &vec![(leaf, 1_000); 20_000]);
    dag.import(&gateway).await;
    for (command, least) in [
        (format!("ls?arg={shard}&resolve-type=false&size=false"), 4_096 * 200),
        // The links of each root are in memory.
        (format!("cat?arg={file}&arg={file}&arg={file}"), 3 * 20_000 * 40),
        (format!("ls?arg={file}&arg={file}&arg={file}&stream=true"), 3 * 20_000 * 40),
    ] {
        let mut wire = Wire::connect_with_small_window(&gateway).await;
        wire.send(format!("POST /api/v0/{command} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await;
        wire.take(1_000).await;
        assert!(gateway.metric(MEMORY).await >= least, "{command}");
        drop(wire);
        timeout(WATCHDOG, gateway.until_metric(MEMORY, |bytes| bytes == 0)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_cat_holds_the_memory_for_blocks_outside_packs() {
    const LEAF_BYTES: usize = 1 << 20;
    let gateway = TestGateway::start_over(MemoryStore::default(), |_| {}).await;
    let mut dag = Dag::default();
    let leaf = dag.put(codec::RAW, vec![7; LEAF_BYTES]);
    dag.import(&gateway).await;
    // More than the buffers of both sockets.
    let paths = vec![format!("arg={leaf}"); 32];
    let mut wire = Wire::connect_with_small_window(&gateway).await;
    let query = paths.join("&");
    wire.send(format!("POST /api/v0/cat?{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await;
    wire.take(1_000).await;
    assert!(gateway.metric(MEMORY).await >= (paths.len() * LEAF_BYTES) as u64);
    drop(wire);
    timeout(WATCHDOG, gateway.until_metric(MEMORY, |bytes| bytes == 0)).await.unwrap();
}
