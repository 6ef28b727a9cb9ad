//! Closing of connections: a client that still reads responses or still sends requests loses no data.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use crate::content::{self, assert_same};
use crate::harness::{TestGateway, client};
use crate::wire::Wire;

/// Watchdog timeout, longer than any operation of the tests.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Waits until all connections but the one that asks have ended.
async fn until_alone(gateway: &TestGateway) {
    let mut watching = Wire::connect(gateway).await;
    loop {
        watching.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let metrics = watching.answer().await.text();
        if metrics.lines().any(|line| line == "ipfrs_http_connections_active 1") {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn buffered_response_survives_a_head_timeout() {
    let gateway = TestGateway::start_with(|config| {
        config.server.header_timeout_seconds = 1;
        // With few permits, the kernel of the server buffers up to 1 MiB.
        config.gateway.max_concurrent_requests = 64;
    })
    .await;
    // More than the kernel of the client buffers if the client does not read, and less than the kernel of the server
    // buffers.
    let cid = gateway.put_block("", content::bytes(200_000)).await;
    let path = format!("/ipfs/{}", gateway.add("", content::bytes(200_000)).await);
    let body = json!({ "cids": [cid] }).to_string();
    let length = body.len();
    let post = "POST /v1/block/batch/get HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    let requests = [
        format!("{post}Content-Length: {length}\r\n\r\n{body}"),
        format!("{post}Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"),
        format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"),
    ];
    let mut wires = Vec::new();
    // With and without the beginning of a request that never ends.
    for (request, next) in requests.iter().flat_map(|request| [(request, ""), (request, "GET / HT")]) {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(format!("{request}{next}")).await;
        wires.push((request, next, wire));
    }
    timeout(WATCHDOG, until_alone(&gateway)).await.unwrap();
    for (request, next, mut wire) in wires {
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.is_complete), (200, true), "{request}");
        assert!(answer.body.len() >= 200_000);
        if !next.is_empty() {
            assert_eq!(wire.answer().await.status, 408);
        }
        wire.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_completes_pipelined_responses() {
    // Only cached responses, some cached responses, and none; with a client that reads from the start, and one that
    // starts reading later.
    for (length, taken, is_ready) in [(5, 500, true), (60_000, 0, true), (60_000, 100, false), (300_000, 0, false)] {
        let gateway = TestGateway::start_with(|config| config.server.shutdown_grace_seconds = 3_600).await;
        let content = content::bytes(length);
        let path = format!("/ipfs/{}", gateway.add("", content.clone()).await);
        for _ in 0..if is_ready { 3 } else { 0 } {
            gateway.content(&path).await;
        }
        let path = if is_ready { path } else { format!("{path}?download=true") };
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        let (mut wire, asking) = Wire::connect_and_ask_for_ever(&gateway, request.repeat(100)).await;
        for _ in 0..1 + taken {
            assert_same(&wire.answer().await.body, &content, "before the end");
        }
        gateway.shutdown();
        let reading = async {
            loop {
                let answer = wire.answer().await;
                assert!(answer.is_complete);
                assert_same(&answer.body, &content, "at the end");
                if answer.header("connection") == "close" {
                    break wire.end().await;
                }
                assert_eq!(answer.header("connection"), "");
            }
        };
        timeout(WATCHDOG, reading).await.unwrap();
        // The client continues to send requests and closes the connection only after that.
        asking.abort();
        drop(wire);
        timeout(WATCHDOG, gateway.stop()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn response_is_whole_when_its_request_ends_after_it() {
    let gateway = TestGateway::start().await;
    // One block: the handler is done with it at once, long before the client has taken it.
    let content = content::bytes(1 << 20);
    let path = format!("/ipfs/{}", gateway.put_block("", content.clone()).await);
    for (headers, begin, end) in [
        ("Content-Length: 5\r\n", "ab", "cde"),
        ("Transfer-Encoding: chunked\r\n", "2\r\nab\r\n", "0\r\n\r\n"),
        ("Content-Length: 5\r\nUpgrade: x\r\nConnection: upgrade\r\n", "ab", "cde"),
        ("Content-Length: 5\r\nUPGRADE: x\r\nConnection: close, Upgrade\r\n", "ab", "cde"),
    ] {
        let mut wire = Wire::connect_with_small_window(&gateway).await;
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n{begin}")).await;
        let handled = gateway.until_metric("ipfrs_http_requests_active", |active| active == 0);
        timeout(WATCHDOG, handled).await.unwrap();
        wire.send(format!("{end}GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        let first = wire.answer().await;
        assert_eq!((first.status, first.is_complete), (200, true), "{headers}");
        assert_same(&first.body, &content, headers);
        if headers.contains("close") {
            wire.end().await;
        } else {
            assert_eq!(wire.answer().await.status, 200, "{headers}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_of_http_2_that_is_idle_after_requests_ends() {
    let gateway = TestGateway::start_with(|config| config.server.header_timeout_seconds = 1).await;
    let path = format!("/ipfs/{}", gateway.add("", "small").await);
    let h2 = client().http2_prior_knowledge().build().unwrap();
    assert_eq!(h2.get(gateway.url(&path)).send().await.unwrap().text().await.unwrap(), "small");
    // The client keeps the connection open for longer than this test takes.
    timeout(WATCHDOG, until_alone(&gateway)).await.unwrap();
    assert_eq!(h2.get(gateway.url(&path)).send().await.unwrap().text().await.unwrap(), "small");
}
