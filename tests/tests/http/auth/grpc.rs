//! gRPC on its own listener, and gRPC-Web.

use ipfrs_proto::block::v1::block_service_client::BlockServiceClient;
use ipfrs_proto::block::v1::{GetBlockRequest, StreamBlocksRequest};
use reqwest::Method;
use tonic::{Code, Request};

use super::Guarded;
use crate::grpc::{ABSENT, raw};

fn with<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    if !token.is_empty() {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    request
}

#[tokio::test]
async fn methods_need_their_scope() {
    let guarded = Guarded::start().await;
    let (reader, writer) = (guarded.key(&["read"]).await, guarded.key(&["write"]).await);
    let mut client = BlockServiceClient::new(guarded.gateway.channel());
    let get = || GetBlockRequest { cid: ABSENT.to_owned() };
    let mut code = async |token: &str| client.get_block(with(get(), token)).await.unwrap_err().code();
    assert_eq!(code("").await, Code::Unauthenticated);
    assert_eq!(code("wrong").await, Code::Unauthenticated);
    assert_eq!(code(&writer).await, Code::PermissionDenied);
    assert_eq!(code(&reader).await, Code::NotFound);
    let mut client = BlockServiceClient::new(guarded.gateway.channel());
    assert_eq!(client.put_block(with(raw("a"), &reader)).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(client.put_block(with(raw("a"), "")).await.unwrap_err().code(), Code::Unauthenticated);
    client.put_block(with(raw("a"), &writer)).await.unwrap();
    // Probes need nothing, and streams without an end the scope read.
    let mut health = tonic_health::pb::health_client::HealthClient::new(guarded.gateway.channel());
    health.check(tonic_health::pb::HealthCheckRequest::default()).await.unwrap();
    let watch = health.watch(tonic_health::pb::HealthCheckRequest::default()).await;
    assert_eq!(watch.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn stream_ends_when_its_key_is_revoked() {
    let guarded = Guarded::start().await;
    let writer = guarded.key(&["write"]).await;
    let mut client = BlockServiceClient::new(guarded.gateway.channel());
    let silent = futures::stream::pending::<StreamBlocksRequest>();
    let mut stream = client.stream_blocks(with(silent, &writer)).await.unwrap().into_inner();
    guarded.revoke(&writer).await;
    assert_eq!(stream.message().await.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn grpc_web_has_the_same_rules() {
    let guarded = Guarded::start().await;
    let reader = guarded.key(&["read"]).await;
    let outcome = async |method: &str, token: &str| {
        let request = guarded.gateway.request(Method::POST, &format!("/ipfrs.block.v1.BlockService/{method}"));
        let request = request.header("content-type", "application/grpc-web+proto").header("x-grpc-web", "1");
        let request = if token.is_empty() { request } else { request.bearer_auth(token) };
        let response = request.body([0, 0, 0, 0, 0].to_vec()).send().await.unwrap();
        let status = response.headers().get("grpc-status").map(|status| status.to_str().unwrap().to_owned());
        let body = String::from_utf8_lossy(&response.bytes().await.unwrap()).into_owned();
        let in_body =
            body.split("grpc-status:").nth(1).and_then(|rest| rest.lines().next()).map(|it| it.trim().to_owned());
        status.or(in_body).unwrap_or_default()
    };
    let code = |code: Code| (code as i32).to_string();
    assert_eq!(outcome("GetBlock", "").await, code(Code::Unauthenticated));
    assert_eq!(outcome("GetBlock", &reader).await, code(Code::InvalidArgument));
    assert_eq!(outcome("PutBlock", &reader).await, code(Code::PermissionDenied));
}
