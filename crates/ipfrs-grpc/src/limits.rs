//! Limits and settings of the front-end.

use std::time::Duration;

use ipfrs_middleware::TrustedProxies;
use ipfrs_middleware::auth::Auth;
use ipfrs_middleware::rate_limit::RateLimiter;

/// Limits and settings that this front-end shares with HTTP.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Maximum number of concurrent calls, in total and of one client; 0 means its share of the total.
    pub calls: (usize, usize),
    /// Decides who may do what.
    pub auth: Auth,
    /// Rate limits of clients and callers.
    pub rate_limits: RateLimiter,
    /// Proxies whose client addresses are trusted.
    pub proxies: TrustedProxies,
    /// How long a client may pause in a stream that holds resources.
    pub upload_idle: Duration,
    /// Whether responses are compressed for clients that request it.
    pub compression: bool,
}
