//! The `[api]` section.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::{HeaderName, HeaderValue};
use ipfrs_core::{Error, Result};
use serde::Deserialize;

use crate::gateway::hosts::Named;

/// Version of Kubo whose RPC is implemented.
const KUBO_VERSION: &str = "0.44.0";

/// Maximum length of a reported version, in bytes.
const MAX_VERSION_BYTES: usize = 64;

/// Headers about the connection and the body of a response.
const OWN_HEADERS: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "keep-alive",
    "location",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-request-id",
];

/// Stands for all origins.
pub(crate) const ANY_ORIGIN: &str = "*";

/// `[api]`: the Kubo RPC, and the API listener, which serves everything except content. `[server]` determines whether
/// it may use addresses other than loopback, and the limits of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApiConfig {
    /// Version that the command `version` reports: some clients refuse to work with versions that they do not know.
    /// If it is missing, the daemon reports the version of Kubo whose RPC it implements.
    pub version: Option<String>,
    /// Maximum number of arguments of one command that are read from a request body.
    pub max_arguments: usize,
    /// Whether there is an API listener.
    pub enabled: bool,
    /// Address or name that it listens on. A name is resolved, and each of its addresses is bound.
    pub host: String,
    /// TCP port; 0 lets the system choose one. The default is [`Self::DEFAULT_PORT`]. If another process uses the
    /// default port, the daemon starts without this listener.
    pub port: Option<u16>,
    /// Path of a Unix socket that has the API too, for programs of the user who runs the daemon.
    pub unix_socket: Option<PathBuf>,
    /// Names that the header `Host` may have, in addition to IP addresses and localhost.
    pub hosts: Vec<String>,
    /// Origins of other pages that may call the API, such as `https://console.example.org`; `*` for all.
    pub allowed_origins: Vec<String>,
    /// Headers of all responses of this listener that do not have them already, such as
    /// `Strict-Transport-Security`.
    pub http_headers: BTreeMap<String, String>,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            version: None,
            max_arguments: 65_536,
            enabled: true,
            host: "127.0.0.1".to_owned(),
            port: None,
            unix_socket: None,
            hosts: Vec::new(),
            allowed_origins: Vec::new(),
            http_headers: BTreeMap::new(),
        }
    }
}

impl ApiConfig {
    /// Default port, which clients of Kubo expect. Used if none is configured and it is free.
    pub const DEFAULT_PORT: u16 = 5_001;

    /// Returns the version to report to clients.
    pub(crate) fn reported_version(&self) -> String {
        self.version.clone().unwrap_or_else(|| KUBO_VERSION.to_owned())
    }

    /// Returns the name and versions that the node reports to clients and peers. Clients read the version of Kubo's RPC
    /// from the second part.
    #[must_use]
    pub fn agent_version(&self) -> String {
        format!("ipfrs/{}/{}", self.reported_version(), env!("CARGO_PKG_VERSION"))
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        if let Some(version) = self.version.as_ref().filter(|version| !is_semantic(version)) {
            let accepted = "a semantic version such as \"0.44.0\" or \"0.44.0+ipfrs.0.1.0\"";
            return Err(Error::invalid(format!("api.version = {version:?}: it must be {accepted}")));
        }
        if !(1..=1_000_000).contains(&self.max_arguments) {
            let given = self.max_arguments;
            return Err(Error::invalid(format!("api.max_arguments = {given}: accepted values are 1 to 1000000")));
        }
        if let Some(path) = self.unix_socket.as_ref().filter(|path| !path.is_absolute()) {
            let given = path.display();
            return Err(Error::invalid(format!("api.unix_socket = {given}: give an absolute path")));
        }
        if self.host.trim().is_empty() {
            return Err(Error::invalid("api.host = \"\": give an address such as \"127.0.0.1\", or a host name"));
        }
        if let Some(name) = self.hosts.iter().find(|name| !is_host_name(name)) {
            return Err(Error::invalid(format!(
                "api.hosts = {name:?}: give names without port, such as \"example.org\""
            )));
        }
        if let Some(origin) = self.allowed_origins.iter().find(|origin| !is_origin(origin)) {
            let accepted = "scheme, host and port as in \"https://example.org:8443\", or \"*\"";
            return Err(Error::invalid(format!("api.allowed_origins = {origin:?}: give {accepted}")));
        }
        self.headers().map(drop)
    }

    /// Returns the configured headers.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names a header that is malformed, or that the daemon sets.
    pub(crate) fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>> {
        let read = |(name, value): (&String, &String)| {
            let invalid = |why: &str| Error::invalid(format!("api.http_headers = {name:?} to {value:?}: {why}"));
            let header: HeaderName = name.parse().map_err(|_| invalid("it is not the name of a header"))?;
            let value = value.parse().map_err(|_| invalid("a value has visible ASCII characters and spaces"))?;
            match header.as_str() {
                lower if lower.starts_with("access-control-") => {
                    Err(invalid("the daemon sets it for the pages in api.allowed_origins"))
                }
                lower if OWN_HEADERS.contains(&lower) => Err(invalid("the daemon sets it itself")),
                _ => Ok((header, value)),
            }
        };
        self.http_headers.iter().map(read).collect()
    }
}

fn is_host_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(':') && Named::parse(name).is_ok()
}

/// Whether a text is the origin of web pages as browsers send it, or [`ANY_ORIGIN`].
fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return text == ANY_ORIGIN };
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_scheme && !authority.is_empty() && Named::parse(authority).is_ok()
}

/// Whether clients can parse a version according to <https://semver.org>; they refuse others.
fn is_semantic(version: &str) -> bool {
    let (rest, build) = version.split_once('+').unwrap_or((version, "0"));
    let (core, pre) = rest.split_once('-').unwrap_or((rest, "0"));
    let is_identifier =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let has_leading_zero =
        |text: &str| text.len() > 1 && text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = |text: &str| text.parse::<u32>().is_ok() && !text.starts_with('+') && !has_leading_zero(text);
    version.len() <= MAX_VERSION_BYTES
        && core.split('.').count() == 3
        && core.split('.').all(is_number)
        && pre.split('.').all(|text| is_identifier(text) && !has_leading_zero(text))
        && build.split('.').all(is_identifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_those_of_browsers() {
        for good in ["*", "http://localhost:3000", "https://example.org", "http://[::1]:80", "chrome-extension://abc"] {
            assert!(is_origin(good), "{good}");
        }
        for bad in ["", "example.org", "https://", "https://example.org/", "https://a/b", "://a", "https://*.a.org"] {
            assert!(!is_origin(bad), "{bad}");
        }
    }

    #[test]
    fn headers_are_those_that_the_daemon_does_not_set() {
        let headers = |name: &str, value: &str| {
            let http_headers = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            ApiConfig { http_headers, ..ApiConfig::default() }.validate()
        };
        headers("Strict-Transport-Security", "max-age=63072000").unwrap();
        for (name, value, named) in [
            ("a b", "x", "name of a header"),
            ("X-A", "line\nbreak", "visible ASCII"),
            ("Content-Length", "0", "sets it itself"),
            ("Access-Control-Allow-Origin", "*", "api.allowed_origins"),
        ] {
            let error = headers(name, value).unwrap_err();
            assert!(error.message().contains(named) && error.message().contains(name), "{error}");
        }
    }

    #[test]
    fn versions_are_semantic_ones() {
        for good in ["0.44.0", "0.44.0+ipfrs.0.1.0", "1.2.3-rc.1", "0.9.0-dev+01", "10.20.30-a-b+c-d"] {
            assert!(is_semantic(good), "{good}");
        }
        let long = format!("0.44.0+{}", "x".repeat(58));
        for bad in
            ["", "0.44", "v0.44.0", "0.44.0.0", "0.044.0", "0.44.0-", "0.44.0+", "0.44.0-01", "0.+4.0", "a", &long]
        {
            assert!(!is_semantic(bad), "{bad}");
        }
        assert!(is_semantic(&ApiConfig::default().reported_version()));
    }
}
