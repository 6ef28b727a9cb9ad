//! DAGs of a few kilobytes that claim sizes which cannot be sent or stored. No request may cost more than its limits
//! allow. The tests measure the cost as the number of blocks that are read.

use std::time::Duration;

use ipfrs_core::{Cid, codec};
use reqwest::Method;
use tokio::time::timeout;

use crate::crafted::{self, Dag, Data, FILE, SHARD, SYMLINK};
use crate::harness::{TestGateway, header, rpc_failure};
use crate::wire::{Answer, Wire, exchange};

/// Watchdog timeout, much longer than any operation of the tests.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Size of the only leaf, in bytes.
const LEAF: usize = 4_096;

/// Number of levels above the leaf, each of which links twice to the next: a file of 2^60 bytes.
const LEVELS: u64 = 48;

/// Maximum number of blocks that are read ahead of a client that reads a megabyte and disconnects: readahead plus the
/// contents of the socket buffers.
const AHEAD: u64 = (64 << 20) / LEAF as u64;

async fn blocks_read(gateway: &TestGateway) -> u64 {
    gateway.metric("ipfrs_blocks_retrieved_total").await
}

/// Returns the response and the number of blocks that were read for it.
async fn cost(gateway: &TestGateway, request: &str) -> (Answer, u64) {
    let before = blocks_read(gateway).await;
    let answer = timeout(WATCHDOG, exchange(gateway, request)).await.expect(request);
    (answer, blocks_read(gateway).await - before)
}

/// Returns the number of blocks that are read for a client that reads a megabyte of an endless response and
/// disconnects.
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

/// Adds a file of 2^60 bytes in 49 blocks.
fn exbibyte(dag: &mut Dag) -> Cid {
    let mut node = (dag.put(codec::RAW, vec![b'x'; LEAF]), LEAF as u64);
    for _ in 0..LEVELS {
        node = (dag.file(b"", &[node, node]), 2 * node.1);
    }
    node.0
}

#[tokio::test(flavor = "multi_thread")]
async fn exbibyte_file_costs_only_the_bytes_read() {
    let gateway = TestGateway::start().await;
    let mut dag = Dag::default();
    let file = exbibyte(&mut dag);
    dag.import(&gateway).await;
    let size = 1_u64 << 60;
    let (answer, read) = cost(&gateway, &format!("HEAD /ipfs/{file}?format=raw HTTP/1.1")).await;
    assert_eq!((answer.status, read), (200, 1));
    let head = gateway.request(Method::HEAD, &format!("/ipfs/{file}")).send().await.unwrap();
    assert_eq!(header(&head, "content-length"), size.to_string());
    // Each range requires one descent, and so does reading the first bytes for the content type.
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
    // Without duplicates, each block is sent once.
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
async fn exponential_tree_costs_only_the_bytes_read() {
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
        assert!(answer.status == 200 && answer.is_complete && read <= 62, "{command}: {read} blocks");
    }
    let (answer, read) = cost(&gateway, &get(format!("{tree}?format=car"))).await;
    assert!(answer.is_complete && read <= 62, "{read} blocks");
    for request in [get(format!("{tree}?format=tar")), post(format!("get?arg={tree}"))] {
        // An entry has at least 512 bytes.
        let read = cost_of_a_megabyte(&gateway, &request).await;
        assert!(read <= (64 << 20) / 512, "{request}: {read} blocks");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_shards_cost_only_the_bytes_read() {
    let gateway = TestGateway::start().await;
    let mut dag = Dag::default();
    let leaf = dag.put(codec::RAW, b"leaf".to_vec());
    let mut shards = vec![dag.full_shard("name", leaf)];
    for _ in 0..40 {
        let next = dag.full_shard("", *shards.last().unwrap());
        shards.push(next);
    }
    dag.import(&gateway).await;
    // The 64 bits of a name's hash allow 21 levels of three bits.
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
    // A name lookup follows one path.
    let (answer, read) = cost(&gateway, &get(format!("{deepest}/other"))).await;
    assert_eq!(answer.status, 404, "{}", answer.text());
    assert!(read <= 22, "{read} blocks");
    for request in [get(format!("{too_deep}/name")), post(format!("ls?arg={too_deep}"))] {
        let (answer, read) = cost(&gateway, &request).await;
        assert!(answer.status >= 400 && read <= 23, "{request}: {} {read} blocks", answer.status);
        assert!(answer.text().contains("deeper than"), "{}", answer.text());
    }
}

/// Number of levels of a DAG that exceeds the depth limit.
const TOO_DEEP: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn files_and_trees_of_too_many_levels_are_refused() {
    let gateway = TestGateway::start_with(|config| config.streaming.max_dag_depth = 128).await;
    let mut dag = Dag::default();
    let leaf = dag.put(codec::RAW, b"leaf".to_vec());
    let (mut bare, mut with_bytes, mut tree) = (leaf, (leaf, 4), leaf);
    for _ in 0..TOO_DEEP {
        bare = dag.file(b"", &[(bare, 4)]);
        with_bytes = (dag.file(b"x", &[with_bytes]), with_bytes.1 + 1);
        tree = dag.directory(&[("d", tree)]);
    }
    dag.import(&gateway).await;
    let limit = "streaming.max_dag_depth = 128";
    let struck = "ipfrs_refusals_total{limit=\"dag\"}";
    for file in [bare, with_bytes.0] {
        let before = gateway.metric(struck).await;
        let requests = [
            get(file),
            format!("{}\r\nRange: bytes=-1", get(file)),
            get(format!("{file}?format=tar")),
            format!("GET /v1/stream/download/{file} HTTP/1.1"),
            post(format!("cat?arg={file}")),
            post(format!("get?arg={file}")),
        ];
        for request in &requests {
            let (answer, read) = cost(&gateway, request).await;
            let status = if request.starts_with("POST") { 500 } else { 413 };
            assert_eq!(answer.status, status, "{request}: {}", answer.text());
            // Reading the first bytes for the content type may repeat the descent.
            assert!(answer.text().contains(limit) && read <= 2 * 130, "{request}: {read} blocks, {}", answer.text());
        }
        assert!(gateway.metric(struck).await >= before + requests.len() as u64);
    }
    for root in [bare, with_bytes.0, tree] {
        let before = gateway.metric(struck).await;
        for method in ["GET", "HEAD"] {
            let request = format!("{method} /ipfs/{root}?format=car HTTP/1.1");
            let (answer, read) = cost(&gateway, &request).await;
            assert!(answer.status == 413 && read <= 131, "{request}: {} {read} blocks", answer.status);
        }
        assert_eq!(gateway.metric(struck).await, before + 2);
        let (answer, read) = cost(&gateway, &post(format!("dag/export?arg={root}"))).await;
        assert!(answer.status == 500 && answer.text().contains("deeper than the limit of 128"), "{}", answer.text());
        assert!(read <= 131, "{read} blocks");
        // Operations that visit each block once, in any order, need no limit.
        for command in ["dag/stat?progress=false&", "pin/add?"] {
            let (answer, read) = cost(&gateway, &post(format!("{command}arg={root}"))).await;
            assert!(answer.status == 200 && read <= 202, "{command}: {read} blocks, {}", answer.text());
        }
    }
    for request in [get(format!("{tree}?format=tar")), post(format!("get?arg={tree}"))] {
        let (answer, read) = cost(&gateway, &request).await;
        assert!(!answer.is_complete && read <= 131, "{request}: {read} blocks");
    }
    assert_eq!(gateway.content(&format!("/ipfs/{tree}{}", "/d".repeat(TOO_DEEP))).await, "leaf");
    let (encoded, _) = cost(&gateway, &get(format!("{tree}{}", "%2Fd".repeat(257)))).await;
    assert_eq!(encoded.status, 414);
    let (answer, read) = cost(&gateway, &get(format!("{tree}{}", "/d".repeat(257)))).await;
    assert_eq!((answer.status, read), (414, 0));
    let deeper = TestGateway::start_with(|config| config.streaming.max_dag_depth = 256).await;
    dag.import(&deeper).await;
    assert_eq!(deeper.content(&format!("/ipfs/{bare}")).await, "leaf");
    assert_eq!(deeper.content(&format!("/ipfs/{}", with_bytes.0)).await.len(), TOO_DEEP + 4);
    assert!(cost(&deeper, &get(format!("{tree}?format=tar"))).await.0.is_complete);
    assert!(answer.text().contains("257 segments, over the limit of 256"), "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_sizes_never_yield_a_complete_response() {
    let gateway = TestGateway::start().await;
    let mut dag = Dag::default();
    let leaf = dag.put(codec::RAW, b"leaf".to_vec());
    let file = Data { kind: FILE, ..Data::default() };
    let shard = Data { kind: SHARD, data: b"\x01", fanout: Some(8), ..Data::default() };
    let (huge, sizes) = (1 << 62, vec![0; 700_000]);
    let cases = [
        ("its filesize is", Data { filesize: Some(u64::MAX), ..file.clone() }, 0),
        ("its filesize is 5", Data { filesize: Some(5), blocksizes: &[4], ..file.clone() }, 1),
        ("overflow 64 bits", Data { blocksizes: &[u64::MAX, u64::MAX], ..file.clone() }, 2),
        ("1 links with 2 sizes", Data { blocksizes: &[4, 4], ..file.clone() }, 1),
        ("0 links with 700000 sizes", Data { blocksizes: &sizes, ..file.clone() }, 0),
        ("has 4 file bytes, but its parent declares", Data { blocksizes: &[huge], ..file.clone() }, 1),
        ("fan-out 2048 is not a power of two from 8 to 1024", Data { fanout: Some(2048), ..shard.clone() }, 1),
        ("fan-out 7 is not", Data { fanout: Some(7), ..shard.clone() }, 1),
        ("fan-out 0 is not", Data { fanout: Some(0), ..shard.clone() }, 1),
        ("fan-out 18446744073709551615 is not", Data { fanout: Some(u64::MAX), ..shard.clone() }, 1),
        ("8 bits for 1 links", Data { data: b"\xff", ..shard.clone() }, 1),
    ];
    let cases: Vec<_> =
        cases.into_iter().map(|(why, data, links)| (why, dag.node((0..links).map(|_| ("", leaf)), &data))).collect();
    dag.import(&gateway).await;
    for (why, cid) in cases {
        // A leaf of the wrong size is detected when the leaf is read.
        let is_in_root = !why.contains("but its parent declares");
        let mut requests = vec![
            get(cid),
            format!("{}\r\nRange: bytes=0-0", get(cid)),
            get(format!("{cid}/")),
            get(format!("{cid}?format=tar")),
            format!("GET /v1/stream/download/{cid} HTTP/1.1"),
            post(format!("cat?arg={cid}")),
            post(format!("get?arg={cid}")),
        ];
        if is_in_root {
            requests.extend([
                get(format!("{cid}/name")),
                format!("GET /v1/tensor/{cid} HTTP/1.1"),
                post(format!("ls?arg={cid}")),
                post(format!("files/stat?arg=/ipfs/{cid}")),
            ]);
        }
        for request in &requests {
            let (answer, read) = cost(&gateway, request).await;
            let is_rpc = request.starts_with("POST");
            assert_eq!(answer.status, if is_rpc { 500 } else { 422 }, "{why} {request}: {}", answer.text());
            assert!(answer.text().contains(why), "{why} {request}: {}", answer.text());
            assert!(!is_rpc || answer.text().contains("invalid_content"), "{request}: {}", answer.text());
            assert!(read <= 4, "{why} {request}: {read} blocks");
        }
        for path in [format!("/ipfs/{cid}"), format!("/ipfs/{cid}?format=tar"), format!("/v1/stream/download/{cid}")] {
            let head = gateway.request(Method::HEAD, &path).send().await.unwrap();
            assert!(!is_in_root || head.status() == 422, "{why} HEAD {path}: {}", head.status());
        }
        // Clients that verify blocks receive them unchanged.
        for request in [get(format!("{cid}?format=raw")), get(format!("{cid}?format=car"))] {
            let (answer, _) = cost(&gateway, &request).await;
            assert!(answer.status == 200 && answer.is_complete, "{why} {request}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn overflowing_file_sizes_are_refused() {
    let gateway = TestGateway::start().await;
    let mut dag = Dag::default();
    let leaf = dag.put(codec::RAW, b"leaf".to_vec());
    let half = 1_u64 << 63;
    let data = Data { kind: FILE, blocksizes: &[half, half - 1], ..Data::default() };
    let file = dag.node([("", leaf), ("", leaf)], &data);
    dag.import(&gateway).await;
    let head = gateway.request(Method::HEAD, &format!("/ipfs/{file}")).send().await.unwrap();
    assert_eq!(head.status(), gateway.get(&format!("/ipfs/{file}")).await.status());
    assert!(!head.status().is_success(), "the leaf is shorter than its parent says");
    let ranges = format!("bytes=0-{},{half}-{}", half - 1, u64::MAX - 1);
    let (answer, read) = cost(&gateway, &format!("{}\r\nRange: {ranges}", get(file))).await;
    assert_eq!(answer.status, 413, "{}", answer.text());
    assert!(answer.text().contains("more than 2^64 bytes together") && read <= 4, "{read} blocks, {}", answer.text());
    let (answer, read) = cost(&gateway, &post(format!("cat?arg={file}&arg={file}"))).await;
    assert!(answer.status == 500 && read <= 4, "{read} blocks, {}", answer.text());
    for request in [get(format!("{file}?format=tar")), post(format!("get?arg={file}"))] {
        let (answer, _) = cost(&gateway, &request).await;
        assert!(answer.status >= 400, "{request}: {}", answer.status);
    }
    let entity = get(format!("{file}?format=car&entity-bytes=-1:*"));
    assert!(cost(&gateway, &entity).await.0.is_complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_or_deeply_nested_blocks_are_refused() {
    let gateway = TestGateway::start().await;
    let mut dag = Dag::default();
    let empty: Cid = "bafkqaaa".parse().unwrap();
    let nested = |deep: usize| [vec![0x81; deep], vec![0]].concat();
    let deep_json = [vec![b'['; 1_000_000], vec![b']'; 1_000_000]].concat();
    let too_deep = "are nested more than 127 levels deep, the maximum for one block";
    let cases = [
        (codec::DAG_CBOR, b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff".to_vec(), "it ends in the middle of an item"),
        (
            codec::DAG_CBOR,
            b"\xbb\x7f\xff\xff\xff\xff\xff\xff\xff\x61a\x00".to_vec(),
            "it ends in the middle of an item",
        ),
        (codec::DAG_CBOR, b"\x7b\xff\xff\xff\xff\xff\xff\xff\xff".to_vec(), "it ends in the middle of an item"),
        (codec::DAG_JSON, deep_json, too_deep),
        (codec::DAG_PB, b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f".to_vec(), "extends past the end"),
        (codec::DAG_PB, b"\x0a\x00\x0a\x00".to_vec(), "two Data fields"),
    ]
    .map(|(codec, data, why)| (dag.put(codec, data), why));
    let deepest = dag.put(codec::DAG_CBOR, nested(127));
    // A traversal converts nothing, and reads blocks of any depth and width.
    let link = [&[0xd8, 42, 0x45, 0][..], &empty.to_bytes()].concat();
    let wide = [&[0x9a, 0, 1, 0, 1][..], &link.repeat(65_537)].concat();
    let walked = [
        dag.put(codec::DAG_CBOR, nested(128)),
        dag.put(codec::DAG_CBOR, nested(1_000_000)),
        dag.put(codec::DAG_CBOR, wide),
        dag.put(codec::DAG_PB, crafted::node((0..70_000).map(|_| ("", empty)), b"")),
    ];
    dag.import(&gateway).await;
    for (cid, why) in cases {
        for command in ["dag/export?", "dag/stat?progress=false&", "pin/add?", "ls?"] {
            let (answer, read) = cost(&gateway, &post(format!("{command}arg={cid}"))).await;
            assert!(answer.status == 500 && answer.text().contains(why), "{command} {cid}: {}", answer.text());
            assert!(read <= 2, "{command}: {read} blocks");
        }
        // Paths and pages need neither recursion nor heap allocations that depend on the claimed sizes.
        let page = format!("GET /ipfs/{cid}/ HTTP/1.1\r\nAccept: text/html");
        for request in [get(format!("{cid}/0/0/x")), page, get(format!("{cid}?format=car"))] {
            let (answer, read) = cost(&gateway, &request).await;
            let is_page = answer.is_complete && answer.header("content-type").starts_with("text/html");
            assert!(answer.status >= 400 || !answer.is_complete || is_page, "{request}: {}", answer.text());
            assert!(answer.body.len() < 64 * 1024 && read <= 2, "{request}: {read} blocks");
        }
        let (answer, _) = cost(&gateway, &get(format!("{cid}?format=raw"))).await;
        assert!(answer.status == 200 && answer.is_complete);
    }
    for cid in walked {
        let export = get(format!("{cid}?format=car"));
        for request in ["dag/export?", "dag/stat?progress=false&", "pin/add?"].map(|it| post(format!("{it}arg={cid}")))
        {
            let (answer, _) = cost(&gateway, &request).await;
            assert!(answer.status == 200 && answer.is_complete, "{request}: {}", answer.text());
        }
        assert!(cost(&gateway, &export).await.0.is_complete, "{export}");
        let (answer, _) = cost(&gateway, &get(format!("{cid}/x/0/0?format=car"))).await;
        assert!(answer.status == 200 || answer.status == 413, "{cid}: {}", answer.status);
    }
    for command in ["dag/export?", "dag/get?", "dag/stat?progress=false&", "pin/add?"] {
        let (answer, _) = cost(&gateway, &post(format!("{command}arg={deepest}"))).await;
        assert!(answer.status == 200 && answer.is_complete, "{command}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn widest_node_of_one_leaf_costs_only_its_output() {
    let gateway = TestGateway::start().await;
    let mut dag = Dag::default();
    let leaf = dag.put(codec::RAW, b"leaf".to_vec());
    let file = dag.file(b"", &vec![(leaf, 4); 40_000]);
    let symlink = dag.node([("", leaf); 0], &Data { kind: SYMLINK, data: b"self", ..Data::default() });
    let loops = dag.directory(&[("self", symlink)]);
    dag.import(&gateway).await;
    let (answer, read) = cost(&gateway, &get(file)).await;
    assert!(answer.is_complete && answer.body.len() == 160_000 && read <= 41_000, "{read} blocks");
    // Requested again, so that its type is kept.
    cost(&gateway, &get(file)).await;
    let (answer, read) = cost(&gateway, &format!("{}\r\nRange: bytes=-1", get(file))).await;
    assert!(answer.is_complete && read <= 3, "{read} blocks");
    let (answer, read) = cost(&gateway, &get(format!("{file}?format=car"))).await;
    assert!(answer.is_complete && read <= 3, "{read} blocks");
    // The gateway never follows symlinks.
    assert_eq!(gateway.content(&format!("/ipfs/{loops}/self")).await, "self");
    assert_eq!(gateway.get(&format!("/ipfs/{loops}/self/self")).await.status(), 404);
    let (answer, read) = cost(&gateway, &post(format!("get?arg={loops}"))).await;
    assert!(answer.is_complete && answer.body.len() < 4_096 && read <= 3, "{read} blocks");
}
