//! `/v1/block/batch/put`: atomic and best-effort, as JSON and as CAR.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::batch_get::problem;
use crate::car::{self, raw_cid};
use crate::content;
use crate::harness::TestGateway;

/// Minimum value of `batch.max_batch_bytes`.
const SMALLEST_LIMIT: usize = 2 * 1024 * 1024;

fn item(data: &[u8]) -> Value {
    json!({"data": STANDARD.encode(data)})
}

async fn put_car(gateway: &TestGateway, query: &str, car: Vec<u8>) -> Response {
    let request = gateway.request(Method::POST, &format!("/v1/block/batch/put{query}"));
    request.header("content-type", "application/vnd.ipld.car; version=1").body(car).send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_put_is_visible_to_every_api() {
    let gateway = TestGateway::start().await;
    let blocks = json!([
        item(b"one"),
        {"data": STANDARD.encode("two"), "cid": raw_cid(b"two")},
        {"data": STANDARD.encode("three"), "codec": "dag-cbor", "mhtype": "sha2-256"},
        {"data": STANDARD_NO_PAD.encode("four")},
        item(b""),
        item(b"one"),
    ]);
    let answer = gateway.v1_json("block/batch/put", &json!({"blocks": blocks})).await;
    assert_eq!(answer["transaction_status"], "committed");
    assert!(!answer["transaction_id"].as_str().unwrap().is_empty());
    assert_eq!(answer["errors"], json!([]));
    let stored = answer["stored"].as_array().unwrap();
    assert_eq!(stored[0], json!({"cid": raw_cid(b"one"), "size": 3, "index": 0}));
    assert_eq!(stored[1], json!({"cid": raw_cid(b"two"), "size": 3, "index": 1}));
    assert!(stored[2]["cid"].as_str().unwrap().starts_with("bafyrei"), "{answer}");
    assert_eq!(stored.iter().map(|s| s["index"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    for data in ["one", "two", "four", ""] {
        let cid = raw_cid(data.as_bytes());
        assert_eq!(gateway.content(&format!("/ipfs/{cid}")).await, data);
        assert_eq!(gateway.rpc_bytes(&format!("block/get?arg={cid}")).await, data);
    }
    assert_eq!(gateway.blocks().await, 5, "what came twice is kept once");
}

/// Returns batches in which one item cannot be stored, each with the error code of that item.
fn spoiled() -> Vec<(&'static str, Value, &'static str)> {
    let too_big = STANDARD.encode(content::bytes(2 * 1024 * 1024 + 1));
    vec![
        ("wrong cid", json!({"data": STANDARD.encode("x"), "cid": raw_cid(b"y")}), "invalid_input"),
        ("no base64", json!({"data": "***"}), "invalid_input"),
        ("no cid", json!({"data": STANDARD.encode("x"), "cid": "nonsense"}), "invalid_input"),
        ("no codec", json!({"data": STANDARD.encode("x"), "codec": "nonsense"}), "invalid_input"),
        ("no hash", json!({"data": STANDARD.encode("x"), "mhtype": "md5"}), "unsupported"),
        ("too big", json!({"data": too_big}), "too_large"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn atomic_batch_with_bad_item_changes_nothing() {
    let gateway = TestGateway::start().await;
    let before = gateway.put_block("", "was here before").await;
    for (what, bad, code) in spoiled() {
        for mode in [json!({}), json!({"transaction_mode": "atomic"})] {
            let mut body = json!({"blocks": [item(b"was here before"), item(b"good"), bad]});
            body.as_object_mut().unwrap().extend(mode.as_object().unwrap().clone());
            let response = gateway.v1("block/batch/put", &body).await;
            let status = response.status().as_u16();
            let problem = problem(response, status, code).await;
            assert!((400..600).contains(&status), "{what}: {status}");
            assert_eq!(problem["transaction_status"], "rolled_back", "{what}");
            assert_eq!(problem["stored"], json!([]), "{what}");
            assert_eq!(
                (&problem["errors"][0]["index"], &problem["errors"][0]["code"]),
                (&json!(2), &json!(code)),
                "{what}"
            );
            assert_eq!(gateway.blocks().await, 1, "{what}");
        }
    }
    assert_eq!(gateway.content(&format!("/ipfs/{before}")).await, "was here before");
}

#[tokio::test(flavor = "multi_thread")]
async fn best_effort_batch_stores_all_valid_items() {
    let gateway = TestGateway::start().await;
    for (i, (what, bad, code)) in spoiled().into_iter().enumerate() {
        let (first, last) = (format!("first {i}"), format!("last {i}"));
        let blocks = [item(first.as_bytes()), bad, item(last.as_bytes())];
        let body = json!({"blocks": blocks, "transaction_mode": "best_effort"});
        let answer = gateway.v1_json("block/batch/put", &body).await;
        assert_eq!(answer["transaction_status"], "partial_success", "{what}");
        assert_eq!(answer["stored"].as_array().unwrap().len(), 2, "{what}");
        assert_eq!((&answer["errors"][0]["index"], &answer["errors"][0]["code"]), (&json!(1), &json!(code)), "{what}");
        assert_eq!(gateway.content(&format!("/ipfs/{}", raw_cid(last.as_bytes()))).await, last.as_str());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn null_in_a_batch_is_absent() {
    let gateway = TestGateway::start().await;
    let block = json!({"data": STANDARD.encode("x"), "cid": null, "codec": null, "mhtype": null});
    let body = json!({"blocks": [block], "transaction_mode": null});
    let answer = gateway.v1_json("block/batch/put", &body).await;
    assert_eq!(answer["stored"][0]["cid"], raw_cid(b"x"));
    let unknown = json!({"blocks": [], "transaction_mode": "sometimes"});
    let problem = problem(gateway.v1("block/batch/put", &unknown).await, 400, "invalid_input").await;
    assert!(problem["detail"].as_str().unwrap().starts_with("transaction_mode \"sometimes\""), "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_content_id_error_states_the_right_one() {
    let gateway = TestGateway::start().await;
    let body = json!({"blocks": [{"data": STANDARD.encode("x"), "cid": raw_cid(b"y")}]});
    let problem = problem(gateway.v1("block/batch/put", &body).await, 400, "invalid_input").await;
    let error = problem["errors"][0]["error"].as_str().unwrap();
    assert!(error.contains(&raw_cid(b"x")) && error.contains(&raw_cid(b"y")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_too_many_blocks_or_bytes_is_refused_whole() {
    let gateway = TestGateway::start_with(|config| {
        config.batch.max_batch_size = 3;
        config.batch.max_batch_bytes = SMALLEST_LIMIT;
    })
    .await;
    let many = json!({"blocks": [item(b"1"), item(b"2"), item(b"3"), item(b"4")], "transaction_mode": "best_effort"});
    problem(gateway.v1("block/batch/put", &many).await, 413, "too_large").await;
    let half = content::bytes(SMALLEST_LIMIT / 2 + 200_000);
    let large = json!({"blocks": [item(&half), item(&half), item(&half)]});
    problem(gateway.v1("block/batch/put", &large).await, 413, "too_large").await;
    let contents = [half.slice(1..), half.slice(2..)];
    let cids = contents.clone().map(|data| raw_cid(&data));
    let car = car::write(&[(&cids[0], &contents[0]), (&cids[1], &contents[1])]);
    problem(put_car(&gateway, "", car).await, 413, "too_large").await;
    let small: Vec<_> = ["1", "2", "3", "4"].map(|data| (raw_cid(data.as_bytes()), data)).into();
    let small: Vec<_> = small.iter().map(|(cid, data)| (cid.as_str(), data.as_bytes())).collect();
    problem(put_car(&gateway, "", car::write(&small)).await, 413, "too_large").await;
    assert_eq!(gateway.blocks().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_car_is_stored_block_by_block() {
    let gateway = TestGateway::start().await;
    let other = TestGateway::start().await;
    let root = other.add_tree("", &[("d/x", "hello world")]).await;
    let directory = other.rpc_bytes(&format!("block/get?arg={root}")).await;
    let file = "Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD";
    let leaf = other.rpc_bytes(&format!("block/get?arg={file}")).await;
    let car = car::write(&[(&root, &directory), (file, &leaf), (&raw_cid(b"r"), b"r"), ("bafkqaaa", b"")]);
    let answer: Value = put_car(&gateway, "", car).await.json().await.unwrap();
    assert_eq!(answer["transaction_status"], "committed", "{answer}");
    let cids: Vec<_> = answer["stored"].as_array().unwrap().iter().map(|stored| stored["cid"].clone()).collect();
    assert_eq!(cids, [json!(root), json!(file), json!(raw_cid(b"r")), json!("bafkqaaa")]);
    assert_eq!(gateway.content(&format!("/ipfs/{root}/x")).await, "hello world");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_car_with_a_corrupted_block_is_refused_and_the_block_named() {
    let gateway = TestGateway::start().await;
    let (good, bad) = (raw_cid(b"good"), raw_cid(b"bad"));
    let car = car::write(&[(&good, b"good"), (&bad, b"b4d")]);
    let response = put_car(&gateway, "", car).await;
    let (status, code) = match response.status().as_u16() {
        400 => (400, "invalid_input"),
        status => (status, "corrupt"),
    };
    let problem = problem(response, status, code).await;
    assert!(problem["detail"].as_str().unwrap().contains(&bad), "{problem}");
    assert_eq!(gateway.blocks().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_car_that_is_cut_off_or_no_car_is_refused() {
    let gateway = TestGateway::start().await;
    let cid = raw_cid(b"content");
    let whole = car::write(&[(&cid, b"content")]);
    for cut in [0, 1, 10, 18, 19, 30, whole.len() - 1] {
        let response = put_car(&gateway, "", whole[..cut].to_vec()).await;
        // A CAR that consists of its header alone is complete and empty.
        if cut == 18 {
            assert_eq!(response.status(), 200);
        } else {
            problem(response, 400, "invalid_input").await;
        }
    }
    for garbage in [&b"no car at all"[..], &[0xff; 100], b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"] {
        let response = put_car(&gateway, "", garbage.to_vec()).await;
        assert!(matches!(response.status().as_u16(), 400 | 413), "{garbage:?}: {}", response.status());
    }
    assert_eq!(gateway.blocks().await, 0);
}
