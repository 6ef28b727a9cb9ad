//! Requests to the Kubo RPC API and the native API, over HTTP or to a router in this process. Commands do not need to
//! know which of the two is used.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result, anyhow, bail};
use axum::Router;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HOST, LOCATION, TE};
use axum::http::{Method, Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ipfrs_interface::Local;
use serde::Deserialize;
use tower::ServiceExt;

use crate::answer::{Answer, message_of};
use crate::multipart::Upload;
use crate::uri::{escape, gateway_path};

/// Maximum length of a URL, in bytes. The URL is the only part of an HTTP request with a hard limit: 65,534 bytes,
/// for servers as well as clients.
const MAX_URL_BYTES: usize = 64_000;

/// Access to the APIs of a daemon, or of a repo that this process has opened.
#[derive(Debug)]
pub(crate) struct Api {
    transport: Transport,
}

#[derive(Debug)]
enum Transport {
    Remote { client: Box<Client<HttpConnector, Body>>, base: String },
    InProcess { local: Local, router: Router },
}

/// Options and arguments of a command, in the order given.
#[derive(Debug, Default)]
pub(crate) struct Query(String);

impl Query {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn with(self, name: &str, value: impl ToString) -> Self {
        self.with_bytes(name, value.to_string().as_bytes())
    }

    fn with_bytes(mut self, name: &str, value: &[u8]) -> Self {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(name);
        self.0.push('=');
        self.0.push_str(&escape(value));
        self
    }

    pub(crate) fn with_some(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Appends arguments, which need not be UTF-8.
    pub(crate) fn with_args(self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        arguments.into_iter().fold(self, |query, argument| query.with_bytes("arg", argument.as_ref().as_bytes()))
    }
}

/// The fields of `version` that this program uses.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Version {
    version: String,
    /// Version of ipfrs, which may differ from `version`. Absent if another implementation serves the API.
    ipfrs: Option<String>,
}

/// The fields of `repo/stat` that this program uses.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct RepoStat {
    pub(crate) repo_size: u64,
    pub(crate) num_objects: u64,
    pub(crate) repo_path: String,
}

/// The fields of `/health` that this program uses.
#[derive(Debug, Deserialize)]
struct Health {
    grpc: Option<Vec<String>>,
}

/// The fields of `resolve` that this program uses.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ResolvedPath {
    path: String,
}

/// Type of the content at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
}

impl Api {
    /// Creates a client of the daemon at a URL such as `http://127.0.0.1:8080`. Sends no request yet.
    pub(crate) fn remote(url: &str) -> Result<Self> {
        let base = url.trim_end_matches('/').to_owned();
        let uri: Uri = base.parse().map_err(|e| anyhow!("the URL {url:?} of the daemon cannot be read: {e}"))?;
        if uri.scheme_str() != Some("http") || uri.host().is_none() {
            bail!("the URL {url:?} of the daemon must have the form http://HOST:PORT");
        }
        let client = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
        Ok(Self { transport: Transport::Remote { client: Box::new(client), base } })
    }

    /// Creates a client of the repo that this process has opened.
    pub(crate) fn local(local: Local) -> Self {
        let router = local.router();
        Self { transport: Transport::InProcess { local, router } }
    }

    /// Returns the URL of the daemon, or an empty string for a local repo.
    pub(crate) fn url(&self) -> &str {
        match &self.transport {
            Transport::Remote { base, .. } => base,
            Transport::InProcess { .. } => "",
        }
    }

    /// Closes the local repo, if there is one.
    pub(crate) async fn close(self) -> Result<()> {
        match self.transport {
            Transport::Remote { .. } => Ok(()),
            Transport::InProcess { local, .. } => Ok(local.close().await?),
        }
    }

    /// Calls a command of the RPC API. If the response reports a failure, returns an error with the server's message.
    pub(crate) async fn call(&self, command: &str, query: Query, upload: Option<&mut Upload>) -> Result<Answer> {
        let mut request = Request::builder().method(Method::POST).header(TE, "trailers");
        let mut body = Body::empty();
        if let Some(upload) = upload {
            request = request.header(CONTENT_TYPE, upload.content_type());
            body = upload.take_body();
        }
        let response = self.send(request, &format!("/api/v0/{command}{}", query.0), body).await?;
        if response.status() == StatusCode::OK {
            return Ok(Answer::new(response));
        }
        bail!("{}", message_of(response).await)
    }

    /// Requests a path of the native API. If the response reports a failure, returns an error with the server's
    /// message.
    pub(crate) async fn get(&self, path: &str, query: Query) -> Result<Response<Body>> {
        let response = self.send(Request::builder(), &format!("{path}{}", query.0), Body::empty()).await?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        bail!("{}", message_of(response).await)
    }

    /// Returns the version of the daemon.
    pub(crate) async fn version(&self) -> Result<String> {
        let version: Version = self.call("version", Query::new(), None).await?.whole().await?;
        Ok(version.ipfrs.unwrap_or(version.version))
    }

    /// Returns statistics of the repo that serves the requests.
    pub(crate) async fn repo_stat(&self) -> Result<RepoStat> {
        self.call("repo/stat", Query::new(), None).await?.whole().await
    }

    /// Whether the server is ready for requests.
    pub(crate) async fn is_ready(&self) -> Result<bool> {
        let response = self.send(Request::builder(), "/health/ready", Body::empty()).await?;
        Ok(response.status() == StatusCode::OK)
    }

    /// Returns the host and port of each gRPC address. The list is empty if gRPC is off, or if the daemon's version
    /// does not report addresses.
    pub(crate) async fn grpc_addresses(&self) -> Result<Vec<String>> {
        let health: Health =
            Answer::new(self.send(Request::builder(), "/health", Body::empty()).await?).whole().await?;
        Ok(health.grpc.unwrap_or_default())
    }

    /// Returns `path`, resolved if it begins with an IPNS name, because the name may resolve elsewhere later.
    pub(crate) async fn settled(&self, path: &OsStr) -> Result<OsString> {
        if ![&b"/ipns/"[..], b"ipns://"].iter().any(|prefix| path.as_bytes().starts_with(prefix)) {
            return Ok(path.to_owned());
        }
        // After the content ID, only keys within a block can remain. They are text, so a `String` can hold the path.
        let resolved: ResolvedPath = self.call("resolve", Query::new().with_args([path]), None).await?.whole().await?;
        Ok(resolved.path.into())
    }

    /// Returns the type of the content at `path`, from the response headers of the gateway. The gateway redirects
    /// directories to the path with a slash. All other responses count as files: requesting the content of the file
    /// then gives a readable error.
    pub(crate) async fn kind(&self, path: &OsStr) -> Result<Kind> {
        let response = self.send(Request::builder().method(Method::HEAD), &gateway_path(path), Body::empty()).await?;
        let content_type = response.headers().get(CONTENT_TYPE).map(|value| value.as_bytes());
        Ok(match response.status() {
            status if status.is_redirection() && response.headers().contains_key(LOCATION) => Kind::Directory,
            StatusCode::OK if content_type == Some(b"inode/symlink") => Kind::Symlink,
            _ => Kind::File,
        })
    }

    /// Returns the target of a symlink.
    pub(crate) async fn link_target(&self, path: &OsStr) -> Result<Vec<u8>> {
        let response = self.send(Request::builder(), &gateway_path(path), Body::empty()).await?;
        if response.status() != StatusCode::OK {
            bail!("{}", message_of(response).await);
        }
        Answer::new(response).bytes().await
    }

    async fn send(&self, request: axum::http::request::Builder, path: &str, body: Body) -> Result<Response<Body>> {
        if path.len() > MAX_URL_BYTES {
            bail!(
                "the arguments are over the limit of {MAX_URL_BYTES} bytes for one request: pass fewer of them at a time"
            );
        }
        match &self.transport {
            Transport::Remote { client, base } => {
                let request = request.uri(format!("{base}{path}")).body(body)?;
                let response = client.request(request).await.map_err(|e| unreachable(base, &e))?;
                Ok(response.map(Body::new))
            }
            Transport::InProcess { router, .. } => {
                let request = request.uri(path).header(HOST, "localhost").body(body)?;
                router.clone().oneshot(request).await.context("the request failed")
            }
        }
    }
}

fn unreachable(base: &str, error: &hyper_util::client::legacy::Error) -> anyhow::Error {
    if error.is_connect() {
        return anyhow!("no daemon responds at {base}: is it running, and is the URL right?");
    }
    let causes = std::iter::successors(std::error::Error::source(error), |error| error.source());
    let cause = causes.last().map_or_else(|| error.to_string(), ToString::to_string);
    anyhow!("the connection to {base} was lost: {cause}")
}
