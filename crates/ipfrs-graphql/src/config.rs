//! The `[graphql]` section.

use std::time::Duration;

use ipfrs_core::{Error, Result};
use serde::Deserialize;

/// `[graphql]`: limits of GraphQL requests.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GraphQlConfig {
    /// Whether GraphQL is served.
    pub enabled: bool,
    /// Whether clients may query the schema.
    pub introspection: bool,
    /// Maximum depth of fields within fields.
    pub max_depth: usize,
    /// Maximum cost of an operation: each field costs 1, within a page as often as the page has entries; reading the
    /// data of a block costs 10, computing the statistics of a tensor 1,000.
    pub max_complexity: usize,
    /// Maximum number of entries on a page.
    pub max_page_size: usize,
    /// Maximum length of a document, in bytes.
    pub max_query_bytes: usize,
    /// Maximum length of a response, as JSON, in bytes.
    pub max_response_bytes: usize,
    /// Seconds that a query or mutation may take, in addition to the time that the upload of its files takes.
    pub timeout_seconds: u64,
    /// Maximum number of operations that a WebSocket connection may have at the same time.
    pub max_operations_per_connection: usize,
}

impl Default for GraphQlConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            introspection: true,
            max_depth: 20,
            max_complexity: 20_000,
            max_page_size: 1_000,
            max_query_bytes: 65_536,
            max_response_bytes: 33_554_432,
            timeout_seconds: 30,
            max_operations_per_connection: 100,
        }
    }
}

impl GraphQlConfig {
    /// Checks the values that the types do not restrict.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        let most = 1_000_000;
        for (key, given, least, most) in [
            // The library's recursion is as deep as the document.
            ("max_depth", self.max_depth as u64, 1, 30),
            ("max_complexity", self.max_complexity as u64, 1, 100 * most),
            ("max_page_size", self.max_page_size as u64, 1, 10_000),
            ("max_query_bytes", self.max_query_bytes as u64, 256, most),
            ("max_response_bytes", self.max_response_bytes as u64, 1_024, 1 << 30),
            ("timeout_seconds", self.timeout_seconds, 1, 3_600),
            ("max_operations_per_connection", self.max_operations_per_connection as u64, 1, 10_000),
        ] {
            if !(least..=most).contains(&given) {
                return Err(Error::invalid(format!("graphql.{key} = {given}: accepted values are {least} to {most}")));
            }
        }
        Ok(())
    }

    /// Returns `timeout_seconds`.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }
}
