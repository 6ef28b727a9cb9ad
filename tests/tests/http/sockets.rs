//! Clients that misbehave, many clients, and HTTP/2.

use std::time::Duration;

use futures::future::join_all;
use reqwest::Method;
use tokio::time::timeout;

use crate::content::{self, assert_same};
use crate::harness::{TestGateway, client};
use crate::multipart::Form;
use crate::wire::{Wire, exchange};

#[tokio::test(flavor = "multi_thread")]
async fn a_head_over_the_limit_is_answered_with_431() {
    let gateway = TestGateway::start_with(|config| config.server.max_header_bytes = 16 * 1024).await;
    let fits = exchange(&gateway, format!("GET /health HTTP/1.1\r\nX-Fill: {}", "x".repeat(8 * 1024))).await;
    assert_eq!(fits.status, 200);
    for request in [
        format!("GET /health HTTP/1.1\r\nX-Fill: {}", "x".repeat(32 * 1024)),
        format!("GET /health HTTP/1.1{}", (0..2_000).map(|i| format!("\r\nX-{i}: x")).collect::<String>()),
    ] {
        assert_eq!(exchange(&gateway, request).await.status, 431);
    }
    assert_eq!(gateway.get("/health").await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_head_times_out() {
    let gateway = TestGateway::start_with(|config| config.server.header_timeout_seconds = 1).await;
    for beginning in
        ["", "G", "GET /health HTTP/1.1\r\n", "GET /health HTTP/1.1\r\nX-Slow: 1\r\nX-", "PRI * HTTP/2.0\r\n"]
    {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(beginning).await;
        let rest = wire.rest().await;
        let text = String::from_utf8_lossy(&rest);
        assert!(!text.contains("200 OK"), "{beginning:?}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn non_http_bytes_are_refused() {
    let gateway = TestGateway::start().await;
    for garbage in
        [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"]
    {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(garbage).await;
        wire.finish().await;
        let rest = wire.rest().await;
        assert!(
            rest.is_empty() || rest.starts_with(b"HTTP/1.1 4") || rest.starts_with(b"HTTP/1.1 505"),
            "{}",
            String::from_utf8_lossy(&rest)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_answered_in_order() {
    let gateway = TestGateway::start().await;
    let big = content::bytes(600_000);
    let cid = gateway.add("", big.clone()).await;
    let mut wire = Wire::connect(&gateway).await;
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    let requests =
        [get(&format!("/ipfs/{cid}")), get("/ipfs/bafkqac3imvwgy3zao5xxe3de"), get("/nothing"), get("/health/live")];
    wire.send(requests.concat()).await;
    assert_same(&wire.answer().await.body, &big, "the first");
    assert_eq!(wire.answer().await.text(), "hello world");
    assert_eq!(wire.answer().await.status, 404);
    assert_eq!(wire.answer().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_leaves_the_connection_usable() {
    let gateway = TestGateway::start().await;
    let mut wire = Wire::connect(&gateway).await;
    for (head, body, status) in [
        ("GET /ipfs/nonsense HTTP/1.1", "", 400),
        ("POST /v1/block/batch/get HTTP/1.1\r\nContent-Length: 3", "???", 400),
        ("DELETE /ipfs/bafkqaaa HTTP/1.1\r\nContent-Length: 4", "body", 405),
        ("POST /api/v0/cat HTTP/1.1\r\nContent-Length: 5", "12345", 400),
        ("GET /ipfs/bafkqaaa HTTP/1.1", "", 200),
    ] {
        wire.send(format!("{head}\r\nHost: x\r\n\r\n{body}")).await;
        assert_eq!(wire.answer().await.status, status, "{head}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_connections_are_served_concurrently() {
    let gateway = TestGateway::start().await;
    let content = content::bytes(300_000);
    let cid = gateway.add("", content.clone()).await;
    let mut wires = join_all((0..200).map(|_| Wire::connect(&gateway))).await;
    for _ in 0..2 {
        // All clients have sent their request before the first of them reads.
        for wire in &mut wires {
            wire.send(format!("GET /ipfs/{cid} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        }
        for answer in join_all(wires.iter_mut().map(Wire::answer)).await {
            assert_same(&answer.body, &content, "one of 200");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnected_downloads_release_their_resources() {
    let gateway = TestGateway::start().await;
    let content = content::bytes(20_000_000);
    let cid = gateway.add("", content.clone()).await;
    for _ in 0..20 {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(format!("GET /ipfs/{cid} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        wire.take(100_000).await;
    }
    assert_same(&gateway.content(&format!("/ipfs/{cid}")).await, &content, "the next client's");
    // The streams of the disconnected clients end as soon as the daemon notices.
    timeout(Duration::from_secs(60), async { while active_downloads(&gateway).await != "0" {} }).await.unwrap();
}

async fn active_downloads(gateway: &TestGateway) -> String {
    let metrics = String::from_utf8(gateway.content("/metrics").await.to_vec()).unwrap();
    let name = "ipfrs_streaming_operations_active{direction=\"download\"} ";
    metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn half_closed_client_receives_its_response() {
    let gateway = TestGateway::start().await;
    let content = content::bytes(5_000_000);
    let cid = gateway.add("", content.clone()).await;
    let mut wire = Wire::connect(&gateway).await;
    wire.send(format!("GET /ipfs/{cid} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await;
    wire.finish().await;
    let answer = wire.answer().await;
    assert!(answer.is_complete);
    assert_same(&answer.body, &content, "after half of the connection was closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_large_responses_are_complete() {
    let gateway = TestGateway::start().await;
    // More than the buffers of a connection hold until the client begins to read.
    let content = content::bytes(10_000_000);
    let mut clients = Vec::new();
    for options in [
        "chunker=size-20000",
        "chunker=size-50000&raw-leaves=true",
        "chunker=size-262144",
        "chunker=size-262144&raw-leaves=true",
        "chunker=size-1000000",
        "chunker=size-1048576&raw-leaves=true",
    ] {
        let path = format!("/ipfs/{}", gateway.add(options, content.clone()).await);
        let mut wire = Wire::connect(&gateway).await;
        let get = |path: &str, header: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n");
        let requests = [
            get(&path, ""),
            get(&path, "Range: bytes=262143-1310720\r\n"),
            get("/ipfs/bafkqac3imvwgy3zao5xxe3de", ""),
            get(&path, "Range: bytes=1-9999998\r\n"),
        ];
        wire.send(requests.concat()).await;
        wire.finish().await;
        clients.push((options, wire));
    }
    let expected = [&content[..], &content[262_143..=1_310_720], b"hello world", &content[1..=9_999_998]];
    for (options, mut wire) in clients.into_iter().rev() {
        for body in expected {
            assert_same(&wire.answer().await.body, body, options);
        }
        assert!(wire.rest().await.is_empty(), "{options}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn expect_100_continue_is_honoured() {
    let gateway = TestGateway::start().await;
    let mut wire = Wire::connect(&gateway).await;
    let head = "POST /api/v0/add HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n";
    wire.send(head).await;
    assert_eq!(wire.take(25).await, b"HTTP/1.1 100 Continue\r\n\r\n");
    wire.send("hello world").await;
    let answer = wire.answer().await;
    assert!(answer.text().contains("Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD"), "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_upload_receives_the_reason_while_sending() {
    let gateway = TestGateway::start().await;
    let body = content::bytes(20_000_000);
    for path in ["/api/v0/no/such/command", "/v1/no/such/route", "/api/v0/add?raw-leaves=perhaps"] {
        let response = gateway.request(Method::POST, path).body(body.clone()).send().await.unwrap();
        assert!(response.status().is_client_error(), "{path}");
        assert!(!response.text().await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_without_tls_carries_downloads_and_uploads() {
    let gateway = TestGateway::start().await;
    let h2 = client().http2_prior_knowledge().build().unwrap();
    let content = content::bytes(20_000_000);
    let form = Form::new().file("big", &content);
    let request = h2.post(gateway.url("/api/v0/add")).header("content-type", form.content_type());
    let added = request.body(form.end()).send().await.unwrap();
    assert_eq!(added.version(), http::Version::HTTP_2);
    let line: serde_json::Value = added.json().await.unwrap();
    let path = format!("/ipfs/{}", line["Hash"].as_str().unwrap());
    let downloads = (0..4).map(|_| async {
        let response = h2.get(gateway.url(&path)).send().await.unwrap();
        assert_eq!(response.version(), http::Version::HTTP_2);
        response.bytes().await.unwrap()
    });
    for body in join_all(downloads).await {
        assert_same(&body, &content, "over one connection");
    }
    let range = h2.get(gateway.url(&path)).header("range", "bytes=262140-262150").send().await.unwrap();
    assert_eq!(range.bytes().await.unwrap(), content[262_140..=262_150]);
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_upload_times_out_and_releases_its_permit() {
    let gateway = TestGateway::start_with(|config| {
        config.gateway.upload_idle_seconds = 1;
        config.concurrency.max_concurrent_tasks = 1;
    })
    .await;
    let mut silent = Wire::connect(&gateway).await;
    silent.send("POST /api/v0/add HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nonly the beginning").await;
    // This import waits for the only import permit, which the silent upload holds for a second.
    let added = gateway.add("", "behind it").await;
    assert_eq!(gateway.content(&format!("/ipfs/{added}")).await, "behind it");
    let refused = silent.answer().await;
    assert_eq!(refused.status, 500);
    assert!(refused.text().contains("gateway.upload_idle_seconds = 1"), "{}", refused.text());
    assert_eq!(gateway.metric("ipfrs_refusals_total{limit=\"upload_idle\"}").await, 1);
}
