//! Parts of files that are not in the store.

use http::Method;

use crate::content::bytes;
use crate::harness::TestGateway;
use crate::retrieval::retrieving_from;

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
