//! DAGs of 100,000 levels. Traversals use neither recursion nor much memory per level.

use std::time::Duration;

use ipfrs_core::hash::sha2_256;
use ipfrs_core::{Cid, codec};
use ipfrs_proto::dag::v1::dag_service_client::DagServiceClient;
use ipfrs_proto::dag::v1::{GetDagStatsRequest, TraverseDagRequest};
use serde_json::json;
use tokio::time::timeout;

use crate::crafted;
use crate::dag::{blocks_of, car_of};
use crate::harness::{TestGateway, ndjson};
use crate::multipart::Form;

/// Watchdog timeout, much longer than any operation of the tests.
const WATCHDOG: Duration = Duration::from_secs(300);

const NODES: usize = 100_000;

/// Returns a linked list of nodes, alternately dag-pb and dag-cbor, as a CAR, and the content IDs from the root to
/// the end. Each node links to the next one, and then to a leaf that all of them share.
fn list() -> (Vec<u8>, Vec<Cid>) {
    let leaf = (Cid::new_v1(codec::RAW, sha2_256(b"leaf")), b"leaf".to_vec());
    let mut blocks = vec![leaf.clone()];
    for at in 0..NODES {
        let next = blocks.last().unwrap().0;
        let (codec, data) = if at % 2 == 0 {
            (codec::DAG_PB, crafted::node([("a", next), ("b", leaf.0)], b""))
        } else {
            let link = |cid: &Cid| [&[0xd8, 42, 0x58, 37, 0][..], &cid.to_bytes()].concat();
            (codec::DAG_CBOR, [vec![0x82], link(&next), link(&leaf.0)].concat())
        };
        blocks.push((Cid::new_v1(codec, sha2_256(&data)), data));
    }
    blocks.reverse();
    let cids: Vec<_> = blocks.iter().map(|(cid, _)| *cid).collect();
    let blocks: Vec<_> = blocks.iter().map(|(cid, data)| (cid.to_string(), data.as_slice())).collect();
    let blocks: Vec<_> = blocks.iter().map(|(cid, data)| (cid.as_str(), *data)).collect();
    (car_of(&cids[0].to_string(), &blocks), cids)
}

async fn kept(gateway: &TestGateway) -> u64 {
    let gc = gateway.rpc("repo/gc?progress=true").send().await.unwrap();
    let lines = ndjson(gc).await;
    lines.iter().find_map(|line| line["KeptBlocks"].as_u64()).expect("the last line")
}

#[tokio::test(flavor = "multi_thread")]
async fn list_of_100000_nodes_is_exported_pinned_and_kept() {
    let gateway = TestGateway::start().await;
    let (car, cids) = list();
    let (root, all) = (cids[0].to_string(), cids.len() as u64);
    let work = async {
        let imported = ndjson(gateway.post_form("dag/import", Form::new().file("list.car", car)).await).await;
        assert_eq!(imported, [json!({"Root": {"Cid": {"/": root}, "PinErrorMsg": ""}})]);
        for car in [
            gateway.content(&format!("/ipfs/{root}?format=car")).await,
            gateway.rpc_bytes(&format!("dag/export?arg={root}")).await,
        ] {
            let found: Vec<_> = blocks_of(&car, &root).iter().map(|block| *block.cid()).collect();
            assert!(found == cids, "{} blocks in their order", found.len());
        }
        let stat = gateway.rpc_json(&format!("dag/stat?progress=false&arg={root}")).await;
        assert_eq!(stat["UniqueBlocks"], all);
        let verified = gateway.rpc("pin/verify?verbose=true").send().await.unwrap();
        assert_eq!(ndjson(verified).await, [json!({"Cid": root, "Ok": true})]);
        let keys = gateway.rpc_json(&format!("pin/ls?arg={}", cids[NODES / 2])).await["Keys"].to_string();
        assert!(keys.contains(&format!("indirect through {root}")), "{keys}");

        let mut client = DagServiceClient::new(gateway.channel());
        let request = TraverseDagRequest { path: root.clone(), ..Default::default() };
        let mut answers = client.traverse_dag(request).await.unwrap().into_inner();
        let (mut given, mut deepest) = (0, 0);
        while let Some(block) = answers.message().await.unwrap() {
            (given, deepest) = (given + 1, deepest.max(block.depth));
        }
        assert_eq!((given, deepest), (all, NODES as u32));
        let stats = client.get_dag_stats(GetDagStatsRequest { path: root.clone() }).await.unwrap().into_inner();
        assert_eq!(stats.blocks, all);

        assert_eq!((kept(&gateway).await, gateway.blocks().await), (all, all));
        gateway.rpc_json(&format!("pin/rm?arg={root}")).await;
        assert_eq!(kept(&gateway).await, 0);
        assert_eq!(gateway.blocks().await, 0);
    };
    timeout(WATCHDOG, work).await.expect("the walks end");
}

#[tokio::test(flavor = "multi_thread")]
async fn tar_of_many_directories_is_bounded_by_path_memory() {
    let gateway = TestGateway::start().await;
    let mut dag = crafted::Dag::default();
    let mut tree = dag.put(codec::RAW, b"leaf".to_vec());
    let (mut allowed, name) = (tree, "n".repeat(250));
    for level in 0..20_000 {
        tree = dag.directory(&[("d", tree)]);
        if level == 99 {
            allowed = (0..100).fold(tree, |below, _| dag.directory(&[(&name, below)]));
        }
    }
    dag.import(&gateway).await;
    let archive = gateway.content(&format!("/ipfs/{allowed}?format=tar")).await;
    assert!(archive.windows(4).any(|bytes| bytes == b"leaf"), "200 directories in each other");
    let request = format!("GET /ipfs/{tree}?format=tar HTTP/1.1");
    let answer = timeout(WATCHDOG, crate::wire::exchange(&gateway, request)).await.expect("it ends");
    assert!(answer.status == 200 && !answer.is_complete, "the archive breaks off");
    assert!(gateway.metric("ipfrs_refusals_total{limit=\"dag\"}").await > 0);
}
