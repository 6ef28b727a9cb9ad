//! `/v1/block/batch/get` and `/has`, and behaviour that all of `/v1` has in common.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::car;
use crate::content;
use crate::harness::{TestGateway, header};
use crate::wire::Wire;

const HELLO: &str = "Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD";

/// Checks that a response is a problem document (RFC 9457) and returns it.
pub(crate) async fn problem(response: Response, status: u16, code: &str) -> Value {
    let id = header(&response, "x-request-id").to_owned();
    assert_eq!(header(&response, "content-type"), "application/problem+json");
    assert_eq!(response.status(), status);
    let problem: Value = response.json().await.unwrap();
    assert_eq!(problem["status"], status, "{problem}");
    assert_eq!(problem["code"], code, "{problem}");
    assert_eq!(problem["request_id"], id, "{problem}");
    for member in ["type", "title", "detail"] {
        assert!(!problem[member].as_str().unwrap().is_empty(), "{member}: {problem}");
    }
    problem
}

/// Stores raw blocks with these contents and returns their content IDs.
async fn raw_blocks(gateway: &TestGateway, contents: &[Vec<u8>]) -> Vec<String> {
    let mut cids = Vec::new();
    for content in contents {
        cids.push(gateway.put_block("", content.clone()).await);
    }
    cids
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_get_keeps_order_and_duplicates() {
    let gateway = TestGateway::start().await;
    let contents: Vec<Vec<u8>> = [0, 1, 2, 3, 70_000].map(|size| content::bytes(size).to_vec()).into();
    let cids = raw_blocks(&gateway, &contents).await;
    let order = [4, 0, 2, 2, 1, 3, 4];
    let answer = gateway.v1_json("block/batch/get", &json!({"cids": order.map(|i| &cids[i])})).await;
    assert_eq!(answer["errors"], json!([]));
    let blocks = answer["blocks"].as_array().unwrap();
    assert_eq!(blocks.len(), order.len());
    for (block, i) in blocks.iter().zip(order) {
        assert_eq!(block["cid"], cids[i]);
        assert_eq!(block["size"], contents[i].len());
        assert_eq!(STANDARD.decode(block["data"].as_str().unwrap()).unwrap(), contents[i]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_read_as_json_whatever_its_type_says() {
    let gateway = TestGateway::start().await;
    gateway.add("", "hello world").await;
    let body = json!({"cids": [HELLO]}).to_string();
    for content_type in [Some("application/x-www-form-urlencoded"), Some("application/json"), Some("text/plain"), None]
    {
        let mut request = gateway.request(Method::POST, "/v1/block/batch/get").body(body.clone());
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        let response = request.send().await.unwrap();
        assert_eq!(header(&response, "content-type"), "application/json");
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["blocks"][0]["cid"], HELLO, "{content_type:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_get_reports_errors_per_item() {
    let gateway = TestGateway::start().await;
    gateway.add("", "hello world").await;
    let absent = gateway.add("only-hash=true", "absent").await;
    let asked = json!({"cids": ["nonsense", &absent, HELLO, "", "Qm\"\u{e9}\n"]});
    let answer = gateway.v1_json("block/batch/get", &asked).await;
    assert_eq!(answer["blocks"].as_array().unwrap().len(), 1);
    let mut errors: Vec<_> = answer["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| (e["cid"].as_str().unwrap(), e["code"].as_str().unwrap()))
        .collect();
    errors.sort_unstable();
    let mut expected = [
        ("nonsense", "invalid_input"),
        (absent.as_str(), "not_found"),
        ("", "invalid_input"),
        ("Qm\"\u{e9}\n", "invalid_input"),
    ];
    expected.sort_unstable();
    assert_eq!(errors, expected);
    assert!(answer["errors"].as_array().unwrap().iter().all(|e| !e["error"].as_str().unwrap().is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_get_echoes_the_requested_cid_spelling() {
    let gateway = TestGateway::start().await;
    gateway.add("", "hello world").await;
    let base32 = "bafybeihykld7uyxzogax6vgyvag42y7464eywpf55gxi5qpoisibh3c5wa";
    let forms = [
        HELLO.to_owned(),
        base32.to_owned(),
        base32.to_uppercase(),
        "f01701220f852c7fa62f971817f54d8a80dcd63fcf7098b3cbde9ae8ec1ee449013ec5db0".to_owned(),
    ];
    let answer = gateway.v1_json("block/batch/get", &json!({"cids": forms})).await;
    let found: Vec<_> = answer["blocks"].as_array().unwrap().iter().map(|block| block["cid"].clone()).collect();
    assert_eq!(found, forms, "a client finds its answer by the text that it sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_batch_is_streamed_whole() {
    let gateway = TestGateway::start().await;
    let content = content::bytes(20_000_000);
    let root = gateway.add("raw-leaves=true", content.clone()).await;
    let leaves: Vec<_> = content.chunks(262_144).map(car::raw_cid).collect();
    let answer = gateway.v1_json("block/batch/get", &json!({"cids": leaves})).await;
    let blocks = answer["blocks"].as_array().unwrap();
    let joined: Vec<u8> =
        blocks.iter().flat_map(|block| STANDARD.decode(block["data"].as_str().unwrap()).unwrap()).collect();
    content::assert_same(&joined, &content, "the leaves of the file");
    content::assert_same(&gateway.rpc_bytes(&format!("cat?arg={root}")).await, &content, "cat");
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_get_car_has_stored_blocks_in_request_order() {
    let gateway = TestGateway::start().await;
    let contents: Vec<Vec<u8>> = [3, 0, 70_000].map(|size| content::bytes(size).to_vec()).into();
    let mut cids = raw_blocks(&gateway, &contents).await;
    cids.push(gateway.add("", "hello world").await);
    let absent = gateway.add("only-hash=true", "absent").await;
    let asked = [&cids[2], &absent, &cids[0], &cids[3], &cids[1]];
    let request = gateway.request(Method::POST, "/v1/block/batch/get").header("accept", "application/vnd.ipld.car");
    let response = request.body(json!({"cids": asked}).to_string()).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(header(&response, "content-type").starts_with("application/vnd.ipld.car; version=1"));
    assert_eq!(header(&response, "x-content-type-options"), "nosniff");
    let blocks = car::read(&response.bytes().await.unwrap());
    let found: Vec<_> = blocks.iter().map(|block| block.cid().to_string()).collect();
    assert_eq!(found, [&cids[2], &cids[0], &cids[3], &cids[1]].map(Clone::clone));
    assert_eq!(blocks[0].data(), &contents[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_batch_returns_an_empty_response() {
    let gateway = TestGateway::start().await;
    let empty = json!({"cids": []});
    assert_eq!(gateway.v1_json("block/batch/get", &empty).await, json!({"blocks": [], "errors": []}));
    assert_eq!(gateway.v1_json("block/batch/has", &empty).await, json!({"results": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn has_answers_for_each_item_in_order() {
    let gateway = TestGateway::start().await;
    gateway.add("", "hello world").await;
    let absent = gateway.add("only-hash=true", "absent").await;
    let answer = gateway.v1_json("block/batch/has", &json!({"cids": [&absent, HELLO, "x", "bafkqaaa", HELLO]})).await;
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results[0], json!({"cid": absent, "exists": false}));
    assert_eq!(results[1], json!({"cid": HELLO, "exists": true, "size": 19}));
    assert_eq!((&results[2]["cid"], &results[2]["exists"]), (&json!("x"), &json!(false)));
    assert_eq!(results[3], json!({"cid": "bafkqaaa", "exists": true, "size": 0}), "an identity block is always here");
    assert_eq!(results[4], results[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_over_the_limit_is_refused_whole() {
    let gateway = TestGateway::start_with(|config| config.batch.max_batch_size = 3).await;
    for route in ["block/batch/get", "block/batch/has"] {
        assert_eq!(gateway.v1(route, &json!({"cids": vec!["bafkqaaa"; 3]})).await.status(), 200);
        let refused = problem(gateway.v1(route, &json!({"cids": vec!["bafkqaaa"; 4]})).await, 413, "too_large").await;
        assert!(refused["detail"].as_str().unwrap().contains("max_batch_size"), "{refused}");
        let huge = json!({"cids": ["b".repeat(1_000_000)]});
        problem(gateway.v1(route, &huge).await, 413, "too_large").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_batch_body_returns_located_problem() {
    let gateway = TestGateway::start().await;
    for route in ["get", "has", "put"] {
        let values_of_an_item = r#"{"blocks": [["aGVsbG8=", null, null, null]]}"#;
        for body in [
            "",
            "{",
            "[]",
            "null",
            "{\"cids\": 1}",
            "{\"cids\": [1]}",
            "{\"blocks\": {}}",
            values_of_an_item,
            "\u{0}",
            "{}",
        ] {
            let request = gateway.request(Method::POST, &format!("/v1/block/batch/{route}")).body(body);
            let problem = problem(request.send().await.unwrap(), 400, "invalid_input").await;
            assert!(problem["detail"].as_str().unwrap().contains("JSON"), "{route} {body}: {problem}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_failure_of_the_native_api_is_a_problem_document() {
    let gateway = TestGateway::start().await;
    problem(gateway.request(Method::POST, "/v1/nothing").send().await.unwrap(), 404, "not_found").await;
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let response = gateway.request(method, "/v1/block/batch/get").send().await.unwrap();
        assert_eq!(header(&response, "allow"), "POST");
        problem(response, 405, "method_not_allowed").await;
    }
    problem(gateway.request(Method::POST, "/v1/config?x").send().await.unwrap(), 405, "method_not_allowed").await;
    for (method, path) in [
        (Method::GET, "/v1/progress/%FF"),
        (Method::DELETE, "/v1/progress/%FF"),
        (Method::DELETE, "/v1/stream/upload/%FF"),
        (Method::DELETE, "/v1/auth/keys/%FF"),
    ] {
        problem(gateway.request(method, path).send().await.unwrap(), 400, "invalid_input").await;
    }
    for (method, path) in [
        (Method::POST, "/v1/stream/upload?filename=a%FF"),
        (Method::GET, "/v1/stream/download/bafkqaaa?filename=a%FF"),
        (Method::GET, "/v1/tensor/bafkqaaa?name=a%FF"),
        (Method::GET, "/v1/progress/x?wait=%C3"),
        (Method::GET, "/v1/progress?%FF"),
    ] {
        let problem = problem(gateway.request(method, path).send().await.unwrap(), 400, "invalid_input").await;
        assert!(problem["detail"].as_str().unwrap().contains("UTF-8"), "{path}: {problem}");
    }
    let page = gateway.request(Method::POST, "/v1/block/batch/get").header("origin", "https://evil.example");
    problem(page.body("{\"cids\":[]}").send().await.unwrap(), 403, "forbidden").await;
    let query = gateway.request(Method::POST, "/v1/block/batch/put?transaction_mode=sometimes");
    problem(query.body("{\"blocks\":[]}").send().await.unwrap(), 400, "invalid_input").await;
    for (route, body) in [("get", "{\"cids\":[]}"), ("has", "{\"cids\":[]}"), ("put", "{\"blocks\":[]}")] {
        let query = gateway.request(Method::POST, &format!("/v1/block/batch/{route}?transaction=atomic"));
        let problem = problem(query.body(body).send().await.unwrap(), 400, "invalid_input").await;
        assert!(problem["detail"].as_str().unwrap().contains("transaction"), "{problem}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn request_id_is_echoed_or_generated() {
    let gateway = TestGateway::start().await;
    for path in ["/v1/block/batch/get", "/v1/nothing", "/api/v0/version"] {
        let request = || gateway.request(Method::POST, path).body("{\"cids\":[]}");
        let taken = request().header("x-request-id", "my-id-42").send().await.unwrap();
        assert_eq!(header(&taken, "x-request-id"), "my-id-42", "{path}");
        let (one, two) = (request().send().await.unwrap(), request().send().await.unwrap());
        assert!(!header(&one, "x-request-id").is_empty());
        assert_ne!(header(&one, "x-request-id"), header(&two, "x-request-id"));
        let long = request().header("x-request-id", "x".repeat(5_000)).send().await.unwrap();
        assert!(header(&long, "x-request-id").len() < 200, "an ID of any length would end up in every log line");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_blocks_are_encoded_in_small_pieces() {
    let gateway = TestGateway::start().await;
    // All remainders of a division by three, in one piece and in several.
    let contents: Vec<Vec<u8>> =
        [0, 48_000, 49_151, 49_152, 49_153, 700_001, 2_000_000].map(|size| content::bytes(size).to_vec()).into();
    let body = json!({"cids": raw_blocks(&gateway, &contents).await}).to_string();
    let mut wire = Wire::connect(&gateway).await;
    let head = "POST /v1/block/batch/get HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length:";
    wire.send(format!("{head} {}\r\n\r\n{body}", body.len())).await;
    let response = String::from_utf8(wire.rest().await).unwrap();
    let (_, mut rest) = response.split_once("\r\n\r\n").unwrap();
    let (mut json, mut largest) = (String::new(), 0);
    while let Some((size, chunks)) = rest.split_once("\r\n").filter(|(size, _)| *size != "0") {
        let size = usize::from_str_radix(size, 16).unwrap();
        json.push_str(&chunks[..size]);
        (rest, largest) = (&chunks[size + 2..], largest.max(size));
    }
    // A response that is not read holds only pieces.
    assert!(largest < 70_000, "{largest}");
    let answer: Value = serde_json::from_str(&json).unwrap();
    for (block, content) in answer["blocks"].as_array().unwrap().iter().zip(&contents) {
        content::assert_same(&STANDARD.decode(block["data"].as_str().unwrap()).unwrap(), content, "a block");
        assert_eq!(block["size"], content.len());
    }
    assert_eq!((answer["blocks"].as_array().unwrap().len(), &answer["errors"]), (contents.len(), &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_refuses_unknown_parameters_by_name() {
    let gateway = TestGateway::start().await;
    let document: Value = gateway.get("/openapi.json").await.json().await.unwrap();
    let paths = document["paths"].as_object().unwrap().iter().filter(|(path, _)| path.starts_with("/v1/"));
    let mut count = 0;
    for (path, operations) in paths {
        // The response to HEAD has no text. Clients of tus ask for the capabilities of any address.
        let methods = ["get", "post", "patch", "delete"].into_iter().filter(|method| operations.get(method).is_some());
        for method in methods {
            let target = format!("{}?unknown-one=1", path.replace(['{', '}'], ""));
            let target = target.replace("/path", "/bafkqaaa");
            let request = gateway.request(method.to_uppercase().parse().unwrap(), &target);
            let problem = problem(request.send().await.unwrap(), 400, "invalid_input").await;
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.starts_with("unknown ") && detail.contains("unknown-one"), "{method} {path}: {detail}");
            count += 1;
        }
    }
    assert!(count > 15, "{count}");
    for (method, target) in [
        (Method::GET, "/v1/progress/x?wait=x"),
        (Method::GET, "/v1/progress/x?wait=1&wait=2"),
        (Method::POST, "/v1/block/batch/put?transaction_mode=sometimes"),
        (Method::POST, "/v1/block/batch/put?transaction_mode=atomic&transaction_mode=atomic"),
        (Method::POST, "/v1/retrieve/bafkqaaa?scope=block&scope=all"),
    ] {
        let response = gateway.request(method, target).body("{\"blocks\":[]}").send().await.unwrap();
        let problem = problem(response, 400, "invalid_input").await;
        let detail = problem["detail"].as_str().unwrap();
        let name = target.split(['?', '=']).nth(1).unwrap();
        assert!(detail.contains(name) && !detail.contains("deserialize"), "{target}: {detail}");
    }
}
