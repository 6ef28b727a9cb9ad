//! Parts of files that are not in the store, and requests that must not fetch them.

use http::Method;
use serde_json::json;

use crate::content::bytes;
use crate::harness::{TestGateway, ndjson, rpc_failure};
use crate::retrieval::retrieving_from;
use crate::source_server::{SourceServer, always};
use crate::wire::exchange;

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_file_are_fetched_without_the_rest() {
    let origin = TestGateway::start().await;
    let content = bytes(200 * 1_024);
    // 200 leaves below two inner nodes.
    let cid = origin.add("chunker=size-1024&raw-leaves=true", content.clone()).await;
    let offset = content.len() - 10;
    let part = content.slice(offset..);
    let file = format!("/ipfs/{cid}?filename=x.bin");
    let download = format!("/v1/stream/download/{cid}");
    for (method, path, range, blocks) in [
        (Method::GET, &file, Some(format!("bytes={offset}-{}", offset + 9)), 3),
        (Method::GET, &file, Some(format!("bytes={offset}-")), 3),
        (Method::GET, &file, Some("bytes=-10".to_owned()), 3),
        // The type of content without a name depends on up to three leaves, which are below the other node.
        (Method::GET, &format!("/ipfs/{cid}"), Some(format!("bytes={offset}-")), 7),
        (Method::GET, &download, Some(format!("bytes={offset}-")), 3),
        (Method::GET, &format!("{download}?offset={offset}&limit=10"), None, 3),
        (Method::POST, &format!("/api/v0/cat?arg={cid}&offset={offset}&length=10"), None, 3),
    ] {
        let gateway = retrieving_from(&origin).await;
        let mut request = gateway.request(method, path);
        if let Some(range) = &range {
            request = request.header("range", range);
        }
        let response = request.send().await.unwrap();
        assert!(response.status().is_success(), "{path} {range:?}");
        assert_eq!(response.bytes().await.unwrap(), part, "{path} {range:?}");
        // Further blocks would come from a stream that still runs.
        gateway.until_metric("ipfrs_retrieval_sessions", |sessions| sessions == 0).await;
        let fetched = gateway.blocks().await;
        // How many leaves determine the type depends on how they arrive.
        assert!(if blocks == 3 { fetched == 3 } else { fetched <= blocks }, "{path} {range:?}: {fetched}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn offline_commands_fetch_nothing_while_they_respond() {
    let origin = TestGateway::start().await;
    let cid = origin.add("", bytes(600_000)).await;
    let source = SourceServer::start(always("404 Not Found", "", "")).await;
    let gateway = TestGateway::start_with(|config| config.retrieval.gateways = vec![source.url()]).await;
    let missing = format!("block was not found locally (offline): ipld: could not find {cid}");
    let pinned = gateway.rpc(&format!("pin/add?arg={cid}&progress=true&offline=true")).send().await.unwrap();
    assert_eq!(rpc_failure(pinned).await, format!("pin: {missing}"));
    let refs = gateway.rpc(&format!("refs?arg={cid}&recursive=true&offline=true")).send().await.unwrap();
    assert_eq!(ndjson(refs).await, [json!({ "Ref": "", "Err": missing })]);
    // The second file is opened while the first one is sent.
    let root = origin.rpc_bytes(&format!("block/get?arg={cid}")).await;
    assert_eq!(gateway.put_block("format=v0", root).await, cid);
    let stored = gateway.add("", "stored").await;
    for command in ["cat", "dag/stat"] {
        let head = format!("POST /api/v0/{command}?arg={stored}&arg={cid}&offline=true HTTP/1.1");
        let answer = exchange(&gateway, format!("{head}\r\nTE: trailers\r\nContent-Length: 0")).await;
        let text = format!("{}{}", answer.text(), answer.trailer("x-stream-error"));
        assert!(text.contains("block was not found locally (offline)"), "{command}: {text}");
    }
    // So is the second range of a gateway's response. The first one is a leaf.
    gateway.add("", bytes(600_000).slice(..262_144)).await;
    let head = format!("GET /ipfs/{cid} HTTP/1.1\r\nRange: bytes=0-262143,300000-300009");
    let answer = exchange(&gateway, format!("{head}\r\nCache-Control: only-if-cached")).await;
    assert_eq!((answer.status, answer.is_complete), (206, false), "{} bytes", answer.body.len());
    assert!(source.requests().is_empty(), "{:?}", source.requests());
    let online = gateway.rpc(&format!("refs?arg={cid}&recursive=true")).send().await.unwrap();
    let lines = ndjson(online).await;
    assert!(lines.last().unwrap()["Err"].as_str().unwrap().contains("no source delivered"), "{lines:?}");
    assert!(!source.requests().is_empty());
}
