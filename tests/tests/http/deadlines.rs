//! Deadlines of requests whose clients read slowly or not at all.

use std::time::Duration;

use tokio::time::timeout;

use crate::content;
use crate::harness::{TestGateway, client, rpc_failure};
use crate::wire::Wire;
use crate::withholding::Withholding;

/// Watchdog timeout, longer than any operation of the tests.
const WATCHDOG: Duration = Duration::from_secs(60);

const STRUCK: &str = "ipfrs_refusals_total{limit=\"max_request\"}";

async fn start() -> TestGateway {
    TestGateway::start_with(|config| config.gateway.max_request_seconds = 1).await
}

async fn until_struck(gateway: &TestGateway, count: u64) {
    gateway.assert_metric(STRUCK, count).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn response_is_cut_at_the_deadline_on_every_route() {
    let gateway = start().await;
    let cid = gateway.add("", content::bytes(64 << 20)).await;
    let mut count = 0;
    for (method, path) in [
        ("GET", format!("/ipfs/{cid}")),
        ("GET", format!("/ipfs/{cid}?format=car")),
        ("GET", format!("/v1/stream/download/{cid}")),
        ("POST", format!("/api/v0/cat?arg={cid}")),
        ("POST", format!("/api/v0/dag/export?arg={cid}")),
    ] {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(format!("{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        let begun = wire.take(100_000).await;
        assert!(begun.starts_with(b"HTTP/1.1 200"), "{path}");
        count += 1;
        until_struck(&gateway, count).await;
        assert!(wire.rest().await.len() < 64 << 20, "{path}");
    }
    timeout(WATCHDOG, gateway.until_metric("ipfrs_http_requests_active", |active| active == 0)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_responses_that_are_not_read_end_at_the_deadline() {
    let gateway = start().await;
    let cid = gateway.add("raw-leaves=true", content::bytes(60_000)).await;
    gateway.content(&format!("/ipfs/{cid}")).await;
    let request = format!("GET /ipfs/{cid} HTTP/1.1\r\nHost: x\r\n\r\n");
    let (mut wire, asking) = Wire::connect_and_ask_for_ever(&gateway, request).await;
    timeout(WATCHDOG, gateway.until_metric(STRUCK, |struck| struck == 1)).await.unwrap();
    asking.abort();
    wire.rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_of_http_2_is_reset_at_the_deadline() {
    let gateway = start().await;
    let (small, large) = (gateway.add("", "small").await, gateway.add("", content::bytes(16 << 20)).await);
    let h2 = client().http2_prior_knowledge().http2_initial_stream_window_size(65_535);
    let h2 = h2.http2_initial_connection_window_size(8 << 20).build().unwrap();
    for (count, route) in [(1, "ipfs"), (2, "v1/stream/download")] {
        let stalled = h2.get(gateway.url(&format!("/{route}/{large}"))).send().await.unwrap();
        assert_eq!(stalled.status(), 200);
        until_struck(&gateway, count).await;
        stalled.bytes().await.unwrap_err();
        let response = h2.get(gateway.url(&format!("/ipfs/{small}"))).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "small");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_ends_at_the_deadline_and_maintenance_does_not() {
    let store = Withholding::new();
    let gateway = TestGateway::start_over(store.clone(), |config| config.gateway.max_request_seconds = 1).await;
    let cid = gateway.add("pin=false", "content").await;
    store.withhold(&cid);
    let pinning = tokio::spawn(gateway.rpc(&format!("pin/add?arg={cid}")).send());
    timeout(WATCHDOG, store.waiting(1)).await.unwrap();
    let cat = gateway.rpc(&format!("cat?arg={cid}"));
    let text = rpc_failure(timeout(WATCHDOG, cat.send()).await.unwrap().unwrap()).await;
    assert!(text.contains("gateway.max_request_seconds = 1"), "{text}");
    gateway.assert_metric(STRUCK, 1).await;
    store.release();
    assert_eq!(timeout(WATCHDOG, pinning).await.unwrap().unwrap().unwrap().status(), 200);
}
