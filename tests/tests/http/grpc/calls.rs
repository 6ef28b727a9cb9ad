//! Behaviour of every call: request ID, deadline and metrics; also health, reflection, and shutdown.
//! [`super::compressed`] tests the codings, and [`super::ends`] cancelled calls.

use std::net::IpAddr;
use std::time::Duration;

use ipfrs_proto::block::v1::block_service_client::BlockServiceClient;
use ipfrs_proto::block::v1::stream_blocks_request::Operation;
use ipfrs_proto::block::v1::{GetBlockRequest, HasBlockRequest, StreamBlocksRequest};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServiceResponse};
use tonic_types::StatusExt;

use super::blocks::received;
use super::{ABSENT, assert_failed, block_client, raw, stored};
use crate::harness::TestGateway;

/// Watchdog timeout, longer than any operation of the tests.
const WATCHDOG: Duration = Duration::from_secs(60);

fn absent() -> GetBlockRequest {
    GetBlockRequest { cid: ABSENT.to_owned() }
}

#[tokio::test]
async fn grpc_error_names_request_and_block() {
    let gateway = TestGateway::start().await;
    let mut client = block_client(&gateway);
    let mut request = Request::new(absent());
    request.metadata_mut().insert("x-request-id", "mine".parse().unwrap());
    let status = client.get_block(request).await.unwrap_err();
    assert_failed(&status, Code::NotFound, "NOT_FOUND", None);
    let details = status.get_error_details();
    assert_eq!(details.request_info().unwrap().request_id, "mine");
    assert_eq!(status.metadata().get("x-request-id").unwrap(), "mine");
    let resource = details.resource_info().unwrap();
    assert_eq!((resource.resource_type.as_str(), resource.resource_name.as_str()), ("block", ABSENT));
    // A call without a request ID gets a new one.
    let made = async || {
        let response = block_client(&gateway).has_block(HasBlockRequest { cid: ABSENT.to_owned() }).await.unwrap();
        response.metadata().get("x-request-id").unwrap().to_str().unwrap().to_owned()
    };
    assert_ne!(made().await, made().await);
}

#[tokio::test]
async fn grpc_on_read_only_repo_reads_but_never_writes() {
    let gateway = TestGateway::start().await;
    let cid = stored(&gateway, "there").await;
    let gateway = TestGateway::start_on(gateway.stop().await, |config| config.store.read_only = true).await;
    let mut client = block_client(&gateway);
    client.get_block(GetBlockRequest { cid }).await.unwrap();
    let refused = client.put_block(raw("new")).await.unwrap_err();
    assert_failed(&refused, Code::FailedPrecondition, "FORBIDDEN", None);
    assert!(refused.message().contains("store.read_only"), "{refused}");
}

#[tokio::test]
async fn grpc_call_ends_at_its_deadline() {
    let gateway = TestGateway::start().await;
    let (_sender, receiver) = mpsc::channel(1);
    let mut request = Request::new(received(receiver));
    request.set_timeout(Duration::from_millis(50));
    // The client's own timer only covers the wait for the head of a response.
    let mut answers = block_client(&gateway).stream_blocks(request).await.unwrap().into_inner();
    let status = answers.message().await.unwrap_err();
    assert_failed(&status, Code::DeadlineExceeded, "TIMEOUT", None);
}

#[tokio::test]
async fn calls_are_counted_and_timed() {
    let gateway = TestGateway::start().await;
    let mut client = block_client(&gateway);
    client.put_block(raw("one")).await.unwrap();
    client.get_block(absent()).await.unwrap_err();
    let (service, methods) =
        (r#"service="ipfrs.block.v1.BlockService""#, [("PutBlock", "OK"), ("GetBlock", "NOT_FOUND")]);
    for (method, code) in methods {
        let labels = format!(r#"method="{method}",{service}"#);
        let requests = format!(r#"ipfrs_grpc_requests_total{{code="{code}",{labels}}}"#);
        gateway.until_metric(&requests, |calls| calls == 1).await;
        let durations = format!("ipfrs_grpc_request_duration_seconds_count{{{labels}}}");
        gateway.until_metric(&durations, |calls| calls == 1).await;
    }
}

#[tokio::test]
async fn grpc_calls_over_the_limit_are_refused() {
    let gateway = TestGateway::start_with(|config| config.grpc.max_concurrent_calls = 1).await;
    let (sender, receiver) = mpsc::channel(1);
    let mut answers = block_client(&gateway).stream_blocks(received(receiver)).await.unwrap().into_inner();
    let operation = Some(Operation::Has(HasBlockRequest { cid: ABSENT.to_owned() }));
    sender.send(StreamBlocksRequest { id: 1, operation }).await.unwrap();
    answers.message().await.unwrap().unwrap();
    let refused = block_client(&gateway).get_block(absent()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("grpc.max_concurrent_calls"), "{refused}");
    assert_eq!(refused.get_error_details().retry_info().unwrap().retry_delay, Some(Duration::from_secs(1)));
    assert_eq!(gateway.metric("ipfrs_refusals_total{limit=\"max_concurrent_calls\"}").await, 1);
    // HTTP has separate permits.
    assert_eq!(gateway.get(&format!("/ipfs/{ABSENT}")).await.status(), 404);
    // Health checks need no permit, unlike a stream of them.
    let mut health = HealthClient::new(gateway.channel());
    health.check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(health.watch(HealthCheckRequest::default()).await.unwrap_err().code(), Code::ResourceExhausted);
    drop((sender, answers));
    gateway.until_metric("ipfrs_grpc_requests_active", |calls| calls == 0).await;
    assert_eq!(block_client(&gateway).get_block(absent()).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn idle_calls_leave_permits_for_other_clients() {
    let gateway = TestGateway::start_with(|config| config.grpc.max_concurrent_calls = 8).await;
    let (mut held, mut senders) = (Vec::new(), Vec::new());
    let refused = loop {
        let (sender, receiver) = mpsc::channel(1);
        match block_client(&gateway).stream_blocks(received(receiver)).await {
            Ok(answers) => held.push(answers),
            Err(refused) => break refused,
        }
        senders.push(sender);
    };
    assert_eq!((held.len(), refused.code()), (4, Code::ResourceExhausted));
    assert!(refused.message().contains("calls of this client"), "{refused}");
    let other = Endpoint::from_shared(format!("http://{}", gateway.grpc_address())).unwrap();
    let other = other.local_address(Some(IpAddr::from([127, 0, 0, 2]))).connect_lazy();
    let call = BlockServiceClient::new(other).get_block(absent()).await;
    assert_eq!(call.unwrap_err().code(), Code::NotFound);
    assert_eq!(gateway.metric("ipfrs_refusals_total{limit=\"max_calls_per_client\"}").await, 1);
    drop((held, senders));
    gateway.until_metric("ipfrs_grpc_requests_active", |calls| calls == 0).await;
}

#[tokio::test]
async fn paused_request_streams_time_out() {
    let gateway = TestGateway::start_with(|config| config.gateway.upload_idle_seconds = 1).await;
    let (_sender, receiver) = mpsc::channel(1);
    let mut answers = block_client(&gateway).stream_blocks(received(receiver)).await.unwrap().into_inner();
    let ended = timeout(WATCHDOG, answers.message()).await.unwrap().unwrap_err();
    assert_failed(&ended, Code::DeadlineExceeded, "TIMEOUT", None);
    assert!(ended.message().contains("gateway.upload_idle_seconds"), "{ended}");
    let (_sender, receiver) = mpsc::channel::<ServerReflectionRequest>(1);
    let mut reflection = ServerReflectionClient::new(gateway.channel());
    let mut answers = reflection.server_reflection_info(received(receiver)).await.unwrap().into_inner();
    assert!(!matches!(timeout(WATCHDOG, answers.message()).await.unwrap(), Ok(Some(_))));
}

#[tokio::test]
async fn grpc_health_covers_every_service() {
    let gateway = TestGateway::start().await;
    let mut client = HealthClient::new(gateway.channel());
    let services = ["block.v1.Block", "dag.v1.Dag", "file.v1.File", "tensor.v1.Tensor"];
    for service in services.map(|name| format!("ipfrs.{name}Service")).into_iter().chain([String::new()]) {
        let answer = client.check(HealthCheckRequest { service: service.clone() }).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service:?}");
    }
    let unknown = client.check(HealthCheckRequest { service: "what".to_owned() }).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn draining_notifies_watchers_and_ends_streams() {
    let gateway = TestGateway::start().await;
    let mut health = HealthClient::new(gateway.channel());
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let (sender, receiver) = mpsc::channel(1);
    let mut answers = block_client(&gateway).stream_blocks(received(receiver)).await.unwrap().into_inner();
    let operation = Some(Operation::Put(raw("last")));
    sender.send(StreamBlocksRequest { id: 1, operation }).await.unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap().id, 1);
    gateway.shutdown();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert!(watch.message().await.unwrap().is_none());
    let status = answers.message().await.unwrap_err();
    assert_failed(&status, Code::Unavailable, "UNAVAILABLE", None);
    // No call remains to be cut off, although the client has never closed its side of the stream.
    gateway.stop().await;
    drop(sender);
}

#[tokio::test]
async fn reflection_shows_every_service_with_its_files() {
    let gateway = TestGateway::start().await;
    let ask = async |message_request| {
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(message_request) };
        let mut client = ServerReflectionClient::new(gateway.channel());
        let requests = futures::stream::iter([request]);
        let mut answers = client.server_reflection_info(requests).await.unwrap().into_inner();
        answers.message().await.unwrap().unwrap().message_response.unwrap()
    };
    let listed = ask(MessageRequest::ListServices(String::new())).await;
    let MessageResponse::ListServicesResponse(listed) = listed else { panic!("{listed:?}") };
    let names: Vec<_> = listed.service.into_iter().map(|ServiceResponse { name }| name).collect();
    for service in [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "ipfrs.block.v1.BlockService",
        "ipfrs.dag.v1.DagService",
        "ipfrs.file.v1.FileService",
        "ipfrs.tensor.v1.TensorService",
    ] {
        assert!(names.iter().any(|name| name == service), "{service} is not in {names:?}");
        let file = ask(MessageRequest::FileContainingSymbol(service.to_owned())).await;
        assert!(matches!(file, MessageResponse::FileDescriptorResponse(_)), "{service}: {file:?}");
    }
}
