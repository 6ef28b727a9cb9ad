//! A gateway that runs in this process, and what tests ask of it.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use ipfrs_interface::{Config, Gateway};
use ipfrs_node::BlockStore;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;
use tempfile::TempDir;
use tonic::transport::Channel;

use crate::multipart::Form;

/// A gateway on a port of its own with a repo of its own. Both are gone when it is dropped.
pub(crate) struct TestGateway {
    gateway: Gateway,
    repo: TempDir,
    client: Client,
}

impl TestGateway {
    /// One with the default configuration.
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// One whose configuration is the default with a change.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        Self::start_on(tempfile::tempdir().unwrap(), change).await
    }

    /// One over an engine of the test's own.
    pub(crate) async fn start_over(engine: impl BlockStore + 'static, change: impl FnOnce(&mut Config)) -> Self {
        Self::over(tempfile::tempdir().unwrap(), engine, change).await
    }

    /// Starts one over an engine of the test's own, on a repo that is there already.
    pub(crate) async fn over(
        repo: TempDir,
        engine: impl BlockStore + 'static,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let mut config = Config::default();
        config.server.port = 0;
        config.grpc.port = Some(0);
        change(&mut config);
        let gateway = Gateway::bind_over(&config, repo.path(), Arc::new(engine)).await.unwrap();
        Self { gateway, repo, client: client().build().unwrap() }
    }

    /// One on a repo that is there already.
    pub(crate) async fn start_on(repo: TempDir, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        config.server.port = 0;
        config.grpc.port = Some(0);
        change(&mut config);
        let gateway = Gateway::bind(&config, repo.path()).await.unwrap();
        Self { gateway, repo, client: client().build().unwrap() }
    }

    /// Stops it and waits until it has; the repo stays.
    pub(crate) async fn stop(self) -> TempDir {
        let (repo, outcome) = self.end().await;
        outcome.unwrap();
        repo
    }

    /// Stops it and waits until it has, with whatever outcome; the repo stays.
    pub(crate) async fn end(mut self) -> (TempDir, ipfrs_core::Result<()>) {
        self.gateway.shutdown();
        let outcome = self.gateway.join().await;
        (self.repo, outcome)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.addresses()[0]
    }

    pub(crate) fn port(&self) -> u16 {
        self.address().port()
    }

    /// A connection for gRPC, made when it is first used.
    pub(crate) fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.grpc_address())).unwrap().connect_lazy()
    }

    pub(crate) fn grpc_address(&self) -> SocketAddr {
        self.gateway.grpc_addresses()[0]
    }

    /// Asks it to stop, and returns at once.
    pub(crate) fn shutdown(&self) {
        self.gateway.shutdown();
    }

    pub(crate) fn repo(&self) -> &TempDir {
        &self.repo
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// Any request; redirects are not followed.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.url(path))
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    /// The body of a GET that succeeds.
    pub(crate) async fn content(&self, path: &str) -> Bytes {
        let response = self.get(path).await;
        assert_eq!(response.status(), 200, "GET {path}");
        response.bytes().await.unwrap()
    }

    /// A command of the RPC, with its arguments: `cat?arg=...`.
    pub(crate) fn rpc(&self, command: &str) -> RequestBuilder {
        self.request(Method::POST, &format!("/api/v0/{command}"))
    }

    /// The JSON answer of a command that succeeds.
    pub(crate) async fn rpc_json(&self, command: &str) -> Value {
        let response = self.rpc(command).send().await.unwrap();
        assert_eq!(response.status(), 200, "{command}");
        response.json().await.unwrap()
    }

    /// The bytes that a command answers with.
    pub(crate) async fn rpc_bytes(&self, command: &str) -> Bytes {
        let response = self.rpc(command).send().await.unwrap();
        assert_eq!(response.status(), 200, "{command}");
        response.bytes().await.unwrap()
    }

    /// Adds one file and gives its content ID. `options` is the query of `add`.
    pub(crate) async fn add(&self, options: &str, content: impl Into<Bytes>) -> String {
        let request = self.rpc(&format!("add?{options}")).header("content-type", "application/octet-stream");
        let lines = ndjson(request.body(content.into()).send().await.unwrap()).await;
        hash_of(lines.last().unwrap())
    }

    /// Adds what a form holds and gives the lines of the answer.
    pub(crate) async fn add_form(&self, options: &str, form: Form) -> Vec<Value> {
        ndjson(self.post_form(&format!("add?{options}"), form).await).await
    }

    /// Adds files with their paths and gives the content ID of the last line, which is the root.
    pub(crate) async fn add_tree(&self, options: &str, files: &[(&str, &str)]) -> String {
        let form = files.iter().fold(Form::new(), |form, (path, content)| form.file(path, content));
        hash_of(self.add_form(options, form).await.last().unwrap())
    }

    /// Posts a form to a command.
    pub(crate) async fn post_form(&self, command: &str, form: Form) -> Response {
        self.rpc(command).header("content-type", form.content_type()).body(form.end()).send().await.unwrap()
    }

    /// Stores a block and gives its content ID. `options` is the query of `block/put`.
    pub(crate) async fn put_block(&self, options: &str, data: impl Into<Bytes>) -> String {
        let form = Form::new().file("block", data.into());
        let answer = ndjson(self.post_form(&format!("block/put?{options}"), form).await).await;
        answer[0]["Key"].as_str().unwrap().to_owned()
    }

    /// A counter or gauge, by its name and labels as `/metrics` shows them.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        self.find_metric(name).await.unwrap_or_else(|| panic!("no metric {name}"))
    }

    async fn find_metric(&self, name: &str) -> Option<u64> {
        let text = String::from_utf8(self.content("/metrics").await.to_vec()).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map(|value| value.parse().unwrap())
    }

    /// Waits until a counter or gauge fits. One that is not there is 0: labels come with the first count.
    pub(crate) async fn until_metric(&self, name: &str, fits: impl Fn(u64) -> bool) {
        while !fits(self.find_metric(name).await.unwrap_or(0)) {
            tokio::task::yield_now().await;
        }
    }

    /// How many blocks the store holds.
    pub(crate) async fn blocks(&self) -> u64 {
        let health: Value = self.get("/health").await.json().await.unwrap();
        health["blocks"].as_u64().unwrap()
    }

    /// Posts JSON to a route of the native API, as `curl -d` does: with the content type of a form.
    pub(crate) async fn v1(&self, route: &str, body: &Value) -> Response {
        let request = self.request(Method::POST, &format!("/v1/{route}"));
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        request.body(body.to_string()).send().await.unwrap()
    }

    /// The JSON answer of a route of the native API that succeeds.
    pub(crate) async fn v1_json(&self, route: &str, body: &Value) -> Value {
        let response = self.v1(route, body).await;
        assert_eq!(response.status(), 200, "{route}");
        response.json().await.unwrap()
    }
}

/// A client that shows redirects instead of following them, and asks no proxy.
pub(crate) fn client() -> reqwest::ClientBuilder {
    Client::builder().redirect(Policy::none()).no_proxy()
}

/// The lines of an answer that succeeded.
pub(crate) async fn ndjson(response: Response) -> Vec<Value> {
    let status = response.status();
    let text = response.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn hash_of(line: &Value) -> String {
    line["Hash"].as_str().unwrap_or_else(|| panic!("no Hash in {line}")).to_owned()
}

/// A header as text; empty when it is not there.
pub(crate) fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
}

/// Checks that a command was refused before it ran, and gives the message.
pub(crate) async fn rpc_refusal(response: Response) -> String {
    let status = response.status();
    let text = response.text().await.unwrap();
    assert_eq!(status, 400, "{text}");
    let error: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&error["Code"], &error["Kind"]), (&Value::from(1), &Value::from("unsupported")), "{error}");
    error["Message"].as_str().unwrap().to_owned()
}

/// Checks that an answer is a failed command in Kubo's form and gives its message.
pub(crate) async fn rpc_failure(response: Response) -> String {
    let status = response.status();
    let text = response.text().await.unwrap();
    assert_eq!(status, 500, "{text}");
    let error: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&error["Type"], &error["Code"]), (&Value::from("error"), &Value::from(0)), "{error}");
    error["Message"].as_str().unwrap().to_owned()
}
