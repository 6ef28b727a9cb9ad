//! GraphQL over server-sent events and WebSockets.

use reqwest::Method;
use serde_json::{Value, json};

use crate::graphql::refusal;
use crate::harness::{TestGateway, header};
use crate::websocket::Client;

#[tokio::test]
async fn large_results_arrive_over_websockets() {
    let gateway = TestGateway::start().await;
    let cid = gateway.put_block("", vec![7; 1_000_000]).await;
    let mut client = Client::graphql(gateway.address()).await;
    let document = format!("{{ block(cid: \"{cid}\") {{ data }} }}");
    client.send(json!({"type": "subscribe", "id": "1", "payload": {"query": document}}).to_string()).await;
    let data = client.receive().await["payload"]["data"]["block"]["data"].take();
    assert_eq!(data.as_str().unwrap().len(), 1_333_336);
}

#[tokio::test]
async fn subscriptions_that_resume_too_late_continue() {
    let gateway = TestGateway::start().await;
    gateway.put_block("", "before anybody watched").await;
    let mut client = Client::graphql(gateway.address()).await;
    let document = "subscription { blockAdded(after: 0) { seq } }";
    client.send(json!({"type": "subscribe", "id": "1", "payload": {"query": document}}).to_string()).await;
    let lagged = client.receive().await;
    let extensions = &lagged["payload"]["errors"][0]["extensions"];
    assert_eq!(
        (&lagged["type"], &extensions["code"], &extensions["missed"]),
        (&"next".into(), &"lagged".into(), &1.into())
    );
    gateway.put_block("", "now").await;
    assert_eq!(client.receive().await["payload"]["data"], json!({"blockAdded": {"seq": 2}}));
}

#[tokio::test]
async fn subscriptions_are_sent_as_server_sent_events() {
    let gateway = TestGateway::start().await;
    let document = "subscription { blockAdded { seq cid size } }";
    let request = gateway.request(Method::POST, "/graphql").header("accept", "text/event-stream");
    let mut response = request.json(&json!({"query": document})).send().await.unwrap();
    assert_eq!(header(&response, "content-type"), "text/event-stream");
    // The first bytes say that the subscription is open.
    assert_eq!(response.chunk().await.unwrap().unwrap(), ":\n\n");
    gateway.until_metric("ipfrs_graphql_subscriptions_active", |active| active == 1).await;
    let cid = gateway.put_block("", "hello").await;
    let event = response.chunk().await.unwrap().unwrap();
    let data = event.strip_prefix(b"event: next\ndata: ").and_then(|rest| rest.strip_suffix(b"\n\n")).unwrap();
    let expected = json!({"data": {"blockAdded": {"seq": 1, "cid": cid, "size": 5}}});
    assert_eq!(serde_json::from_slice::<Value>(data).unwrap(), expected);
    drop(response);
    // The end of the client shows when the next event is sent.
    let mut stored = 0;
    while gateway.metric("ipfrs_graphql_subscriptions_active").await > 0 {
        stored += 1;
        gateway.put_block("", format!("block {stored}")).await;
    }
    let once = gateway.request(Method::POST, "/graphql").header("accept", "text/event-stream");
    let text = once.json(&json!({"query": "{ hello }"})).send().await.unwrap().text().await.unwrap();
    assert!(text.contains("event: next\ndata: {\"errors\"") && text.ends_with("event: complete\ndata:\n\n"), "{text}");
    let (status, _, message) = refusal(&gateway, &json!({"query": document})).await;
    assert_eq!(status, 400);
    assert!(message.contains("WebSocket"), "{message}");
}

#[tokio::test]
async fn subscriptions_over_websockets_follow_the_protocol() {
    let gateway = TestGateway::start_with(|config| config.graphql.max_operations_per_connection = 2).await;
    let mut client = Client::graphql(gateway.address()).await;
    let subscribe =
        |id: &str, document: &str| json!({"type": "subscribe", "id": id, "payload": {"query": document}}).to_string();
    client.send(subscribe("q", "{ stats { blocks } }")).await;
    let next = json!({"type": "next", "id": "q", "payload": {"data": {"stats": {"blocks": 0}}}});
    assert_eq!(client.receive().await, next);
    assert_eq!(client.receive().await, json!({"type": "complete", "id": "q"}));
    client.send(subscribe("e", "{ nothing }")).await;
    let error = client.receive().await;
    assert_eq!(
        (&error["type"], &error["payload"][0]["extensions"]["code"]),
        (&"error".into(), &"invalid_input".into())
    );
    client.send(subscribe("f", "subscription { bandwidth(intervalSeconds: 0) { totalIn } }")).await;
    assert_eq!(client.receive().await["type"], "error", "the source of events was refused");
    client.send(subscribe("pins", "subscription { pinChanged { cid isPinned type name } }")).await;
    client.send(subscribe("ops", "subscription { operationProgress { id kind state } }")).await;
    client.send(subscribe("more", "subscription { gcProgress { phase } }")).await;
    let refused = client.receive().await;
    assert_eq!(
        (&refused["id"], &refused["payload"][0]["extensions"]["code"]),
        (&"more".into(), &"rate_limited".into())
    );
    gateway.until_metric("ipfrs_graphql_subscriptions_active", |active| active == 2).await;
    client.send(r#"{"type":"ping","payload":{"a":1}}"#).await;
    assert_eq!(client.receive().await, json!({"type": "pong", "payload": {"a": 1}}));
    let cid = gateway.add("", "hello").await;
    let change = json!({"cid": cid, "isPinned": true, "type": "RECURSIVE", "name": ""});
    let expected = json!({"type": "next", "id": "pins", "payload": {"data": {"pinChanged": change}}});
    assert_eq!(client.receive().await, expected);
    client.send(r#"{"type":"complete","id":"pins"}"#).await;
    gateway.until_metric("ipfrs_graphql_subscriptions_active", |active| active == 1).await;
    client.send(subscribe("ops", "{ stats { blocks } }")).await;
    assert_eq!(client.close_code().await, 4409);
    gateway.until_metric("ipfrs_graphql_subscriptions_active", |active| active == 0).await;
}

#[tokio::test]
async fn violations_of_the_subscription_protocol_have_their_close_codes() {
    let gateway = TestGateway::start().await;
    let init = r#"{"type":"connection_init"}"#;
    let early = r#"{"type":"subscribe","id":"1","payload":{"query":"{ stats { blocks } }"}}"#;
    let protocol = [("sec-websocket-protocol", "graphql-transport-ws")];
    for (messages, code) in [
        (vec![early], 4401),
        (vec![init, init], 4429),
        (vec![init, "nonsense"], 4400),
        (vec![init, r#"{"type":"unknown"}"#], 4400),
        (vec![init, r#"{"type":"subscribe","id":"1"}"#], 4400),
        (vec![init, r#"{"type":"subscribe","id":"","payload":{"query":"{a}"}}"#], 4400),
        // A list is no message, and no request.
        (vec![r#"["connection_init"]"#], 4400),
        (vec![init, r#" ["ping"]"#], 4400),
        (vec![init, r#"{"type":"subscribe","id":"1","payload":["{ stats { blocks } }"]}"#], 4400),
        // A payload is an object or null.
        (vec![r#"{"type":"connection_init","payload":"token"}"#], 4400),
        (vec![r#"{"type":"connection_init","payload":null}"#, r#"{"type":"ping","payload":[1]}"#], 4400),
        (vec![init, r#"{"type":"pong","payload":1}"#], 4400),
    ] {
        let mut client = Client::open(gateway.address(), "/graphql/ws", &protocol).await.unwrap();
        for message in &messages {
            client.send(*message).await;
        }
        assert_eq!(client.close_code().await, code, "{messages:?}");
    }
    // Without the subprotocol, and at the other address.
    let mut client = Client::open(gateway.address(), "/graphql/ws", &[]).await.unwrap();
    assert_eq!(client.close_code().await, 4406);
    let mut client = Client::open(gateway.address(), "/graphql", &protocol).await.unwrap();
    client.send(init).await;
    assert_eq!(client.receive().await["type"], "connection_ack");
    let page = [("sec-websocket-protocol", "graphql-transport-ws"), ("origin", "https://evil.example")];
    assert_eq!(Client::open(gateway.address(), "/graphql/ws", &page).await.err(), Some(403));
}

#[tokio::test]
async fn the_progress_of_an_operation_is_followed_to_its_end() {
    let gateway = TestGateway::start().await;
    let mut client = Client::graphql(gateway.address()).await;
    let document = "subscription { operationProgress(id: \"mine\") { state bytes cid } }";
    let subscribe = json!({"type": "subscribe", "id": "1", "payload": {"query": document}});
    client.send(subscribe.to_string()).await;
    gateway.until_metric("ipfrs_graphql_subscriptions_active", |active| active == 1).await;
    let upload = gateway.request(Method::POST, "/v1/stream/upload?operation_id=mine").body("hello");
    let uploaded: Value = upload.send().await.unwrap().json().await.unwrap();
    let mut last = Value::Null;
    loop {
        let message = client.receive().await;
        if message["type"] == "complete" {
            break;
        }
        last = message["payload"]["data"]["operationProgress"].clone();
    }
    assert_eq!(last, json!({"state": "DONE", "bytes": 5, "cid": uploaded["cid"]}));
}
