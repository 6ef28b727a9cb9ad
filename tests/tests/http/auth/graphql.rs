//! GraphQL over HTTP and WebSockets.

use serde_json::{Value, json};

use super::{Guarded, Method};
use crate::websocket::Client;

#[tokio::test]
async fn operations_need_their_scope() {
    let guarded = Guarded::start().await;
    let (reader, writer) = (guarded.key(&["read"]).await, guarded.key(&["write"]).await);
    let send = async |token: &str, query: &str| {
        let body = json!({ "query": query }).to_string();
        let response = guarded.send(Method::POST, "/graphql", token, Some(body)).await;
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let (query, mutation) = ("{ version { version } }", "mutation { addBlock(data: \"aGVsbG8=\") { cid } }");
    assert_eq!(send("", query).await.0, 401);
    assert_eq!(send("", mutation).await.0, 401);
    assert_eq!(send(&writer, query).await.0, 403);
    assert!(send(&reader, query).await.1["data"]["version"]["version"].is_string());
    let (_, refused) = send(&reader, mutation).await;
    assert_eq!(
        (&refused["data"]["addBlock"], &refused["errors"][0]["extensions"]["code"]),
        (&Value::Null, &json!("forbidden"))
    );
    assert!(send(&writer, mutation).await.1["data"]["addBlock"]["cid"].is_string());
    let (_, refused) = send(&writer, "mutation { pin(path: \"bafkqaaa\") }").await;
    assert_eq!(refused["errors"][0]["extensions"]["code"], "forbidden");
    assert_eq!(guarded.get("/graphql/schema.graphql", "").await.status(), 401);
    assert_eq!(guarded.get("/graphql/schema.graphql", &reader).await.status(), 200);
}

#[tokio::test]
async fn websocket_takes_the_token_in_its_first_message() {
    let guarded = Guarded::start().await;
    let reader = guarded.key(&["read"]).await;
    let open = async |init: Value| {
        let protocol = [("sec-websocket-protocol", "graphql-transport-ws")];
        let mut client = Client::open(guarded.gateway.address(), "/graphql/ws", &protocol).await.unwrap();
        client.send(json!({ "type": "connection_init", "payload": init }).to_string()).await;
        client
    };
    assert_eq!(open(Value::Null).await.close_code().await, 4403);
    assert_eq!(open(json!({ "Authorization": "Bearer wrong" })).await.close_code().await, 4403);
    let rooted = guarded.key_of(json!({ "scopes": ["read"], "roots": ["bafkqaaa"] })).await;
    assert_eq!(open(json!({ "Authorization": format!("Bearer {rooted}") })).await.close_code().await, 4403);
    let mut client = open(json!({ "Authorization": format!("Bearer {reader}") })).await;
    assert_eq!(client.receive().await["type"], "connection_ack");
    let subscribe =
        |query: &str| json!({ "type": "subscribe", "id": query, "payload": { "query": query } }).to_string();
    client.send(subscribe("{ version { version } }")).await;
    assert_eq!(client.receive().await["type"], "next");
    assert_eq!(client.receive().await["type"], "complete");
    client.send(subscribe("mutation { addBlock(data: \"aGVsbG8=\") { cid } }")).await;
    assert_eq!(client.receive().await["payload"]["errors"][0]["extensions"]["code"], "forbidden");
    guarded.revoke(&reader).await;
    assert_eq!(client.close_code().await, 4403);
}
