//! Calls that end before their responses do, because the client cancels them or because they take too long.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use ipfrs_interface::Config;
use ipfrs_node::Dtype;
use ipfrs_proto::block::v1::{BatchGetBlocksRequest, GetBlockRequest};
use ipfrs_proto::dag::v1::dag_service_client::DagServiceClient;
use ipfrs_proto::dag::v1::{GetDagStatsRequest, TraverseDagRequest};
use ipfrs_proto::file::v1::file_service_client::FileServiceClient;
use ipfrs_proto::file::v1::{GetFileRequest, PinFileRequest};
use ipfrs_proto::tensor::v1::tensor_service_client::TensorServiceClient;
use ipfrs_proto::tensor::v1::{GetTensorRequest, GetTensorStatsRequest, StreamTensorsRequest};
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

use super::{assert_failed, block_client};
use crate::content;
use crate::harness::TestGateway;
use crate::withholding::Withholding;

/// Watchdog timeout, longer than any operation of the tests.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Size of the tensor in bytes, which covers more leaves than a reader reads ahead.
const TENSOR_BYTES: usize = 10 * 1024 * 1024;

/// Returns a gateway whose store never returns the last leaf of a file with one tensor, the store, and the content
/// IDs of the file and of the leaf.
async fn stuck(change: impl FnOnce(&mut Config)) -> (TestGateway, Withholding, String, String) {
    let store = Withholding::new();
    let gateway = TestGateway::start_over(store.clone(), change).await;
    let shape = [TENSOR_BYTES as u64];
    let head = ipfrs_node::safetensors_head([("a", Dtype::U8, &shape[..])], &BTreeMap::new()).unwrap();
    let file = [&head[..], &content::bytes(TENSOR_BYTES)].concat();
    let path = gateway.add("cid-version=1&pin=false", file).await;
    let root = gateway.rpc_json(&format!("dag/get?arg={path}")).await;
    let leaf = root["Links"].as_array().unwrap().last().unwrap()["Hash"]["/"].as_str().unwrap().to_owned();
    store.withhold(&leaf);
    (gateway, store, path, leaf)
}

type Call = BoxFuture<'static, Result<(), Status>>;

/// Reads a response to its end.
async fn all<T>(answer: Result<tonic::Response<Streaming<T>>, Status>) -> Result<(), Status> {
    let mut messages = answer?.into_inner();
    while messages.message().await?.is_some() {}
    Ok(())
}

/// Returns calls that eventually read the leaf, streams first.
fn calls(gateway: &TestGateway, path: &str, leaf: &str) -> Vec<(&'static str, Call)> {
    let (path, leaf, name) = (path.to_owned(), leaf.to_owned(), "a".to_owned());
    let (mut blocks, channel) = (block_client(gateway), gateway.channel());
    let mut files = FileServiceClient::new(channel.clone());
    let mut dags = DagServiceClient::new(channel.clone());
    let mut tensors = TensorServiceClient::new(channel);
    let (mut one_block, mut one_dag, mut pins, mut more) =
        (blocks.clone(), dags.clone(), files.clone(), tensors.clone());
    let (mut sums, file) = (tensors.clone(), GetFileRequest { path: path.clone(), ..Default::default() });
    let batch = BatchGetBlocksRequest { cids: vec![path.clone(), leaf.clone()] };
    let walk = TraverseDagRequest { path: path.clone(), include_data: true, max_depth: None };
    let tensor = GetTensorRequest { path: path.clone(), name: name.clone(), ..Default::default() };
    let model = StreamTensorsRequest { path: path.clone(), names: vec![] };
    let stats = GetTensorStatsRequest { path: path.clone(), name };
    let pin = PinFileRequest { path: path.clone(), ..Default::default() };
    vec![
        ("file.v1.FileService/GetFile", async move { all(files.get_file(file).await).await }.boxed()),
        ("dag.v1.DagService/TraverseDag", async move { all(dags.traverse_dag(walk).await).await }.boxed()),
        (
            "block.v1.BlockService/BatchGetBlocks",
            async move { all(blocks.batch_get_blocks(batch).await).await }.boxed(),
        ),
        ("tensor.v1.TensorService/GetTensor", async move { all(tensors.get_tensor(tensor).await).await }.boxed()),
        ("tensor.v1.TensorService/StreamTensors", async move { all(more.stream_tensors(model).await).await }.boxed()),
        (
            "block.v1.BlockService/GetBlock",
            async move { one_block.get_block(GetBlockRequest { cid: leaf }).await.map(drop) }.boxed(),
        ),
        (
            "dag.v1.DagService/GetDagStats",
            async move { one_dag.get_dag_stats(GetDagStatsRequest { path }).await.map(drop) }.boxed(),
        ),
        ("file.v1.FileService/PinFile", async move { pins.pin_file(pin).await.map(drop) }.boxed()),
        ("tensor.v1.TensorService/GetTensorStats", async move { sums.get_tensor_stats(stats).await.map(drop) }.boxed()),
    ]
}

/// Waits until one call of `path` has ended with this code.
async fn until_ended(gateway: &TestGateway, path: &str, code: &str) {
    let (service, method) = path.split_once('/').unwrap();
    let name = format!("ipfrs_grpc_requests_total{{code=\"{code}\",method=\"{method}\",service=\"ipfrs.{service}\"}}");
    gateway.until_metric(&name, |calls| calls == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_grpc_call_stops_its_work() {
    let (gateway, store, path, leaf) = stuck(|_| {}).await;
    for (name, call) in calls(&gateway, &path, &leaf) {
        let calling = tokio::spawn(call);
        let begun = async {
            while !store.is_waited_for() {
                tokio::task::yield_now().await;
            }
        };
        timeout(WATCHDOG, begun).await.unwrap_or_else(|_| panic!("{name} never came to the block"));
        calling.abort();
        let ended = async {
            while store.is_waited_for() {
                tokio::task::yield_now().await;
            }
            until_ended(&gateway, name, "CANCELLED").await;
            gateway.until_metric("ipfrs_grpc_requests_active", |calls| calls == 0).await;
            let downloads = "ipfrs_streaming_operations_active{direction=\"download\"}";
            gateway.until_metric(downloads, |streams| streams == 0).await;
        };
        timeout(WATCHDOG, ended).await.unwrap_or_else(|_| panic!("{name} still waits for the block"));
    }
    let read = gateway.metric("ipfrs_blocks_retrieved_total").await;
    store.release();
    assert_eq!(gateway.blocks().await, gateway.blocks().await);
    assert_eq!(gateway.metric("ipfrs_blocks_retrieved_total").await, read, "somebody went on reading");
    assert_eq!(gateway.rpc_json("pin/ls").await["Keys"], serde_json::json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_grpc_stream_ends_with_the_limit_name() {
    let (gateway, store, path, leaf) = stuck(|config| config.gateway.max_request_seconds = 1).await;
    let streams = calls(&gateway, &path, &leaf).into_iter().take(5).map(|(name, call)| async move {
        let refused = timeout(WATCHDOG, call).await.unwrap().unwrap_err();
        assert_failed(&refused, Code::DeadlineExceeded, "TIMEOUT", None);
        assert!(refused.message().contains("gateway.max_request_seconds = 1"), "{name}: {refused}");
    });
    let count = futures::future::join_all(streams).await.len() as u64;
    gateway.assert_metric("ipfrs_refusals_total{limit=\"max_request\"}", count).await;
    let ended = async {
        while store.is_waited_for() {
            tokio::task::yield_now().await;
        }
    };
    timeout(WATCHDOG, ended).await.unwrap();
}
