//! Length and memory of GraphQL responses, on all transports.

use std::time::Duration;

use futures::{StreamExt, stream};
use ipfrs_core::parse_cid;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::graphql::refusal;
use crate::harness::TestGateway;
use crate::rpc_get::directory;
use crate::websocket::Client;
use crate::wire::Wire;
use crate::withholding::Withholding;

const MEMORY: &str = "ipfrs_request_memory_bytes";

/// Watchdog timeout, longer than any operation of the tests.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Returns the result of an operation over HTTP, server-sent events and a WebSocket, which must be the same.
async fn on_all_transports(gateway: &TestGateway, document: &str) -> Value {
    let request = json!({"query": document});
    let over = |accept: &str| gateway.request(Method::POST, "/graphql").header("accept", accept).json(&request).send();
    let single: Value = over("application/json").await.unwrap().json().await.unwrap();
    let events = over("text/event-stream").await.unwrap().text().await.unwrap();
    let event = events.split("data: ").nth(1).unwrap().split("\n\n").next().unwrap();
    assert_eq!(serde_json::from_str::<Value>(event).unwrap(), single);
    let mut client = Client::graphql(gateway.address()).await;
    client.send(json!({"type": "subscribe", "id": "1", "payload": request}).to_string()).await;
    assert_eq!(client.receive().await["payload"], single);
    single
}

#[tokio::test]
async fn responses_are_limited_by_their_length_as_json() {
    let gateway = TestGateway::start_with(|config| config.graphql.max_response_bytes = 100_000).await;
    let file = async |bytes: Vec<u8>| gateway.add("cid-version=1", bytes).await;
    let text = |cid: &str| format!("{{ file(path: \"{cid}\") {{ text }} }}");
    let (fits, control) = (file(vec![0; 15_000]).await, file(vec![0; 20_000]).await);
    let fitting = on_all_transports(&gateway, &text(&fits)).await;
    assert_eq!(fitting["data"]["file"]["text"].as_str().unwrap().len(), 15_000);
    let (replaced, quoted) = (file(vec![0xff; 40_000]).await, file(vec![b'"'; 60_000]).await);
    let names: Vec<_> = (0..300).map(|number| format!("{}{number}", "\u{1}".repeat(70))).collect();
    let entries: Vec<_> = names.iter().map(|name| (name.as_str(), fits.as_str())).collect();
    let tree = directory(&gateway, &entries).await;
    let blocks = stream::iter(0..60).then(|number| gateway.put_block("", format!("block {number}")));
    assert_eq!(blocks.count().await, 60);
    let long = "a".repeat(2_000);
    for document in [
        text(&control),
        text(&replaced),
        text(&quoted),
        format!("{{ directory(path: \"{tree}\", first: 300) {{ nodes {{ name }} }} }}"),
        format!("{{ block(cid: \"{tree}\") {{ links(first: 300) {{ name }} }} }}"),
        // The names of fields are no content.
        format!("{{ blocks(first: 60) {{ nodes {{ {long}: cid }} }} }}"),
    ] {
        let answer = on_all_transports(&gateway, &document).await;
        assert_eq!(answer["errors"][0]["extensions"]["code"], "too_large", "{document}");
        let field = answer["data"].as_object().and_then(|data| data.values().next()).unwrap_or(&Value::Null);
        assert!(field.as_object().is_none_or(|fields| fields.values().all(Value::is_null)), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_response_holds_memory_for_values_and_json() {
    let gateway = TestGateway::start().await;
    let zeros = gateway.add("cid-version=1", vec![0; 1 << 20]).await;
    // Each of these is 6 MiB as JSON, more than the buffers of the sockets take together.
    let fields: String = (0..5).map(|number| format!("f{number}: text(length: 1048576) ")).collect();
    let body = json!({"query": format!("{{ file(path: \"{zeros}\") {{ {fields} }} }}")}).to_string();
    for accept in ["application/json", "text/event-stream"] {
        let mut wire = Wire::connect_with_small_window(&gateway).await;
        let head =
            format!("POST /graphql HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nContent-Length: {}\r\n\r\n", body.len());
        wire.send(head + &body).await;
        let held = gateway.until_metric(MEMORY, |bytes| bytes > 60 << 20);
        timeout(WATCHDOG, held).await.unwrap_or_else(|_| panic!("{accept}"));
        drop(wire);
        timeout(WATCHDOG, gateway.until_metric(MEMORY, |bytes| bytes == 0)).await.unwrap();
    }
}

#[tokio::test]
async fn fields_that_decode_blocks_cost_more_than_others() {
    let gateway = TestGateway::start_with(|config| config.graphql.max_complexity = 100).await;
    let cid = gateway.add("", "x").await;
    let absent = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy";
    for field in [
        format!("file(path: \"{absent}\") {{ cid }}"),
        format!("directory(path: \"{absent}\", first: 0) {{ totalCount }}"),
        format!("tensors(path: \"{absent}\", first: 0) {{ totalCount }}"),
    ] {
        let document = |count: usize| (0..count).map(|n| format!("f{n}: {field} ")).collect::<String>();
        let few = json!({"query": format!("{{ {} }}", document(8))});
        assert_eq!(refusal(&gateway, &few).await.1, "not_found", "{field}");
        let many = json!({"query": format!("{{ {} }}", document(10))});
        let (_, code, message) = refusal(&gateway, &many).await;
        assert!(code == "too_large" && message.contains("max_complexity"), "{field}: {message}");
    }
    for field in ["dagSize", "mode", "mtime"] {
        let fields: String = (0..10).map(|n| format!("f{n}: {field} ")).collect();
        let document = json!({"query": format!("{{ file(path: \"{cid}\") {{ {fields} }} }}")});
        let (_, code, message) = refusal(&gateway, &document).await;
        assert!(code == "too_large" && message.contains("max_complexity"), "{field}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn decoded_objects_count_while_their_fields_wait() {
    const LINKS: usize = 10_000;
    const ENTRIES: usize = 4_000;
    let store = Withholding::new();
    let gateway = TestGateway::start_over(store.clone(), |_| {}).await;
    let leaf = gateway.put_block("", "x").await;
    // An empty file, which a listing reads for its kind. That of a raw block is known.
    let entry = gateway.put_block("cid-codec=dag-pb", vec![0x0a, 2, 8, 2]).await;
    let hash = |cid: &str| [&[0x0a, 36][..], &parse_cid(cid).unwrap().to_bytes()].concat();
    let sizes: Vec<u8> = [&[8_u8, 2][..], &[0x20, 1].repeat(LINKS)].concat();
    let length = [sizes.len() as u8 | 0x80, (sizes.len() >> 7) as u8 | 0x80, (sizes.len() >> 14) as u8];
    let links = [&[0x12, 38][..], &hash(&leaf)].concat().repeat(LINKS);
    let file = gateway.put_block("cid-codec=dag-pb", [&links[..], &[0x0a], &length, &sizes].concat()).await;
    let mut entries = Vec::new();
    for number in 0..ENTRIES {
        entries.extend([&[0x12, 46][..], &hash(&entry), &[0x12, 6], format!("n{number:05}").as_bytes()].concat());
    }
    let tree = gateway.put_block("cid-codec=dag-pb", [&entries[..], &[0x0a, 2, 8, 1]].concat()).await;
    for (document, least, fails) in [
        (format!("{{ a: file(path: \"{file}\") {{ bytes }} b: file(path: \"{file}\") {{ text }} }}"), 1_000_000, false),
        (format!("{{ directory(path: \"{tree}\", first: 10) {{ nodes {{ name }} }} }}"), 500_000, false),
        // It has no tensors, which only its bytes show.
        (format!("{{ tensors(path: \"{file}\") {{ totalCount }} }}"), 500_000, true),
    ] {
        store.withhold(&leaf);
        store.withhold(&entry);
        let request = gateway.request(Method::POST, "/graphql").json(&json!({"query": document}));
        let sent = tokio::spawn(request.send());
        timeout(WATCHDOG, gateway.until_metric(MEMORY, |bytes| bytes > least)).await.expect(&document);
        store.release();
        let body: Value = sent.await.unwrap().unwrap().json().await.unwrap();
        assert_eq!(body["errors"].is_array(), fails, "{document}: {body}");
        timeout(WATCHDOG, gateway.until_metric(MEMORY, |bytes| bytes == 0)).await.unwrap();
    }
}
