//! Every operation of the OpenAPI document, which has all routes.

use std::fs;

use reqwest::Method;
use serde_json::{Value, json};

use super::credentials::Credentials;
use super::{Guarded, client, id_of};
use crate::harness::{TestGateway, header};

/// An operation, and the scope that its description demands.
struct Operation {
    method: Method,
    path: String,
    need: Need,
}

#[derive(Debug, PartialEq)]
enum Need {
    Nothing,
    /// Any credentials, or what the front-end decides.
    Credentials,
    Scope(String),
}

async fn operations(gateway: &TestGateway) -> Vec<Operation> {
    let document: Value = gateway.get("/openapi.json").await.json().await.unwrap();
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let alternatives = operation["security"].as_array();
            let is_open = alternatives.is_none_or(|all| all.contains(&json!({})));
            let need = match alternatives.map(|all| &all[0]["token"]) {
                _ if is_open => Need::Nothing,
                Some(Value::Array(scopes)) if scopes.len() == 1 => Need::Scope(scopes[0].as_str().unwrap().to_owned()),
                _ => Need::Credentials,
            };
            // Whatever a path or command needs besides, it is missing.
            let path = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part });
            let path = path.collect::<Vec<_>>().join("/");
            operations.push(Operation { method: method.to_uppercase().parse().unwrap(), path, need });
        }
    }
    assert!(operations.len() > 150, "{}", operations.len());
    operations
}

/// Sends every operation to the listener at `base`, with every kind of credentials.
async fn try_every_operation(credentials: &Credentials, base: &str) {
    let client = client().build().unwrap();
    for Operation { method, path, need } in operations(&credentials.guarded.gateway).await {
        let send = async |token: &str| {
            let request = client.request(method.clone(), format!("{base}{path}"));
            let request = if token.is_empty() { request } else { request.bearer_auth(token) };
            request.send().await.unwrap()
        };
        let status = async |token: &str| send(token).await.status().as_u16();
        let is_refused = |status: u16| status == 401 || status == 403;
        if need == Need::Nothing {
            assert!(!is_refused(status("").await), "{method} {path}: needs nothing");
            continue;
        }
        // The state of the daemon is shown in part to everyone.
        if path == "/health" {
            assert_eq!(status("").await, 200);
            continue;
        }
        // The first message may have the token.
        if path == "/graphql/ws" {
            continue;
        }
        let anonymous = send("").await;
        assert_eq!(anonymous.status(), 401, "{method} {path}: without credentials");
        assert!(header(&anonymous, "www-authenticate").starts_with("Bearer"), "{method} {path}");
        for (what, token) in &credentials.invalid {
            assert_eq!(status(token).await, 401, "{method} {path}: with {what}");
        }
        let Need::Scope(wanted) = need else { continue };
        for (scope, token, is_enough) in credentials.keys_for(&wanted) {
            // It would end here.
            if is_enough && path == "/api/v0/shutdown" {
                continue;
            }
            let status = status(token).await;
            assert_eq!(status == 403, !is_enough, "{method} {path}: {scope} instead of {wanted}: {status}");
            assert_ne!(status, 401, "{method} {path}: {scope}");
        }
    }
}

#[tokio::test]
async fn every_operation_needs_the_scope_of_its_description() {
    let credentials = Credentials::start(|_| {}).await;
    let base = credentials.guarded.gateway.url("");
    try_every_operation(&credentials, &base).await;
    let (_, admin) = credentials.keys.last().unwrap();
    assert_eq!(credentials.guarded.post("/api/v0/shutdown", admin).await.status(), 200);
}

#[tokio::test]
async fn api_listener_has_the_rules_of_the_main_port() {
    let credentials = Credentials::start(|config| (config.api.enabled, config.api.port) = (true, Some(0))).await;
    let base = format!("http://{}", credentials.guarded.gateway.gateway.api_addresses()[0]);
    try_every_operation(&credentials, &base).await;
}

#[tokio::test]
async fn public_listener_has_no_operation_for_any_caller() {
    let credentials = Credentials::start(|config| {
        config.public.enabled = true;
        (config.public.host, config.public.port) = ("127.0.0.1".to_owned(), 0);
    })
    .await;
    let base = format!("http://{}", credentials.guarded.gateway.gateway.public_addresses()[0]);
    let client = client().build().unwrap();
    let (_, admin) = credentials.keys.last().unwrap();
    for Operation { method, path, .. } in operations(&credentials.guarded.gateway).await {
        for token in ["", admin] {
            let request = client.request(method.clone(), format!("{base}{path}"));
            let request = if token.is_empty() { request } else { request.bearer_auth(token) };
            assert_eq!(request.send().await.unwrap().status(), 404, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn refusals_have_the_form_of_their_api() {
    let guarded = Guarded::start().await;
    let writer = guarded.key(&["write"]).await;
    let rpc: Value = guarded.post("/api/v0/id", "").await.json().await.unwrap();
    assert_eq!((&rpc["Type"], &rpc["Kind"]), (&json!("error"), &json!("unauthenticated")));
    let rpc: Value = guarded.post("/api/v0/id", &writer).await.json().await.unwrap();
    assert_eq!(rpc["Kind"], "forbidden");
    assert!(rpc["Message"].as_str().unwrap().contains("has write, and this needs read"), "{rpc}");
    let native: Value = guarded.get("/v1/auth/keys", &writer).await.json().await.unwrap();
    assert_eq!((&native["status"], &native["code"]), (&json!(403), &json!("forbidden")));
    // Unknown paths are no secret, and no route is open by mistake.
    assert_eq!(guarded.get("/nothing", "").await.status(), 404);
    assert_eq!(guarded.post("/api/v0/pin", "").await.status(), 401);
    let health: Value = guarded.get("/health", "").await.json().await.unwrap();
    assert_eq!(health, json!({ "status": "ok" }));
    let reader = guarded.key(&["read"]).await;
    let health: Value = guarded.get("/health", &reader).await.json().await.unwrap();
    assert!(health["blocks"].is_u64(), "{health}");
}

#[tokio::test]
async fn method_override_and_options_give_no_rights() {
    let guarded = Guarded::start().await;
    let reader = guarded.key(&["read"]).await;
    for path in ["/v1/stream/upload", "/v1/stream/upload/00000000000000000000000000000000"] {
        for sent in [Method::OPTIONS, Method::GET, Method::HEAD, Method::POST] {
            for meant in ["POST", "PATCH", "DELETE", "HEAD", "PUT"] {
                for token in ["", &reader] {
                    let request = guarded.gateway.request(sent.clone(), path).header("x-http-method-override", meant);
                    let request = if token.is_empty() { request } else { request.bearer_auth(token) };
                    let status = request.body("content").send().await.unwrap().status().as_u16();
                    assert!([400, 401, 403].contains(&status), "{sent} as {meant} to {path}: {status}");
                }
            }
        }
    }
    let blocks: Value = guarded.get("/health", &guarded.admin).await.json().await.unwrap();
    assert_eq!(blocks["blocks"], 0);
    // The override works if POST is permitted.
    let request = guarded.gateway.request(Method::POST, "/v1/stream/upload/0").bearer_auth(&guarded.admin);
    let overridden = request.header("x-http-method-override", "HEAD").header("tus-resumable", "1.0.0").send().await;
    assert_eq!(overridden.unwrap().status(), 404);
}

#[tokio::test]
async fn keys_are_created_listed_and_revoked() {
    let guarded = Guarded::start().await;
    let token = guarded.key_of(json!({ "name": "ci", "scopes": ["read", "pin"], "valid_seconds": 3_600 })).await;
    let keys: Value = guarded.get("/v1/auth/keys", &guarded.admin).await.json().await.unwrap();
    let key = &keys["keys"][0];
    assert_eq!(
        (&key["id"], &key["name"], &key["scopes"]),
        (&json!(id_of(&token)), &json!("ci"), &json!(["read", "pin"]))
    );
    assert!(key["expires"].as_str().unwrap() > key["created"].as_str().unwrap(), "{key}");
    // The secret may have underscores itself.
    assert!(!keys.to_string().contains(token.splitn(3, '_').nth(2).unwrap()));
    let caller: Value = guarded.get("/v1/auth/session", &token).await.json().await.unwrap();
    assert_eq!(caller["principal"], format!("key:{}", id_of(&token)));
    for (body, problem) in [
        (json!({ "scopes": [] }), "at least one scope"),
        (json!({ "scopes": ["root"] }), "no scope"),
        (json!({ "scopes": ["read"], "roots": ["x"] }), "x"),
        (json!({ "scopes": ["read"], "roots": [] }), "roots is empty"),
        (json!({ "scopes": ["write"], "roots": ["bafkqaaa"] }), "can only read"),
        (json!({ "scopes": ["read"], "valid_seconds": 0 }), "at least a second"),
        (json!({ "scopes": ["read"], "scope": "read" }), "unknown field"),
        (json!([]), "not JSON like"),
    ] {
        let response = guarded.send(Method::POST, "/v1/auth/keys", &guarded.admin, Some(body.to_string())).await;
        assert_eq!(response.status(), 400, "{body}");
        assert!(response.text().await.unwrap().contains(problem), "{body}");
    }
    let absent = json!({ "name": null, "scopes": ["read"], "roots": null, "valid_seconds": null }).to_string();
    assert_eq!(guarded.send(Method::POST, "/v1/auth/keys", &guarded.admin, Some(absent)).await.status(), 201);
    guarded.revoke(&token).await;
    assert_eq!(guarded.get("/metrics", &token).await.status(), 401);
    let path = format!("/v1/auth/keys/{}", id_of(&token));
    assert_eq!(guarded.send(Method::DELETE, &path, &guarded.admin, None).await.status(), 404);
}

#[tokio::test]
async fn daemon_without_authentication_creates_no_keys() {
    let gateway = TestGateway::start().await;
    let response = gateway.v1("auth/keys", &json!({ "scopes": ["admin"] })).await;
    assert_eq!(response.status(), 409);
    assert!(response.text().await.unwrap().contains("auth.enabled"));
    let caller: Value = gateway.get("/v1/auth/session").await.json().await.unwrap();
    assert_eq!((&caller["enabled"], &caller["scopes"]), (&json!(false), &json!(["admin"])));
}

#[tokio::test]
async fn local_token_ends_with_the_daemon() {
    let guarded = Guarded::start().await;
    let first = guarded.admin.clone();
    let file = guarded.gateway.repo().path().join("api-token");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let repo = guarded.gateway.stop().await;
    assert!(!file.exists());
    let guarded = Guarded::over(TestGateway::start_on(repo, |config| config.auth.enabled = true).await);
    assert_ne!(guarded.admin, first);
    assert_eq!(guarded.get("/metrics", &first).await.status(), 401);
}
