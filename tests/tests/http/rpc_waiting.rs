//! Commands wait for content that peers do not have yet.

use std::net::IpAddr;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use ipfrs_core::{Cid, codec, hash, parse_cid};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::car::raw_cid;
use crate::dag::car_of;
use crate::harness::{client, ndjson, rpc_failure};
use crate::peers::{calling, connect, listening};

const MINUTE: Duration = Duration::from_secs(60);

fn wait_for_an_hour(config: &mut ipfrs_interface::Config) {
    config.retrieval.timeout_seconds = 3_600;
    config.gateway.retrieval_timeout_seconds = 3_600;
    config.server.shutdown_grace_seconds = 3_600;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_wait_for_content_that_a_peer_stores_later() {
    let (origin, gateway) = (listening(|_| {}).await, calling(|_| {}).await);
    let cid = raw_cid(b"later");
    let until_wanted = async |wanted: Value| {
        while gateway.rpc_json("bitswap/wantlist").await["Keys"] != wanted {
            tokio::task::yield_now().await;
        }
    };
    let waiting = tokio::spawn(gateway.rpc(&format!("block/get?arg={cid}")).send());
    connect(&gateway, &origin).await;
    until_wanted(json!([{ "/": cid }])).await;
    let id = gateway.rpc_json("id").await["ID"].as_str().unwrap().to_owned();
    while origin.rpc_json(&format!("bitswap/wantlist?peer={id}")).await["Keys"] != json!([{ "/": cid }]) {
        tokio::task::yield_now().await;
    }
    assert_eq!(gateway.get(&format!("/ipfs/{cid}")).await.status(), 504, "the gateway does not wait");
    assert_eq!(origin.add("raw-leaves=true&cid-version=1", "later").await, cid);
    assert_eq!(waiting.await.unwrap().unwrap().text().await.unwrap(), "later");
    until_wanted(json!([])).await;

    let missing = raw_cid(b"missing");
    for command in ["block/get", "pin/add", "dag/get"] {
        let command = format!("{command}?arg={missing}&timeout=50ms");
        let refused = rpc_failure(gateway.rpc(&command).send().await.unwrap()).await;
        assert_eq!(refused, "context deadline exceeded: timeout=50ms expired", "{command}");
    }
    until_wanted(json!([])).await;
    rpc_failure(gateway.rpc(&format!("block/get?arg={missing}&offline=true")).send().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_waits_for_many_blocks_leaves_places_for_others() {
    let (origin, gateway) = (listening(|_| {}).await, calling(wait_for_an_hour).await);
    connect(&gateway, &origin).await;
    let wait =
        |number| gateway.rpc(&format!("block/get?arg={}", raw_cid(format!("missing {number}").as_bytes()))).send();
    let mut waiting: FuturesUnordered<_> = (0..300).map(wait).map(tokio::spawn).collect();
    // Half of the 512 places are for others, so at least 40 have none.
    for _ in 0..40 {
        let refused = timeout(MINUTE, waiting.next()).await.expect("a client has not all places");
        rpc_failure(refused.unwrap().unwrap().unwrap()).await;
    }
    let cid = raw_cid(b"later");
    let other = client().local_address(IpAddr::from([127, 0, 0, 2])).build().unwrap();
    let waiting_other = tokio::spawn(other.post(gateway.url(&format!("/api/v0/block/get?arg={cid}"))).send());
    let is_wanted = |wanted: Value| wanted["Keys"].as_array().unwrap().contains(&json!({ "/": cid }));
    while !is_wanted(gateway.rpc_json("bitswap/wantlist").await) {
        tokio::task::yield_now().await;
    }
    assert_eq!(origin.add("raw-leaves=true&cid-version=1", "later").await, cid);
    assert_eq!(waiting_other.await.unwrap().unwrap().text().await.unwrap(), "later");
    timeout(MINUTE, gateway.stop()).await.expect("the daemon does not wait for the blocks");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_wait_for_peers_fail_when_the_daemon_stops() {
    let origin = listening(|_| {}).await;
    let gateway = calling(wait_for_an_hour).await;
    connect(&gateway, &origin).await;
    let cid = raw_cid(b"missing");
    let waiting = tokio::spawn(gateway.rpc(&format!("block/get?arg={cid}")).send());
    while gateway.rpc_json("bitswap/wantlist").await["Keys"] != json!([{ "/": cid }]) {
        tokio::task::yield_now().await;
    }
    timeout(MINUTE, gateway.stop()).await.expect("the daemon does not wait for the block");
    let refused = rpc_failure(waiting.await.unwrap().unwrap()).await;
    assert!(refused.contains(&cid), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn import_of_an_incomplete_dag_waits_for_no_peer() {
    let (origin, gateway) = (listening(|_| {}).await, calling(wait_for_an_hour).await);
    connect(&gateway, &origin).await;
    let missing = raw_cid(b"missing");
    // {"a": missing} in DAG-CBOR.
    let block = [&b"\xa1\x61a\xd8\x2a\x58\x25\x00"[..], &parse_cid(&missing).unwrap().to_bytes()].concat();
    let root = Cid::new_v1(codec::DAG_CBOR, hash::sha2_256(&block)).to_string();
    let import = gateway.rpc("dag/import").body(car_of(&root, &[(root.as_str(), &block[..])])).send();
    let lines = ndjson(timeout(MINUTE, import).await.expect("the import does not wait").unwrap()).await;
    let message = lines[0]["Root"]["PinErrorMsg"].as_str().unwrap();
    assert!(message.contains(&missing), "{message}");
}
