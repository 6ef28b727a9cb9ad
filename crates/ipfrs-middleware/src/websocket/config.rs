//! The `[websocket]` section.

use std::time::Duration;

use ipfrs_core::{Error, Result};
use serde::Deserialize;

/// `[websocket]`: limits of WebSocket connections.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebSocketConfig {
    /// Maximum number of WebSocket connections.
    pub max_connections: usize,
    /// Maximum number of WebSocket connections of one client; 0 for its share of all and no other limit.
    pub max_connections_per_client: usize,
    /// Maximum length of a message of a client, in bytes.
    pub max_message_bytes: usize,
    /// Seconds of silence after which a client gets a ping. If it is silent for as long again, its connection ends.
    pub heartbeat_seconds: u64,
    /// Seconds that a client may read nothing while something is sent.
    pub send_timeout_seconds: u64,
}

impl Default for WebSocketConfig {
    fn default() -> Self {
        Self {
            max_connections: 16_384,
            max_connections_per_client: 0,
            max_message_bytes: 65_536,
            heartbeat_seconds: 30,
            send_timeout_seconds: 30,
        }
    }
}

impl WebSocketConfig {
    /// Checks the values that the types do not restrict.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        for (key, given, least, most) in [
            ("max_connections", self.max_connections as u64, 1, 1_000_000),
            ("max_connections_per_client", self.max_connections_per_client as u64, 0, 1_000_000),
            ("max_message_bytes", self.max_message_bytes as u64, 1_024, 16_777_216),
            ("heartbeat_seconds", self.heartbeat_seconds, 1, 3_600),
            ("send_timeout_seconds", self.send_timeout_seconds, 1, 3_600),
        ] {
            if !(least..=most).contains(&given) {
                return Err(Error::invalid(format!(
                    "websocket.{key} = {given}: accepted values are {least} to {most}"
                )));
            }
        }
        Ok(())
    }

    /// Returns `heartbeat_seconds`.
    pub(crate) fn heartbeat(&self) -> Duration {
        Duration::from_secs(self.heartbeat_seconds)
    }

    /// Returns `send_timeout_seconds`.
    pub(crate) fn send_timeout(&self) -> Duration {
        Duration::from_secs(self.send_timeout_seconds)
    }
}
