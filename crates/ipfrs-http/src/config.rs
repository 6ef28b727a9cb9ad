//! The `[gateway]` section, and all configuration sections of this crate.

mod api;
mod hosts;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ipfrs_core::{Error, Result};
pub use ipfrs_middleware::Network;
use ipfrs_middleware::websocket::WebSocketConfig;
use serde::Deserialize;

use crate::CompressionConfig;
pub(crate) use api::ANY_ORIGIN;
pub use api::ApiConfig;
pub(crate) use hosts::MAX_LABEL_BYTES;
pub use hosts::{HostConfig, Namespace};

/// Configuration sections of the front-end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpConfig {
    /// `[gateway]`.
    pub gateway: GatewayConfig,
    /// `[api]`.
    pub api: ApiConfig,
    /// `[compression]`.
    pub compression: CompressionConfig,
    /// `[websocket]`.
    pub websocket: WebSocketConfig,
    /// `server.hosts`: public names that are served besides the configured ones; empty for all names.
    pub hosts: Vec<String>,
}

impl HttpConfig {
    /// Checks the ranges of every section.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        self.gateway.validate()?;
        self.api.validate()?;
        self.compression.validate()?;
        self.websocket.validate()
    }
}

/// `[gateway]`: limits of requests and responses, hosts and proxies.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayConfig {
    /// Maximum number of ranges in one request. A request with more gets the whole file, as RFC 9110 (14.2) allows.
    pub max_ranges: usize,
    /// Seconds that an upload, or the reader of a long command's output, may pause before it is aborted.
    pub upload_idle_seconds: u64,
    /// Seconds that a request waits for its next block. The Node enforces it.
    pub retrieval_timeout_seconds: u64,
    /// Seconds from a request's head, or the last piece of its body, to the last byte of its response. The connection
    /// enforces it.
    pub max_request_seconds: u64,
    /// Maximum number of requests in progress on all routes.
    pub max_concurrent_requests: usize,
    /// Maximum number of requests of one client in progress; 0 for its share of the total and no other limit.
    pub max_requests_per_client: usize,
    /// Whether files and directories are served, unless the settings of a host say otherwise. If false, only data that
    /// clients can verify is served: blocks, CARs and IPNS records.
    pub deserialized: bool,
    /// Maximum size in bytes of content served as a file or an archive; 0 for no limit.
    pub max_deserialized_bytes: u64,
    /// Maximum size in bytes of a file that ranges are served of; 0 for no limit.
    pub max_range_request_bytes: u64,
    /// Path to which `/` leads in place of the welcome page, on the gateway and on hosts that are no website.
    pub root_redirect: Option<String>,
    /// Denylists of content that is not served: files in the compact denylist format, and directories of them. The
    /// Node reads them.
    pub denylists: Vec<PathBuf>,
    /// Content paths by domain, used in place of DNS. The Node reads them.
    pub dnslink: BTreeMap<String, String>,
    /// Settings by host name. A `*` stands for any one label.
    pub hosts: BTreeMap<String, HostConfig>,
    /// Proxies that are trusted to report the client and its request in `X-Forwarded-For`, `X-Forwarded-Host` and
    /// `X-Forwarded-Proto`.
    pub trusted_proxies: Vec<Network>,
    /// Whether clients may use the gateway as their forward proxy, with tunnels (CONNECT) and with targets whose host
    /// differs from `Host`.
    pub proxy: bool,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            max_ranges: 32,
            upload_idle_seconds: 60,
            retrieval_timeout_seconds: 30,
            max_request_seconds: 3_600,
            max_concurrent_requests: 4_096,
            max_requests_per_client: 0,
            deserialized: true,
            max_deserialized_bytes: 0,
            max_range_request_bytes: 0,
            root_redirect: None,
            denylists: Vec::new(),
            dnslink: BTreeMap::new(),
            hosts: BTreeMap::new(),
            trusted_proxies: Vec::new(),
            proxy: false,
        }
    }
}

impl GatewayConfig {
    /// Returns how long a client may pause.
    pub(crate) fn idle_patience(&self) -> Duration {
        Duration::from_secs(self.upload_idle_seconds)
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        if !(1..=1_000).contains(&self.max_ranges) {
            return Err(Error::invalid(format!(
                "gateway.max_ranges = {}: accepted values are 1 to 1000",
                self.max_ranges
            )));
        }
        if !(1..=86_400).contains(&self.upload_idle_seconds) {
            let given = self.upload_idle_seconds;
            return Err(Error::invalid(format!(
                "gateway.upload_idle_seconds = {given}: accepted values are 1 to 86400"
            )));
        }
        for (key, given, most) in [
            ("retrieval_timeout_seconds", self.retrieval_timeout_seconds, 86_400),
            ("max_request_seconds", self.max_request_seconds, 31_536_000),
            ("max_concurrent_requests", self.max_concurrent_requests as u64, 1_000_000),
        ] {
            if !(1..=most).contains(&given) {
                return Err(Error::invalid(format!("gateway.{key} = {given}: accepted values are 1 to {most}")));
            }
        }
        if self.max_requests_per_client > 1_000_000 {
            let given = self.max_requests_per_client;
            return Err(Error::invalid(format!(
                "gateway.max_requests_per_client = {given}: accepted values are 0 to 1000000"
            )));
        }
        if let Some(path) = self.root_redirect.as_ref().filter(|path| !is_path(path)) {
            let accepted = "a path of other content or pages, such as /ipns/example.org, in ASCII and percent-encoded";
            return Err(Error::invalid(format!("gateway.root_redirect = {path:?}: it must be {accepted}")));
        }
        hosts::validate(&self.hosts)
    }
}

/// Whether a text is a path on the same host, other than `/`, as it may be in `Location`.
fn is_path(text: &str) -> bool {
    let is_other = |rest: &str| !rest.is_empty() && !rest.starts_with(['/', '?', '#']);
    text.strip_prefix('/').is_some_and(is_other) && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}
