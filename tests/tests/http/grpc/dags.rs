//! `ipfrs.dag.v1.DagService`.

use ipfrs_proto::dag::v1::dag_service_client::DagServiceClient;
use ipfrs_proto::dag::v1::{
    GetDagRequest, GetDagStatsRequest, PutDagRequest, ResolvePathRequest, TraverseDagRequest, TraverseDagResponse,
};
use tonic::Code;
use tonic::transport::Channel;

use super::{ABSENT, assert_failed};
use crate::harness::TestGateway;

fn dag_client(gateway: &TestGateway) -> DagServiceClient<Channel> {
    DagServiceClient::new(gateway.channel())
}

async fn put(client: &mut DagServiceClient<Channel>, json: String) -> String {
    let request = PutDagRequest { data: json.into(), ..Default::default() };
    client.put_dag(request).await.unwrap().into_inner().cid
}

/// Puts a root that links to a middle node and a leaf. The middle node also links to the leaf. Returns the three
/// content IDs.
async fn diamond(client: &mut DagServiceClient<Channel>) -> [String; 3] {
    let leaf = put(client, r#"{"name":"leaf"}"#.into()).await;
    let middle = put(client, format!(r#"{{"down":{{"/":"{leaf}"}},"list":[1,{{"two":2}}]}}"#)).await;
    let root = put(client, format!(r#"{{"a":{{"/":"{middle}"}},"b":{{"/":"{leaf}"}}}}"#)).await;
    [root, middle, leaf]
}

#[tokio::test]
async fn dag_nodes_are_converted_between_codecs() {
    let gateway = TestGateway::start().await;
    let mut client = dag_client(&gateway);
    let [root, middle, leaf] = diamond(&mut client).await;
    assert!(root.starts_with("bafyrei"), "dag-cbor by default: {root}");
    let get = |path: String, codec: &str| GetDagRequest { path, output_codec: codec.to_owned() };
    let found = client.get_dag(get(format!("/ipfs/{root}/a/list/1"), "")).await.unwrap().into_inner();
    assert_eq!((found.cid, found.remainder.as_str(), found.codec.as_str()), (middle.clone(), "list/1", "dag-json"));
    assert_eq!(found.data, r#"{"two":2}"#);
    let found = client.get_dag(get(leaf.clone(), "dag-cbor")).await.unwrap().into_inner();
    assert_eq!((found.cid, &found.data[..2], found.codec.as_str()), (leaf.clone(), &b"\xa1\x64"[..], "dag-cbor"));
    let resolved = client.resolve_path(ResolvePathRequest { path: format!("{root}/a/down/name") }).await.unwrap();
    let resolved = resolved.into_inner();
    assert_eq!((resolved.cid, resolved.remainder.as_str()), (leaf.clone(), "name"));
    assert_eq!(resolved.roots, [root, middle, leaf]);
}

#[tokio::test]
async fn traverse_dag_returns_each_block_once_and_is_bounded() {
    let gateway = TestGateway::start().await;
    let mut client = dag_client(&gateway);
    let [root, middle, leaf] = diamond(&mut client).await;
    let mut walk = async |max_depth, include_data| {
        let request = TraverseDagRequest { path: root.clone(), include_data, max_depth };
        let mut answers = client.traverse_dag(request).await.unwrap().into_inner();
        let mut blocks: Vec<TraverseDagResponse> = Vec::new();
        blocks.extend(answers.message().await.unwrap());
        while let Some(block) = answers.message().await.unwrap() {
            blocks.push(block);
        }
        blocks
    };
    let order = |blocks: &[TraverseDagResponse]| blocks.iter().map(|b| (b.cid.clone(), b.depth)).collect::<Vec<_>>();
    let all = walk(None, true).await;
    assert_eq!(order(&all), [(root.clone(), 0), (middle.clone(), 1), (leaf.clone(), 2)]);
    for block in &all {
        assert_eq!(block.size, block.data.len() as u64);
        assert_eq!(block.data, gateway.content(&format!("/ipfs/{}?format=raw", block.cid)).await);
    }
    let sizes: u64 = all.iter().map(|block| block.size).sum();
    let sent = "ipfrs_download_bytes_total";
    let before = gateway.metric(sent).await;
    walk(None, true).await;
    assert_eq!(gateway.metric(sent).await - before, sizes);
    let near = walk(Some(1), false).await;
    assert_eq!(gateway.metric(sent).await - before, sizes, "what is not sent is no download");
    assert_eq!(order(&near), [(root.clone(), 0), (middle, 1), (leaf, 1)]);
    assert!(near.iter().all(|block| block.data.is_empty() && block.size > 0));
    assert_eq!(order(&walk(Some(0), false).await), [(root.clone(), 0)]);
    let stats = client.get_dag_stats(GetDagStatsRequest { path: root }).await.unwrap().into_inner();
    assert_eq!((stats.blocks, stats.size), (3, sizes));
}

#[tokio::test]
async fn dag_errors_name_the_field() {
    let gateway = TestGateway::start().await;
    let mut client = dag_client(&gateway);
    let [root, ..] = diamond(&mut client).await;
    let nowhere = client.resolve_path(ResolvePathRequest { path: format!("{root}/nothing") }).await.unwrap_err();
    assert_failed(&nowhere, Code::NotFound, "NOT_FOUND", None);
    let malformed = client.resolve_path(ResolvePathRequest { path: "/ipfs/what".into() }).await.unwrap_err();
    assert_failed(&malformed, Code::InvalidArgument, "INVALID_INPUT", Some("path"));
    let request = GetDagRequest { path: root.clone(), output_codec: "what".into() };
    assert_failed(
        &client.get_dag(request).await.unwrap_err(),
        Code::InvalidArgument,
        "INVALID_INPUT",
        Some("output_codec"),
    );
    let request = PutDagRequest { data: "{".into(), ..Default::default() };
    assert_failed(&client.put_dag(request).await.unwrap_err(), Code::InvalidArgument, "INVALID_INPUT", Some("data"));
    let request = PutDagRequest { data: "1".into(), store_codec: "libp2p-key".into(), ..Default::default() };
    assert_failed(&client.put_dag(request).await.unwrap_err(), Code::Unimplemented, "UNSUPPORTED", None);
    // An error during the traversal ends the stream after the blocks before it.
    let broken = put(&mut client, format!(r#"{{"a":{{"/":"{root}"}},"z":{{"/":"{ABSENT}"}}}}"#)).await;
    let request = TraverseDagRequest { path: broken, ..Default::default() };
    let mut answers = client.traverse_dag(request).await.unwrap().into_inner();
    let mut given = 0;
    let failed = loop {
        match answers.message().await {
            Ok(block) => given += usize::from(block.is_some()),
            Err(status) => break status,
        }
    };
    assert_eq!(given, 4);
    assert_failed(&failed, Code::NotFound, "NOT_FOUND", None);
    assert!(failed.message().contains(ABSENT), "{failed}");
}

#[tokio::test]
async fn client_disconnect_stops_traverse_dag() {
    let gateway = TestGateway::start().await;
    // 128 different blocks of 256 KiB.
    let content: Vec<u8> = (0..128_u32).flat_map(|block| block.to_le_bytes().repeat(64 * 1024)).collect();
    let root = gateway.add("cid-version=1", content).await;
    let mut client = dag_client(&gateway);
    let before = gateway.metric("ipfrs_blocks_retrieved_total").await;
    let request = TraverseDagRequest { path: root, include_data: true, ..Default::default() };
    let mut answers = client.traverse_dag(request).await.unwrap().into_inner();
    answers.message().await.unwrap().unwrap();
    let active = r#"ipfrs_streaming_operations_active{direction="download"}"#;
    assert_eq!(gateway.metric(active).await, 1);
    drop(answers);
    gateway.until_metric(active, |streams| streams == 0).await;
    let read = gateway.metric("ipfrs_blocks_retrieved_total").await - before;
    assert!(read < 100, "{read} of 129 blocks were read");
    let name = r#"ipfrs_grpc_requests_total{code="CANCELLED",method="TraverseDag",service="ipfrs.dag.v1.DagService"}"#;
    gateway.until_metric(name, |calls| calls == 1).await;
}
