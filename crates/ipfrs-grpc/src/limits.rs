//! Limits and settings of the front-end.

use std::time::Duration;

use ipfrs_middleware::{Rules, TrustedProxies};

/// Limits and settings that this front-end shares with HTTP.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Maximum number of concurrent calls, in total and of one client; 0 means its share of the total.
    pub calls: (usize, usize),
    /// Rules about callers and clients.
    pub rules: Rules,
    /// Proxies whose client addresses are trusted.
    pub proxies: TrustedProxies,
    /// How long a client may pause in a stream that holds resources.
    pub upload_idle: Duration,
    /// Whether responses are compressed for clients that request it.
    pub compression: bool,
}
