//! Access by listener: gRPC on its own listener, gRPC-Web on the HTTP listener.

use bytes::{BufMut, Bytes, BytesMut};
use ipfrs_http::HostConfig;
use ipfrs_proto::block::v1::{GetBlockRequest, HasBlockRequest, HasBlockResponse, PutBlockRequest};
use prost::Message;
use reqwest::{RequestBuilder, Response};
use tonic_types::StatusExt;

use super::{ABSENT, assert_failed, stored};
use crate::harness::{TestGateway, client, header};

const HAS_BLOCK: &str = "/ipfrs.block.v1.BlockService/HasBlock";

/// Frames a message: compression flag, length, bytes.
fn framed(message: &impl Message) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.encoded_len()).unwrap());
    message.encode(&mut frame).unwrap();
    frame.freeze()
}

/// Builds a gRPC-Web call like the client libraries do.
fn web_call(gateway: &TestGateway, cid: &str) -> RequestBuilder {
    let request = gateway.request(reqwest::Method::POST, HAS_BLOCK);
    let request = request.header("content-type", "application/grpc-web+proto").header("x-grpc-web", "1");
    request.body(framed(&HasBlockRequest { cid: cid.to_owned() }))
}

/// Returns the message and the trailers of a gRPC-Web response.
async fn web_answer(response: Response) -> (Option<HasBlockResponse>, String) {
    assert_eq!(response.status(), 200);
    assert!(header(&response, "content-type").starts_with("application/grpc-web"));
    let mut body = response.bytes().await.unwrap();
    let mut message = None;
    loop {
        let kind = body[0];
        let length = u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize;
        let frame = body.slice(5..5 + length);
        body = body.slice(5 + length..);
        if kind & 0x80 != 0 {
            return (message, String::from_utf8(frame.to_vec()).unwrap());
        }
        message = Some(HasBlockResponse::decode(frame).unwrap());
    }
}

#[tokio::test]
async fn grpc_web_is_served_on_the_http_port() {
    let gateway = TestGateway::start().await;
    let cid = stored(&gateway, "there").await;
    let response = web_call(&gateway, &cid).header("x-request-id", "mine").send().await.unwrap();
    assert_eq!(header(&response, "x-request-id"), "mine");
    let (message, trailers) = web_answer(response).await;
    assert!(message.unwrap().exists);
    assert!(trailers.contains("grpc-status:0"), "{trailers}");
    // On a gRPC path, a request that is not gRPC-Web is an error.
    let response = gateway.request(reqwest::Method::POST, HAS_BLOCK).body("x").send().await.unwrap();
    assert_eq!(response.status(), 400);
    let response = gateway.request(reqwest::Method::POST, "/ipfrs.block.v1.WhatService/HasBlock").send().await.unwrap();
    assert_eq!(response.status(), 404);
    // The HTTP listener also accepts gRPC requests with the gRPC content type.
    let http2 = client().http2_prior_knowledge().build().unwrap();
    let url = gateway.url(HAS_BLOCK);
    let call = || http2.post(&url).body(framed(&HasBlockRequest { cid: cid.clone() }));
    let response = call().header("content-type", "application/grpc").send().await.unwrap();
    assert_eq!(response.bytes().await.unwrap()[0], 0);
    assert_eq!(call().send().await.unwrap().status(), 415);
    assert_eq!(call().header("content-type", "application/json").send().await.unwrap().status(), 415);
    assert_eq!(http2.get(&url).send().await.unwrap().status(), 405);
}

#[tokio::test]
async fn unary_method_refuses_zero_or_two_messages() {
    let gateway = TestGateway::start().await;
    let http2 = client().http2_prior_knowledge().build().unwrap();
    let cid = stored(&gateway, "there").await;
    let put = |data: &str| framed(&PutBlockRequest { data: data.to_owned().into(), ..PutBlockRequest::default() });
    let several = [put("first"), put("second")].concat();
    let get = framed(&GetBlockRequest { cid });
    let stored = gateway.blocks().await;
    for (method, bodies) in [
        ("ipfrs.block.v1.BlockService/GetBlock", [Bytes::new(), Bytes::from(get.repeat(2))]),
        ("ipfrs.block.v1.BlockService/PutBlock", [Bytes::new(), Bytes::from(several.clone())]),
        ("ipfrs.block.v1.BlockService/HasBlock", [Bytes::new(), Bytes::from(get.repeat(3))]),
        ("ipfrs.file.v1.FileService/GetFileInfo", [Bytes::new(), Bytes::from(get.repeat(2))]),
        ("grpc.health.v1.Health/Check", [Bytes::new(), Bytes::from_static(&[0; 10])]),
        ("grpc.health.v1.Health/Watch", [Bytes::new(), Bytes::from_static(&[0; 10])]),
    ] {
        for body in bodies {
            let url = format!("http://{}/{method}", gateway.grpc_address());
            let call = http2.post(url).header("content-type", "application/grpc").body(body);
            let answer = call.send().await.unwrap();
            assert_eq!(header(&answer, "grpc-status"), "12", "{method}");
            assert_ne!(header(&answer, "grpc-status-details-bin"), "", "{method}");
        }
    }
    let web = gateway.request(reqwest::Method::POST, "/ipfrs.block.v1.BlockService/PutBlock");
    let web = web.header("content-type", "application/grpc-web+proto").body(several).send().await.unwrap();
    let status = header(&web, "grpc-status").to_owned();
    let text = String::from_utf8_lossy(&web.bytes().await.unwrap()).into_owned();
    assert!(status == "12" || text.contains("grpc-status:12"), "{status} {text}");
    assert_eq!(gateway.blocks().await, stored, "none of several messages is executed");
}

#[tokio::test]
async fn transport_errors_have_details() {
    let gateway = TestGateway::start().await;
    let http2 = client().http2_prior_knowledge().build().unwrap();
    // Unknown service, unknown method, invalid protobuf, truncated message, unsupported coding, oversized message.
    for (method, body, coding, code, reason) in [
        ("x.Y/Z", vec![0; 5], "identity", 12, "UNSUPPORTED"),
        ("ipfrs.block.v1.BlockService/Nothing", vec![0; 5], "identity", 12, "UNSUPPORTED"),
        ("ipfrs.block.v1.BlockService/GetBlock", vec![0, 0, 0, 0, 1, 0xff], "identity", 13, "INTERNAL"),
        ("ipfrs.block.v1.BlockService/HasBlock", vec![0, 0, 0, 0, 9, 1], "identity", 13, "INTERNAL"),
        ("ipfrs.block.v1.BlockService/HasBlock", vec![0; 5], "br", 12, "UNSUPPORTED"),
        ("ipfrs.block.v1.BlockService/HasBlock", vec![0, 255, 0, 0, 0, 1], "identity", 8, "TOO_LARGE"),
    ] {
        let url = format!("http://{}/{method}", gateway.grpc_address());
        let call = http2.post(url).header("content-type", "application/grpc").header("grpc-encoding", coding);
        let answer = call.body(body).send().await.unwrap();
        let status = tonic::Status::from_header_map(answer.headers()).unwrap_or_else(|| panic!("{method}: {answer:?}"));
        assert_failed(&status, code.into(), reason, None);
        assert_eq!(status.get_error_details().request_info().unwrap().request_id, header(&answer, "x-request-id"));
    }
}

#[tokio::test]
async fn grpc_refuses_browser_pages_and_public_hosts() {
    let gateway = TestGateway::start_with(|config| {
        config.gateway.hosts.insert("example.com".into(), HostConfig { subdomains: true, ..HostConfig::default() });
    })
    .await;
    for (name, value) in
        [("sec-fetch-site", "same-origin"), ("origin", "https://example.com"), ("user-agent", "Mozilla/5.0")]
    {
        let response = web_call(&gateway, ABSENT).header(name, value).send().await.unwrap();
        assert_eq!(response.status(), 403, "{name}");
    }
    let cid = "bafkqaaa.ipfs.example.com";
    for (host, status) in [("example.com", 404), (cid, 405), ("below.example.com", 404)] {
        let response = web_call(&gateway, ABSENT).header("host", host).send().await.unwrap();
        assert_eq!(response.status(), status, "{host}");
    }
}

#[tokio::test]
async fn grpc_listener_serves_only_grpc() {
    let gateway = TestGateway::start().await;
    let http2 = client().http2_prior_knowledge().build().unwrap();
    let http1 = client().http1_only().build().unwrap();
    let url = |path: &str| format!("http://{}{path}", gateway.grpc_address());
    assert_eq!(http2.get(url("/metrics")).send().await.unwrap().status(), 405);
    assert_eq!(http1.get(url(HAS_BLOCK)).send().await.unwrap().status(), 405);
    let call = |client: &reqwest::Client, kind: &str| {
        let request = client.post(url(HAS_BLOCK)).header("content-type", kind);
        request.body(framed(&HasBlockRequest { cid: ABSENT.to_owned() }))
    };
    assert_eq!(call(&http2, "application/grpc").send().await.unwrap().status(), 200);
    assert_eq!(call(&http1, "application/grpc").send().await.unwrap().status(), 505);
    assert_eq!(call(&http2, "application/grpc-web").send().await.unwrap().status(), 415);
    assert_eq!(call(&http2, "text/plain").send().await.unwrap().status(), 415);
    for (name, value) in [
        ("origin", "http://127.0.0.1"),
        ("sec-fetch-site", "none"),
        ("sec-fetch-mode", "cors"),
        ("sec-fetch-user", "?1"),
        ("sec-fetch-storage-access", "active"),
    ] {
        let response = call(&http2, "application/grpc").header(name, value).send().await.unwrap();
        assert_eq!(response.status(), 403, "{name}");
    }
}

#[tokio::test]
async fn disabled_grpc_disables_grpc_web() {
    let gateway = TestGateway::start_with(|config| config.grpc.enabled = false).await;
    assert_eq!(web_call(&gateway, ABSENT).send().await.unwrap().status(), 404);
    let health: serde_json::Value = gateway.get("/health").await.json().await.unwrap();
    assert!(health["grpc"].is_null());
    let gateway = TestGateway::start().await;
    let health: serde_json::Value = gateway.get("/health").await.json().await.unwrap();
    assert_eq!(health["grpc"][0], gateway.grpc_address().to_string());
}
