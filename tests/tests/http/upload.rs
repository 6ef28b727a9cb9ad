//! `POST /v1/stream/upload`: a raw body as one file.

use bytes::Bytes;
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::batch_get::problem;
use crate::content;
use crate::harness::{TestGateway, header};
use crate::wire::Wire;

pub(crate) async fn upload(gateway: &TestGateway, query: &str, body: impl Into<Bytes>) -> Response {
    let path = format!("/v1/stream/upload?{query}");
    gateway.request(Method::POST, &path).body(body.into()).send().await.unwrap()
}

async fn uploaded(gateway: &TestGateway, query: &str, body: impl Into<Bytes>) -> Value {
    let response = upload(gateway, query, body).await;
    let status = response.status();
    let text = response.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_of_any_size_matches_add() {
    let (gateway, other) = (TestGateway::start().await, TestGateway::start().await);
    // With the default chunk size of 262,144 bytes.
    for (size, blocks) in [(0, 1), (1, 1), (262_144, 1), (262_145, 3), (10_000_000, 40)] {
        let body = content::bytes(size);
        let answer = uploaded(&gateway, "", body.clone()).await;
        assert_eq!(answer["cid"], other.add("", body.clone()).await, "{size}");
        assert_eq!((&answer["size"], &answer["blocks"]), (&json!(size), &json!(blocks)), "{answer}");
        let found = gateway.content(&format!("/ipfs/{}", answer["cid"].as_str().unwrap())).await;
        content::assert_same(&found, &body, "what was uploaded");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_options_match_add_options() {
    let (gateway, other) = (TestGateway::start().await, TestGateway::start().await);
    let body = content::bytes(700_000);
    for options in [
        "cid-version=1",
        "raw-leaves=true",
        "cid-version=1&raw-leaves=false",
        "chunker=size-65536",
        "hash=blake3",
        "profile=unixfs-v1-2025",
    ] {
        let answer = uploaded(&gateway, options, body.clone()).await;
        assert_eq!(answer["cid"], other.add(options, body.clone()).await, "{options}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_echoes_name_and_wraps_only_when_requested() {
    let gateway = TestGateway::start().await;
    let bare = uploaded(&gateway, "", "hello world").await;
    assert_eq!(bare.get("filename"), None);
    let named = uploaded(&gateway, "filename=h%C3%A9llo.txt", "hello world").await;
    assert_eq!((&named["cid"], &named["filename"]), (&bare["cid"], &json!("héllo.txt")));
    let wrapped = uploaded(&gateway, "filename=h%C3%A9llo.txt&wrap=true", "hello world").await;
    assert_eq!((&wrapped["size"], &wrapped["blocks"]), (&json!(11), &json!(2)));
    let path = format!("/ipfs/{}/h%C3%A9llo.txt", wrapped["cid"].as_str().unwrap());
    assert_eq!(gateway.content(&path).await, "hello world");
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_is_pinned_under_its_name_by_default() {
    let gateway = TestGateway::start().await;
    let kept = uploaded(&gateway, "filename=a.txt", "kept").await;
    let left = uploaded(&gateway, "pin=false", "left").await;
    let pins = gateway.rpc_json("pin/ls?names=true").await["Keys"].clone();
    let kept = kept["cid"].as_str().unwrap();
    assert_eq!((pins.as_object().unwrap().len(), &pins[kept]["Name"]), (1, &json!("a.txt")), "{pins}");
    gateway.rpc_bytes("repo/gc").await;
    assert_eq!(gateway.content(&format!("/ipfs/{kept}")).await, "kept");
    assert_eq!(gateway.get(&format!("/ipfs/{}", left["cid"].as_str().unwrap())).await.status(), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_id_is_unique_and_may_come_from_the_client() {
    let gateway = TestGateway::start().await;
    let made = upload(&gateway, "", "x").await;
    let id = header(&made, "x-operation-id").to_owned();
    assert_eq!(made.json::<Value>().await.unwrap()["operation_id"], json!(id));
    assert_eq!(id.len(), 32);
    let chosen = upload(&gateway, "operation_id=my.upload_1", "x").await;
    assert_eq!(header(&chosen, "x-operation-id"), "my.upload_1");
    let by_header = gateway.request(Method::POST, "/v1/stream/upload").header("x-operation-id", "my-2").body("x");
    assert_eq!(by_header.send().await.unwrap().json::<Value>().await.unwrap()["operation_id"], "my-2");
    for (query, status) in [("my-3", 200), ("my-5", 400)] {
        let path = format!("/v1/stream/upload?operation_id={query}");
        let header = if status == 200 { query } else { "my-4" };
        let request = gateway.request(Method::POST, &path).header("x-operation-id", header).body("x");
        assert_eq!(request.send().await.unwrap().status(), status, "{query} {header}");
    }
    for path in ["/v1/stream/upload", "/api/v0/add"] {
        let twice = gateway.request(Method::POST, path).header("x-operation-id", "a").header("x-operation-id", "b");
        let refused = twice.body("x").send().await.unwrap();
        assert_eq!(refused.status(), 400, "{path}");
        assert!(refused.text().await.unwrap().contains("x-operation-id is there twice"), "{path}");
    }
    problem(upload(&gateway, "operation_id=my.upload_1", "y").await, 409, "conflict").await;
    for bad in ["a%20b", "a%2Fb", "", &"a".repeat(129)] {
        problem(upload(&gateway, &format!("operation_id={bad}"), "x").await, 400, "invalid_input").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_refuses_invalid_options_and_bodies() {
    let gateway = TestGateway::start_with(|config| config.upload.max_bytes = 1_000).await;
    for query in [
        "filename=a%2Fb",
        "filename=..",
        "filename=",
        "chunker=nonsense",
        "hash=nonsense",
        "profile=nonsense",
        "cid-version=2",
        "cid-version=0&hash=blake3",
        "pin=maybe",
        "no-such-option=1",
        "pin=true&pin=false",
        "filename=x&filename=y",
    ] {
        let response = upload(&gateway, query, "x").await;
        // 501 for options of other implementations that are not supported here.
        let (status, code) = if response.status() == 501 { (501, "unsupported") } else { (400, "invalid_input") };
        problem(response, status, code).await;
    }
    for (name, value, named) in
        [("content-encoding", "gzip", "gzip"), ("content-type", "multipart/form-data; boundary=x", "/api/v0/add")]
    {
        let request = gateway.request(Method::POST, "/v1/stream/upload").header(name, value).body("x");
        let problem = problem(request.send().await.unwrap(), 415, "unsupported_media_type").await;
        assert!(problem["detail"].as_str().unwrap().contains(named), "{problem}");
    }
    let identity = gateway.request(Method::POST, "/v1/stream/upload").header("content-encoding", "identity").body("");
    assert_eq!(identity.send().await.unwrap().status(), 200);
    let too_large = problem(upload(&gateway, "", content::bytes(1_001)).await, 413, "too_large").await;
    assert!(too_large["detail"].as_str().unwrap().contains("upload.max_bytes"), "{too_large}");
    // A body of unknown length.
    let pieces = (0..11).map(|_| Ok::<_, std::io::Error>(content::bytes(100)));
    let request = gateway.request(Method::POST, "/v1/stream/upload");
    let request = request.body(reqwest::Body::wrap_stream(futures::stream::iter(pieces)));
    problem(request.send().await.unwrap(), 413, "too_large").await;
    let response = gateway.get("/v1/stream/upload").await;
    assert!(header(&response, "allow").contains("POST"), "{:?}", response.headers());
    problem(response, 405, "method_not_allowed").await;
    assert_eq!(gateway.blocks().await, 1, "the empty file");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_chunks_are_named() {
    let gateway = TestGateway::start().await;
    for chunks in ["ZZ\r\nabc\r\n0\r\n\r\n", "3\r\nabcX\r\n0\r\n\r\n", "fffffffffffffffff\r\n"] {
        let mut wire = Wire::connect(&gateway).await;
        let head = "POST /v1/stream/upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        wire.send(format!("{head}{chunks}")).await;
        let answer = wire.answer().await;
        assert!(
            answer.status == 400 && answer.text().contains("chunks of the request body"),
            "{chunks}: {}",
            answer.text()
        );
        assert_eq!(answer.text().matches("malformed").count(), 1, "{chunks}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_upload_stores_no_file() {
    let gateway = TestGateway::start().await;
    let mut wire = Wire::connect(&gateway).await;
    wire.send("POST /v1/stream/upload?operation_id=broken HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhello")
        .await;
    wire.finish().await;
    drop(wire);
    // The progress events end with the operation.
    let events = gateway.content("/v1/progress/broken?wait=60").await;
    let events = String::from_utf8_lossy(&events);
    assert!(events.contains("event: error\n"), "{events}");
    assert_eq!(gateway.blocks().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_refuses_browser_pages() {
    let gateway = TestGateway::start().await;
    let request = gateway.request(Method::POST, "/v1/stream/upload").header("sec-fetch-site", "same-origin").body("x");
    problem(request.send().await.unwrap(), 403, "forbidden").await;
    assert_eq!(gateway.blocks().await, 0);
}
