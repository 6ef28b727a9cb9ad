//! Metrics of authentication.

use ipfrs_core::Result;
use prometheus::{IntCounterVec, IntGauge, Opts, Registry};

use crate::metrics::registered;

/// How a caller authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Key,
    Jwt,
    Session,
    Certificate,
    Rpc,
    Unknown,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Accepted,
    /// The header is malformed.
    Malformed,
    /// The key, session or issuer is unknown, or the signature is wrong.
    Unknown,
    Expired,
    /// Too many attempts failed before.
    Limited,
    /// The keys of the issuer are not available.
    Unavailable,
}

/// The metric families.
#[derive(Debug)]
pub(super) struct AuthMetrics {
    attempts: IntCounterVec,
    pub(super) sessions_active: IntGauge,
}

impl AuthMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self> {
        let help = "Requests with credentials, by method and result";
        let attempts = IntCounterVec::new(Opts::new("ipfrs_auth_attempts_total", help), &["method", "result"]);
        let help = "Sessions of the console";
        let sessions_active = registered(registry, IntGauge::new("ipfrs_auth_sessions_active", help))?;
        let this = Self { attempts: registered(registry, attempts)?, sessions_active };
        // Created now, so that the family exists before the first attempt.
        let _ = this.attempts.with_label_values(&["key", "accepted"]);
        Ok(this)
    }

    pub(super) fn count(&self, method: Method, outcome: Outcome) {
        let method = match method {
            Method::Key => "key",
            Method::Jwt => "jwt",
            Method::Session => "session",
            Method::Certificate => "certificate",
            Method::Rpc => "rpc",
            Method::Unknown => "unknown",
        };
        let result = match outcome {
            Outcome::Accepted => "accepted",
            Outcome::Malformed => "malformed",
            Outcome::Unknown => "unknown",
            Outcome::Expired => "expired",
            Outcome::Limited => "limited",
            Outcome::Unavailable => "unavailable",
        };
        self.attempts.with_label_values(&[method, result]).inc();
    }
}
