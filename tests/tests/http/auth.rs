//! Authentication and authorisation: every route of every front-end, with every kind of credentials.

mod attempts;
mod content;
mod credentials;
mod graphql;
mod grpc;
mod operations;
mod sessions;
mod tokens;

use std::fs;

use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::harness::{TestGateway, client};

/// A gateway that authenticates its callers.
struct Guarded {
    gateway: TestGateway,
    /// Token that may do everything.
    admin: String,
}

impl Guarded {
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    async fn start_with(change: impl FnOnce(&mut ipfrs_interface::Config)) -> Self {
        Self::over(
            TestGateway::start_with(|config| {
                config.auth.enabled = true;
                change(config);
            })
            .await,
        )
    }

    fn over(gateway: TestGateway) -> Self {
        let admin = fs::read_to_string(gateway.repo().path().join("api-token")).unwrap();
        Self { gateway, admin }
    }

    /// Creates a key and returns its token.
    async fn key(&self, scopes: &[&str]) -> String {
        self.key_of(json!({ "scopes": scopes })).await
    }

    async fn key_of(&self, key: Value) -> String {
        let response = self.send(Method::POST, "/v1/auth/keys", &self.admin, Some(key.to_string())).await;
        assert_eq!(response.status(), 201);
        let created: Value = response.json().await.unwrap();
        created["token"].as_str().unwrap().to_owned()
    }

    async fn revoke(&self, token: &str) {
        let path = format!("/v1/auth/keys/{}", id_of(token));
        assert_eq!(self.send(Method::DELETE, &path, &self.admin, None).await.status(), 200);
    }

    /// Sends a request with a token; an empty one is not sent.
    async fn send(&self, method: Method, path: &str, token: &str, body: Option<String>) -> Response {
        let mut request = self.gateway.request(method, path);
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        request.send().await.unwrap()
    }

    async fn get(&self, path: &str, token: &str) -> Response {
        self.send(Method::GET, path, token, None).await
    }

    async fn post(&self, path: &str, token: &str) -> Response {
        self.send(Method::POST, path, token, None).await
    }

    /// Adds a file as the administrator and returns its content ID.
    async fn add(&self, content: &str) -> String {
        let request = self.gateway.rpc("add?cid-version=1").bearer_auth(&self.admin);
        let response = request.header("content-type", "application/octet-stream").body(content.to_owned()).send().await;
        let line: Value = response.unwrap().json().await.unwrap();
        crate::harness::hash_of(&line)
    }
}

fn id_of(token: &str) -> &str {
    token.split('_').nth(1).unwrap()
}
