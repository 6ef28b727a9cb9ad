//! `block/put`, `block/get` and `block/stat`.

use serde_json::json;

use crate::content;
use crate::harness::{TestGateway, ndjson, rpc_failure};
use crate::multipart::Form;

/// Maximum block size: 2 MiB.
const LIMIT: usize = 2 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn a_block_has_the_content_id_that_its_options_make() {
    let gateway = TestGateway::start().await;
    // The sha2-256 digest of "hello world", or the text itself, after the prefix of each codec.
    for (options, key) in [
        ("", "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"),
        ("cid-codec=raw&mhtype=sha2-256&mhlen=-1", "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"),
        ("mhlen=-2", "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"),
        ("mhlen=32&pin=true", "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"),
        ("cid-codec=dag-pb", "bafybeifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"),
        ("cid-codec=dag-cbor", "bafyreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"),
        ("cid-codec=dag-json", "baguqeeraxfgspomtju7arjjokll5u7nl7lcij37dpjjyb3uqrd32zyxpzxuq"),
        ("format=v0", "QmaozNR7DZHQK1ZcU9p7QdrshMvXqWK6gpu5rmrkPdT3L4"),
        ("format=protobuf", "bafybeifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"),
        (
            "mhtype=sha2-512&mhlen=64",
            "bafkrgqbqt3gerhas23vuzrapkdeqf4vu2dwxp3srdj6hvg6nhsug2tgyn6mj3u23yx7utftq3i2ckw2fwdh5qmhid5qf3t35yvkc5e5ottlw6",
        ),
        ("mhtype=identity", "bafkqac3imvwgy3zao5xxe3de"),
    ] {
        assert_eq!(gateway.put_block(options, "hello world").await, key, "{options}");
        assert_eq!(gateway.rpc_bytes(&format!("block/get?arg={key}")).await, "hello world", "{options}");
        assert_eq!(
            gateway.rpc_json(&format!("block/stat?arg={key}")).await,
            json!({"Key": key, "Size": 11}),
            "{options}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_blocks_of_one_form_are_answered_in_order() {
    let gateway = TestGateway::start().await;
    let form = Form::new().file("a", "one").file("b", "").file("c", "three");
    let lines = ndjson(gateway.post_form("block/put", form).await).await;
    assert_eq!(lines.iter().map(|line| line["Size"].as_u64().unwrap()).collect::<Vec<_>>(), [3, 0, 5]);
    for (line, data) in lines.iter().zip(["one", "", "three"]) {
        assert_eq!(gateway.rpc_bytes(&format!("block/get?arg={}", line["Key"].as_str().unwrap())).await, data);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_no_form_is_one_block() {
    let gateway = TestGateway::start().await;
    let lines = ndjson(gateway.rpc("block/put").body("hello world").send().await.unwrap()).await;
    assert_eq!(lines[0]["Key"], "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_block_is_stored_and_one_byte_more_is_refused() {
    let gateway = TestGateway::start().await;
    let largest = content::bytes(LIMIT);
    let key = gateway.put_block("", largest.clone()).await;
    assert_eq!(gateway.rpc_bytes(&format!("block/get?arg={key}")).await, largest);
    let message =
        rpc_failure(gateway.post_form("block/put", Form::new().file("b", content::bytes(LIMIT + 1))).await).await;
    assert!(message.contains(&LIMIT.to_string()), "it names the limit: {message}");
    let raw = gateway.rpc("block/put").body(content::bytes(LIMIT + 1)).send().await;
    if let Ok(response) = raw {
        assert!(rpc_failure(response).await.contains(&LIMIT.to_string()));
    }
    assert_eq!(gateway.blocks().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_block_put_stores_nothing() {
    let gateway = TestGateway::start().await;
    for (options, named) in [
        ("cid-codec=no-such-codec", "no-such-codec"),
        ("mhtype=no-such-hash", "no-such-hash"),
        ("mhtype=md5", "potentially insecure hash functions not allowed"),
        ("mhtype=murmur3-x64-64", "potentially insecure hash functions not allowed"),
        ("mhlen=19", "digest too small"),
        ("mhtype=sha2-512&mhlen=65", "too large for digest"),
        ("format=v0&mhtype=identity", "CIDv0"),
    ] {
        let message =
            rpc_failure(gateway.post_form(&format!("block/put?{options}"), Form::new().file("b", "x")).await).await;
        assert!(message.contains(named), "{options}: {message}");
    }
    let empty = gateway.post_form("block/put", Form::new()).await;
    assert!(empty.status().is_client_error() || empty.status().is_server_error());
    let big_identity = gateway.post_form("block/put?mhtype=identity", Form::new().file("b", [0; 129])).await;
    assert!(rpc_failure(big_identity).await.contains("128"));
    assert_eq!(gateway.blocks().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_is_found_through_a_path_and_under_another_codec() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/x", "hello world")]).await;
    let file = "Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD";
    let block = gateway.rpc_bytes(&format!("block/get?arg={file}")).await;
    assert_eq!(gateway.rpc_bytes(&format!("block/get?arg=/ipfs/{root}/x")).await, block);
    let stat = gateway.rpc_json(&format!("block/stat?arg={root}/x")).await;
    assert_eq!(stat, json!({"Key": file, "Size": block.len()}));
    let as_raw = gateway.put_block("", block.clone()).await;
    assert_eq!(gateway.blocks().await, 2, "the same bytes are kept once");
    assert_eq!(gateway.content(&format!("/ipfs/{as_raw}")).await, block);
}
