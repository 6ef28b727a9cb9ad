//! Length and memory of GraphQL responses, on all transports.

use std::time::Duration;

use futures::{StreamExt, stream};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::TestGateway;
use crate::rpc_get::directory;
use crate::websocket::Client;
use crate::wire::Wire;

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
