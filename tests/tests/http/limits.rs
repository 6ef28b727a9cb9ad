//! Limits of requests, and the responses that they cause.

use std::time::Duration;

use futures::future::join_all;
use ipfrs_interface::Config;
use reqwest::{Method, Response};
use serde_json::json;
use tokio::time::timeout;

use crate::content;
use crate::harness::{TestGateway, client, header, rpc_failure};
use crate::wire::{Wire, exchange};
use crate::withholding::Withholding;

/// Watchdog timeout, longer than any operation of the tests.
const WATCHDOG: Duration = Duration::from_secs(60);

const CHUNK: usize = 262_144;

/// Number of chunks in a file that exceeds the readahead of a reader.
const CHUNKS: usize = 40;

async fn slow(change: impl FnOnce(&mut Config)) -> (TestGateway, Withholding) {
    let store = Withholding::new();
    let gateway = TestGateway::start_over(store.clone(), change).await;
    (gateway, store)
}

/// Returns how many requests a limit has refused.
async fn struck(gateway: &TestGateway, limit: &str) -> u64 {
    gateway.metric(&format!("ipfrs_refusals_total{{limit=\"{limit}\"}}")).await
}

/// Returns the content ID of the last chunk of a file with [`CHUNKS`] chunks.
async fn last_chunk(gateway: &TestGateway, cid: &str) -> String {
    let root = gateway.rpc_json(&format!("dag/get?arg={cid}")).await;
    root["Links"][CHUNKS - 1]["Hash"]["/"].as_str().unwrap().to_owned()
}

/// Checks that a response has `status` and must not be cached, and returns its text.
async fn refusal(response: Response, status: u16) -> String {
    let cache_control = header(&response, "cache-control").to_owned();
    let (found, text) = (response.status(), response.text().await.unwrap());
    assert_eq!((found.as_u16(), cache_control.as_str()), (status, "no-store"), "{text}");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_first_block_returns_504_in_every_format() {
    let (gateway, store) = slow(|config| config.gateway.retrieval_timeout_seconds = 1).await;
    let tree = gateway.add_tree("cid-version=1", &[("tree/sub/a.txt", "a"), ("tree/sub/b.txt", "b")]).await;
    let cbor = gateway.put_block("cid-codec=dag-cbor", &b"\xa0"[..]).await;
    let sub = gateway.rpc_json(&format!("dag/resolve?arg={tree}/sub")).await["Cid"]["/"].as_str().unwrap().to_owned();
    store.withhold(&sub);
    store.withhold(&cbor);
    let gets = [
        format!("/ipfs/{tree}/sub/a.txt"),
        format!("/ipfs/{tree}/sub/"),
        format!("/ipfs/{sub}?format=raw"),
        format!("/ipfs/{sub}?format=car"),
        format!("/ipfs/{tree}/sub?format=car&dag-scope=block"),
        format!("/ipfs/{sub}?format=tar"),
        format!("/ipfs/{cbor}"),
        format!("/ipfs/{cbor}?format=dag-cbor"),
        format!("/v1/stream/download/{sub}"),
    ];
    let texts = join_all(gets.iter().map(async |path| {
        let text = refusal(gateway.get(path).await, 504).await;
        assert!(text.contains("gateway.retrieval_timeout_seconds = 1"), "{path}: {text}");
    }));
    let commands = ["cat", "get", "ls", "dag/export", "dag/get", "block/get", "dag/stat", "pin/add"];
    let failures = join_all(commands.iter().map(async |command| {
        let message = rpc_failure(gateway.rpc(&format!("{command}?arg={sub}")).send().await.unwrap()).await;
        assert!(message.contains("gateway.retrieval_timeout_seconds = 1"), "{command}: {message}");
    }));
    timeout(WATCHDOG, async { tokio::join!(texts, failures) }).await.unwrap();
    let asked = (gets.len() + commands.len()) as u64;
    assert!(struck(&gateway, "retrieval_timeout").await >= asked);
    // The failure is not cached.
    store.release();
    assert_eq!(gateway.content(&gets[0]).await, "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_reports_a_stalled_block_per_item() {
    let (gateway, store) = slow(|config| config.gateway.retrieval_timeout_seconds = 1).await;
    let mut cids = Vec::new();
    for number in 0..40 {
        cids.push(gateway.put_block("", format!("block {number}")).await);
    }
    store.withhold(&cids[20]);
    let answer = gateway.v1_json("block/batch/get", &json!({ "cids": cids })).await;
    let of = |list: &str| answer[list].as_array().unwrap().iter().map(|item| item["cid"].clone()).collect::<Vec<_>>();
    assert_eq!([of("blocks"), of("errors")].concat(), cids);
    assert!(of("errors").contains(&json!(cids[20])) && of("errors").contains(&json!(cids[39])));
    for error in answer["errors"].as_array().unwrap() {
        let text = error["error"].as_str().unwrap();
        assert!(text.contains("gateway.retrieval_timeout_seconds = 1"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_block_is_not_corrupt_and_stops_gc() {
    let (gateway, store) = slow(|config| config.gateway.retrieval_timeout_seconds = 1).await;
    let tree = gateway.add_tree("", &[("tree/a.txt", "a"), ("tree/b.txt", "b")]).await;
    gateway.put_block("", "not pinned").await;
    let blocks = gateway.blocks().await;
    store.withhold(&tree);
    let failures = join_all(["repo/verify", "pin/verify", "repo/gc"].map(async |command| {
        let head = format!("POST /api/v0/{command} HTTP/1.1\r\nContent-Length: 0\r\nTE: trailers");
        let text = String::from_utf8(exchange(&gateway, &head).await.body).unwrap();
        assert!(text.contains("gateway.retrieval_timeout_seconds = 1"), "{command}: {text}");
        assert!(!text.contains("corrupt") && !text.contains("\"Ok\":false"), "{command}: {text}");
    }));
    timeout(WATCHDOG, failures).await.unwrap();
    store.release();
    assert_eq!(gateway.blocks().await, blocks);
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_response_is_aborted() {
    let (gateway, store) = slow(|config| config.gateway.retrieval_timeout_seconds = 1).await;
    let content = content::bytes(CHUNKS * CHUNK);
    let cid = gateway.add("raw-leaves=true", content.clone()).await;
    store.withhold(&last_chunk(&gateway, &cid).await);
    let h2 = client().http2_prior_knowledge().build().unwrap();
    let ways = ["", "?format=car", "?format=tar"];
    let of_http_1 = join_all(ways.iter().map(async |way| {
        let answer = exchange(&gateway, &format!("GET /ipfs/{cid}{way} HTTP/1.1")).await;
        assert_eq!(answer.status, 200);
        assert!(!answer.is_complete, "{way}: {} bytes look whole", answer.body.len());
    }));
    let of_http_2 = join_all(ways.iter().map(async |way| {
        let response = h2.get(gateway.url(&format!("/ipfs/{cid}{way}"))).send().await.unwrap();
        assert_eq!(response.status(), 200);
        response.bytes().await.unwrap_err();
    }));
    let of_the_rpc = join_all(["cat", "get", "dag/export"].iter().map(async |command| {
        let answer =
            exchange(&gateway, &format!("POST /api/v0/{command}?arg={cid} HTTP/1.1\r\nContent-Length: 0")).await;
        assert_eq!(answer.status, 200);
        assert!(!answer.is_complete, "{command}");
    }));
    timeout(WATCHDOG, async { tokio::join!(of_http_1, of_http_2, of_the_rpc) }).await.unwrap();
    store.release();
    assert_eq!(gateway.content(&format!("/ipfs/{cid}")).await, content);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_past_deadline_returns_504_or_aborts() {
    let (gateway, store) = slow(|config| config.gateway.max_request_seconds = 1).await;
    let (whole, content) = (gateway.add("", "small").await, content::bytes(CHUNKS * CHUNK));
    let cid = gateway.add("raw-leaves=true", content).await;
    store.withhold(&last_chunk(&gateway, &cid).await);
    store.withhold(&whole);
    let heads = join_all(["/ipfs", "/v1/stream/download", "/v1/tensor"].map(async |route| {
        let text = refusal(gateway.get(&format!("{route}/{whole}")).await, 504).await;
        assert!(text.contains("gateway.max_request_seconds = 1"), "{route}: {text}");
    }));
    let bodies = join_all(["/ipfs", "/v1/stream/download"].map(async |route| {
        let answer = exchange(&gateway, &format!("GET {route}/{cid} HTTP/1.1")).await;
        assert_eq!((answer.status, answer.is_complete), (200, false), "{route}");
    }));
    timeout(WATCHDOG, async { tokio::join!(heads, bodies) }).await.unwrap();
    gateway.assert_metric("ipfrs_refusals_total{limit=\"max_request\"}", 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_over_the_limit_return_429() {
    let (gateway, store) = slow(|config| config.gateway.max_concurrent_requests = 2).await;
    let (first, second) = (gateway.add("", "first").await, gateway.add("", "second").await);
    gateway.until_idle().await;
    store.withhold(&first);
    let waiting = || tokio::spawn(gateway.request(Method::GET, &format!("/ipfs/{first}")).send());
    let held = [waiting(), waiting()];
    timeout(WATCHDOG, async { while gateway.metric("ipfrs_http_requests_active").await < 2 {} }).await.unwrap();
    let path = format!("/ipfs/{second}");
    let response = gateway.get(&path).await;
    assert_eq!(header(&response, "retry-after"), "1");
    // Pages of other origins may read the reason.
    assert_eq!(header(&response, "access-control-allow-origin"), "*");
    let text = refusal(response, 429).await;
    assert!(text.contains("2 requests are in progress") && text.contains("gateway.max_concurrent_requests"), "{text}");
    let response = gateway.rpc(&format!("cat?arg={second}")).send().await.unwrap();
    assert_eq!((response.status().as_u16(), header(&response, "retry-after")), (429, "1"));
    assert_eq!(response.json::<serde_json::Value>().await.unwrap()["Code"], json!(3));
    let response = gateway.v1("block/batch/get", &json!({ "cids": [second] })).await;
    assert_eq!(header(&response, "content-type"), "application/problem+json");
    refusal(response, 429).await;
    assert_eq!(struck(&gateway, "max_concurrent_requests").await, 3);
    // Routes for monitoring need no permit.
    for route in ["/health", "/health/live", "/health/ready", "/metrics", "/debug/metrics/prometheus"] {
        assert_eq!(gateway.get(route).await.status(), 200, "{route}");
    }
    store.release();
    for held in held {
        assert_eq!(held.await.unwrap().unwrap().text().await.unwrap(), "first");
    }
    gateway.until_idle().await;
    assert_eq!(gateway.content(&path).await, "second");
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_holds_its_permit_until_the_body_ends() {
    let gateway = TestGateway::start_with(|config| config.gateway.max_concurrent_requests = 1).await;
    let cid = gateway.add("", content::bytes(32 << 20)).await;
    gateway.until_idle().await;
    let mut wire = Wire::connect(&gateway).await;
    wire.send(format!("GET /ipfs/{cid} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    wire.take(100_000).await;
    refusal(gateway.get(&format!("/ipfs/{cid}")).await, 429).await;
    drop(wire);
    gateway.until_idle().await;
    assert_eq!(gateway.get(&format!("/ipfs/{cid}")).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn response_in_one_piece_holds_its_permit_until_the_socket_has_it() {
    let gateway = TestGateway::start_with(|config| config.gateway.max_concurrent_requests = 1).await;
    let cid = gateway.add("cid-version=1&raw-leaves=true&chunker=size-1000000", content::bytes(1_000_000)).await;
    gateway.until_idle().await;
    let mut wire = Wire::connect_with_small_window(&gateway).await;
    // More than the kernel takes for a client that reads nothing.
    wire.send(format!("GET /ipfs/{cid}?format=raw HTTP/1.1\r\nHost: x\r\n\r\n").repeat(16)).await;
    let is_held = async { while gateway.metric("ipfrs_http_requests_active").await == 0 {} };
    timeout(WATCHDOG, is_held).await.unwrap();
    refusal(gateway.get(&format!("/ipfs/{cid}")).await, 429).await;
    drop(wire);
    gateway.until_idle().await;
    assert_eq!(gateway.get(&format!("/ipfs/{cid}")).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn response_of_several_pieces_is_whole_after_a_stall() {
    let gateway = TestGateway::start_with(|config| config.gateway.max_concurrent_requests = 1).await;
    let content = content::bytes(1_000_000);
    let path = format!("/ipfs/{}", gateway.add("chunker=size-250000", content.clone()).await);
    gateway.until_idle().await;
    let mut wire = Wire::connect_with_small_window(&gateway).await;
    wire.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    let is_held = async { while gateway.metric("ipfrs_http_requests_active").await == 0 {} };
    timeout(WATCHDOG, is_held).await.unwrap();
    refusal(gateway.get(&path).await, 429).await;
    content::assert_same(&wire.answer().await.body, &content, "after a stall");
    gateway.until_idle().await;
    assert_eq!(gateway.get(&path).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_of_a_stalled_client_is_closed() {
    let gateway = TestGateway::start_with(|config| config.server.write_timeout_seconds = 1).await;
    let cid = gateway.add("", content::bytes(64 << 20)).await;
    let mut wire = Wire::connect(&gateway).await;
    wire.send(format!("GET /ipfs/{cid} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    wire.take(100_000).await;
    timeout(WATCHDOG, async { while struck(&gateway, "write_timeout").await == 0 {} }).await.unwrap();
    gateway.until_idle().await;
    assert!(wire.rest().await.len() < 64 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_http2_stream_is_reset_alone() {
    let gateway = TestGateway::start_with(|config| config.server.write_timeout_seconds = 1).await;
    let (small, large) = (gateway.add("", "small").await, gateway.add("", content::bytes(16 << 20)).await);
    let h2 = client().http2_prior_knowledge().http2_initial_stream_window_size(65_535);
    let h2 = h2.http2_initial_connection_window_size(8 << 20).build().unwrap();
    let stalled = h2.get(gateway.url(&format!("/ipfs/{large}"))).send().await.unwrap();
    assert_eq!(stalled.status(), 200);
    timeout(WATCHDOG, async { while struck(&gateway, "write_timeout").await == 0 {} }).await.unwrap();
    stalled.bytes().await.unwrap_err();
    let connections = gateway.metric("ipfrs_http_connections_active").await;
    let response = h2.get(gateway.url(&format!("/ipfs/{small}"))).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "small");
    assert_eq!(gateway.metric("ipfrs_http_connections_active").await, connections);
    gateway.until_idle().await;
    // A slow client that reads occasionally receives the whole response.
    let mut slow = h2.get(gateway.url(&format!("/ipfs/{large}"))).send().await.unwrap();
    let mut taken = 0;
    while let Some(piece) = slow.chunk().await.unwrap() {
        taken += piece.len();
    }
    assert_eq!(taken, 16 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_file_returns_410_and_suggests_car() {
    let gateway = TestGateway::start_with(|config| config.gateway.max_deserialized_bytes = 1_000).await;
    let (fits, large) = (gateway.add("", content::bytes(1_000)).await, gateway.add("", content::bytes(1_001)).await);
    assert_eq!(gateway.content(&format!("/ipfs/{fits}")).await.len(), 1_000);
    for (method, query, range) in [
        (Method::GET, "", ""),
        (Method::HEAD, "", ""),
        (Method::GET, "", "bytes=0-1"),
        (Method::GET, "?format=tar", ""),
        (Method::GET, "?download=true", ""),
    ] {
        let request = gateway.request(method.clone(), &format!("/ipfs/{large}{query}")).header("range", range);
        let text = refusal(request.send().await.unwrap(), 410).await;
        let is_clear = text.contains("gateway.max_deserialized_bytes = 1000") && text.contains("?format=car");
        assert!(method == Method::HEAD || is_clear, "{text}");
    }
    assert_eq!(struck(&gateway, "max_deserialized").await, 5);
    for query in ["?format=raw", "?format=car"] {
        assert!(gateway.content(&format!("/ipfs/{large}{query}")).await.len() > 1_000);
    }
    // The size of a directory's archive is not known in advance.
    let file = "x".repeat(700);
    let tree = gateway.add_tree("", &[("tree/a", &file), ("tree/b", &file)]).await;
    refusal(gateway.get(&format!("/ipfs/{tree}?format=tar")).await, 410).await;
    assert_eq!(gateway.get(&format!("/ipfs/{tree}/")).await.status(), 200);
    // The same applies if many more entries follow.
    let paths: Vec<_> = (0..300).map(|i| format!("wide/{i}")).collect();
    let wide: Vec<_> = paths.iter().map(|path| (path.as_str(), "x")).collect();
    let wide = gateway.add_tree("", &wide).await;
    refusal(gateway.get(&format!("/ipfs/{wide}?format=tar")).await, 410).await;
    assert_eq!(struck(&gateway, "max_deserialized").await, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn range_of_oversized_file_returns_501() {
    let gateway = TestGateway::start_with(|config| config.gateway.max_range_request_bytes = 1_000).await;
    let (fits, large) = (gateway.add("", content::bytes(1_000)).await, gateway.add("", content::bytes(1_001)).await);
    let range = |cid: &str| gateway.request(Method::GET, &format!("/ipfs/{cid}")).header("range", "bytes=0-9").send();
    assert_eq!(range(&fits).await.unwrap().status(), 206);
    let text = refusal(range(&large).await.unwrap(), 501).await;
    assert!(text.contains("gateway.max_range_request_bytes = 1000") && text.contains("entity-bytes"), "{text}");
    assert_eq!(struck(&gateway, "max_range_request").await, 1);
    assert_eq!(gateway.content(&format!("/ipfs/{large}")).await.len(), 1_001);
    // The limit is one of files, not of blocks.
    let block = gateway.request(Method::GET, &format!("/ipfs/{large}?format=raw")).header("range", "bytes=0-9");
    assert_eq!(block.send().await.unwrap().status(), 206);
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_that_do_not_apply_are_not_refused() {
    let gateway = TestGateway::start_with(|config| config.gateway.max_range_request_bytes = 1_000).await;
    let large = gateway.add("", content::bytes(1_001)).await;
    let too_many = format!("bytes=0-0{}", ",2-2".repeat(32));
    for path in [
        format!("/ipfs/{large}"),
        format!("/v1/stream/download/{large}"),
        format!("/v1/tensor/{}", npy(&gateway).await),
    ] {
        let refused = struck(&gateway, "max_range_request").await;
        let etag = header(&gateway.get(&path).await, "etag").to_owned();
        for (range, condition, status) in [
            ("bytes=0-9", ("accept", "*/*"), 501),
            ("bytes=0-9", ("if-range", etag.as_str()), 501),
            ("bytes=0-9", ("if-match", &etag), 501),
            ("bytes=2000-", ("accept", "*/*"), 501),
            ("bytes=0-9", ("if-range", "\"x\""), 200),
            ("bytes=0-9", ("if-none-match", &etag), 304),
            ("bytes=0-9", ("if-match", "\"x\""), 412),
            ("lines=0-9", ("accept", "*/*"), 200),
            ("bytes=5-4", ("accept", "*/*"), 200),
            ("bytes", ("accept", "*/*"), 200),
            (&too_many, ("accept", "*/*"), 200),
        ] {
            for method in [Method::GET, Method::HEAD] {
                let request = gateway.request(method.clone(), &path).header("range", range);
                let response = request.header(condition.0, condition.1).send().await.unwrap();
                assert_eq!(response.status(), status, "{method} {path}, {range}, {condition:?}");
            }
        }
        assert_eq!(struck(&gateway, "max_range_request").await, refused + 8);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_precede_the_limit_of_sizes() {
    let gateway = TestGateway::start_with(|config| config.gateway.max_deserialized_bytes = 1_000).await;
    let large = gateway.add("mtime=1577934245", content::bytes(1_001)).await;
    let tensors = npy(&gateway).await;
    for path in [format!("/ipfs/{large}"), format!("/v1/stream/download/{large}"), format!("/v1/tensor/{tensors}")] {
        let is_dated = path.starts_with("/ipfs");
        for (name, value, status) in [
            ("if-none-match", "*", 304),
            ("if-none-match", "\"x\"", 410),
            ("if-match", "\"x\"", 412),
            ("if-match", "*", 410),
            ("if-modified-since", "Thu, 02 Jan 2020 03:04:05 GMT", if is_dated { 304 } else { 410 }),
            ("if-unmodified-since", "Thu, 02 Jan 2020 03:04:04 GMT", if is_dated { 412 } else { 410 }),
        ] {
            for method in [Method::GET, Method::HEAD] {
                let response = gateway.request(method.clone(), &path).header(name, value).send().await.unwrap();
                assert_eq!(response.status(), status, "{method} {path}, {name}: {value}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_sizes_hold_for_downloads_tensors_and_the_rpc() {
    let gateway = TestGateway::start_with(|config| config.gateway.max_deserialized_bytes = 1_000).await;
    let (fits, large) = (gateway.add("", content::bytes(1_000)).await, gateway.add("", content::bytes(1_001)).await);
    let tree = gateway.add_tree("", &[("tree/a", &"x".repeat(700)), ("tree/b", &"x".repeat(700))]).await;
    let header = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1100],\"data_offsets\":[0,1100]}}";
    let head = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    let tensors = gateway.add("", [head, vec![0; 1_100]].concat()).await;
    let is_clear = |text: &str| text.contains("gateway.max_deserialized_bytes = 1000");
    for path in [
        format!("/v1/stream/download/{large}"),
        format!("/v1/stream/download/{large}?offset=5&limit=1"),
        format!("/v1/tensor/{tensors}"),
    ] {
        let text = refusal(gateway.get(&path).await, 410).await;
        assert!(is_clear(&text), "{path}: {text}");
    }
    for command in
        [format!("cat?arg={large}"), format!("cat?arg={large}&length=1"), format!("cat?arg={fits}&arg={large}")]
            .into_iter()
            .chain([format!("get?arg={large}"), format!("get?arg={large}&compress=true"), format!("get?arg={tree}")])
    {
        let message = rpc_failure(gateway.rpc(&command).send().await.unwrap()).await;
        assert!(is_clear(&message) && message.contains("dag/export"), "{command}: {message}");
    }
    assert_eq!(struck(&gateway, "max_deserialized").await, 9);
    gateway.content(&format!("/v1/stream/download/{fits}")).await;
    gateway.content(&format!("/v1/tensor/{tensors}?slice=:10")).await;
    gateway.content(&format!("/v1/tensor/{tensors}/info")).await;
    gateway.rpc_bytes(&format!("cat?arg={fits}")).await;
    gateway.rpc_bytes(&format!("get?arg={fits}")).await;
    gateway.rpc_bytes(&format!("dag/export?arg={large}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_ranges_hold_for_downloads_tensors_and_the_rpc() {
    let gateway = TestGateway::start_with(|config| config.gateway.max_range_request_bytes = 1_000).await;
    let large = gateway.add("", content::bytes(1_001)).await;
    let (download, tensor) = (format!("/v1/stream/download/{large}"), format!("/v1/tensor/{}", npy(&gateway).await));
    let range = |path: &str| gateway.request(Method::GET, path).header("range", "bytes=0-9").send();
    let limited = [
        range(&download).await.unwrap(),
        gateway.get(&format!("{download}?offset=1")).await,
        gateway.get(&format!("{download}?limit=1")).await,
        range(&tensor).await.unwrap(),
    ];
    for response in limited {
        let text = refusal(response, 501).await;
        assert!(text.contains("gateway.max_range_request_bytes = 1000"), "{text}");
    }
    for part in ["offset=1", "length=1"] {
        let message = rpc_failure(gateway.rpc(&format!("cat?arg={large}&{part}")).send().await.unwrap()).await;
        assert!(message.contains("gateway.max_range_request_bytes = 1000"), "{message}");
    }
    assert_eq!(struck(&gateway, "max_range_request").await, 6);
    gateway.content(&download).await;
    gateway.content(&tensor).await;
    gateway.rpc_bytes(&format!("cat?arg={large}")).await;
}

/// Adds an `.npy` file with 1,100 bytes of data.
async fn npy(gateway: &TestGateway) -> String {
    let header = format!("{:<117}\n", "{'descr': '|u1', 'fortran_order': False, 'shape': (1100,), }");
    let head = [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes()].concat();
    gateway.add("", [head, vec![0; 1_100]].concat()).await
}
