//! Rules about callers and clients, which all front-ends share.

use ipfrs_core::Result;
use ipfrs_node::Node;
use prometheus::Registry;

use crate::auth::{Auth, AuthConfig};
use crate::rate_limit::{RateLimitConfig, RateLimiter};

/// Rules about callers and clients. Clones share their state.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Rights of callers.
    pub auth: Auth,
    /// Rate limits of callers and clients.
    pub rate_limits: RateLimiter,
}

impl Rules {
    /// Creates the rules of a daemon.
    ///
    /// # Errors
    /// As [`Auth::of_daemon`] and [`RateLimiter::register`].
    pub async fn of_daemon(
        node: &Node,
        auth: &AuthConfig,
        rate_limit: &RateLimitConfig,
        registry: &Registry,
    ) -> Result<Self> {
        let rate_limits = RateLimiter::register(rate_limit, registry)?;
        Ok(Self { auth: Auth::of_daemon(node, auth, registry).await?, rate_limits })
    }

    /// Returns the rules for requests of this process itself: there are none.
    #[must_use]
    pub fn none(node: &Node) -> Self {
        Self { auth: Auth::in_process(node), rate_limits: RateLimiter::off() }
    }
}
