//! GraphQL over HTTP and WebSockets.

use reqwest::Response;
use serde_json::{Value, json};

use super::credentials::Credentials;
use super::{Guarded, Method};
use crate::multipart::Form;
use crate::websocket::Client;

/// Question for the fields of all root types, and for what a document needs to select them.
const FIELDS: &str = "{ __schema {
    queryType { fields { ...field } } mutationType { fields { ...field } } subscriptionType { fields { ...field } }
} }
fragment field on __Field { name args { name defaultValue type { ...type } } type { ...type } }
fragment type on __Type { kind name ofType { kind name ofType { kind name ofType { kind name } } } }";

/// A field of a root type.
struct Field {
    name: String,
    /// Keyword of the operation that selects it.
    operation: &'static str,
    document: String,
    has_file: bool,
}

impl Field {
    fn new(operation: &'static str, field: &Value) -> Self {
        let name = field["name"].as_str().unwrap().to_owned();
        let is_required =
            |argument: &&Value| argument["type"]["kind"] == "NON_NULL" && argument["defaultValue"].is_null();
        let arguments = field["args"].as_array().unwrap().iter().filter(is_required);
        let arguments = arguments
            .map(|argument| format!("{}: {}", argument["name"].as_str().unwrap(), value_of(&argument["type"])));
        let arguments = arguments.collect::<Vec<_>>().join(", ");
        let arguments = if arguments.is_empty() { arguments } else { format!("({arguments})") };
        let has_file = arguments.contains("$file");
        let variables = if has_file { "($file: Upload!)" } else { "" };
        let is_leaf = ["SCALAR", "ENUM"].contains(&innermost(&field["type"])["kind"].as_str().unwrap());
        let selection = if is_leaf { "" } else { " { __typename }" };
        let document = format!("{operation}{variables} {{ {name}{arguments}{selection} }}");
        Self { name, operation, document, has_file }
    }

    /// Returns the scope that the field needs.
    fn scope(&self) -> &'static str {
        match (self.operation, &*self.name) {
            ("query" | "subscription", _) => "read",
            (_, "addBlock" | "addFile" | "deleteBlock") => "write",
            (_, "pin" | "unpin") => "pin",
            (_, name) => panic!("{name}: add the scope that it needs to this table"),
        }
    }

    async fn send(&self, guarded: &Guarded, token: &str) -> Response {
        let request = guarded.gateway.request(Method::POST, "/graphql");
        let request = if token.is_empty() { request } else { request.bearer_auth(token) };
        let request = match self.operation {
            "subscription" => request.header("accept", "text/event-stream"),
            _ => request,
        };
        let request = if self.has_file {
            let operations = json!({ "query": self.document, "variables": { "file": null } }).to_string();
            let form = Form::new().text("operations", &operations).text("map", r#"{ "0": ["variables.file"] }"#);
            let form = form.upload("0", "a.txt", "content");
            request.header("content-type", form.content_type()).body(form.end())
        } else {
            request.json(&json!({ "query": self.document }))
        };
        request.send().await.unwrap()
    }

    /// Returns the status of the response, or 401 or 403 if an error in it says the same.
    async fn outcome(&self, guarded: &Guarded, token: &str) -> u16 {
        let response = self.send(guarded, token).await;
        let status = response.status().as_u16();
        // The stream of a subscription has no end.
        if self.operation == "subscription" || status != 200 {
            return status;
        }
        let body: Value = response.json().await.unwrap();
        match body["errors"][0]["extensions"]["code"].as_str() {
            Some("unauthenticated") => 401,
            Some("forbidden") => 403,
            _ => status,
        }
    }
}

/// Returns a type without its lists and exclamation marks.
fn innermost(described: &Value) -> &Value {
    match described["kind"].as_str().unwrap() {
        "NON_NULL" | "LIST" => innermost(&described["ofType"]),
        _ => described,
    }
}

/// Returns a value for an argument of this type.
fn value_of(described: &Value) -> String {
    match (described["kind"].as_str().unwrap(), described["name"].as_str().unwrap_or_default()) {
        ("NON_NULL", _) => value_of(&described["ofType"]),
        ("LIST", _) => format!("[{}]", value_of(&described["ofType"])),
        (_, "Cid") => "\"bafkqaaa\"".to_owned(),
        (_, "String") => "\"/ipfs/bafkqaaa\"".to_owned(),
        (_, "Base64") => "\"aGVsbG8=\"".to_owned(),
        (_, "Upload") => "$file".to_owned(),
        (kind, name) => panic!("add a value for arguments of the type {kind} {name}"),
    }
}

#[tokio::test]
async fn every_field_needs_its_scope() {
    let credentials = Credentials::start(|_| {}).await;
    let guarded = &credentials.guarded;
    let body = json!({ "query": FIELDS }).to_string();
    let schema: Value = guarded.send(Method::POST, "/graphql", &guarded.admin, Some(body)).await.json().await.unwrap();
    let mut fields = Vec::new();
    for (root, operation) in
        [("queryType", "query"), ("mutationType", "mutation"), ("subscriptionType", "subscription")]
    {
        let of_root = schema["data"]["__schema"][root]["fields"].as_array();
        let of_root = of_root.unwrap_or_else(|| panic!("no {root} in {schema}"));
        fields.extend(of_root.iter().map(|field| Field::new(operation, field)));
    }
    assert!(fields.len() > 20, "{}", fields.len());
    for field in &fields {
        let (document, wanted) = (&field.document, field.scope());
        assert_eq!(field.outcome(guarded, "").await, 401, "{document}: without credentials");
        for (what, token) in &credentials.invalid {
            assert_eq!(field.outcome(guarded, token).await, 401, "{document}: with {what}");
        }
        let outcome = field.outcome(guarded, &credentials.rooted).await;
        assert_eq!(outcome, 403, "{document}: with a key for content below a root");
        for (scope, token, is_enough) in credentials.keys_for(wanted) {
            let outcome = field.outcome(guarded, token).await;
            let expected = if is_enough { 200 } else { 403 };
            assert_eq!(outcome, expected, "{document}: {scope} instead of {wanted}");
        }
    }
}

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
