//! Calls to a daemon, or to a repo that this process has opened. Commands do not need to know which of the two is
//! used.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use anyhow::Result;
use axum::http::{Method, StatusCode};
use ipfrs_core::{Error, ErrorKind, uri_as_path};
use ipfrs_interface::Embedded;
use ipfrs_rpc::client::{Client, ClientOptions, Request, Response};
use ipfrs_rpc::types::{RepoStat, ResolvedPath, Version};
use serde::Deserialize;

use crate::uri::gateway_path;

const USER_AGENT: &str = concat!("ipfrs-cli/", env!("CARGO_PKG_VERSION"));

/// Maximum size of the target of a symlink, in bytes.
const MAX_LINK_TARGET_BYTES: usize = 1024 * 1024;

/// Access to the APIs of a daemon, or of a repo that this process has opened.
#[derive(Debug)]
pub(crate) struct Api {
    client: Client,
    local: Option<Embedded>,
}

/// The fields of `/health` that this program uses.
#[derive(Debug, Deserialize)]
struct Health {
    grpc: Option<Vec<String>>,
    api: Option<Vec<String>>,
    #[serde(default)]
    problems: Vec<String>,
}

/// Addresses of the listeners besides the main one, as host and port. A list is empty if the listener is off, or if the
/// daemon's version does not report it.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) grpc: Vec<String>,
    pub(crate) api: Vec<String>,
}

/// Type of the content at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
}

impl Api {
    /// Creates a client of the daemon at a URL such as `http://127.0.0.1:8080`. Each request carries `token`. Sends no
    /// request yet.
    pub(crate) fn remote(url: &str, token: Option<&str>) -> Result<Self> {
        let client = Client::remote(url, &ClientOptions { user_agent: USER_AGENT, token, timeout: None })?;
        Ok(Self { client, local: None })
    }

    /// Creates a client of the repo that this process has opened.
    pub(crate) fn local(local: Embedded) -> Self {
        Self { client: Client::in_process(local.router()), local: Some(local) }
    }

    /// Whether this process has opened the repo.
    pub(crate) fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// Returns the URL of the daemon, without user and password.
    pub(crate) fn url(&self) -> &str {
        self.client.url()
    }

    /// Closes the local repo, if there is one.
    pub(crate) async fn close(self) -> Result<()> {
        match self.local {
            Some(local) => Ok(local.close().await?),
            None => Ok(()),
        }
    }

    /// Sends a request. Returns the error that the response reports, if it reports one.
    pub(crate) async fn call(&self, request: Request) -> Result<Response> {
        Ok(self.client.send(request.with_trailers()).await.map_err(|error| match error.kind() {
            kind @ ErrorKind::Unauthenticated => {
                Error::new(kind, format!("{error}\nGive the token with --token-file FILE, or in IPFRS_TOKEN"))
            }
            _ => error,
        })?)
    }

    /// Returns the version of the daemon.
    pub(crate) async fn version(&self) -> Result<String> {
        let version: Version = self.call(Request::query("version")).await?.json().await?;
        Ok(version.ipfrs.unwrap_or(version.version))
    }

    /// Returns statistics of the repo that serves the requests.
    pub(crate) async fn repo_stat(&self) -> Result<RepoStat> {
        Ok(self.call(Request::query("repo/stat")).await?.json().await?)
    }

    /// Whether the server is ready for requests.
    pub(crate) async fn is_ready(&self) -> Result<bool> {
        Ok(self.client.send_for_any(Request::get("/health/ready")).await?.status() == StatusCode::OK)
    }

    /// Returns the problems of the repo that a daemon reports.
    pub(crate) async fn problems(&self) -> Result<Vec<String>> {
        let health: Health = self.client.send_for_any(Request::get("/health")).await?.json().await?;
        Ok(health.problems)
    }

    /// Returns the addresses of the listeners besides the main one.
    pub(crate) async fn listeners(&self) -> Result<Listeners> {
        // A daemon that is not ready reports its health with another status.
        let health: Health = self.client.send_for_any(Request::get("/health")).await?.json().await?;
        Ok(Listeners { grpc: health.grpc.unwrap_or_default(), api: health.api.unwrap_or_default() })
    }

    /// Returns `path`, resolved if it begins with an IPNS name, because the name may resolve elsewhere later.
    pub(crate) async fn settled(&self, path: &OsStr) -> Result<OsString> {
        if !uri_as_path(path.as_bytes()).starts_with(b"/ipns/") {
            return Ok(path.to_owned());
        }
        // After the content ID, only keys within a block can remain. They are text, so a `String` can hold the path.
        let resolved: ResolvedPath = self.call(Request::query("resolve").with_arg(path)).await?.json().await?;
        Ok(resolved.path.into())
    }

    /// Returns the type of the content at `path`, from the response headers of the gateway. The gateway redirects
    /// directories to the path with a slash. All other responses count as files: requesting the content of the file
    /// then gives a readable error.
    pub(crate) async fn kind(&self, path: &OsStr) -> Result<Kind> {
        let request = Request::new(Method::HEAD, gateway_path(path)?).repeatable();
        let response = self.client.send_for_any(request).await?;
        Ok(match response.status() {
            status if status.is_redirection() && !response.header("location").is_empty() => Kind::Directory,
            StatusCode::OK if response.header("content-type") == "inode/symlink" => Kind::Symlink,
            _ => Kind::File,
        })
    }

    /// Returns the target of a symlink.
    pub(crate) async fn link_target(&self, path: &OsStr) -> Result<Vec<u8>> {
        let response = self.client.send(Request::get(gateway_path(path)?)).await?;
        Ok(response.bytes(MAX_LINK_TARGET_BYTES).await?)
    }
}
