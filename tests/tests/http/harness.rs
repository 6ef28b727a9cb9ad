//! A gateway in the test process, and helpers for requests to it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ipfrs_interface::{Config, Gateway};
use ipfrs_node::BlockStore;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;
use tempfile::TempDir;
use tonic::transport::Channel;

use crate::ended_repos::Repo;
use crate::multipart::Form;

/// A gateway with its own port and repo. Dropping it stops the gateway. The repo is removed later, see [`Repo`].
pub(crate) struct TestGateway {
    pub(crate) gateway: Gateway,
    repo: Repo,
    client: Client,
}

impl TestGateway {
    /// Starts a gateway with the default configuration.
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts a gateway with a changed default configuration.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        Self::start_on(tempfile::tempdir().unwrap(), change).await
    }

    /// Starts a gateway on a storage engine of the test.
    pub(crate) async fn start_over(engine: impl BlockStore + 'static, change: impl FnOnce(&mut Config)) -> Self {
        Self::over(tempfile::tempdir().unwrap(), engine, change).await
    }

    /// Starts a gateway on a storage engine of the test, with an existing repo.
    pub(crate) async fn over(
        repo: TempDir,
        engine: impl BlockStore + 'static,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let mut config = Config::default();
        config.server.port = 0;
        config.grpc.port = Some(0);
        config.api.enabled = false;
        change(&mut config);
        let gateway = Gateway::bind_over(&config, repo.path(), Arc::new(engine)).await.unwrap();
        Self { gateway, repo: Repo::new(repo), client: client().build().unwrap() }
    }

    /// Starts a gateway on an existing repo.
    pub(crate) async fn start_on(repo: TempDir, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        config.server.port = 0;
        config.grpc.port = Some(0);
        config.api.enabled = false;
        change(&mut config);
        let gateway = Gateway::bind(&config, repo.path()).await.unwrap();
        Self { gateway, repo: Repo::new(repo), client: client().build().unwrap() }
    }

    /// Stops the gateway and waits for its end. Returns the repo.
    pub(crate) async fn stop(self) -> TempDir {
        let (repo, outcome) = self.end().await;
        outcome.unwrap();
        repo
    }

    /// Stops the gateway and waits for its end. Returns the repo and the result.
    pub(crate) async fn end(mut self) -> (TempDir, ipfrs_core::Result<()>) {
        self.gateway.shutdown();
        let outcome = self.gateway.join().await;
        (self.repo.into_directory(), outcome)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.addresses()[0]
    }

    pub(crate) fn port(&self) -> u16 {
        self.address().port()
    }

    /// Returns a gRPC channel that connects on first use.
    pub(crate) fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.grpc_address())).unwrap().connect_lazy()
    }

    pub(crate) fn grpc_address(&self) -> SocketAddr {
        self.gateway.grpc_addresses()[0]
    }

    /// Requests shutdown without waiting for it.
    pub(crate) fn shutdown(&self) {
        self.gateway.shutdown();
    }

    pub(crate) fn repo(&self) -> &TempDir {
        &self.repo
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// Builds a request. The client does not follow redirects.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.url(path))
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    /// Returns the body of a successful GET.
    pub(crate) async fn content(&self, path: &str) -> Bytes {
        let response = self.get(path).await;
        assert_eq!(response.status(), 200, "GET {path}");
        response.bytes().await.unwrap()
    }

    /// Builds a request for an RPC command with its arguments: `cat?arg=...`.
    pub(crate) fn rpc(&self, command: &str) -> RequestBuilder {
        self.request(Method::POST, &format!("/api/v0/{command}"))
    }

    /// Returns the JSON response of a successful command.
    pub(crate) async fn rpc_json(&self, command: &str) -> Value {
        let response = self.rpc(command).send().await.unwrap();
        assert_eq!(response.status(), 200, "{command}");
        response.json().await.unwrap()
    }

    /// Returns the response body of a successful command.
    pub(crate) async fn rpc_bytes(&self, command: &str) -> Bytes {
        let response = self.rpc(command).send().await.unwrap();
        assert_eq!(response.status(), 200, "{command}");
        response.bytes().await.unwrap()
    }

    /// Adds one file and returns its content ID. `options` is the query of `add`.
    pub(crate) async fn add(&self, options: &str, content: impl Into<Bytes>) -> String {
        let request = self.rpc(&format!("add?{options}")).header("content-type", "application/octet-stream");
        let lines = ndjson(request.body(content.into()).send().await.unwrap()).await;
        hash_of(lines.last().unwrap())
    }

    /// Adds the entries of a form and returns the lines of the response.
    pub(crate) async fn add_form(&self, options: &str, form: Form) -> Vec<Value> {
        ndjson(self.post_form(&format!("add?{options}"), form).await).await
    }

    /// Adds files with their paths and returns the content ID of the root, which the last line contains.
    pub(crate) async fn add_tree(&self, options: &str, files: &[(&str, &str)]) -> String {
        let form = files.iter().fold(Form::new(), |form, (path, content)| form.file(path, content));
        hash_of(self.add_form(options, form).await.last().unwrap())
    }

    /// Posts a form to a command.
    pub(crate) async fn post_form(&self, command: &str, form: Form) -> Response {
        self.rpc(command).header("content-type", form.content_type()).body(form.end()).send().await.unwrap()
    }

    /// Stores a block and returns its content ID. `options` is the query of `block/put`.
    pub(crate) async fn put_block(&self, options: &str, data: impl Into<Bytes>) -> String {
        let form = Form::new().file("block", data.into());
        let answer = ndjson(self.post_form(&format!("block/put?{options}"), form).await).await;
        answer[0]["Key"].as_str().unwrap().to_owned()
    }

    /// Returns the value of a counter or gauge. `name` includes the labels, as in `/metrics`.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        self.find_metric(name).await.unwrap_or_else(|| panic!("no metric {name}"))
    }

    async fn find_metric(&self, name: &str) -> Option<u64> {
        let text = String::from_utf8(self.content("/metrics").await.to_vec()).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map(|value| value.parse().unwrap())
    }

    /// Waits until the value of a counter or gauge fits. A missing metric has the value 0, because labels appear with
    /// the first count. Panics after two minutes.
    pub(crate) async fn until_metric(&self, name: &str, fits: impl Fn(u64) -> bool) {
        let mut last = 0;
        let fitting = async {
            loop {
                last = self.find_metric(name).await.unwrap_or(0);
                if fits(last) {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        let outcome = tokio::time::timeout(Duration::from_secs(120), fitting).await;
        outcome.unwrap_or_else(|_| panic!("{name} stays at {last}"));
    }

    /// Waits until a counter or gauge has a value. Some change shortly after the client has the whole response.
    pub(crate) async fn assert_metric(&self, name: &str, value: u64) {
        self.until_metric(name, |found| found == value).await;
    }

    /// Waits until no request holds a permit. A client can have a whole response before its request ends.
    pub(crate) async fn until_idle(&self) {
        self.assert_metric("ipfrs_http_requests_active", 0).await;
    }

    /// Returns the number of blocks in the store.
    pub(crate) async fn blocks(&self) -> u64 {
        let health: Value = self.get("/health").await.json().await.unwrap();
        health["blocks"].as_u64().unwrap()
    }

    /// Posts JSON to a route of the native API with the content type of a form, as `curl -d` does.
    pub(crate) async fn v1(&self, route: &str, body: &Value) -> Response {
        let request = self.request(Method::POST, &format!("/v1/{route}"));
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        request.body(body.to_string()).send().await.unwrap()
    }

    /// Returns the JSON response of a successful request to a route of the native API.
    pub(crate) async fn v1_json(&self, route: &str, body: &Value) -> Value {
        let response = self.v1(route, body).await;
        assert_eq!(response.status(), 200, "{route}");
        response.json().await.unwrap()
    }
}

/// Returns a builder of clients that do not follow redirects and use no proxy.
pub(crate) fn client() -> reqwest::ClientBuilder {
    Client::builder().redirect(Policy::none()).no_proxy()
}

/// Returns the lines of a successful response.
pub(crate) async fn ndjson(response: Response) -> Vec<Value> {
    let status = response.status();
    let text = response.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn hash_of(line: &Value) -> String {
    line["Hash"].as_str().unwrap_or_else(|| panic!("no Hash in {line}")).to_owned()
}

/// Returns a header as text, or an empty string if it is missing.
pub(crate) fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
}

/// Checks that a command was refused before it ran, and returns the message.
pub(crate) async fn rpc_refusal(response: Response) -> String {
    let status = response.status();
    let text = response.text().await.unwrap();
    assert_eq!(status, 400, "{text}");
    let error: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&error["Code"], &error["Kind"]), (&Value::from(1), &Value::from("unsupported")), "{error}");
    error["Message"].as_str().unwrap().to_owned()
}

/// Checks that a response is a failed command in Kubo's format, and returns the message.
pub(crate) async fn rpc_failure(response: Response) -> String {
    let status = response.status();
    let text = response.text().await.unwrap();
    assert_eq!(status, 500, "{text}");
    let error: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&error["Type"], &error["Code"]), (&Value::from("error"), &Value::from(0)), "{error}");
    error["Message"].as_str().unwrap().to_owned()
}
