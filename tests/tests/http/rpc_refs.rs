//! `refs`, `refs/local` and `repo/ls`. The expected lines are those of Kubo.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::{TestGateway, header, ndjson, rpc_failure};
use crate::multipart::Form;

const ROOT: &str = "QmVSDZw6vuVgTmmbNEeTS2CNsxQ8cXFdp7hDuRPQFgxsm7";
const A: &str = "QmfDmsHTywy6L9Ne5RXsj5YumDedfBLMvCvmaxjBoe6w4d";
const B: &str = "QmQLd9KEkw5eLKfr9VwfthiWbuqa9LXhRchWqD4kRPPWEf";
const SUB: &str = "QmZijeEt7SDeKdj52Y5PBy4QrnhHHiUGcvTyt3a7yCFhtM";
const Z: &str = "QmRGw3jDTE2Bu51tEYn2JoyQq3ApDaJm8DpRxM68WqK7fU";
const CHUNK: &str = "QmRk1rduJvo5DfEYAaLobS2za9tDszk35hzaNSDCJ74DA7";
const LAST_CHUNK: &str = "QmZrvgCqpsJhB5jzSs6NDgEFSLnQXc1fH59mQLqTbgBXwJ";
const ABSENT: &str = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy";

/// Adds a directory in which a file occurs twice and another has equal chunks.
async fn gateway_with_tree() -> TestGateway {
    let gateway = TestGateway::start().await;
    let zeros = "\0".repeat(600_000);
    let files = [("d/a", "a"), ("d/b", "b"), ("d/sub/a", "a"), ("d/z", zeros.as_str())];
    assert_eq!(gateway.add_tree("", &files).await, ROOT);
    gateway
}

async fn lines(gateway: &TestGateway, query: &str) -> Vec<Value> {
    ndjson(gateway.rpc(&format!("refs?{query}")).send().await.unwrap()).await
}

async fn refs(gateway: &TestGateway, options: &str) -> Vec<String> {
    let of = |line: Value| {
        assert_eq!(line["Err"], "", "{line}");
        line["Ref"].as_str().unwrap().to_owned()
    };
    lines(gateway, &format!("arg={ROOT}&{options}")).await.into_iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn refs_are_listed_in_the_order_and_depth_of_kubo() {
    let gateway = gateway_with_tree().await;
    let direct = vec![A, B, SUB, Z];
    let all = vec![A, B, SUB, A, Z, CHUNK, CHUNK, LAST_CHUNK];
    let unique = vec![A, B, SUB, Z, CHUNK, LAST_CHUNK];
    for (options, expected) in [
        ("", &direct),
        ("max-depth=5", &direct),
        ("format=", &direct),
        ("recursive=true", &all),
        ("r=true&max-depth=-2", &all),
        ("r&u", &unique),
        ("r&u&max-depth=2", &unique),
        ("r&u&max-depth=1", &direct),
        ("r&max-depth=0", &vec![]),
    ] {
        assert_eq!(&refs(&gateway, options).await, expected, "{options}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refs_are_written_in_a_format() {
    let gateway = gateway_with_tree().await;
    let edges = refs(&gateway, "e").await;
    assert_eq!(edges[0], format!("{ROOT} -> {A}"));
    assert_eq!(refs(&gateway, "format=%3Csrc%3E+%3Clinkname%3E+x").await[2], format!("{ROOT} sub x"));
    let base36 = "k2jmtxxm61js8sctmznqdto47bgq322uce7afthhrvzomb155w84xosi";
    assert_eq!(refs(&gateway, "cid-base=base36").await[0], base36);
    for options in ["format=x&edges=true", "format=&e"] {
        let response = gateway.rpc(&format!("refs?arg={ROOT}&{options}")).send().await.unwrap();
        assert_eq!(rpc_failure(response).await, "using format argument with edges is not allowed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refs_of_several_paths_continue_behind_a_missing_block() {
    let gateway = gateway_with_tree().await;
    let found = lines(&gateway, &format!("arg={ABSENT}&arg={ROOT}/sub&arg=bafkqaaa")).await;
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0]["Ref"], "");
    let error = found[0]["Err"].as_str().unwrap();
    let text = format!("block was not found locally (offline): ipld: could not find {ABSENT}");
    assert!(error.ends_with(&text), "{error}");
    assert_eq!(found[1], json!({ "Ref": A, "Err": "" }));
    // A missing leaf ends the walk before its line.
    gateway.rpc_json(&format!("pin/rm?arg={ROOT}")).await;
    ndjson(gateway.rpc(&format!("block/rm?arg={LAST_CHUNK}")).send().await.unwrap()).await;
    let found = lines(&gateway, &format!("arg={Z}")).await;
    assert_eq!((&found[0]["Ref"], &found[1]["Ref"], found.len()), (&json!(CHUNK), &json!(CHUNK), 3));
    let text = "failed to fetch all nodes: block was not found locally (offline): ipld: could not find";
    assert_eq!(found[2]["Err"], format!("{text} {LAST_CHUNK}"));
    // A path resolves although its last block is missing.
    ndjson(gateway.rpc(&format!("block/rm?arg={A}")).send().await.unwrap()).await;
    assert_eq!(gateway.rpc_json(&format!("resolve?arg=/ipfs/{ROOT}/sub/a")).await["Path"], format!("/ipfs/{A}"));
    let response = gateway.rpc(&format!("refs?arg={ROOT}/nope")).send().await.unwrap();
    assert!(rpc_failure(response).await.contains("nope"));
}

#[tokio::test(flavor = "multi_thread")]
async fn refs_of_dag_cbor_keep_their_order_and_repetitions() {
    let gateway = TestGateway::start().await;
    let (empty, short) = (json!({ "/": "bafkqaaa" }), json!({ "/": "bafkqablxn5zgyza" }));
    let node = json!({ "a": [empty, empty], "b": { "c": short } }).to_string();
    let put = ndjson(gateway.post_form("dag/put", Form::new().file("f", node)).await).await;
    let cid = put[0]["Cid"]["/"].as_str().unwrap();
    let found = lines(&gateway, &format!("arg={cid}&format=%3Clinkname%3E%7C%3Cdst%3E")).await;
    let found: Vec<_> = found.iter().map(|line| line["Ref"].as_str().unwrap()).collect();
    assert_eq!(found, ["|bafkqaaa", "|bafkqaaa", "|bafkqablxn5zgyza"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_blocks_are_listed_as_raw_blocks() {
    let gateway = gateway_with_tree().await;
    for command in ["refs/local", "repo/ls"] {
        let response = gateway.rpc(command).send().await.unwrap();
        assert_eq!(header(&response, "x-chunked-output"), "1");
        let lines = ndjson(response).await;
        let cids: BTreeSet<_> = lines.iter().map(|line| line["Ref"].as_str().unwrap()).collect();
        assert_eq!((lines.len(), cids.len()), (7, 7), "{lines:?}");
        // The raw form of the root.
        assert!(cids.contains("bafkreidjn3o426lxl3o3jbc5yauwuxwd6dkm3jk2hg7m43ipvhg2ljsmry"), "{cids:?}");
    }
}
