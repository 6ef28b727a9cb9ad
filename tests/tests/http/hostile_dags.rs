//! DAGs of a few kilobytes that claim to be more than anybody could send or hold. No request may cost more than its limits,
//! which is counted here in blocks that are read.

use std::time::Duration;

use ipfrs_core::{Cid, codec};
use reqwest::Method;
use tokio::time::timeout;

use crate::car;
use crate::crafted::{self, DIRECTORY, Dag, Data, FILE, SHARD, SYMLINK};
use crate::harness::{TestGateway, header, rpc_failure};
use crate::wire::{Answer, Wire, exchange};

/// Longer than anything here takes, by far.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Bytes of the leaf that everything ends in.
const LEAF: usize = 4_096;

/// Levels above it, each of which links twice to the next: a file of 2^60 bytes.
const LEVELS: u64 = 48;

/// Blocks that may be read ahead of a client that takes a megabyte and leaves: what fits in a window, and in the socket.
const AHEAD: u64 = (64 << 20) / LEAF as u64;

async fn blocks_read(gateway: &TestGateway) -> u64 {
    gateway.metric("ipfrs_blocks_retrieved_total").await
}

/// An answer, and how many blocks were read for it.
async fn cost(gateway: &TestGateway, request: &str) -> (Answer, u64) {
    let before = blocks_read(gateway).await;
    let answer = timeout(WATCHDOG, exchange(gateway, request)).await.expect(request);
    (answer, blocks_read(gateway).await - before)
}

/// How many blocks are read for a client that takes a megabyte of an answer without end, and leaves.
async fn cost_of_a_megabyte(gateway: &TestGateway, request: &str) -> u64 {
    let before = blocks_read(gateway).await;
    let taken = async {
        let mut wire = Wire::connect(gateway).await;
        wire.send(format!("{request}\r\nHost: x\r\n\r\n")).await;
        wire.take(1 << 20).await;
        drop(wire);
        while gateway.metric("ipfrs_http_requests_active").await > 0 {}
    };
    timeout(WATCHDOG, taken).await.expect(request);
    blocks_read(gateway).await - before
}

fn get(path: impl std::fmt::Display) -> String {
    format!("GET /ipfs/{path} HTTP/1.1")
}

fn post(command: impl std::fmt::Display) -> String {
    format!("POST /api/v0/{command} HTTP/1.1\r\nContent-Length: 0")
}

/// A file of 2^60 bytes in 49 blocks.
fn exbibyte(dag: &mut Dag) -> Cid {
    let mut node = (dag.put(codec::RAW, vec![b'x'; LEAF]), LEAF as u64);
    for _ in 0..LEVELS {
        node = (dag.file(b"", &[node, node]), 2 * node.1);
    }
    node.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_an_exbibyte_costs_what_is_taken_of_it() {
    let gateway = TestGateway::start().await;
    let mut dag = Dag::default();
    let file = exbibyte(&mut dag);
    dag.import(&gateway).await;
    let size = 1_u64 << 60;
    let (answer, read) = cost(&gateway, &format!("HEAD /ipfs/{file}?format=raw HTTP/1.1")).await;
    assert_eq!((answer.status, read), (200, 1));
    let head = gateway.request(Method::HEAD, &format!("/ipfs/{file}")).send().await.unwrap();
    assert_eq!(header(&head, "content-length"), size.to_string());
    // Each range goes down once, and the look at the first bytes for a content type as well.
    for (range, len, ways) in [
        ("0-0".to_owned(), 1, 2),
        ("-1".to_owned(), 1, 1),
        (format!("{}-{}", size / 2 - 1, size / 2), 2, 2),
        (format!("{}-{}", size / 3, size / 3 + 9_999), 10_000, 4),
    ] {
        let (answer, read) = cost(&gateway, &format!("{}\r\nRange: bytes={range}", get(file))).await;
        assert_eq!((answer.status, answer.body.len()), (206, len), "{range}");
        assert!(read <= ways * (LEVELS + 4), "{range}: {read} blocks");
    }
    let ranges = (0..32).map(|part| format!("{0}-{0}", part * (size / 32))).collect::<Vec<_>>().join(",");
    let (answer, read) = cost(&gateway, &format!("{}\r\nRange: bytes={ranges}", get(file))).await;
    assert!(answer.is_complete && read <= 33 * (LEVELS + 4), "{read} blocks");
    for request in [
        get(file),
        get(format!("{file}?format=tar")),
        get(format!("{file}?format=car&car-dups=y")),
        format!("GET /v1/stream/download/{file} HTTP/1.1"),
        post(format!("cat?arg={file}")),
        post(format!("get?arg={file}")),
    ] {
        let read = cost_of_a_megabyte(&gateway, &request).await;
        assert!(read <= AHEAD, "{request}: {read} blocks");
    }
    // What is to be had once is given once.
    for query in ["", "&dag-scope=entity", "&entity-bytes=0:*", "&entity-bytes=1:-2", "&entity-bytes=5000:-5000"] {
        let (answer, read) = cost(&gateway, &get(format!("{file}?format=car{query}"))).await;
        assert!(answer.is_complete, "{query}");
        assert!(answer.body.len() < 16 * 1024 && read <= 3 * (LEVELS + 1), "{query}: {read} blocks");
    }
    for command in ["dag/export?", "dag/stat?progress=false&", "ls?", "pin/add?", "pin/ls?type=all&", "repo/verify?"] {
        let (answer, read) = cost(&gateway, &post(format!("{command}arg={file}"))).await;
        assert!(answer.status == 200 && answer.is_complete, "{command}: {}", answer.text());
        assert!(read <= 3 * (LEVELS + 1), "{command}: {read} blocks");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_more_files_than_anybody_can_count_costs_what_is_taken_of_it() {
    let gateway = TestGateway::start().await;
    let mut dag = Dag::default();
    let mut tree = dag.put(codec::RAW, b"leaf".to_vec());
    for _ in 0..60 {
        tree = dag.directory(&[("a", tree), ("b", tree)]);
    }
    dag.import(&gateway).await;
    let (answer, read) = cost(&gateway, &get(format!("{tree}{}", "/b".repeat(60)))).await;
    assert_eq!((answer.text().as_str(), read), ("leaf", 61));
    let (answer, read) = cost(&gateway, &get(format!("{tree}/"))).await;
    assert!(answer.is_complete && read <= 4, "{read} blocks");
    for command in ["ls?", "dag/export?", "dag/stat?progress=false&", "pin/add?"] {
        let (answer, read) = cost(&gateway, &post(format!("{command}arg={tree}"))).await;
        assert!(answer.status == 200 && answer.is_complete && read <= 61, "{command}: {read} blocks");
    }
    let (answer, read) = cost(&gateway, &get(format!("{tree}?format=car"))).await;
    assert!(answer.is_complete && read <= 62, "{read} blocks");
    for request in [get(format!("{tree}?format=tar")), post(format!("get?arg={tree}"))] {
        // An entry is 512 bytes at least.
        let read = cost_of_a_megabyte(&gateway, &request).await;
        assert!(read <= (64 << 20) / 512, "{request}: {read} blocks");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sharded_directory_of_repeated_shards_costs_what_is_taken_of_it() {
    let gateway = TestGateway::start().await;
    let mut dag = Dag::default();
    let leaf = dag.put(codec::RAW, b"leaf".to_vec());
    let mut shards = vec![dag.full_shard("name", leaf)];
    for _ in 0..40 {
        let next = dag.full_shard("", *shards.last().unwrap());
        shards.push(next);
    }
    dag.import(&gateway).await;
    // 21 levels of three bits are what the 64 bits of a name's hash lead to.
    let (deepest, too_deep) = (shards[20], shards[21]);
    let read = cost_of_a_megabyte(&gateway, &get(format!("{deepest}/"))).await;
    assert!(read <= 200_000, "{read} blocks");
    let read = cost_of_a_megabyte(&gateway, &post(format!("ls?arg={deepest}&stream=true"))).await;
    assert!(read <= 200_000, "{read} blocks");
    let before = blocks_read(&gateway).await;
    let message = rpc_failure(gateway.rpc(&format!("ls?arg={deepest}")).send().await.unwrap()).await;
    assert!(message.contains("more than 65536 entries: use stream=true"), "{message}");
    assert!(blocks_read(&gateway).await - before < 65_536);
    for query in ["", "&dag-scope=entity"] {
        let (answer, read) = cost(&gateway, &get(format!("{too_deep}?format=car{query}"))).await;
        assert!(answer.is_complete && read <= 24, "{query}: {read} blocks");
    }
    // A name is looked up along one way.
    let (answer, read) = cost(&gateway, &get(format!("{deepest}/other"))).await;
    assert_eq!(answer.status, 404, "{}", answer.text());
    assert!(read <= 22, "{read} blocks");
    for request in [get(format!("{too_deep}/name")), post(format!("ls?arg={too_deep}"))] {
        let (answer, read) = cost(&gateway, &request).await;
        assert!(answer.status >= 400 && read <= 23, "{request}: {} {read} blocks", answer.status);
        assert!(answer.text().contains("deeper than"), "{}", answer.text());
    }
}
