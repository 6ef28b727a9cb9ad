//! gRPC on its own listener, and gRPC-Web.

use bytes::Buf;
use futures::stream;
use ipfrs_proto::block::v1::block_service_client::BlockServiceClient;
use ipfrs_proto::block::v1::{GetBlockRequest, StreamBlocksRequest};
use prost::Message;
use prost_reflect::prost_types::FileDescriptorSet;
use reqwest::Method;
use serde_json::json;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::Guarded;
use super::credentials::Credentials;
use crate::grpc::{ABSENT, raw};
use crate::websocket::Client as WebSocket;

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

/// Codec of messages without fields. It skips the fields of received messages.
#[derive(Clone, Copy)]
struct Empty;

impl Codec for Empty {
    type Encode = ();
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Empty {
    type Item = ();
    type Error = Status;

    fn encode(&mut self, (): (), _buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        Ok(())
    }
}

impl Decoder for Empty {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        buffer.advance(buffer.remaining());
        Ok(Some(()))
    }
}

/// Returns the paths of all methods that the daemon has, from their descriptors.
fn methods() -> Vec<String> {
    let sets = [
        ipfrs_proto::FILE_DESCRIPTOR_SET,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    let mut methods = Vec::new();
    for file in sets.iter().flat_map(|set| FileDescriptorSet::decode(*set).unwrap().file) {
        for service in &file.service {
            let path = |method: &str| format!("/{}.{}/{method}", file.package(), service.name());
            methods.extend(service.method.iter().map(|method| path(method.name())));
        }
    }
    methods
}

/// Returns the scope that a method needs, or `None` if it needs no credentials.
fn scope_of(path: &str) -> Option<&'static str> {
    Some(match path.rsplit_once('/').unwrap().1 {
        "Check" => return None,
        "List" | "Watch" | "ServerReflectionInfo" => "read",
        "GetBlock" | "HasBlock" | "BatchGetBlocks" => "read",
        "GetDag" | "ResolvePath" | "TraverseDag" | "GetDagStats" => "read",
        "GetFile" | "ListDirectory" | "GetFileInfo" => "read",
        "GetTensor" | "GetTensorInfo" | "SliceTensor" | "GetTensorStats" | "StreamTensors" => "read",
        "PutBlock" | "DeleteBlock" | "BatchPutBlocks" | "StreamBlocks" => "write",
        "PutDag" | "AddFile" | "PutTensor" => "write",
        "PinFile" | "UnpinFile" => "pin",
        _ => panic!("{path}: add the scope that it needs to this table"),
    })
}

/// Calls a method with one empty message. Returns the code of its first message or of its status.
async fn code_of(channel: &Channel, path: &str, token: &str) -> Code {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let request = with(stream::iter([()]), token);
    let first = match client.streaming(request, path.parse().unwrap(), Empty).await {
        Ok(response) => response.into_inner().message().await,
        Err(status) => Err(status),
    };
    first.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test]
async fn every_method_needs_its_scope() {
    let credentials = Credentials::start(|_| {}).await;
    let channel = credentials.guarded.gateway.channel();
    let methods = methods();
    assert!(methods.len() > 20, "{methods:?}");
    for path in &methods {
        let Some(wanted) = scope_of(path) else {
            assert_eq!(code_of(&channel, path, "").await, Code::Ok, "{path}");
            continue;
        };
        assert_eq!(code_of(&channel, path, "").await, Code::Unauthenticated, "{path}: without credentials");
        for (what, token) in &credentials.invalid {
            assert_eq!(code_of(&channel, path, token).await, Code::Unauthenticated, "{path}: with {what}");
        }
        let code = code_of(&channel, path, &credentials.rooted).await;
        assert_eq!(code, Code::PermissionDenied, "{path}: with a key for content below a root");
        for (scope, token, is_enough) in credentials.keys_for(wanted) {
            let code = code_of(&channel, path, token).await;
            assert_eq!(code == Code::PermissionDenied, !is_enough, "{path}: {scope} instead of {wanted}: {code:?}");
            assert_ne!(code, Code::Unauthenticated, "{path}: {scope}");
        }
    }
}

#[tokio::test]
async fn failed_attempts_are_limited_over_grpc_and_websockets() {
    let guarded = Guarded::start_with(|config| config.auth.max_failures_per_minute = 3).await;
    let reader = guarded.key(&["read"]).await;
    let wrong = format!("{reader}x");
    let mut client = BlockServiceClient::new(guarded.gateway.channel());
    let mut code = async |token: &str| {
        let request = with(GetBlockRequest { cid: ABSENT.to_owned() }, token);
        client.get_block(request).await.unwrap_err().code()
    };
    for _ in 0..3 {
        assert_eq!(code(&wrong).await, Code::Unauthenticated);
    }
    assert_eq!(code(&wrong).await, Code::ResourceExhausted);
    assert_eq!(code(&reader).await, Code::NotFound, "those who have a key do not suffer");
    let protocol = [("sec-websocket-protocol", "graphql-transport-ws")];
    let mut socket = WebSocket::open(guarded.gateway.address(), "/graphql/ws", &protocol).await.unwrap();
    let payload = json!({ "Authorization": format!("Bearer {wrong}") });
    socket.send(json!({ "type": "connection_init", "payload": payload }).to_string()).await;
    assert_eq!(socket.close_code().await, 4403);
    let metrics = guarded.get("/metrics", &reader).await.text().await.unwrap();
    for line in ["result=\"unknown\"} 3", "result=\"limited\"} 2"] {
        let line = format!("ipfrs_auth_attempts_total{{method=\"key\",{line}");
        assert!(metrics.contains(&line), "{line}");
    }
}

#[tokio::test]
async fn stream_ends_when_its_key_is_revoked() {
    let guarded = Guarded::start().await;
    let writer = guarded.key(&["write"]).await;
    let mut client = BlockServiceClient::new(guarded.gateway.channel());
    let silent = stream::pending::<StreamBlocksRequest>();
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
